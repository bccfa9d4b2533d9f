/*
 * Memory that graphs own. It has an address from the creation of its allocation node until the graph is deleted. It is
 * allocated from the run of the allocation node until the run of the free node. Memory that was allocated once stays
 * reserved on the device until it is trimmed, and all graphs reuse it: only the amount is modeled, not the location.
 * Called with the driver lock held.
 */
#ifndef ALIQUOT_FAKE_CUDA_GRAPH_MEMORY_H
#define ALIQUOT_FAKE_CUDA_GRAPH_MEMORY_H

#include "cuda_memory.h"

struct graph_memory;

/* CUDA_ERROR_OUT_OF_MEMORY if there is no address space for it. */
CUresult graph_memory_new(struct device *device, size_t bytes, struct graph_memory **made);
CUdeviceptr graph_memory_address(const struct graph_memory *memory);
/* Returns the graph memory that starts at an address, allocated or not, or NULL. */
struct graph_memory *graph_memory_find(CUdeviceptr address);
/* Whether a range lies within one graph memory, allocated or not. */
bool graph_memory_covers(uintptr_t address, size_t bytes);
/* Runs the allocation node: CUDA_ERROR_INVALID_VALUE if already allocated, CUDA_ERROR_OUT_OF_MEMORY if the GPU has not
   enough; the caller may release unused memory of the device and try again. */
CUresult graph_memory_allocate(struct graph_memory *memory);
struct device *graph_memory_device(const struct graph_memory *memory);
bool graph_memory_is_allocated(const struct graph_memory *memory);
/* Runs the free node; also called by cuMemFree and cuMemFreeAsync. */
void graph_memory_free(struct graph_memory *memory);
/* Releases what no graph of a device uses; returns whether there was any. */
bool graph_memory_trim(const struct device *device);
/* Frees the memory of all graphs of a device whose last context is being destroyed. */
void graph_memory_free_all(const struct device *device);
/* Deletes the memory of a deleted graph; if it is still allocated, it stays until it is freed. */
void graph_memory_delete(struct graph_memory *memory);

/* Bytes in use and reserved, of graphs or of a pool, and their maximums since the program last reset them. */
struct memory_usage {
    cuuint64_t used, used_high, reserved, reserved_high;
};

static inline void usage_add_used(struct memory_usage *usage, size_t bytes) {
    usage->used += bytes;
    if (usage->used > usage->used_high) {
        usage->used_high = usage->used;
    }
}

static inline void usage_add_reserved(struct memory_usage *usage, size_t bytes) {
    usage->reserved += bytes;
    if (usage->reserved > usage->reserved_high) {
        usage->reserved_high = usage->reserved;
    }
}

#endif
