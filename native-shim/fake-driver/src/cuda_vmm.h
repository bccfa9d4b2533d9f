/* Virtual memory management: what the rest of the driver asks of mapped memory. With the driver's lock held. */
#ifndef ALIQUOT_FAKE_CUDA_VMM_H
#define ALIQUOT_FAKE_CUDA_VMM_H

#include "cuda_memory.h"

#define PHYSICAL_GRANULARITY ((size_t)2 << 20)

struct physical;

/*
 * Gives an array a part of what a handle stands for: memory of that device, made for that
 * (CU_MEM_CREATE_USAGE_TILE_POOL). It stays until physical_let_go; the caller unmaps it.
 */
CUresult physical_map(CUmemGenericAllocationHandle handle, const struct device *device, size_t offset, size_t bytes,
                      struct physical **physical, void **start);
void physical_let_go(struct physical *physical);

/* Whether any device, or the host, was given that access to a mapping (an allocation of the kind MAPPED_MEMORY). */
bool mapping_allows(const struct allocation *mapping, bool writing);

/* The kinds of handle that a mapping's memory can be exported as. */
CUmemAllocationHandleType mapping_handle_types(const struct allocation *mapping);

#endif
