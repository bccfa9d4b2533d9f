/* Memory pools, and memory that graphs own. Called with the driver lock held. */
#ifndef ALIQUOT_FAKE_CUDA_POOL_H
#define ALIQUOT_FAKE_CUDA_POOL_H

#include "cuda_memory.h"

/* Frees an allocation from a pool or a graph immediately. */
void pool_free(struct allocation *allocation);

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

/*
 * Memory that a graph owns. It has an address from the creation of its allocation node until the graph is deleted. It
 * is allocated from the run of the allocation node until the run of the free node. Memory that was allocated once stays
 * reserved on the device until it is trimmed, and all graphs reuse it: only the amount is modeled, not the location.
 */
struct graph_memory;

/* CUDA_ERROR_OUT_OF_MEMORY if there is no address space for it. */
CUresult graph_memory_new(struct device *device, size_t bytes, struct graph_memory **made);
CUdeviceptr graph_memory_address(const struct graph_memory *memory);
/* Returns the graph memory that starts at an address, allocated or not, or NULL. */
struct graph_memory *graph_memory_find(CUdeviceptr address);
/* Whether a range lies within one graph memory, allocated or not. */
bool graph_memory_covers(uintptr_t address, size_t bytes);
/* Runs the allocation node: CUDA_ERROR_INVALID_VALUE if already allocated, CUDA_ERROR_OUT_OF_MEMORY if not free. */
CUresult graph_memory_allocate(struct graph_memory *memory);
bool graph_memory_is_allocated(const struct graph_memory *memory);
/* Runs the free node; also called by cuMemFree and cuMemFreeAsync. */
void graph_memory_free(struct graph_memory *memory);
/* Deletes the memory of a deleted graph; if it is still allocated, it stays until it is freed. */
void graph_memory_delete(struct graph_memory *memory);

#endif
