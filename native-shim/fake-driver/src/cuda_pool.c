/*
 * Memory pools, stream-ordered allocation, and the memory that graphs own.
 *
 * A pool reserves memory of its device in chunks of 32 MiB, or of the request rounded up to 2 MiB where that is more,
 * and hands out parts of them in steps of 512 bytes. The part is the smallest of the free ones that is large enough
 * (looked for in lists by size, a list's first entries only), and parts that are freed join their free neighbours.
 * A chunk that is wholly free goes back when the host synchronises and the pool holds more than its release threshold.
 *
 * What is freed in stream order is out of the program's reach at once, but free only when the stream has come to it:
 * until then it serves nothing but allocations in the same stream and, when the GPU has no more, those in others, which
 * then wait for that stream (CUDA C++ Programming Guide, "Reuse Policies").
 */
#define _GNU_SOURCE
#include "cuda_pool.h"
#include "cuda_capture.h"
#include "cuda_shared.h"
#include "cuda_work.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PART_ALIGNMENT = 512, SIZES = 40, ENTRIES_TO_COMPARE = 32 };

/* Places in the list of reuse attributes. */
enum { EVENT_DEPENDENCIES, OPPORTUNISTIC, INTERNAL_DEPENDENCIES, REUSES };

#define CHUNK_ALIGNMENT ((size_t)2 << 20)
#define CHUNK_SMALLEST ((size_t)32 << 20)

/* Memory in use and reserved, and the most of it since the program last reset that. */
struct usage {
    cuuint64_t used, used_high, reserved, reserved_high;
};

struct part {
    struct chunk *chunk;
    uintptr_t base;
    size_t bytes;
    bool used;
    struct part *before, *after;  /* in the chunk */
    struct part *previous, *next; /* in the list of free parts of about this size */
};

struct chunk {
    struct CUmemPoolHandle_st *pool;
    uintptr_t base;
    size_t bytes;
    off_t offset; /* in the file of a pool that can be exported */
    struct part *first;
    struct chunk *previous, *next;
};

struct CUmemPoolHandle_st {
    struct device *device;
    bool is_default;
    bool imported;
    int fd;         /* the file that the memory of a pool is that can be exported, or is an import; -1: none */
    size_t in_file; /* bytes of it that were ever used: what is given back is a hole for ever */
    bool destroyed; /* its handle is not valid any more, and it goes with its last allocation */
    size_t max_bytes;
    cuuint64_t release_threshold;
    int reuse[REUSES]; /* CU_MEMPOOL_ATTR_REUSE_*, in their order; EVENT_DEPENDENCIES has no effect */
    struct usage usage;
    struct chunk *chunks;
    struct part *free_parts[SIZES];             /* [n]: of 512 << n bytes and more, but less than twice that */
    CUmemAccess_flags access[GPU_MAX_PER_NODE]; /* of each device */
    struct CUmemPoolHandle_st *previous, *next;
};

static struct CUmemPoolHandle_st *pools;
static struct CUmemPoolHandle_st *default_pools[GPU_MAX_PER_NODE], *current_pools[GPU_MAX_PER_NODE];

static size_t round_up(size_t bytes, size_t alignment) {
    return (bytes + alignment - 1) / alignment * alignment;
}

static void usage_add_used(struct usage *usage, size_t bytes) {
    usage->used += bytes;
    if (usage->used > usage->used_high)
        usage->used_high = usage->used;
}

static void usage_add_reserved(struct usage *usage, size_t bytes) {
    usage->reserved += bytes;
    if (usage->reserved > usage->reserved_high)
        usage->reserved_high = usage->reserved;
}

/* ---- parts of chunks ---- */

static unsigned size_list(size_t bytes) {
    return 63u - (unsigned)__builtin_clzll(bytes / PART_ALIGNMENT);
}

static void list_free(struct part *part) {
    struct part **list = &part->chunk->pool->free_parts[size_list(part->bytes)];
    part->previous = NULL;
    part->next = *list;
    if (*list != NULL)
        (*list)->previous = part;
    *list = part;
}

static void unlist_free(struct part *part) {
    if (part->previous != NULL)
        part->previous->next = part->next;
    else
        part->chunk->pool->free_parts[size_list(part->bytes)] = part->next;
    if (part->next != NULL)
        part->next->previous = part->previous;
}

/* Of a list, the smallest free part of at least so many bytes. */
static struct part *best_of(struct part *list, size_t bytes) {
    struct part *best = NULL;
    for (int i = 0; list != NULL && (i < ENTRIES_TO_COMPARE || best == NULL); i++, list = list->next)
        if (list->bytes >= bytes && (best == NULL || list->bytes < best->bytes))
            best = list;
    return best;
}

static struct part *find_free(const struct CUmemPoolHandle_st *pool, size_t bytes) {
    struct part *found = NULL;
    for (unsigned list = size_list(bytes); list < SIZES && found == NULL; list++)
        found = best_of(pool->free_parts[list], bytes);
    return found;
}

/* Joins a part with the free one after it. */
static void join(struct part *part) {
    struct part *after = part->after;
    part->bytes += after->bytes;
    part->after = after->after;
    if (part->after != NULL)
        part->after->before = part;
    free(after);
}

static void free_part(struct part *part) {
    part->used = false;
    if (part->after != NULL && !part->after->used) {
        unlist_free(part->after);
        join(part);
    }
    if (part->before != NULL && !part->before->used) {
        part = part->before;
        unlist_free(part);
        join(part);
    }
    list_free(part);
}

/* Takes bytes from the start of a free part; the rest stays free. */
static bool use_part(struct part *part, size_t bytes) {
    struct part *rest = part->bytes > bytes ? calloc(1, sizeof *rest) : NULL;
    if (part->bytes > bytes && rest == NULL)
        return false;
    unlist_free(part);
    if (rest != NULL) {
        *rest = (struct part){.chunk = part->chunk,
                              .base = part->base + bytes,
                              .bytes = part->bytes - bytes,
                              .before = part,
                              .after = part->after};
        if (rest->after != NULL)
            rest->after->before = rest;
        part->after = rest;
        part->bytes = bytes;
        list_free(rest);
    }
    part->used = true;
    return true;
}

/* ---- chunks ---- */

static void *chunk_map(struct CUmemPoolHandle_st *pool, size_t bytes) {
    if (pool->fd < 0)
        return memory_map(bytes);
    return shared_grow(pool->fd, pool->in_file + bytes)
               ? shared_map(pool->fd, SHARED_START + (off_t)pool->in_file, bytes)
               : NULL;
}

static struct chunk *chunk_new(struct CUmemPoolHandle_st *pool, size_t bytes) {
    if ((pool->max_bytes != 0 && (bytes > pool->max_bytes || pool->usage.reserved > pool->max_bytes - bytes)) ||
        !memory_reserve(pool->device, bytes))
        return NULL;
    struct chunk *chunk = calloc(1, sizeof *chunk);
    struct part *part = calloc(1, sizeof *part);
    void *start = chunk != NULL && part != NULL ? chunk_map(pool, bytes) : NULL;
    if (start == NULL) {
        free(chunk);
        free(part);
        gpu_release(pool->device->gpu, bytes);
        return NULL;
    }
    *chunk =
        (struct chunk){.pool = pool, .base = (uintptr_t)start, .bytes = bytes, .first = part, .next = pool->chunks};
    *part = (struct part){.chunk = chunk, .base = chunk->base, .bytes = bytes};
    chunk->offset = (off_t)pool->in_file;
    if (pool->fd >= 0)
        pool->in_file += bytes;
    if (pool->chunks != NULL)
        pool->chunks->previous = chunk;
    pool->chunks = chunk;
    list_free(part);
    usage_add_reserved(&pool->usage, bytes);
    return chunk;
}

static bool is_free(const struct chunk *chunk) {
    return !chunk->first->used && chunk->first->after == NULL;
}

/* A chunk that is wholly free. */
static void chunk_delete(struct chunk *chunk) {
    struct CUmemPoolHandle_st *pool = chunk->pool;
    unlist_free(chunk->first);
    free(chunk->first);
    if (chunk->previous != NULL)
        chunk->previous->next = chunk->next;
    else
        pool->chunks = chunk->next;
    if (chunk->next != NULL)
        chunk->next->previous = chunk->previous;
    memory_unmap((void *)chunk->base, chunk->bytes);
    if (pool->fd >= 0)
        shared_drop(pool->fd, SHARED_START + chunk->offset, chunk->bytes);
    gpu_release(pool->device->gpu, chunk->bytes);
    pool->usage.reserved -= chunk->bytes;
    free(chunk);
}

/* Gives chunks back as long as the pool holds at least keep without them; whether there were any. */
static bool shrink(struct CUmemPoolHandle_st *pool, cuuint64_t keep) {
    bool any = false;
    struct chunk *next;
    for (struct chunk *chunk = pool->chunks; chunk != NULL; chunk = next) {
        next = chunk->next;
        if (!is_free(chunk) || pool->usage.reserved - chunk->bytes < keep)
            continue;
        chunk_delete(chunk);
        any = true;
    }
    return any;
}

/* ---- pools ---- */

static struct CUmemPoolHandle_st *pool_new(struct device *device) {
    struct CUmemPoolHandle_st *pool = calloc(1, sizeof *pool);
    if (pool == NULL)
        return NULL;
    pool->device = device;
    pool->fd = -1;
    pool->access[ordinal_of(device)] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    for (size_t i = 0; i < sizeof pool->reuse / sizeof pool->reuse[0]; i++)
        pool->reuse[i] = 1;
    pool->next = pools;
    if (pools != NULL)
        pools->previous = pool;
    pools = pool;
    return pool;
}

static void pool_delete(struct CUmemPoolHandle_st *pool) {
    shrink(pool, 0);
    if (pool->previous != NULL)
        pool->previous->next = pool->next;
    else
        pools = pool->next;
    if (pool->next != NULL)
        pool->next->previous = pool->previous;
    if (pool->fd >= 0)
        close(pool->fd);
    free(pool);
}

static struct CUmemPoolHandle_st *pool_find(const struct CUmemPoolHandle_st *handle) {
    for (struct CUmemPoolHandle_st *pool = pools; pool != NULL; pool = pool->next)
        if (pool == handle)
            return pool->destroyed ? NULL : pool;
    return NULL;
}

/* NULL without host memory. */
static struct CUmemPoolHandle_st *default_pool(struct device *device) {
    struct CUmemPoolHandle_st **pool = &default_pools[ordinal_of(device)];
    if (*pool == NULL)
        *pool = pool_new(device);
    if (*pool != NULL)
        (*pool)->is_default = true;
    return *pool;
}

static struct CUmemPoolHandle_st *current_pool(struct device *device) {
    struct CUmemPoolHandle_st *pool = current_pools[ordinal_of(device)];
    return pool != NULL ? pool : default_pool(device);
}

/* ---- frees that streams have not come to ---- */

struct pending_free {
    struct allocation *allocation;
    CUstream stream;
    struct CUctx_st *context; /* which of the default streams it is */
    pthread_t thread;
    struct awaited work; /* after which it is free */
    struct pending_free *next;
};

static struct pending_free *pending_frees;

/* Frees what wanted says. */
static void carry_out(bool (*wanted)(const struct pending_free *pending, const void *data), const void *data) {
    for (struct pending_free **link = &pending_frees; *link != NULL;) {
        struct pending_free *pending = *link;
        if (!wanted(pending, data)) {
            link = &pending->next;
            continue;
        }
        *link = pending->next;
        (void)memory_free(pending->allocation);
        free(pending);
    }
}

static bool is_over(const struct pending_free *pending, const void *data) {
    (void)data;
    return work_is_over(&pending->work);
}

static void carry_out_what_is_over(void) {
    carry_out(is_over, NULL);
}

static bool is_on(const struct pending_free *pending, const void *device) {
    return pending->allocation->device == device;
}

void frees_finish(const struct device *device) {
    carry_out(is_on, device);
}

/* What an allocation in a stream may take from its pool. */
struct taker {
    const struct CUmemPoolHandle_st *pool;
    struct CUctx_st *context;
    CUstream stream;
};

static bool is_legacy(CUstream stream) {
    return stream == NULL || stream == LEGACY_STREAM;
}

static bool is_of_same_stream(const struct pending_free *pending, const void *data) {
    const struct taker *taker = data;
    if (pool_of(pending->allocation) != taker->pool || pending->context != taker->context)
        return false;
    if (pending->stream == PER_THREAD_STREAM)
        return taker->stream == PER_THREAD_STREAM && pthread_equal(pending->thread, pthread_self());
    return pending->stream == taker->stream || (is_default(pending->stream) && is_legacy(taker->stream));
}

/* The taker's stream waits for the other one, if there is room for that in the GPU's queue; there nearly always is. */
static bool is_of_pool(const struct pending_free *pending, const void *data) {
    const struct taker *taker = data;
    if (pool_of(pending->allocation) != taker->pool)
        return false;
    gpu_file *gpu = work_context(taker->context, taker->stream)->device->gpu;
    for (int i = 0; i < GPU_QUEUES && gpu == pending->work.gpu; i++)
        if (pending->work.numbers[i] != 0 && gpu_has_queue_space(gpu, 1))
            (void)work_put(taker->context, taker->stream, (struct gpu_work){.after = {pending->work.numbers[i]}}, NULL);
    return true;
}

static CUresult free_in_order(struct allocation *allocation, struct CUctx_st *context, CUstream stream) {
    bool waits = allocation->kind == DEVICE_MEMORY || allocation->kind == MANAGED_MEMORY ||
                 allocation->kind == POOL_MEMORY || allocation->kind == IMPORTED_MEMORY;
    const struct awaited work = work_of_stream(context, stream);
    struct pending_free *pending = waits && !work_is_over(&work) ? malloc(sizeof *pending) : NULL;
    if (pending == NULL)
        return memory_free(allocation);
    *pending = (struct pending_free){allocation, stream, context, pthread_self(), work, pending_frees};
    pending_frees = pending;
    allocation->freed = true;
    return CUDA_SUCCESS;
}

/* ---- allocating from pools ---- */

static struct part *find_or_grow(struct CUmemPoolHandle_st *pool, size_t bytes) {
    const size_t whole = round_up(bytes, CHUNK_ALIGNMENT);
    struct part *part = find_free(pool, bytes);
    if (part == NULL &&
        ((whole < CHUNK_SMALLEST && chunk_new(pool, CHUNK_SMALLEST) != NULL) || chunk_new(pool, whole) != NULL))
        part = find_free(pool, bytes);
    return part;
}

static struct part *take_part(struct CUmemPoolHandle_st *pool, size_t bytes, const struct taker *taker) {
    if (pool->reuse[OPPORTUNISTIC])
        carry_out_what_is_over();
    struct part *part = find_free(pool, bytes);
    if (part == NULL) {
        carry_out(is_of_same_stream, taker);
        part = find_or_grow(pool, bytes);
    }
    if (part == NULL && pool->reuse[INTERNAL_DEPENDENCIES]) {
        carry_out(is_of_pool, taker);
        part = find_or_grow(pool, bytes);
    }
    return part != NULL && use_part(part, bytes) ? part : NULL;
}

static CUresult pool_allocate(struct CUmemPoolHandle_st *pool, size_t bytes, struct CUctx_st *context, CUstream stream,
                              CUdeviceptr *address) {
    const struct taker taker = {pool, context, stream};
    if (bytes > GPU_MAX_MEMORY_BYTES)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct part *part = take_part(pool, round_up(bytes, PART_ALIGNMENT), &taker);
    if (part == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const struct allocation values = {.base = part->base,
                                      .bytes = bytes,
                                      .kind = POOL_MEMORY,
                                      .device = pool->device,
                                      .owner = part,
                                      .shared = pool->fd >= 0};
    if (memory_add(&values) == NULL) {
        free_part(part);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    usage_add_used(&pool->usage, part->bytes);
    *address = part->base;
    return CUDA_SUCCESS;
}

CUmemoryPool pool_of(const struct allocation *allocation) {
    return allocation->kind == POOL_MEMORY ? ((const struct part *)allocation->owner)->chunk->pool : NULL;
}

void pool_free(struct allocation *allocation) {
    if (allocation->kind == GRAPH_MEMORY) {
        graph_memory_give_back(allocation->owner);
        return;
    }
    struct part *part = allocation->owner;
    struct CUmemPoolHandle_st *pool = part->chunk->pool;
    pool->usage.used -= part->bytes;
    free_part(part);
    memory_remove(allocation);
    if (pool->destroyed && pool->usage.used == 0)
        pool_delete(pool);
}

void pools_synchronised(void) {
    carry_out_what_is_over();
    for (struct CUmemPoolHandle_st *pool = pools; pool != NULL; pool = pool->next)
        shrink(pool, pool->release_threshold);
}

/* ---- the memory of graphs ---- */

struct graph_memory {
    uintptr_t base;
    size_t bytes;
    struct device *device;
    struct allocation *taken; /* NULL: not taken */
    bool orphan;              /* its graph is gone */
    struct graph_memory *previous, *next;
};

static struct graph_memory *graph_memories;
static struct usage graph_usage[GPU_MAX_PER_NODE];

static struct usage *usage_of(const struct device *device) {
    return &graph_usage[ordinal_of(device)];
}

CUresult graph_memory_new(struct device *device, size_t bytes, struct graph_memory **made) {
    if (bytes == 0 || bytes > GPU_MAX_MEMORY_BYTES)
        return bytes == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    struct graph_memory *memory = calloc(1, sizeof *memory);
    void *start = memory != NULL ? memory_map(round_up(bytes, CHUNK_ALIGNMENT)) : NULL;
    if (start == NULL) {
        free(memory);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *memory = (struct graph_memory){.base = (uintptr_t)start, .bytes = bytes, .device = device, .next = graph_memories};
    if (graph_memories != NULL)
        graph_memories->previous = memory;
    graph_memories = memory;
    *made = memory;
    return CUDA_SUCCESS;
}

CUdeviceptr graph_memory_address(const struct graph_memory *memory) {
    return memory->base;
}

struct graph_memory *graph_memory_find(CUdeviceptr address) {
    struct graph_memory *memory = graph_memories;
    while (memory != NULL && memory->base != address)
        memory = memory->next;
    return memory;
}

bool graph_memory_covers(uintptr_t address, size_t bytes) {
    for (const struct graph_memory *memory = graph_memories; memory != NULL; memory = memory->next)
        if (address >= memory->base && address - memory->base < memory->bytes)
            return bytes <= memory->bytes - (address - memory->base);
    return false;
}

CUresult graph_memory_take(struct graph_memory *memory) {
    struct usage *usage = usage_of(memory->device);
    if (memory->taken != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    size_t whole = round_up(memory->bytes, CHUNK_ALIGNMENT), more;
    for (;;) {
        size_t cached = usage->reserved - usage->used;
        more = whole > cached ? whole - cached : 0;
        if (more == 0 || gpu_reserve(memory->device->gpu, more))
            break;
        if (!pools_shrink(memory->device)) /* which may take what was cached here, too */
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const struct allocation values = {
        .base = memory->base, .bytes = memory->bytes, .kind = GRAPH_MEMORY, .device = memory->device, .owner = memory};
    memory->taken = memory_add(&values);
    if (memory->taken == NULL) {
        gpu_release(memory->device->gpu, more);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    usage_add_reserved(usage, more);
    usage_add_used(usage, whole);
    return CUDA_SUCCESS;
}

bool graph_memory_is_taken(const struct graph_memory *memory) {
    return memory->taken != NULL;
}

void graph_memory_give_back(struct graph_memory *memory) {
    if (memory->taken == NULL)
        return;
    usage_of(memory->device)->used -= round_up(memory->bytes, CHUNK_ALIGNMENT);
    memory_remove(memory->taken);
    memory->taken = NULL;
    if (memory->orphan)
        graph_memory_delete(memory);
}

void graph_memory_delete(struct graph_memory *memory) {
    memory->orphan = true;
    if (memory->taken != NULL)
        return;
    if (memory->previous != NULL)
        memory->previous->next = memory->next;
    else
        graph_memories = memory->next;
    if (memory->next != NULL)
        memory->next->previous = memory->previous;
    memory_unmap((void *)memory->base, round_up(memory->bytes, CHUNK_ALIGNMENT));
    free(memory);
}

static bool graph_memory_trim(const struct device *device) {
    struct usage *usage = usage_of(device);
    if (usage->reserved == usage->used)
        return false;
    for (struct graph_memory *memory = graph_memories; memory != NULL; memory = memory->next)
        if (memory->device == device && memory->taken == NULL)
            (void)madvise((void *)memory->base, round_up(memory->bytes, CHUNK_ALIGNMENT), MADV_DONTNEED);
    gpu_release(device->gpu, usage->reserved - usage->used);
    usage->reserved = usage->used;
    return true;
}

static CUresult enter_graph_memory(CUdevice ordinal, const void *value, struct device **device) {
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS)
        return result;
    *device = device_of(ordinal);
    return *device != NULL ? CUDA_SUCCESS : leave(CUDA_ERROR_INVALID_DEVICE);
}

API CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value) {
    struct device *found;
    CUresult result = enter_graph_memory(device, value, &found);
    if (result != CUDA_SUCCESS)
        return result;
    const struct usage *usage = usage_of(found);
    switch ((int)attr) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = usage->used;
        break;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value = usage->used_high;
        break;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        *(cuuint64_t *)value = usage->reserved;
        break;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        *(cuuint64_t *)value = usage->reserved_high;
        break;
    default:
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    return leave(CUDA_SUCCESS);
}

API CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value) {
    struct device *found;
    CUresult result = enter_graph_memory(device, value, &found);
    if (result != CUDA_SUCCESS)
        return result;
    struct usage *usage = usage_of(found);
    if (*(const cuuint64_t *)value != 0)
        return leave(CUDA_ERROR_INVALID_VALUE);
    if (attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        usage->used_high = usage->used;
    else if (attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        usage->reserved_high = usage->reserved;
    else
        return leave(CUDA_ERROR_INVALID_VALUE);
    return leave(CUDA_SUCCESS);
}

API CUresult cuDeviceGraphMemTrim(CUdevice device) {
    struct device *found;
    CUresult result = enter_graph_memory(device, &device, &found);
    if (result != CUDA_SUCCESS)
        return result;
    (void)graph_memory_trim(found);
    return leave(CUDA_SUCCESS);
}

/* ---- all of a device ---- */

bool pools_shrink(const struct device *device) {
    carry_out_what_is_over();
    bool any = graph_memory_trim(device);
    for (struct CUmemPoolHandle_st *pool = pools; pool != NULL; pool = pool->next)
        if (pool->device == device)
            any |= shrink(pool, 0);
    return any;
}

static void free_allocations(struct chunk *chunk) {
    for (;;) {
        struct part *part = chunk->first; /* what comes before the first used part is one free part */
        if (!part->used)
            part = part->after;
        if (part == NULL)
            return;
        memory_remove(memory_find(part->base));
        chunk->pool->usage.used -= part->bytes;
        free_part(part);
    }
}

void pools_free_all(const struct device *device) {
    struct CUmemPoolHandle_st *next_pool;
    frees_finish(device);
    for (struct CUmemPoolHandle_st *pool = pools; pool != NULL; pool = next_pool) {
        next_pool = pool->next;
        if (pool->device != device)
            continue;
        for (struct chunk *chunk = pool->chunks; chunk != NULL; chunk = chunk->next)
            free_allocations(chunk);
        if (pool->destroyed)
            pool_delete(pool);
        else
            shrink(pool, 0);
    }
    struct graph_memory *next;
    for (struct graph_memory *memory = graph_memories; memory != NULL; memory = next) {
        next = memory->next;
        if (memory->device == device)
            graph_memory_give_back(memory);
    }
    (void)graph_memory_trim(device);
}

/* ---- pools, as programs see them ---- */

/* The device of a location that is one's memory, else NULL. */
static struct device *device_at(const CUmemLocation *location) {
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? device_of(location->id) : NULL;
}

API CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps) {
    if (pool == NULL || poolProps == NULL || poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS)
        return result;
    if (poolProps->location.type == CU_MEM_LOCATION_TYPE_HOST ||
        poolProps->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
        return leave(CUDA_ERROR_NOT_SUPPORTED);
    struct device *device = device_at(&poolProps->location);
    if (device == NULL)
        return leave(CUDA_ERROR_INVALID_VALUE);
    bool exportable = poolProps->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (!exportable && poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return leave(CUDA_ERROR_NOT_SUPPORTED);
    struct CUmemPoolHandle_st *made = pool_new(device);
    if (made == NULL)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    if (exportable && (made->fd = shared_create(SHARED_POOL, device, 0)) < 0) {
        pool_delete(made);
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    made->max_bytes = poolProps->maxSize;
    *pool = made;
    return leave(CUDA_SUCCESS);
}

static CUresult enter_pool(CUmemoryPool pool) {
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS)
        return result;
    return pool_find(pool) != NULL ? CUDA_SUCCESS : leave(CUDA_ERROR_INVALID_VALUE);
}

/* The same for what isn't safe beside a capture: NVIDIA/cccl#11360 found it so of pools' attributes. */
static CUresult enter_pool_unsafe(CUmemoryPool pool) {
    CUresult result = enter_pool(pool);
    if (result != CUDA_SUCCESS)
        return result;
    result = capture_forbids();
    return result == CUDA_SUCCESS ? result : leave(result);
}

API CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    CUresult result = enter_pool(pool);
    if (result != CUDA_SUCCESS)
        return result;
    if (pool->is_default)
        return leave(CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < device_count(); i++)
        if (current_pools[i] == pool)
            current_pools[i] = NULL;
    pool->destroyed = true;
    if (pool->usage.used == 0)
        pool_delete(pool);
    else
        shrink(pool, 0);
    return leave(CUDA_SUCCESS);
}

API CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
    CUresult result = enter_pool_unsafe(pool);
    if (result != CUDA_SUCCESS)
        return result;
    carry_out_what_is_over();
    shrink(pool, minBytesToKeep);
    return leave(CUDA_SUCCESS);
}

API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value) {
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_pool_unsafe(pool);
    if (result != CUDA_SUCCESS)
        return result;
    switch ((int)attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *(int *)value = pool->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
        break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *(cuuint64_t *)value = pool->release_threshold;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *(cuuint64_t *)value = pool->usage.reserved;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *(cuuint64_t *)value = pool->usage.reserved_high;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = pool->usage.used;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value = pool->usage.used_high;
        break;
    default:
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    return leave(CUDA_SUCCESS);
}

API CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value) {
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_pool_unsafe(pool);
    if (result != CUDA_SUCCESS)
        return result;
    switch ((int)attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        pool->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = *(const int *)value != 0;
        return leave(CUDA_SUCCESS);
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->release_threshold = *(const cuuint64_t *)value;
        return leave(CUDA_SUCCESS);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (*(const cuuint64_t *)value != 0)
            return leave(CUDA_ERROR_INVALID_VALUE);
        if (attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
            pool->usage.used_high = pool->usage.used;
        else
            pool->usage.reserved_high = pool->usage.reserved;
        return leave(CUDA_SUCCESS);
    default:
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
}

API CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count) {
    if (map == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_pool(pool);
    if (result != CUDA_SUCCESS)
        return result;
    for (size_t i = 0; i < count; i++)
        if (device_at(&map[i].location) == NULL ||
            (map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE &&
             (map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE || device_at(&map[i].location) == pool->device)))
            return leave(CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++)
        pool->access[map[i].location.id] = map[i].flags;
    return leave(CUDA_SUCCESS);
}

API CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location) {
    if (flags == NULL || location == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_pool(memPool);
    if (result != CUDA_SUCCESS)
        return result;
    if (device_at(location) == NULL)
        return leave(CUDA_ERROR_INVALID_VALUE);
    *flags = memPool->access[location->id];
    return leave(CUDA_SUCCESS);
}

static CUresult get_pool(CUmemoryPool *pool, CUdevice ordinal, struct CUmemPoolHandle_st *(*which)(struct device *)) {
    if (pool == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS)
        return result;
    struct device *device = device_of(ordinal);
    if (device == NULL)
        return leave(CUDA_ERROR_INVALID_DEVICE);
    struct CUmemPoolHandle_st *found = which(device);
    if (found == NULL)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    *pool = found;
    return leave(CUDA_SUCCESS);
}

API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev) {
    return get_pool(pool_out, dev, default_pool);
}

API CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev) {
    return get_pool(pool, dev, current_pool);
}

API CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
    CUresult result = enter_pool(pool);
    if (result != CUDA_SUCCESS)
        return result;
    struct device *device = device_of(dev);
    if (device == NULL)
        return leave(CUDA_ERROR_INVALID_DEVICE);
    if (pool->device != device || pool->imported)
        return leave(CUDA_ERROR_INVALID_VALUE);
    current_pools[dev] = pool;
    return leave(CUDA_SUCCESS);
}

/* The pools of device memory are those of the devices; there are none of other memory. */
static CUresult check_pool_place(const CUmemLocation *location, CUmemAllocationType type) {
    if (location == NULL || (type != CU_MEM_ALLOCATION_TYPE_PINNED && type != CU_MEM_ALLOCATION_TYPE_MANAGED))
        return CUDA_ERROR_INVALID_VALUE;
    return type == CU_MEM_ALLOCATION_TYPE_PINNED && location->type == CU_MEM_LOCATION_TYPE_DEVICE
               ? CUDA_SUCCESS
               : CUDA_ERROR_NOT_SUPPORTED;
}

API CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location, CUmemAllocationType type) {
    CUresult result = check_pool_place(location, type);
    return result == CUDA_SUCCESS ? cuDeviceGetDefaultMemPool(pool_out, location->id) : result;
}

API CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
    CUresult result = check_pool_place(location, type);
    return result == CUDA_SUCCESS ? cuDeviceGetMemPool(pool, location->id) : result;
}

API CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    CUresult result = check_pool_place(location, type);
    return result == CUDA_SUCCESS ? cuDeviceSetMemPool(location->id, pool) : result;
}

/* ---- pools of other processes ---- */

#define EXPORT_MAGIC UINT64_C(0x3154505151494c41) /* "ALIQQPT1" */

/* What the bytes of a CUmemPoolPtrExportData are. */
struct exported_pointer {
    uint64_t magic;
    uint64_t pool; /* its file's id */
    uint64_t offset, bytes;
    uint64_t unused[4];
};
_Static_assert(sizeof(struct exported_pointer) == sizeof(CUmemPoolPtrExportData), "its size is CUDA's");

API CUresult cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool, CUmemAllocationHandleType handleType,
                                              unsigned long long flags) {
    if (handle_out == NULL || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_pool(pool);
    if (result != CUDA_SUCCESS)
        return result;
    if (pool->fd < 0 || pool->imported)
        return leave(CUDA_ERROR_INVALID_VALUE);
    int fd = fcntl(pool->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    *(int *)handle_out = fd;
    return leave(CUDA_SUCCESS);
}

API CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
                                                CUmemAllocationHandleType handleType, unsigned long long flags) {
    struct device *device;
    size_t bytes;
    uint64_t id;
    if (pool_out == NULL || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS)
        return result;
    int fd = shared_open((int)(intptr_t)handle, SHARED_POOL, &device, &bytes, &id);
    if (fd < 0)
        return leave(CUDA_ERROR_INVALID_VALUE);
    struct CUmemPoolHandle_st *made = pool_new(device);
    if (made == NULL) {
        close(fd);
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    made->fd = fd;
    made->imported = true;
    *pool_out = made;
    return leave(CUDA_SUCCESS);
}

API CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr) {
    if (shareData_out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS)
        return result;
    const struct allocation *allocation = memory_find((uintptr_t)ptr);
    const struct CUmemPoolHandle_st *pool = allocation != NULL ? pool_of(allocation) : NULL;
    if (pool == NULL || pool->fd < 0 || allocation->base != ptr)
        return leave(CUDA_ERROR_INVALID_VALUE);
    const struct part *part = allocation->owner;
    const struct exported_pointer exported = {.magic = EXPORT_MAGIC,
                                              .pool = shared_id(pool->fd),
                                              .offset =
                                                  (uint64_t)part->chunk->offset + (part->base - part->chunk->base),
                                              .bytes = allocation->bytes};
    memcpy(shareData_out, &exported, sizeof exported);
    return leave(CUDA_SUCCESS);
}

API CUresult cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData *shareData) {
    struct exported_pointer exported;
    struct device *device;
    size_t in_file;
    uint64_t id, end;
    if (ptr_out == NULL || shareData == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&exported, shareData, sizeof exported);
    CUresult result = enter_pool(pool);
    if (result != CUDA_SUCCESS)
        return result;
    int fd = pool->imported ? shared_open(pool->fd, SHARED_POOL, &device, &in_file, &id) : -1;
    if (fd >= 0)
        close(fd);
    if (fd < 0 || exported.magic != EXPORT_MAGIC || exported.pool != id || exported.bytes == 0 ||
        __builtin_add_overflow(exported.offset, exported.bytes, &end) || end > in_file)
        return leave(CUDA_ERROR_INVALID_VALUE);
    size_t within = exported.offset % 4096, mapped = round_up(within + exported.bytes, 4096);
    char *start = shared_map(pool->fd, SHARED_START + (off_t)(exported.offset - within), mapped);
    const struct allocation values = {.base = (uintptr_t)start + within,
                                      .bytes = exported.bytes,
                                      .mapped = mapped,
                                      .kind = IMPORTED_MEMORY,
                                      .device = pool->device,
                                      .shared = true};
    if (start == NULL || memory_add(&values) == NULL) {
        if (start != NULL)
            memory_unmap(start, mapped);
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *ptr_out = values.base;
    return leave(CUDA_SUCCESS);
}

/* ---- allocating and freeing in stream order ---- */

/* pool NULL: the current one of the stream's device. */
static CUresult allocate_in_order(CUdeviceptr *dptr, size_t bytes, struct CUmemPoolHandle_st *pool, CUstream stream,
                                  bool from_pool) {
    struct CUctx_st *context;
    if (dptr == NULL || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_context_of(stream, &context);
    if (result != CUDA_SUCCESS)
        return result;
    pool = from_pool ? pool_find(pool) : current_pool(context->device);
    if (pool != NULL && pool->imported)
        return leave(CUDA_ERROR_INVALID_VALUE);
    if (pool == NULL)
        return leave(from_pool ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY);
    struct capturing *capturing;
    result = capture_of(context, stream, &capturing);
    if (result == CUDA_SUCCESS)
        result = capturing != NULL ? capture_allocation(capturing, ordinal_of(pool->device), bytes, dptr)
                                   : pool_allocate(pool, bytes, context, stream, dptr);
    return leave(result);
}

API CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream) {
    return allocate_in_order(dptr, bytesize, NULL, hStream, false);
}

API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream) {
    return allocate_in_order(dptr, bytesize, pool, hStream, true);
}

API CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
    struct CUctx_st *context;
    CUresult result = enter_context_of(hStream, &context);
    if (result != CUDA_SUCCESS)
        return result;
    struct capturing *capturing;
    result = capture_of(context, hStream, &capturing);
    if (result != CUDA_SUCCESS)
        return leave(result);
    if (capturing != NULL) {
        const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = {dptr}};
        return leave(capture_node(capturing, &params));
    }
    struct allocation *allocation = memory_find((uintptr_t)dptr);
    if (allocation == NULL || allocation->base != dptr)
        return leave(CUDA_ERROR_INVALID_VALUE);
    return leave(free_in_order(allocation, context, hStream));
}
