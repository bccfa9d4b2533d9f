/*
 * The table of all allocations by address, however they were made, and the copies and fills on them. Called with the
 * driver lock held, except run_memcpy() and run_memset().
 */
#ifndef ALIQUOT_FAKE_CUDA_MEMORY_H
#define ALIQUOT_FAKE_CUDA_MEMORY_H

#include "cuda_driver.h"

enum memory_kind {
    DEVICE_MEMORY,
    MANAGED_MEMORY,
    PINNED_MEMORY,
    REGISTERED_MEMORY, /* host memory of the program (cuMemHostRegister) */
    POOL_MEMORY,       /* owner: struct pool_block; cuda_pool.c */
    GRAPH_MEMORY,      /* owner: struct graph_memory; cuda_pool.c */
    GLOBAL_MEMORY,     /* a module's variables; cuda_module.c */
    MAPPED_MEMORY,     /* owner: struct mapping; cuda_vmm.c */
    IPC_MEMORY,        /* of another process; owner: struct ipc_state, as for exported DEVICE_MEMORY; cuda_ipc.c */
    IMPORTED_MEMORY,   /* from the pool of another process */
};

struct allocation {
    uintptr_t base;
    size_t bytes;        /* as requested; this is the charge of device and managed memory */
    size_t mapped_bytes; /* host address space to unmap with it */
    enum memory_kind kind;
    unsigned flags;
    unsigned long long id;
    struct CUctx_st *context; /* NULL if it outlives contexts */
    struct device *device;    /* NULL for host memory that belongs to no device */
    void *owner;
    bool file_backed;
    bool free_pending; /* in stream order, and the stream has not reached the free yet; memory_find() ignores it */
    LIST_ENTRY(allocation) list;
};

static inline size_t round_up(size_t bytes, size_t alignment) {
    return (bytes + alignment - 1) / alignment * alignment;
}

/* Returns the allocation that contains an address, or NULL. */
struct allocation *memory_find(uintptr_t address);

/* Adds an allocation to the table; NULL without host memory, or if it overlaps another one. */
struct allocation *memory_add(const struct allocation *values);
void memory_remove(struct allocation *allocation);
/* Unmaps, uncharges and removes an allocation. Not for memory of pools and graphs, and not for mappings. */
void memory_destroy(struct allocation *allocation);
/* Returns an allocation for which matches() returns true, or NULL. */
struct allocation *memory_search(bool (*matches)(const struct allocation *allocation, const void *data),
                                 const void *data);

/* Frees the memory of a context that is being destroyed. */
void memory_free_of_context(const struct CUctx_st *context);

/* Maps address space that takes host memory only once it is written and is hidden from forked children, or NULL. */
void *memory_map(size_t bytes);
void memory_unmap(void *start, size_t bytes);

/*
 * Charges bytes of the device to this process. If they are not free, the process's pools first release their unused
 * memory, as NVIDIA's driver does ("Using the NVIDIA CUDA Stream-Ordered Memory Allocator, Part 1", developer blog).
 */
bool memory_reserve(struct device *device, uint64_t bytes);
void memory_release(struct device *device, uint64_t bytes);

/*
 * Allocates memory for a module's variables on the context's device; with context NULL, host memory for managed
 * variables. Returns NULL if there is not enough.
 */
struct allocation *memory_allocate_globals(struct CUctx_st *context, size_t bytes);
void memory_free_globals(struct allocation *allocation);

/* Frees memory that cuMemFree and cuMemFreeAsync accept; CUDA_ERROR_INVALID_VALUE for any other memory. */
CUresult memory_free(struct allocation *allocation);

/* Check the parameters of a memcpy or memset node, and where a memcpy reads and writes. */
CUresult check_memcpy(const CUDA_MEMCPY3D *copy);
bool memcpy_reads_host(const CUDA_MEMCPY3D *copy);
bool memcpy_writes_host(const CUDA_MEMCPY3D *copy);
CUresult check_memset(const CUDA_MEMSET_NODE_PARAMS_v2 *params);

/*
 * Carry out a memcpy or memset node. Called without the lock. They do nothing if the memory has been freed since the
 * parameters were checked.
 */
void run_memcpy(const CUDA_MEMCPY3D *copy);
void run_memset(const CUDA_MEMSET_NODE_PARAMS_v2 *params);

#endif
