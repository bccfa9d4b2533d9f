/* The table of all allocations by address, however they were made. Called with the driver lock held. */
#ifndef ALIQUOT_FAKE_CUDA_MEMORY_H
#define ALIQUOT_FAKE_CUDA_MEMORY_H

#include "cuda_driver.h"

enum memory_kind {
    DEVICE_MEMORY,
    MANAGED_MEMORY,
    PINNED_MEMORY,
    REGISTERED_MEMORY, /* host memory of the program (cuMemHostRegister) */
    POOL_MEMORY,       /* owner: struct pool_block; cuda_pool.c */
    GRAPH_MEMORY,      /* owner: struct graph_memory; cuda_graph_memory.c */
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

/* Whether the allocation itself is charged to its device. */
static inline bool memory_is_charged(enum memory_kind kind) {
    return kind == DEVICE_MEMORY || kind == MANAGED_MEMORY || kind == GLOBAL_MEMORY;
}

static inline bool memory_is_pinned(const struct allocation *allocation) {
    return allocation->kind == PINNED_MEMORY || allocation->kind == REGISTERED_MEMORY;
}

/* The owner of allocations that cuda_ipc.c exports or imports. */
struct ipc_state {
    uint64_t id;
    int fd;              /* of an exported allocation; -1: an import */
    unsigned open_count; /* of an import: how often it was opened */
};

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
/* Maps memory of that kind, with below_4g such that 32 bits hold its address; NULL if there is no such address space.
   Forked children keep host memory. */
void *memory_map_kind(enum memory_kind kind, size_t bytes, bool below_4g);
void memory_unmap(void *start, size_t bytes);

/* Charges bytes of the device to this process; false if they are not free. Pools may hold unused ones: cuda_pool.h has
   memory_reserve(). */
bool memory_charge(struct device *device, uint64_t bytes);
void memory_release(struct device *device, uint64_t bytes);

#endif
