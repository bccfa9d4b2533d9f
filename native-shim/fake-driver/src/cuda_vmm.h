/* Virtual memory management (cuMemCreate, cuMemMap), for the rest of the driver. Called with the driver lock held. */
#ifndef ALIQUOT_FAKE_CUDA_VMM_H
#define ALIQUOT_FAKE_CUDA_VMM_H

#include "cuda_memory.h"

#define VMM_GRANULARITY ((size_t)2 << 20)

struct physical_allocation;

/*
 * Maps a part of a physical allocation for a deferred array. The allocation must be memory of that device, created with
 * CU_MEM_CREATE_USAGE_TILE_POOL. It lives at least until physical_allocation_unmap(); the caller unmaps the addresses.
 */
CUresult physical_allocation_map(CUmemGenericAllocationHandle handle, const struct device *device, size_t offset,
                                 size_t bytes, struct physical_allocation **physical, void **start);
void physical_allocation_unmap(struct physical_allocation *physical);

/* Whether any device or the host has that access to an allocation; only mappings restrict it. */
bool allows_access(const struct allocation *allocation, bool writing);

/* The handle types that a mapping's memory can be exported as. */
CUmemAllocationHandleType mapping_handle_types(const struct allocation *mapping);

#endif
