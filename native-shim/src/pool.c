#include "pool.h"

#include "account.h"
#include "charge.h"
#include "config.h"
#include "context.h"
#include "device.h"
#include "graph.h"
#include "memory.h"
#include "slab.h"

#include <pthread.h>
#include <stdatomic.h>

#define DEVICES ALIQUOT_LIMITS_VGPUS_MAX
#define TRIM_RETRIES 100 /* to reserve room that other threads make and take */

enum pool_kind {
    POOL_CHARGED,   /* charged to its device */
    POOL_UNCHARGED, /* host memory, imported */
    POOL_OF_GRAPHS, /* has no handle */
    POOL_DESTROYED, /* lives on until its last allocation is freed; has no handle any more */
};

struct aliquot_pool {
    enum pool_kind kind;
    int device; /* the account's number, -1: nothing was granted on it */
    CUdevice ordinal;
    bool created_by_program; /* made by it, so that it may destroy it */
    CUmemoryPool handle;
    uint64_t charged;          /* bytes: what the driver said last, and what is in flight */
    uint64_t in_flight;        /* bytes reserved for calls that have not returned */
    unsigned growing;          /* operations that may have made it grow and have not charged that yet */
    bool over_limit;           /* one of them found no room for it */
    uint64_t live_allocations; /* allocations not yet freed */
    struct aliquot_pool *next;
};

/* Guards all entries. The driver is asked under it what a pool holds, and to trim it; it never waits for the GPU then.
   Allocations are not made under it: they may have to wait for work that another thread is about to start. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct aliquot_pool *pools;
static struct aliquot_slab pool_slab;
static atomic_bool any_pools;

void aliquot_pool_reset(void) {
    mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* a fork may have come while a thread had it */
    pools = NULL;
    pool_slab.unused = NULL;
    atomic_store(&any_pools, false);
}

/* A stream may be capturing, and even to ask a pool for its attributes would spoil that (NVIDIA/cccl#11360). In relaxed
   mode nothing that this thread does spoils it (cuda.h, cuThreadExchangeStreamCaptureMode). */
static CUstreamCaptureMode mode_before; /* of the thread that has the mutex */

static void lock_pools(void) {
    pthread_mutex_lock(&mutex);
    mode_before = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (aliquot_real.cuThreadExchangeStreamCaptureMode != NULL) {
        aliquot_real.cuThreadExchangeStreamCaptureMode(&mode_before);
    }
}

static void unlock_pools(void) {
    if (aliquot_real.cuThreadExchangeStreamCaptureMode != NULL) {
        aliquot_real.cuThreadExchangeStreamCaptureMode(&mode_before);
    }
    pthread_mutex_unlock(&mutex);
}

/* ---- with the mutex ---- */

static struct aliquot_pool *find_pool(enum pool_kind kind, CUmemoryPool handle, int device) {
    struct aliquot_pool *pool = pools;
    while (pool != NULL && (handle != NULL ? pool->handle != handle : pool->kind != kind || pool->device != device)) {
        pool = pool->next;
    }
    return pool;
}

static struct aliquot_pool *add_pool(enum pool_kind kind, CUmemoryPool handle, int device, CUdevice ordinal) {
    struct aliquot_pool *pool = aliquot_slab_take(&pool_slab, sizeof *pool);
    if (pool != NULL) {
        *pool =
            (struct aliquot_pool){.kind = kind, .device = device, .ordinal = ordinal, .handle = handle, .next = pools};
        pools = pool;
        atomic_store_explicit(&any_pools, true, memory_order_release);
    }
    return pool;
}

/* What the driver says that the pool holds. */
static uint64_t driver_reserved_bytes(const struct aliquot_pool *pool) {
    cuuint64_t bytes = 0;
    CUresult result =
        pool->kind == POOL_OF_GRAPHS ? aliquot_real.cuDeviceGetGraphMemAttribute == NULL
                                           ? CUDA_ERROR_NOT_SUPPORTED
                                           : aliquot_real.cuDeviceGetGraphMemAttribute(
                                                 pool->ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes)
        : aliquot_real.cuMemPoolGetAttribute == NULL
            ? CUDA_ERROR_NOT_SUPPORTED
            : aliquot_real.cuMemPoolGetAttribute(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes);
    return result == CUDA_SUCCESS ? bytes : pool->charged - pool->in_flight; /* as it was */
}

static void uncharge_pool(struct aliquot_pool *pool, uint64_t bytes) {
    if (bytes > 0) {
        aliquot_account_release(pool->device, bytes);
        pool->charged -= bytes;
    }
}

/* Gives back what is charged too much; answers what is charged too little. What is in flight may be in the driver's
   figure already: until it has landed it is charged twice, and the others are told that its thread is undecided. */
static uint64_t refresh_charge(struct aliquot_pool *pool) {
    if (pool->kind != POOL_CHARGED && pool->kind != POOL_OF_GRAPHS) {
        return 0;
    }
    uint64_t right = driver_reserved_bytes(pool) + pool->in_flight;
    if (right < pool->charged) {
        uncharge_pool(pool, pool->charged - right);
    }
    return right - pool->charged;
}

static void force_charge(struct aliquot_pool *pool, uint64_t bytes) {
    if (bytes > 0) {
        aliquot_account_force(pool->device, bytes);
        pool->charged += bytes;
    }
}

/* Trues up a pool that somebody else may be using: who made it grow will charge that, if there is room. */
static void true_up_pool(struct aliquot_pool *pool) {
    uint64_t more = refresh_charge(pool);
    if (pool->growing == 0) {
        force_charge(pool, more);
    }
}

static void ignore_allocation(const struct aliquot_allocation *allocation) {
    (void)allocation;
}

static void remove_pool(struct aliquot_pool *pool) {
    uncharge_pool(pool, pool->charged);
    for (struct aliquot_pool **link = &pools; *link != NULL; link = &(*link)->next) {
        if (*link == pool) {
            *link = pool->next;
            aliquot_slab_give(&pool_slab, pool);
            break;
        }
    }
}

static void remove_pool_if_unused(struct aliquot_pool *pool) {
    if (pool->kind == POOL_DESTROYED && pool->live_allocations == 0 && pool->growing == 0) {
        remove_pool(pool);
    }
}

static void count_free(struct aliquot_pool *pool) {
    pool->live_allocations -= pool->live_allocations > 0;
    remove_pool_if_unused(pool);
}

/* The pool gives back up to so many bytes. What it has in use it keeps. */
static void trim_pool(struct aliquot_pool *pool, uint64_t bytes) {
    uint64_t held = driver_reserved_bytes(pool);
    if (pool->kind == POOL_OF_GRAPHS && aliquot_real.cuDeviceGraphMemTrim != NULL) {
        aliquot_real.cuDeviceGraphMemTrim(pool->ordinal);
        aliquot_graph_was_trimmed();
    } else if (pool->kind == POOL_CHARGED && aliquot_real.cuMemPoolTrimTo != NULL && held > 0) {
        uint64_t keep = bytes < held ? held - bytes : 0;
        aliquot_real.cuMemPoolTrimTo(pool->handle, keep);
        if (keep > 0 && driver_reserved_bytes(pool) > keep) {
            aliquot_real.cuMemPoolTrimTo(pool->handle, 0); /* it gives back whole chunks only */
        }
    }
    true_up_pool(pool);
}

/* ---- */

static uint64_t missing_bytes(int device, uint64_t bytes) {
    uint64_t limit = aliquot_account_limit(device), used = aliquot_account_used(device);
    return used + bytes > limit ? used + bytes - limit : 0;
}

static uint64_t charged_on(int device) {
    uint64_t sum = 0;
    for (const struct aliquot_pool *pool = pools; pool != NULL; pool = pool->next) {
        sum += pool->device == device ? pool->charged : 0;
    }
    return sum;
}

/* Pools give back what they hold in vain, until so many bytes have room. False: there is no hope of that. */
static bool trim_pools(int device, uint64_t bytes) {
    if (!atomic_load_explicit(&any_pools, memory_order_acquire) || bytes > aliquot_account_limit(device)) {
        return false;
    }
    lock_pools();
    uint64_t before = charged_on(device);
    for (struct aliquot_pool *pool = pools; pool != NULL; pool = pool->next) {
        if (pool->device == device && pool->charged > 0) {
            true_up_pool(pool); /* it may have shrunk by itself */
        }
    }
    for (struct aliquot_pool *pool = pools; pool != NULL; pool = pool->next) {
        uint64_t lack = missing_bytes(device, bytes);
        if (pool->device == device && pool->charged > 0 && lack > 0) {
            trim_pool(pool, lack);
        }
    }
    bool won = charged_on(device) < before;
    unlock_pools();
    return won || aliquot_account_may_fit(device, bytes); /* another thread may have won it, or be about to */
}

/* Room that is made may be gone before it is reserved, and new room be there to be made. */
static bool reserve_with_trim(int device, uint64_t bytes, bool (*from_account)(int device, uint64_t bytes)) {
    bool reserved = from_account(device, bytes);
    for (int i = 0; i < TRIM_RETRIES && !reserved && trim_pools(device, bytes); i++) {
        reserved = from_account(device, bytes);
    }
    return reserved;
}

bool aliquot_pool_reserve_on_device(int device, uint64_t bytes) {
    return reserve_with_trim(device, bytes, aliquot_account_reserve);
}

static bool reserve_growth(int device, uint64_t bytes) {
    return aliquot_context_ensure_charged(device) &&
           reserve_with_trim(device, bytes, aliquot_account_reserve_undecided);
}

void aliquot_pool_true_up(void) {
    if (!atomic_load_explicit(&any_pools, memory_order_acquire)) {
        return;
    }
    lock_pools();
    for (struct aliquot_pool *pool = pools; pool != NULL; pool = pool->next) {
        if (pool->charged > 0) {
            true_up_pool(pool);
        }
    }
    unlock_pools();
}

bool aliquot_pool_reserve_growth(struct aliquot_pool *pool, uint64_t bytes) {
    if (pool->device < 0 || !reserve_growth(pool->device, bytes)) {
        return false;
    }
    lock_pools();
    pool->charged += bytes;
    pool->in_flight += bytes;
    pool->growing++;
    unlock_pools();
    return true;
}

bool aliquot_pool_settle_growth(struct aliquot_pool *pool, uint64_t bytes) {
    lock_pools();
    pool->in_flight -= bytes;
    uint64_t more = refresh_charge(pool);
    bool fits = !pool->over_limit;
    unlock_pools();
    aliquot_account_decided(pool->device);
    while (more > 0 && fits) {
        bool room = reserve_growth(pool->device, more);
        lock_pools();
        if (room) {
            pool->charged += more;
        }
        uint64_t before = more;
        more = refresh_charge(pool); /* another thread may have charged the same, or what was in flight has landed */
        if (!room && more >= before) {
            force_charge(pool, more);
            pool->over_limit = true;
            fits = false;
        }
        unlock_pools();
        if (room) {
            aliquot_account_decided(pool->device);
        }
    }
    return fits;
}

void aliquot_pool_finish_growth(struct aliquot_pool *pool) {
    lock_pools();
    if (--pool->growing == 0) {
        pool->over_limit = false;
        true_up_pool(pool);
        remove_pool_if_unused(pool);
    }
    unlock_pools();
}

void aliquot_pool_freed(const struct aliquot_allocation *allocation, bool at_once) {
    struct aliquot_pool *pool = allocation->owner;
    lock_pools();
    if (at_once) {
        true_up_pool(pool);
    }
    count_free(pool);
    unlock_pools();
}

struct aliquot_pool *aliquot_pool_of_graphs(int device, CUdevice ordinal) {
    lock_pools();
    struct aliquot_pool *pool = find_pool(POOL_OF_GRAPHS, NULL, device);
    pool = pool != NULL ? pool : add_pool(POOL_OF_GRAPHS, NULL, device, ordinal);
    unlock_pools();
    return pool;
}

void aliquot_pool_last_context_ended(int device) {
    lock_pools();
    for (struct aliquot_pool *pool = pools, *next = NULL; pool != NULL; pool = next) {
        next = pool->next;
        if (pool->device == device && pool->growing == 0) {
            aliquot_table_remove_owner(&aliquot_memory, pool, ignore_allocation);
            uncharge_pool(pool, pool->charged);
            pool->live_allocations = 0;
            if (pool->kind == POOL_DESTROYED) {
                remove_pool(pool);
            }
        }
    }
    unlock_pools();
}

/* ---- whose pool, and is it charged? ---- */

/* The context of a stream is made current for a moment, if it isn't. */
static CUresult ordinal_of_stream(CUstream stream, CUdevice *ordinal) {
    CUcontext current = NULL, context = NULL, popped = NULL;
    CUresult result = CUDA_SUCCESS;
    if (stream <= CU_STREAM_PER_THREAD /* or NULL, or CU_STREAM_LEGACY */ || aliquot_real.cuStreamGetCtx == NULL) {
        return aliquot_real.cuCtxGetDevice(ordinal);
    }
    result = aliquot_real.cuStreamGetCtx(stream, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (aliquot_real.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context) {
        return aliquot_real.cuCtxGetDevice(ordinal);
    }
    result = aliquot_real.cuCtxPushCurrent_v2(context);
    if (result == CUDA_SUCCESS) {
        result = aliquot_real.cuCtxGetDevice(ordinal);
        aliquot_real.cuCtxPopCurrent_v2(&popped);
    }
    return result;
}

/* The pool's entry, made if need be. What is not known as something else is a pool of the device. A new pool may have
   an old one's handle, whose end was not seen. */
static struct aliquot_pool *find_or_add_pool(CUmemoryPool handle, enum pool_kind kind, CUdevice ordinal, bool new) {
    lock_pools();
    struct aliquot_pool *pool = find_pool(kind, handle, 0);
    if (pool != NULL && new) {
        aliquot_table_remove_owner(&aliquot_memory, pool, ignore_allocation);
        remove_pool(pool);
        pool = NULL;
    }
    if (pool == NULL) {
        pool = add_pool(kind, handle, kind == POOL_UNCHARGED ? -1 : aliquot_device_of_ordinal(ordinal), ordinal);
    }
    if (pool != NULL && new) {
        pool->created_by_program = true;
    }
    unlock_pools();
    return pool;
}

/* Pools of host memory cost the device nothing; managed memory may all come to lie on it, wherever it begins. */
static enum pool_kind kind_of(CUmemLocation location, CUmemAllocationType type, CUdevice *ordinal) {
    *ordinal = location.id;
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        return POOL_CHARGED;
    }
    return type == CU_MEM_ALLOCATION_TYPE_MANAGED && aliquot_real.cuCtxGetDevice(ordinal) == CUDA_SUCCESS
               ? POOL_CHARGED
               : POOL_UNCHARGED;
}

/* ---- allocating ---- */

/* The pool that an allocation is charged to; NULL with CUDA_SUCCESS: to none. What is captured belongs to a graph, and
   is charged when that is launched. All that is asked here is allowed while a stream captures. */
static CUresult pool_for_allocation(CUmemoryPool handle, CUstream stream, struct aliquot_pool **pool) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUdevice ordinal = 0;
    *pool = NULL;
    enum aliquot_mode mode = aliquot_config_mode();
    if (mode != ALIQUOT_MODE_ENFORCE) {
        return mode == ALIQUOT_MODE_REFUSE ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
    }
    /* When it can't be told, the driver is going to refuse the allocation for the same reason. */
    if ((aliquot_real.cuStreamIsCapturing != NULL &&
         aliquot_real.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS) ||
        status != CU_STREAM_CAPTURE_STATUS_NONE || ordinal_of_stream(stream, &ordinal) != CUDA_SUCCESS) {
        return CUDA_SUCCESS;
    }
    if (handle == NULL && (aliquot_real.cuDeviceGetMemPool == NULL ||
                           aliquot_real.cuDeviceGetMemPool(&handle, ordinal) != CUDA_SUCCESS)) {
        return CUDA_SUCCESS;
    }
    *pool = find_or_add_pool(handle, POOL_CHARGED, ordinal, false);
    if (*pool == NULL || ((*pool)->kind == POOL_CHARGED && (*pool)->device < 0)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if ((*pool)->kind == POOL_UNCHARGED) {
        *pool = NULL;
    }
    return CUDA_SUCCESS;
}

/* Remembers what was allocated; false: it must go, since it took the container over its limit or can't be kept. */
static bool record_pool_allocation(struct aliquot_pool *pool, uint64_t bytes, CUdeviceptr address) {
    struct aliquot_allocation allocation = {
        .bytes = bytes, .owner = pool, .device = (uint32_t)pool->device, .pooled = true};
    bool fits = aliquot_pool_settle_growth(pool, bytes);
    lock_pools();
    pool->live_allocations++;
    unlock_pools();
    if (fits && aliquot_charge_record(&allocation, &aliquot_memory, address)) {
        aliquot_pool_finish_growth(pool);
        return true;
    }
    aliquot_pool_freed(&allocation, false);
    return false;
}

/* After what was made is freed again. */
static void finish_rejected_allocation(struct aliquot_pool *pool) {
    trim_pools(pool->device, aliquot_account_limit(pool->device));
    aliquot_pool_finish_growth(pool);
}

/* stream_asked: the stream in words that every flavour understands. */
#define ALLOC_FROM_POOL(symbol, parameters, handle, stream_asked, free, ...)                                           \
    CUresult symbol parameters {                                                                                       \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        struct aliquot_pool *charged = NULL;                                                                           \
        CUdeviceptr made = 0;                                                                                          \
        CUresult result = pool_for_allocation(handle, stream_asked, &charged);                                         \
        if (result != CUDA_SUCCESS) {                                                                                  \
            return result;                                                                                             \
        }                                                                                                              \
        if (charged != NULL && !aliquot_pool_reserve_growth(charged, bytes)) {                                         \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                                           \
        }                                                                                                              \
        result = aliquot_real.symbol(address == NULL ? NULL : &made, __VA_ARGS__);                                     \
        if (result != CUDA_SUCCESS) {                                                                                  \
            if (charged != NULL) {                                                                                     \
                aliquot_pool_settle_growth(charged, bytes);                                                            \
                aliquot_pool_finish_growth(charged);                                                                   \
            }                                                                                                          \
            return result;                                                                                             \
        }                                                                                                              \
        if (charged != NULL && !record_pool_allocation(charged, bytes, made)) {                                        \
            aliquot_real.free(made, stream);                                                                           \
            finish_rejected_allocation(charged);                                                                       \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                                           \
        }                                                                                                              \
        *address = made;                                                                                               \
        return CUDA_SUCCESS;                                                                                           \
    }

#define PER_THREAD_STREAM (stream == NULL ? CU_STREAM_PER_THREAD : stream)

ALLOC_FROM_POOL(cuMemAllocAsync, (CUdeviceptr * address, size_t bytes, CUstream stream), NULL, stream, cuMemFreeAsync,
                bytes, stream)
ALLOC_FROM_POOL(cuMemAllocAsync_ptsz, (CUdeviceptr * address, size_t bytes, CUstream stream), NULL, PER_THREAD_STREAM,
                cuMemFreeAsync_ptsz, bytes, stream)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync, (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream),
                pool, stream, cuMemFreeAsync, bytes, pool, stream)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream),
                pool, PER_THREAD_STREAM, cuMemFreeAsync_ptsz, bytes, pool, stream)

/* ---- pools themselves ---- */

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties) {
    ALIQUOT_REQUIRE(cuMemPoolCreate)
    CUresult result = aliquot_real.cuMemPoolCreate(pool, properties);
    if (result == CUDA_SUCCESS && aliquot_config_mode() == ALIQUOT_MODE_ENFORCE) {
        CUdevice ordinal = 0;
        enum pool_kind kind = kind_of(properties->location, properties->allocType, &ordinal);
        struct aliquot_pool *entry = find_or_add_pool(*pool, kind, ordinal, true);
        if (entry == NULL) {
            aliquot_real.cuMemPoolDestroy(*pool);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return result;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle, CUmemAllocationHandleType type,
                                            unsigned long long flags) {
    ALIQUOT_REQUIRE(cuMemPoolImportFromShareableHandle)
    CUresult result = aliquot_real.cuMemPoolImportFromShareableHandle(pool, handle, type, flags);
    if (result == CUDA_SUCCESS && aliquot_config_mode() == ALIQUOT_MODE_ENFORCE) {
        find_or_add_pool(*pool, POOL_UNCHARGED, 0, true); /* charged where it was made */
    }
    return result;
}

/* Where a program can get a pool that it didn't make. */
#define GET_POOL(symbol)                                                                                               \
    CUresult symbol(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {                           \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        CUdevice ordinal = 0;                                                                                          \
        CUresult result = aliquot_real.symbol(pool, location, type);                                                   \
        if (result == CUDA_SUCCESS && aliquot_config_mode() == ALIQUOT_MODE_ENFORCE) {                                 \
            enum pool_kind kind = kind_of(*location, type, &ordinal);                                                  \
            find_or_add_pool(*pool, kind, ordinal, false);                                                             \
        }                                                                                                              \
        return result;                                                                                                 \
    }

GET_POOL(cuMemGetDefaultMemPool)
GET_POOL(cuMemGetMemPool)

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes) {
    ALIQUOT_REQUIRE(cuMemPoolTrimTo)
    CUresult result = aliquot_real.cuMemPoolTrimTo(pool, keep_bytes);
    if (result == CUDA_SUCCESS) {
        aliquot_pool_true_up();
    }
    return result;
}

/* A pool that is destroyed while some of its memory is in use lives on until that is freed, but can't be asked any
   more: so it gives back first what it can, and keeps its charge until nothing of it is left. */
CUresult cuMemPoolDestroy(CUmemoryPool handle) {
    ALIQUOT_REQUIRE(cuMemPoolDestroy)
    lock_pools();
    struct aliquot_pool *pool = handle == NULL ? NULL : find_pool(POOL_CHARGED, handle, 0);
    enum pool_kind kind = pool == NULL ? POOL_UNCHARGED : pool->kind;
    if (kind == POOL_CHARGED && pool->created_by_program && pool->device >= 0) {
        trim_pool(pool, UINT64_MAX);
    }
    if (pool != NULL) {
        pool->kind = POOL_DESTROYED;
        pool->handle = NULL;
        pool->live_allocations++; /* until here it is over */
    }
    unlock_pools();
    CUresult result = aliquot_real.cuMemPoolDestroy(handle);
    lock_pools();
    if (pool != NULL && result != CUDA_SUCCESS) {
        pool->kind = kind;
        pool->handle = handle;
    }
    if (pool != NULL) {
        count_free(pool);
    }
    unlock_pools();
    return result;
}

/* After these a pool may hold less. */
#define SYNCHRONIZE(symbol, parameters, arguments)                                                                     \
    CUresult symbol parameters {                                                                                       \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        CUresult result = aliquot_real.symbol arguments;                                                               \
        if (result == CUDA_SUCCESS) {                                                                                  \
            aliquot_pool_true_up();                                                                                    \
        }                                                                                                              \
        return result;                                                                                                 \
    }

SYNCHRONIZE(cuStreamSynchronize, (CUstream stream), (stream))
SYNCHRONIZE(cuStreamSynchronize_ptsz, (CUstream stream), (stream))
SYNCHRONIZE(cuEventSynchronize, (CUevent event), (event))
SYNCHRONIZE(cuCtxSynchronize, (void), ())
SYNCHRONIZE(cuCtxSynchronize_v2, (CUcontext context), (context))
