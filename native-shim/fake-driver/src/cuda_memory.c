/*
 * All memory: where it lies and which device it is charged to.
 *
 * Device memory is lazily populated host memory: allocating 80 GB is free, and only written pages take host memory. A
 * device address is a host address, so that a copy is a memmove(). The allocation tree knows which device an address
 * belongs to. The GPU is charged exactly the requested bytes.
 */
#define _GNU_SOURCE
#include "cuda_memory.h"
#include "gpu_profile.h"

#include <search.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void *allocation_tree; /* all allocations, by address */
static LIST_HEAD(, allocation) allocations;
static unsigned long long last_allocation_id;

/* Overlapping ranges compare as equal, so that a search for one byte finds the allocation that contains it. */
static int compare_allocation_ranges(const void *a, const void *b) {
    const struct allocation *left = a, *valid = b;
    if (left->base + left->bytes <= valid->base) {
        return -1;
    }
    return valid->base + valid->bytes <= left->base;
}

struct allocation *memory_find(uintptr_t address) {
    struct allocation byte = {.base = address, .bytes = 1};
    if (address == UINTPTR_MAX) {
        return NULL;
    }
    struct allocation *const *node = tfind(&byte, &allocation_tree, compare_allocation_ranges);
    return node != NULL && !(*node)->free_pending ? *node : NULL;
}

struct allocation *memory_search(bool (*wanted)(const struct allocation *allocation, const void *data),
                                 const void *data) {
    struct allocation *allocation = LIST_FIRST(&allocations);
    while (allocation != NULL && !wanted(allocation, data)) {
        allocation = LIST_NEXT(allocation, list);
    }
    return allocation;
}

struct allocation *memory_add(const struct allocation *values) {
    struct allocation *allocation = malloc(sizeof *allocation);
    if (allocation == NULL) {
        return NULL;
    }
    *allocation = *values;
    struct allocation *const *node = tsearch(allocation, &allocation_tree, compare_allocation_ranges);
    if (node == NULL || *node != allocation) {
        free(allocation);
        return NULL;
    }
    allocation->id = ++last_allocation_id;
    LIST_INSERT_HEAD(&allocations, allocation, list);
    return allocation;
}

void memory_remove(struct allocation *allocation) {
    tdelete(allocation, &allocation_tree, compare_allocation_ranges);
    LIST_REMOVE(allocation, list);
    free(allocation);
}

/* flags: additional flags for mmap(). */
static void *map_pages(size_t bytes, int flags) {
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
    if (start != MAP_FAILED) {
        return start;
    }
    log_line("the host has no address space for another %zu bytes", bytes);
    return NULL;
}

/* A forked child has no context and therefore none of its memory. */
static void exclude_from_fork(void *start, size_t bytes) {
    (void)madvise(start, bytes, MADV_DONTFORK);
}

void *memory_map(size_t bytes) {
    void *start = map_pages(bytes, 0);
    if (start != NULL) {
        exclude_from_fork(start, bytes);
    }
    return start;
}

void memory_unmap(void *start, size_t bytes) {
    /* munmap() fails if splitting a mapping would exceed the number of mappings; return at least the pages. */
    if (munmap(start, bytes) != 0) {
        (void)madvise(start, bytes, MADV_DONTNEED);
    }
}

/* What an allocation takes beside small ones of small_bytes together: pages, if the profile says so. */
static uint64_t bytes_in_pages(uint64_t bytes, uint64_t small_bytes) {
    uint64_t page = gpu_profile()->page_bytes;
    if (page == 0) {
        return bytes;
    }
    if (bytes >= page) {
        return round_up(bytes, page);
    }
    return round_up(small_bytes + bytes, page) - round_up(small_bytes, page);
}

static bool is_small(uint64_t bytes) {
    return bytes < gpu_profile()->page_bytes;
}

bool memory_charge(struct device *device, uint64_t bytes) {
    if (!gpu_reserve(device->gpu, bytes_in_pages(bytes, device->small_bytes))) {
        return false;
    }
    device->small_bytes += is_small(bytes) ? bytes : 0;
    return true;
}

void memory_release(struct device *device, uint64_t bytes) {
    device->small_bytes -= is_small(bytes) ? bytes : 0;
    gpu_release(device->gpu, bytes_in_pages(bytes, device->small_bytes));
}

static void ipc_release(struct allocation *allocation) {
    struct ipc_state *state = allocation->owner;
    if (state != NULL && state->fd >= 0) {
        close(state->fd);
    }
    free(state);
    allocation->owner = NULL;
}

void memory_destroy(struct allocation *allocation) {
    if (allocation->kind == DEVICE_MEMORY || allocation->kind == IPC_MEMORY) {
        ipc_release(allocation);
    }
    if (allocation->mapped_bytes != 0) { /* an imported allocation may start within a page */
        memory_unmap((void *)(allocation->base & ~(uintptr_t)4095), allocation->mapped_bytes);
    }
    if (memory_is_charged(allocation->kind)) {
        memory_release(allocation->device, allocation->bytes);
    }
    memory_remove(allocation);
}

void memory_free_of_context(const struct CUctx_st *context) {
    struct allocation *next;
    for (struct allocation *allocation = LIST_FIRST(&allocations); allocation != NULL; allocation = next) {
        next = LIST_NEXT(allocation, list);
        if (allocation->context == context) {
            memory_destroy(allocation);
        }
    }
}

void *memory_map_kind(enum memory_kind kind, size_t bytes, bool below_4g) {
#ifdef MAP_32BIT
    const int low = MAP_32BIT;
#else
    const int low = 0;
#endif
    void *start = map_pages(bytes, below_4g ? low : 0);
    if (start != NULL && below_4g && (uintptr_t)start + bytes > UINT32_MAX) {
        memory_unmap(start, bytes);
        start = NULL;
    }
    if (start != NULL && memory_is_charged(kind)) {
        exclude_from_fork(start, bytes);
    }
    return start;
}
