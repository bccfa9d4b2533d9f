/*
 * All memory that the process knows of, by address: what an address belongs to, whatever made it. With the driver's
 * lock held for everything here.
 */
#ifndef ALIQUOT_FAKE_CUDA_MEMORY_H
#define ALIQUOT_FAKE_CUDA_MEMORY_H

#include "cuda_driver.h"

enum memory_kind {
    DEVICE_MEMORY,
    MANAGED_MEMORY,
    PINNED_MEMORY,
    REGISTERED_MEMORY, /* the program's own, told to us */
    POOL_MEMORY,       /* owner: its block; cuda_pool.c */
    GRAPH_MEMORY,      /* owner: its struct graph_memory; cuda_pool.c */
    GLOBAL_MEMORY,     /* a module's variables; cuda_module.c */
    MAPPED_MEMORY,     /* owner: its struct mapping; cuda_vmm.c */
    IPC_MEMORY,        /* another process's; owner: what cuda_ipc.c keeps about it, as for exported DEVICE_MEMORY */
    IMPORTED_MEMORY,   /* of another process's pool */
};

struct allocation {
    uintptr_t base;
    size_t bytes;  /* asked for; charged if it is device or managed memory */
    size_t mapped; /* of the host's address space, that goes back with it */
    enum memory_kind kind;
    unsigned flags;
    unsigned long long id;
    struct CUctx_st *context; /* NULL: it outlives contexts */
    struct device *device;    /* NULL: the host's, and no one device's */
    void *owner;
    bool shared; /* it is a part of a file */
    bool freed;  /* in stream order, and the stream has not come to that yet; memory_find doesn't find it any more */
    struct allocation *previous, *next;
};

/* The one around an address, NULL if there is none. */
struct allocation *memory_find(uintptr_t address);

/* Makes one with these values known; NULL without host memory, or if something else is known there. */
struct allocation *memory_add(const struct allocation *values);
void memory_remove(struct allocation *allocation);
/* The same, and gives back what it holds. Not for memory of pools and graphs, nor mappings. */
void memory_destroy(struct allocation *allocation);
/* One that wanted says yes to; NULL if there is none. */
struct allocation *memory_search(bool (*wanted)(const struct allocation *allocation, const void *data),
                                 const void *data);

/* Address space that takes room once it is written and that a forked child doesn't see; NULL if there is none. */
void *memory_map(size_t bytes);
void memory_unmap(void *start, size_t bytes);

/*
 * Takes bytes of the device for this process. Where they aren't free, what the process's pools hold unused goes back
 * first, as NVIDIA's driver does it ("Using the NVIDIA CUDA Stream-Ordered Memory Allocator, Part 1", developer blog).
 */
bool memory_reserve(struct device *device, uint64_t bytes);

/*
 * Memory of the context's device for a module's variables, which goes with the module; without a context of the host,
 * for managed ones. NULL if there is none.
 */
struct allocation *memory_new_globals(struct CUctx_st *context, size_t bytes);
void memory_free_globals(struct allocation *allocation);

/* Frees what cuMemFree and cuMemFreeAsync may free; CUDA_ERROR_INVALID_VALUE for anything else. */
CUresult memory_free(struct allocation *allocation);

#endif
