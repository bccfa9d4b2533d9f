/*
 * Memory pools and stream-ordered allocation.
 *
 * A pool reserves device memory in chunks of 32 MiB, or of the request rounded up to 2 MiB if that is larger, and
 * allocates blocks from them in multiples of 512 bytes. It takes the smallest free block that is large enough (best
 * fit over free lists by size, comparing the first entries of a list only). Freed blocks merge with their free
 * neighbors. When the host synchronizes and the pool holds more than its release threshold, entirely free chunks are
 * released.
 *
 * A block freed in stream order is inaccessible to the program immediately, but free only once the stream reaches the
 * free. Until then, allocations in the same stream can reuse it. If the GPU has no other memory, allocations in other
 * streams can reuse it too and then wait for that stream (CUDA C++ Programming Guide, "Reuse Policies").
 */
#define _GNU_SOURCE
#include "cuda_pool.h"
#include "cuda_capture.h"
#include "cuda_graph_memory.h"
#include "cuda_shareable.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCK_ALIGNMENT = 512, FREE_LISTS = 40, FREE_LIST_SCAN_LIMIT = 32 };

/* Indexes of the reuse attributes. */
enum { REUSE_EVENT_DEPENDENCIES, REUSE_OPPORTUNISTIC, REUSE_INTERNAL_DEPENDENCIES, REUSE_COUNT };

#define CHUNK_ALIGNMENT ((size_t)2 << 20)
#define MIN_CHUNK_BYTES ((size_t)32 << 20)

struct pool_block {
    struct chunk *chunk;
    uintptr_t base;
    size_t bytes;
    bool used;
    struct pool_block *previous_in_chunk, *next_in_chunk; /* neighbors in the chunk */
    LIST_ENTRY(pool_block) list;                          /* in the free list of its size */
};

LIST_HEAD(free_list, pool_block);

struct chunk {
    struct CUmemPoolHandle_st *pool;
    uintptr_t base;
    size_t bytes;
    off_t offset; /* in the file of an exportable pool */
    struct pool_block *first;
    LIST_ENTRY(chunk) list;
};

struct CUmemPoolHandle_st {
    struct device *device;
    bool is_default;
    bool imported;
    int fd;            /* the file that backs an exportable or imported pool; -1: none */
    size_t file_bytes; /* bytes of the file used so far; released ranges become holes and are not reused */
    bool destroyed;    /* the handle is invalid; the pool is deleted with its last allocation */
    size_t max_bytes;
    cuuint64_t release_threshold;
    int reuse[REUSE_COUNT]; /* CU_MEMPOOL_ATTR_REUSE_*, in their order; REUSE_EVENT_DEPENDENCIES has no effect */
    struct memory_usage usage;
    LIST_HEAD(, chunk) chunks;
    struct free_list free_lists[FREE_LISTS];    /* [n]: blocks of at least 512 << n bytes and less than twice that */
    CUmemAccess_flags access[GPU_MAX_PER_NODE]; /* by device */
    LIST_ENTRY(CUmemPoolHandle_st) list;
};

static LIST_HEAD(, CUmemPoolHandle_st) pools;
static struct CUmemPoolHandle_st *default_pools[GPU_MAX_PER_NODE], *current_pools[GPU_MAX_PER_NODE];

/* ---- blocks ---- */

static unsigned free_list_index(size_t bytes) {
    return 63u - (unsigned)__builtin_clzll(bytes / BLOCK_ALIGNMENT);
}

static void free_list_add(struct pool_block *block) {
    LIST_INSERT_HEAD(&block->chunk->pool->free_lists[free_list_index(block->bytes)], block, list);
}

/* Returns the smallest free block of at least that many bytes among the first entries of a list. */
static struct pool_block *best_fit(const struct free_list *list, size_t bytes) {
    struct pool_block *best = NULL, *block = LIST_FIRST(list);
    for (int i = 0; block != NULL && (i < FREE_LIST_SCAN_LIMIT || best == NULL); i++, block = LIST_NEXT(block, list)) {
        if (block->bytes >= bytes && (best == NULL || block->bytes < best->bytes)) {
            best = block;
        }
    }
    return best;
}

static struct pool_block *find_free_block(const struct CUmemPoolHandle_st *pool, size_t bytes) {
    struct pool_block *found = NULL;
    for (unsigned list = free_list_index(bytes); list < FREE_LISTS && found == NULL; list++) {
        found = best_fit(&pool->free_lists[list], bytes);
    }
    return found;
}

/* Merges a block with the free block after it. */
static void merge_with_next(struct pool_block *block) {
    struct pool_block *next_in_chunk = block->next_in_chunk;
    block->bytes += next_in_chunk->bytes;
    block->next_in_chunk = next_in_chunk->next_in_chunk;
    if (block->next_in_chunk != NULL) {
        block->next_in_chunk->previous_in_chunk = block;
    }
    free(next_in_chunk);
}

static void release_block(struct pool_block *block) {
    block->used = false;
    if (block->next_in_chunk != NULL && !block->next_in_chunk->used) {
        LIST_REMOVE(block->next_in_chunk, list);
        merge_with_next(block);
    }
    if (block->previous_in_chunk != NULL && !block->previous_in_chunk->used) {
        block = block->previous_in_chunk;
        LIST_REMOVE(block, list);
        merge_with_next(block);
    }
    free_list_add(block);
}

/* Allocates bytes from the start of a free block; the rest stays free. */
static bool allocate_block(struct pool_block *block, size_t bytes) {
    struct pool_block *rest = block->bytes > bytes ? calloc(1, sizeof *rest) : NULL;
    if (block->bytes > bytes && rest == NULL) {
        return false;
    }
    LIST_REMOVE(block, list);
    if (rest != NULL) {
        *rest = (struct pool_block){.chunk = block->chunk,
                                    .base = block->base + bytes,
                                    .bytes = block->bytes - bytes,
                                    .previous_in_chunk = block,
                                    .next_in_chunk = block->next_in_chunk};
        if (rest->next_in_chunk != NULL) {
            rest->next_in_chunk->previous_in_chunk = rest;
        }
        block->next_in_chunk = rest;
        block->bytes = bytes;
        free_list_add(rest);
    }
    block->used = true;
    return true;
}

/* ---- chunks ---- */

static void *chunk_map(struct CUmemPoolHandle_st *pool, size_t bytes) {
    if (pool->fd < 0) {
        return memory_map(bytes);
    }
    return shareable_grow(pool->fd, pool->file_bytes + bytes)
               ? shareable_map(pool->fd, SHAREABLE_DATA_OFFSET + (off_t)pool->file_bytes, bytes)
               : NULL;
}

static struct chunk *chunk_new(struct CUmemPoolHandle_st *pool, size_t bytes) {
    if ((pool->max_bytes != 0 && (bytes > pool->max_bytes || pool->usage.reserved > pool->max_bytes - bytes)) ||
        !memory_reserve(pool->device, bytes)) {
        return NULL;
    }
    struct chunk *chunk = calloc(1, sizeof *chunk);
    struct pool_block *block = calloc(1, sizeof *block);
    void *start = chunk != NULL && block != NULL ? chunk_map(pool, bytes) : NULL;
    if (start == NULL) {
        free(chunk);
        free(block);
        memory_release(pool->device, bytes);
        return NULL;
    }
    *chunk = (struct chunk){.pool = pool, .base = (uintptr_t)start, .bytes = bytes, .first = block};
    *block = (struct pool_block){.chunk = chunk, .base = chunk->base, .bytes = bytes};
    chunk->offset = (off_t)pool->file_bytes;
    if (pool->fd >= 0) {
        pool->file_bytes += bytes;
    }
    LIST_INSERT_HEAD(&pool->chunks, chunk, list);
    free_list_add(block);
    usage_add_reserved(&pool->usage, bytes);
    return chunk;
}

static bool chunk_is_free(const struct chunk *chunk) {
    return !chunk->first->used && chunk->first->next_in_chunk == NULL;
}

/* Deletes a chunk that is entirely free. */
static void chunk_delete(struct chunk *chunk) {
    struct CUmemPoolHandle_st *pool = chunk->pool;
    LIST_REMOVE(chunk->first, list);
    free(chunk->first);
    LIST_REMOVE(chunk, list);
    memory_unmap((void *)chunk->base, chunk->bytes);
    if (pool->fd >= 0) {
        shareable_punch_hole(pool->fd, SHAREABLE_DATA_OFFSET + chunk->offset, chunk->bytes);
    }
    memory_release(pool->device, chunk->bytes);
    pool->usage.reserved -= chunk->bytes;
    free(chunk);
}

/* Releases free chunks while the pool keeps at least `keep` bytes; returns whether it released any. */
static bool pool_trim(struct CUmemPoolHandle_st *pool, cuuint64_t keep) {
    bool any = false;
    struct chunk *next;
    for (struct chunk *chunk = LIST_FIRST(&pool->chunks); chunk != NULL; chunk = next) {
        next = LIST_NEXT(chunk, list);
        if (!chunk_is_free(chunk) || pool->usage.reserved - chunk->bytes < keep) {
            continue;
        }
        chunk_delete(chunk);
        any = true;
    }
    return any;
}

/* ---- pools ---- */

static struct CUmemPoolHandle_st *pool_new(struct device *device) {
    struct CUmemPoolHandle_st *pool = calloc(1, sizeof *pool);
    if (pool == NULL) {
        return NULL;
    }
    pool->device = device;
    pool->fd = -1;
    pool->access[device_ordinal(device)] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    for (size_t i = 0; i < sizeof pool->reuse / sizeof pool->reuse[0]; i++) {
        pool->reuse[i] = 1;
    }
    LIST_INSERT_HEAD(&pools, pool, list);
    return pool;
}

static void pool_delete(struct CUmemPoolHandle_st *pool) {
    pool_trim(pool, 0);
    LIST_REMOVE(pool, list);
    if (pool->fd >= 0) {
        close(pool->fd);
    }
    free(pool);
}

static struct CUmemPoolHandle_st *pool_find(const struct CUmemPoolHandle_st *handle) {
    for (struct CUmemPoolHandle_st *pool = LIST_FIRST(&pools); pool != NULL; pool = LIST_NEXT(pool, list)) {
        if (pool == handle) {
            return pool->destroyed ? NULL : pool;
        }
    }
    return NULL;
}

/* Returns NULL without host memory. */
static struct CUmemPoolHandle_st *default_pool(struct device *device) {
    struct CUmemPoolHandle_st **pool = &default_pools[device_ordinal(device)];
    if (*pool == NULL) {
        *pool = pool_new(device);
    }
    if (*pool != NULL) {
        (*pool)->is_default = true;
    }
    return *pool;
}

static struct CUmemPoolHandle_st *current_pool(struct device *device) {
    struct CUmemPoolHandle_st *pool = current_pools[device_ordinal(device)];
    return pool != NULL ? pool : default_pool(device);
}

/* ---- frees ---- */

CUmemoryPool allocation_pool(const struct allocation *allocation) {
    return allocation->kind == POOL_MEMORY ? ((const struct pool_block *)allocation->owner)->chunk->pool : NULL;
}

static void pool_free(struct allocation *allocation) {
    struct pool_block *block = allocation->owner;
    struct CUmemPoolHandle_st *pool = block->chunk->pool;
    pool->usage.used -= block->bytes;
    release_block(block);
    memory_remove(allocation);
    if (pool->destroyed && pool->usage.used == 0) {
        pool_delete(pool);
    }
}

CUresult memory_free(struct allocation *allocation) {
    switch (allocation->kind) {
    case DEVICE_MEMORY:
    case MANAGED_MEMORY:
    case IMPORTED_MEMORY:
        memory_destroy(allocation);
        return CUDA_SUCCESS;
    case POOL_MEMORY:
        pool_free(allocation);
        return CUDA_SUCCESS;
    case GRAPH_MEMORY:
        graph_memory_free(allocation->owner);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* ---- pending stream-ordered frees ---- */

struct pending_free {
    struct allocation *allocation;
    CUstream stream;
    struct CUctx_st *context; /* identifies the default stream */
    pthread_t thread;
    struct awaited_work work; /* the block is free once this work is done */
    struct pending_free *next;
};

static struct pending_free *pending_frees;

/* Completes the pending frees for which matches() returns true. */
static void complete_pending_frees(bool (*matches)(const struct pending_free *pending, const void *data),
                                   const void *data) {
    for (struct pending_free **link = &pending_frees; *link != NULL;) {
        struct pending_free *pending = *link;
        if (!matches(pending, data)) {
            link = &pending->next;
            continue;
        }
        *link = pending->next;
        (void)memory_free(pending->allocation);
        free(pending);
    }
}

static bool pending_free_is_done(const struct pending_free *pending, const void *data) {
    (void)data;
    return work_is_done(&pending->work);
}

static void complete_done_frees(void) {
    complete_pending_frees(pending_free_is_done, NULL);
}

static bool pending_free_is_on_device(const struct pending_free *pending, const void *device) {
    return pending->allocation->device == device;
}

void pending_frees_complete_all(const struct device *device) {
    complete_pending_frees(pending_free_is_on_device, device);
}

/* An allocation request in a stream. */
struct block_request {
    const struct CUmemPoolHandle_st *pool;
    struct CUctx_st *context;
    CUstream stream;
};

static bool can_reuse_in_stream(const struct pending_free *pending, const void *data) {
    const struct block_request *request = data;
    if (allocation_pool(pending->allocation) != request->pool || pending->context != request->context) {
        return false;
    }
    if (pending->stream == PER_THREAD_STREAM) {
        return request->stream == PER_THREAD_STREAM && pthread_equal(pending->thread, pthread_self());
    }
    return pending->stream == request->stream ||
           (is_default_stream(pending->stream) && is_legacy_stream(request->stream));
}

/*
 * Accepts any pending free in the pool. Makes the requesting stream wait for the freeing stream if the GPU's queue has
 * space for that, which it nearly always has.
 */
static bool can_reuse_after_wait(const struct pending_free *pending, const void *data) {
    const struct block_request *request = data;
    if (allocation_pool(pending->allocation) != request->pool) {
        return false;
    }
    gpu_file *gpu = stream_context(request->context, request->stream)->device->gpu;
    for (int i = 0; i < GPU_QUEUES && gpu == pending->work.gpu; i++) {
        if (pending->work.numbers[i] != 0 && gpu_has_queue_space(gpu, 1)) {
            (void)work_submit(request->context, request->stream, (struct gpu_work){.after = {pending->work.numbers[i]}},
                              NULL);
        }
    }
    return true;
}

static CUresult free_async(struct allocation *allocation, struct CUctx_st *context, CUstream stream) {
    bool waits = allocation->kind == DEVICE_MEMORY || allocation->kind == MANAGED_MEMORY ||
                 allocation->kind == POOL_MEMORY || allocation->kind == IMPORTED_MEMORY;
    const struct awaited_work work = work_pending_in_stream(context, stream);
    struct pending_free *pending = waits && !work_is_done(&work) ? malloc(sizeof *pending) : NULL;
    if (pending == NULL) {
        return memory_free(allocation);
    }
    *pending = (struct pending_free){allocation, stream, context, pthread_self(), work, pending_frees};
    pending_frees = pending;
    allocation->free_pending = true;
    return CUDA_SUCCESS;
}

/* ---- allocation from pools ---- */

static struct pool_block *find_block_or_grow(struct CUmemPoolHandle_st *pool, size_t bytes) {
    const size_t whole = round_up(bytes, CHUNK_ALIGNMENT);
    struct pool_block *block = find_free_block(pool, bytes);
    if (block == NULL &&
        ((whole < MIN_CHUNK_BYTES && chunk_new(pool, MIN_CHUNK_BYTES) != NULL) || chunk_new(pool, whole) != NULL)) {
        block = find_free_block(pool, bytes);
    }
    return block;
}

static struct pool_block *take_block(struct CUmemPoolHandle_st *pool, size_t bytes,
                                     const struct block_request *request) {
    if (pool->reuse[REUSE_OPPORTUNISTIC]) {
        complete_done_frees();
    }
    struct pool_block *block = find_free_block(pool, bytes);
    if (block == NULL) {
        complete_pending_frees(can_reuse_in_stream, request);
        block = find_block_or_grow(pool, bytes);
    }
    if (block == NULL && pool->reuse[REUSE_INTERNAL_DEPENDENCIES]) {
        complete_pending_frees(can_reuse_after_wait, request);
        block = find_block_or_grow(pool, bytes);
    }
    return block != NULL && allocate_block(block, bytes) ? block : NULL;
}

static CUresult pool_allocate(struct CUmemPoolHandle_st *pool, size_t bytes, struct CUctx_st *context, CUstream stream,
                              CUdeviceptr *address) {
    const struct block_request request = {pool, context, stream};
    if (bytes > GPU_MAX_MEMORY_BYTES) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct pool_block *block = take_block(pool, round_up(bytes, BLOCK_ALIGNMENT), &request);
    if (block == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const struct allocation values = {.base = block->base,
                                      .bytes = bytes,
                                      .kind = POOL_MEMORY,
                                      .device = pool->device,
                                      .owner = block,
                                      .file_backed = pool->fd >= 0};
    if (memory_add(&values) == NULL) {
        release_block(block);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    usage_add_used(&pool->usage, block->bytes);
    *address = block->base;
    return CUDA_SUCCESS;
}

void pools_trim_after_sync(void) {
    complete_done_frees();
    for (struct CUmemPoolHandle_st *pool = LIST_FIRST(&pools); pool != NULL; pool = LIST_NEXT(pool, list)) {
        pool_trim(pool, pool->release_threshold);
    }
}

/* ---- operations on all pools of a device ---- */

bool pools_release_unused(const struct device *device) {
    complete_done_frees();
    bool any = graph_memory_trim(device);
    for (struct CUmemPoolHandle_st *pool = LIST_FIRST(&pools); pool != NULL; pool = LIST_NEXT(pool, list)) {
        if (pool->device == device) {
            any |= pool_trim(pool, 0);
        }
    }
    return any;
}

bool memory_reserve(struct device *device, uint64_t bytes) {
    return memory_charge(device, bytes) || (pools_release_unused(device) && memory_charge(device, bytes));
}

static void free_chunk_allocations(struct chunk *chunk) {
    for (;;) {
        struct pool_block *block = chunk->first; /* blocks before the first used block are one free block */
        if (!block->used) {
            block = block->next_in_chunk;
        }
        if (block == NULL) {
            return;
        }
        memory_remove(memory_find(block->base));
        chunk->pool->usage.used -= block->bytes;
        release_block(block);
    }
}

void pools_free_device_memory(const struct device *device) {
    struct CUmemPoolHandle_st *next_pool;
    pending_frees_complete_all(device);
    for (struct CUmemPoolHandle_st *pool = LIST_FIRST(&pools); pool != NULL; pool = next_pool) {
        next_pool = LIST_NEXT(pool, list);
        if (pool->device != device) {
            continue;
        }
        for (struct chunk *chunk = LIST_FIRST(&pool->chunks); chunk != NULL; chunk = LIST_NEXT(chunk, list)) {
            free_chunk_allocations(chunk);
        }
        if (pool->destroyed) {
            pool_delete(pool);
        } else {
            pool_trim(pool, 0);
        }
    }
    graph_memory_free_all(device);
}

/* ---- pool API functions ---- */

/* Returns the device of a device memory location, otherwise NULL. */
static struct device *location_device(const CUmemLocation *location) {
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? device_from_ordinal(location->id) : NULL;
}

API CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps) {
    if (pool == NULL || poolProps == NULL || poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (poolProps->location.type == CU_MEM_LOCATION_TYPE_HOST ||
        poolProps->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA) {
        return leave(CUDA_ERROR_NOT_SUPPORTED);
    }
    struct device *device = location_device(&poolProps->location);
    if (device == NULL) {
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    bool exportable = poolProps->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (!exportable && poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
        return leave(CUDA_ERROR_NOT_SUPPORTED);
    }
    struct CUmemPoolHandle_st *made = pool_new(device);
    if (made == NULL) {
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    if (exportable && (made->fd = shareable_create(SHAREABLE_POOL, device, 0)) < 0) {
        pool_delete(made);
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    made->max_bytes = poolProps->maxSize;
    *pool = made;
    return leave(CUDA_SUCCESS);
}

static CUresult enter_pool(CUmemoryPool pool) {
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return pool_find(pool) != NULL ? CUDA_SUCCESS : leave(CUDA_ERROR_INVALID_VALUE);
}

/* Like enter_pool(), for calls that are unsafe during a capture. NVIDIA/cccl#11360 found that pool attributes are. */
static CUresult enter_pool_unsafe(CUmemoryPool pool) {
    CUresult result = enter_pool(pool);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = capture_check_unsafe_call();
    return result == CUDA_SUCCESS ? result : leave(result);
}

API CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    CUresult result = enter_pool(pool);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (pool->is_default) {
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    for (size_t i = 0; i < device_count(); i++) {
        if (current_pools[i] == pool) {
            current_pools[i] = NULL;
        }
    }
    pool->destroyed = true;
    if (pool->usage.used == 0) {
        pool_delete(pool);
    } else {
        pool_trim(pool, 0);
    }
    return leave(CUDA_SUCCESS);
}

API CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
    CUresult result = enter_pool_unsafe(pool);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    complete_done_frees();
    pool_trim(pool, minBytesToKeep);
    return leave(CUDA_SUCCESS);
}

API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value) {
    if (value == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_pool_unsafe(pool);
    if (result != CUDA_SUCCESS) {
        return result;
    }
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
    if (value == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_pool_unsafe(pool);
    if (result != CUDA_SUCCESS) {
        return result;
    }
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
        if (*(const cuuint64_t *)value != 0) {
            return leave(CUDA_ERROR_INVALID_VALUE);
        }
        if (attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
            pool->usage.used_high = pool->usage.used;
        } else {
            pool->usage.reserved_high = pool->usage.reserved;
        }
        return leave(CUDA_SUCCESS);
    default:
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
}

API CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count) {
    if (map == NULL || count == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_pool(pool);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    for (size_t i = 0; i < count; i++) {
        if (location_device(&map[i].location) == NULL ||
            (map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE &&
             (map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE || location_device(&map[i].location) == pool->device))) {
            return leave(CUDA_ERROR_INVALID_VALUE);
        }
    }
    for (size_t i = 0; i < count; i++) {
        pool->access[map[i].location.id] = map[i].flags;
    }
    return leave(CUDA_SUCCESS);
}

static CUresult get_device_pool(CUmemoryPool *pool, CUdevice ordinal,
                                struct CUmemPoolHandle_st *(*which)(struct device *)) {
    if (pool == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct device *device = device_from_ordinal(ordinal);
    if (device == NULL) {
        return leave(CUDA_ERROR_INVALID_DEVICE);
    }
    struct CUmemPoolHandle_st *found = which(device);
    if (found == NULL) {
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *pool = found;
    return leave(CUDA_SUCCESS);
}

API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev) {
    return get_device_pool(pool_out, dev, default_pool);
}

API CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev) {
    return get_device_pool(pool, dev, current_pool);
}

API CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
    CUresult result = enter_pool(pool);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct device *device = device_from_ordinal(dev);
    if (device == NULL) {
        return leave(CUDA_ERROR_INVALID_DEVICE);
    }
    if (pool->device != device || pool->imported) {
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    current_pools[dev] = pool;
    return leave(CUDA_SUCCESS);
}

/* Only device memory has pools, one default pool and one current pool for each device. */
static CUresult check_pool_location(const CUmemLocation *location, CUmemAllocationType type) {
    if (location == NULL || (type != CU_MEM_ALLOCATION_TYPE_PINNED && type != CU_MEM_ALLOCATION_TYPE_MANAGED)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return type == CU_MEM_ALLOCATION_TYPE_PINNED && location->type == CU_MEM_LOCATION_TYPE_DEVICE
               ? CUDA_SUCCESS
               : CUDA_ERROR_NOT_SUPPORTED;
}

API CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location, CUmemAllocationType type) {
    CUresult result = check_pool_location(location, type);
    return result == CUDA_SUCCESS ? cuDeviceGetDefaultMemPool(pool_out, location->id) : result;
}

API CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
    CUresult result = check_pool_location(location, type);
    return result == CUDA_SUCCESS ? cuDeviceGetMemPool(pool, location->id) : result;
}

API CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    CUresult result = check_pool_location(location, type);
    return result == CUDA_SUCCESS ? cuDeviceSetMemPool(location->id, pool) : result;
}

/* ---- export and import between processes ---- */

#define POINTER_EXPORT_MAGIC UINT64_C(0x3154505151494c41) /* "ALIQQPT1" */

/* The contents of a CUmemPoolPtrExportData. */
struct exported_pointer {
    uint64_t magic;
    uint64_t pool; /* the id of the pool's file */
    uint64_t offset, bytes;
    uint64_t unused[4];
};
_Static_assert(sizeof(struct exported_pointer) == sizeof(CUmemPoolPtrExportData), "its size is CUDA's");

API CUresult cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool, CUmemAllocationHandleType handleType,
                                              unsigned long long flags) {
    if (handle_out == NULL || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_pool(pool);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (pool->fd < 0 || pool->imported) {
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    int fd = fcntl(pool->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) {
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *(int *)handle_out = fd;
    return leave(CUDA_SUCCESS);
}

API CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
                                                CUmemAllocationHandleType handleType, unsigned long long flags) {
    struct device *device;
    size_t bytes;
    uint64_t id;
    if (pool_out == NULL || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    int fd = shareable_open((int)(intptr_t)handle, SHAREABLE_POOL, &device, &bytes, &id);
    if (fd < 0) {
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
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
    if (shareData_out == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct allocation *allocation = memory_find((uintptr_t)ptr);
    const struct CUmemPoolHandle_st *pool = allocation != NULL ? allocation_pool(allocation) : NULL;
    if (pool == NULL || pool->fd < 0 || allocation->base != ptr) {
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    const struct pool_block *block = allocation->owner;
    const struct exported_pointer exported = {.magic = POINTER_EXPORT_MAGIC,
                                              .pool = shareable_id(pool->fd),
                                              .offset =
                                                  (uint64_t)block->chunk->offset + (block->base - block->chunk->base),
                                              .bytes = allocation->bytes};
    memcpy(shareData_out, &exported, sizeof exported);
    return leave(CUDA_SUCCESS);
}

API CUresult cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData *shareData) {
    struct exported_pointer exported;
    struct device *device;
    size_t file_bytes;
    uint64_t id, end;
    if (ptr_out == NULL || shareData == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(&exported, shareData, sizeof exported);
    CUresult result = enter_pool(pool);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    int fd = pool->imported ? shareable_open(pool->fd, SHAREABLE_POOL, &device, &file_bytes, &id) : -1;
    if (fd >= 0) {
        close(fd);
    }
    if (fd < 0 || exported.magic != POINTER_EXPORT_MAGIC || exported.pool != id || exported.bytes == 0 ||
        __builtin_add_overflow(exported.offset, exported.bytes, &end) || end > file_bytes) {
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    size_t within = exported.offset % 4096, mapped = round_up(within + exported.bytes, 4096);
    char *start = shareable_map(pool->fd, SHAREABLE_DATA_OFFSET + (off_t)(exported.offset - within), mapped);
    const struct allocation values = {.base = (uintptr_t)start + within,
                                      .bytes = exported.bytes,
                                      .mapped_bytes = mapped,
                                      .kind = IMPORTED_MEMORY,
                                      .device = pool->device,
                                      .file_backed = true};
    if (start == NULL || memory_add(&values) == NULL) {
        if (start != NULL) {
            memory_unmap(start, mapped);
        }
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *ptr_out = values.base;
    return leave(CUDA_SUCCESS);
}

/* ---- stream-ordered allocation and free ---- */

/* If from_pool is false, allocates from the current pool of the stream's device. */
static CUresult allocate_async(CUdeviceptr *dptr, size_t bytes, struct CUmemPoolHandle_st *pool, CUstream stream,
                               bool from_pool) {
    struct CUctx_st *context;
    if (dptr == NULL || bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_stream_context(stream, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pool = from_pool ? pool_find(pool) : current_pool(context->device);
    if (pool != NULL && pool->imported) {
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (pool == NULL) {
        return leave(from_pool ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY);
    }
    struct capture_member *capturing;
    result = capture_find(context, stream, &capturing);
    if (result == CUDA_SUCCESS) {
        result = capturing != NULL ? capture_add_allocation(capturing, device_ordinal(pool->device), bytes, dptr)
                                   : pool_allocate(pool, bytes, context, stream, dptr);
    }
    return leave(result);
}

API CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream) {
    return allocate_async(dptr, bytesize, NULL, hStream, false);
}

API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream) {
    return allocate_async(dptr, bytesize, pool, hStream, true);
}

API CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
    struct CUctx_st *context;
    CUresult result = enter_stream_context(hStream, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct capture_member *capturing;
    result = capture_find(context, hStream, &capturing);
    if (result != CUDA_SUCCESS) {
        return leave(result);
    }
    if (capturing != NULL) {
        const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = {dptr}};
        CUresult checked = graph_memory_find(dptr) != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        return leave(capture_add_node(capturing, checked, &params));
    }
    struct allocation *allocation = memory_find((uintptr_t)dptr);
    if (allocation == NULL || allocation->base != dptr) {
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    return leave(free_async(allocation, context, hStream));
}
