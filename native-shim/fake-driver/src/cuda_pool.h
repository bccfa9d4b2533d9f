/*
 * Memory pools, and the memory that graphs own. With the driver's lock held for everything here.
 */
#ifndef ALIQUOT_FAKE_CUDA_POOL_H
#define ALIQUOT_FAKE_CUDA_POOL_H

#include "cuda_memory.h"

/* Frees a pool's or a graph's allocation at once. */
void pool_free(struct allocation *allocation);

/* The pool that an allocation is from; NULL if it is from none. */
CUmemoryPool pool_of(const struct allocation *allocation);

/* Carries out the frees on a device that their streams have not come to: the context that they wait for is ending. */
void frees_finish(const struct device *device);

/* The host has waited for a stream, an event or a context: pools shrink to their release thresholds. */
void pools_synchronised(void);

/* Gives back what the pools and the graph memory of a device hold unused; whether that was anything. */
bool pools_shrink(const struct device *device);

/* The device's last context dies, and with it all that was allocated in stream order. */
void pools_free_all(const struct device *device);

/*
 * Memory that a graph owns. It has an address from the making of its allocation node until its graph is gone, and is
 * there between the node of its allocation and that of its free. What has been taken once stays reserved for the
 * graphs of the device until it is trimmed, and serves all of them: physical memory has no place of its own.
 */
struct graph_memory;

/* CUDA_ERROR_OUT_OF_MEMORY if there is no address for it. */
CUresult graph_memory_new(struct device *device, size_t bytes, struct graph_memory **made);
CUdeviceptr graph_memory_address(const struct graph_memory *memory);
/* The one that starts at an address, taken or not; NULL if there is none. */
struct graph_memory *graph_memory_find(CUdeviceptr address);
/* Whether bytes from address lie in one, taken or not. */
bool graph_memory_covers(uintptr_t address, size_t bytes);
/* The allocation node runs: CUDA_ERROR_INVALID_VALUE if it is taken, CUDA_ERROR_OUT_OF_MEMORY if there is no room. */
CUresult graph_memory_take(struct graph_memory *memory);
bool graph_memory_is_taken(const struct graph_memory *memory);
/* The free node runs. cuMemFree and cuMemFreeAsync do the same. */
void graph_memory_give_back(struct graph_memory *memory);
/* The graph is gone; memory that is taken stays until it is freed. */
void graph_memory_delete(struct graph_memory *memory);

#endif
