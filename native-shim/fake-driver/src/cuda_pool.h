/* Memory pools, and what they change for all other memory. Called with the driver lock held. */
#ifndef ALIQUOT_FAKE_CUDA_POOL_H
#define ALIQUOT_FAKE_CUDA_POOL_H

#include "cuda_memory.h"

/*
 * Charges bytes of the device to this process. If they are not free, the process's pools first release their unused
 * memory, as NVIDIA's driver does ("Using the NVIDIA CUDA Stream-Ordered Memory Allocator, Part 1", developer blog).
 */
bool memory_reserve(struct device *device, uint64_t bytes);

/* Frees memory that cuMemFree and cuMemFreeAsync accept; CUDA_ERROR_INVALID_VALUE for any other memory. */
CUresult memory_free(struct allocation *allocation);

/* Returns the pool of an allocation; NULL if it is not from a pool. */
CUmemoryPool allocation_pool(const struct allocation *allocation);

/* Carries out all pending stream-ordered frees on a device, because a context on it is being destroyed. */
void pending_frees_complete_all(const struct device *device);

/* Trims all pools to their release thresholds, after the host waited for a stream, an event or a context. */
void pools_trim_after_sync(void);

/* Releases the unused memory of a device's pools and graphs; returns whether there was any. */
bool pools_release_unused(const struct device *device);

/* Frees all stream-ordered allocations of a device whose last context is being destroyed. */
void pools_free_device_memory(const struct device *device);

#endif
