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

#define DEVICES ALIQUOT_LIMITS_MOST_VGPUS
#define TRIES 100 /* to reserve room that other threads make and take */

enum kind {
    ORDINARY,  /* charged to its device */
    UNCHARGED, /* host memory, imported */
    OF_GRAPHS, /* has no handle */
    DESTROYED, /* lives on until its last allocation is freed; has no handle any more */
};

struct aliquot_pool {
    enum kind kind;
    int device; /* the account's number, -1: nothing was granted on it */
    CUdevice ordinal;
    bool of_program; /* made by it, so that it may destroy it */
    CUmemoryPool handle;
    uint64_t charged;   /* bytes: what the driver said last, and what is in flight */
    uint64_t in_flight; /* bytes reserved for calls that have not returned */
    unsigned landing;   /* operations that may have made it grow and have not charged that yet */
    bool overdrawn;     /* one of them found no room for it */
    uint64_t live;      /* allocations not yet freed */
    struct aliquot_pool *next;
};

/* Guards all entries. The driver is asked under it what a pool holds, and to trim it; it never waits for the GPU then.
   Allocations are not made under it: they may have to wait for work that another thread is about to start. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct aliquot_pool *pools;
static struct aliquot_slab slab;
static atomic_bool any;

void aliquot_pool_reset(void) {
    mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* a fork may have come while a thread had it */
    pools = NULL;
    slab.unused = NULL;
    atomic_store(&any, false);
}

/* A stream may be capturing, and even to ask a pool for its attributes would spoil that (NVIDIA/cccl#11360). In relaxed
   mode nothing that this thread does spoils it (cuda.h, cuThreadExchangeStreamCaptureMode). */
static CUstreamCaptureMode mode_before; /* of the thread that has the mutex */

static void enter(void) {
    pthread_mutex_lock(&mutex);
    mode_before = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (aliquot_bare.cuThreadExchangeStreamCaptureMode != NULL) {
        aliquot_bare.cuThreadExchangeStreamCaptureMode(&mode_before);
    }
}

static void leave(void) {
    if (aliquot_bare.cuThreadExchangeStreamCaptureMode != NULL) {
        aliquot_bare.cuThreadExchangeStreamCaptureMode(&mode_before);
    }
    pthread_mutex_unlock(&mutex);
}

/* ---- with the mutex ---- */

static struct aliquot_pool *find(enum kind kind, CUmemoryPool handle, int device) {
    struct aliquot_pool *pool = pools;
    while (pool != NULL && (handle != NULL ? pool->handle != handle : pool->kind != kind || pool->device != device)) {
        pool = pool->next;
    }
    return pool;
}

static struct aliquot_pool *add(enum kind kind, CUmemoryPool handle, int device, CUdevice ordinal) {
    struct aliquot_pool *pool = aliquot_slab_take(&slab, sizeof *pool);
    if (pool != NULL) {
        *pool =
            (struct aliquot_pool){.kind = kind, .device = device, .ordinal = ordinal, .handle = handle, .next = pools};
        pools = pool;
        atomic_store_explicit(&any, true, memory_order_release);
    }
    return pool;
}

/* What the driver says that the pool holds. */
static uint64_t reserved_by(const struct aliquot_pool *pool) {
    cuuint64_t bytes = 0;
    CUresult result =
        pool->kind == OF_GRAPHS ? aliquot_bare.cuDeviceGetGraphMemAttribute == NULL
                                      ? CUDA_ERROR_NOT_SUPPORTED
                                      : aliquot_bare.cuDeviceGetGraphMemAttribute(
                                            pool->ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes)
        : aliquot_bare.cuMemPoolGetAttribute == NULL
            ? CUDA_ERROR_NOT_SUPPORTED
            : aliquot_bare.cuMemPoolGetAttribute(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes);
    return result == CUDA_SUCCESS ? bytes : pool->charged - pool->in_flight; /* as it was */
}

static void uncharge(struct aliquot_pool *pool, uint64_t bytes) {
    if (bytes > 0) {
        aliquot_account_release(pool->device, bytes);
        pool->charged -= bytes;
    }
}

/* Gives back what is charged too much; answers what is charged too little. What is in flight may be in the driver's
   figure already: until it has landed it is charged twice, and the others are told that its thread is undecided. */
static uint64_t correct(struct aliquot_pool *pool) {
    if (pool->kind != ORDINARY && pool->kind != OF_GRAPHS) {
        return 0;
    }
    uint64_t right = reserved_by(pool) + pool->in_flight;
    if (right < pool->charged) {
        uncharge(pool, pool->charged - right);
    }
    return right - pool->charged;
}

static void charge_anyway(struct aliquot_pool *pool, uint64_t bytes) {
    if (bytes > 0) {
        aliquot_account_force(pool->device, bytes);
        pool->charged += bytes;
    }
}

/* Trues up a pool that somebody else may be using: who made it grow will charge that, if there is room. */
static void true_up(struct aliquot_pool *pool) {
    uint64_t more = correct(pool);
    if (pool->landing == 0) {
        charge_anyway(pool, more);
    }
}

static void ignore(const struct aliquot_holding *holding) {
    (void)holding;
}

static void drop(struct aliquot_pool *pool) {
    uncharge(pool, pool->charged);
    for (struct aliquot_pool **link = &pools; *link != NULL; link = &(*link)->next) {
        if (*link == pool) {
            *link = pool->next;
            aliquot_slab_give(&slab, pool);
            break;
        }
    }
}

static void drop_if_over(struct aliquot_pool *pool) {
    if (pool->kind == DESTROYED && pool->live == 0 && pool->landing == 0) {
        drop(pool);
    }
}

static void one_freed(struct aliquot_pool *pool) {
    pool->live -= pool->live > 0;
    drop_if_over(pool);
}

/* The pool gives back up to so many bytes. What it has in use it keeps. */
static void trim(struct aliquot_pool *pool, uint64_t bytes) {
    uint64_t held = reserved_by(pool);
    if (pool->kind == OF_GRAPHS && aliquot_bare.cuDeviceGraphMemTrim != NULL) {
        aliquot_bare.cuDeviceGraphMemTrim(pool->ordinal);
        aliquot_graph_was_trimmed();
    } else if (pool->kind == ORDINARY && aliquot_bare.cuMemPoolTrimTo != NULL && held > 0) {
        uint64_t keep = bytes < held ? held - bytes : 0;
        aliquot_bare.cuMemPoolTrimTo(pool->handle, keep);
        if (keep > 0 && reserved_by(pool) > keep) {
            aliquot_bare.cuMemPoolTrimTo(pool->handle, 0); /* it gives back whole chunks only */
        }
    }
    true_up(pool);
}

/* ---- */

static uint64_t lacking(int device, uint64_t bytes) {
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
static bool make_room(int device, uint64_t bytes) {
    if (!atomic_load_explicit(&any, memory_order_acquire) || bytes > aliquot_account_limit(device)) {
        return false;
    }
    enter();
    uint64_t before = charged_on(device);
    for (struct aliquot_pool *pool = pools; pool != NULL; pool = pool->next) {
        if (pool->device == device && pool->charged > 0) {
            true_up(pool); /* it may have shrunk by itself */
        }
    }
    for (struct aliquot_pool *pool = pools; pool != NULL; pool = pool->next) {
        uint64_t lack = lacking(device, bytes);
        if (pool->device == device && pool->charged > 0 && lack > 0) {
            trim(pool, lack);
        }
    }
    bool won = charged_on(device) < before;
    leave();
    return won || aliquot_account_may_fit(device, bytes); /* another thread may have won it, or be about to */
}

/* Room that is made may be gone before it is reserved, and new room be there to be made. */
static bool reserve(int device, uint64_t bytes, bool (*from_account)(int device, uint64_t bytes)) {
    bool reserved = from_account(device, bytes);
    for (int i = 0; i < TRIES && !reserved && make_room(device, bytes); i++) {
        reserved = from_account(device, bytes);
    }
    return reserved;
}

bool aliquot_pool_reserve(int device, uint64_t bytes) {
    return reserve(device, bytes, aliquot_account_reserve);
}

static bool reserve_undecided(int device, uint64_t bytes) {
    return aliquot_context_is_charged(device) && reserve(device, bytes, aliquot_account_reserve_undecided);
}

void aliquot_pool_true_up(void) {
    if (!atomic_load_explicit(&any, memory_order_acquire)) {
        return;
    }
    enter();
    for (struct aliquot_pool *pool = pools; pool != NULL; pool = pool->next) {
        if (pool->charged > 0) {
            true_up(pool);
        }
    }
    leave();
}

bool aliquot_pool_begin(struct aliquot_pool *pool, uint64_t bytes) {
    if (pool->device < 0 || !reserve_undecided(pool->device, bytes)) {
        return false;
    }
    enter();
    pool->charged += bytes;
    pool->in_flight += bytes;
    pool->landing++;
    leave();
    return true;
}

bool aliquot_pool_end(struct aliquot_pool *pool, uint64_t bytes) {
    enter();
    pool->in_flight -= bytes;
    uint64_t more = correct(pool);
    bool fits = !pool->overdrawn;
    leave();
    aliquot_account_decided(pool->device);
    while (more > 0 && fits) {
        bool room = reserve_undecided(pool->device, more);
        enter();
        if (room) {
            pool->charged += more;
        }
        uint64_t before = more;
        more = correct(pool); /* another thread may have charged the same, or what was in flight has landed */
        if (!room && more >= before) {
            charge_anyway(pool, more);
            pool->overdrawn = true;
            fits = false;
        }
        leave();
        if (room) {
            aliquot_account_decided(pool->device);
        }
    }
    return fits;
}

void aliquot_pool_landed(struct aliquot_pool *pool) {
    enter();
    if (--pool->landing == 0) {
        pool->overdrawn = false;
        true_up(pool);
        drop_if_over(pool);
    }
    leave();
}

void aliquot_pool_freed(const struct aliquot_holding *holding, bool at_once) {
    struct aliquot_pool *pool = holding->owner;
    enter();
    if (at_once) {
        true_up(pool);
    }
    one_freed(pool);
    leave();
}

struct aliquot_pool *aliquot_pool_of_graphs(int device, CUdevice ordinal) {
    enter();
    struct aliquot_pool *pool = find(OF_GRAPHS, NULL, device);
    pool = pool != NULL ? pool : add(OF_GRAPHS, NULL, device, ordinal);
    leave();
    return pool;
}

void aliquot_pool_contexts_are_gone(int device) {
    enter();
    for (struct aliquot_pool *pool = pools, *next = NULL; pool != NULL; pool = next) {
        next = pool->next;
        if (pool->device == device && pool->landing == 0) {
            aliquot_table_take_owner(&aliquot_memory, pool, ignore);
            uncharge(pool, pool->charged);
            pool->live = 0;
            if (pool->kind == DESTROYED) {
                drop(pool);
            }
        }
    }
    leave();
}

/* ---- whose pool, and is it charged? ---- */

/* The context of a stream is made current for a moment, if it isn't. */
static CUresult ordinal_of_stream(CUstream stream, CUdevice *ordinal) {
    CUcontext current = NULL, context = NULL, popped = NULL;
    CUresult result = CUDA_SUCCESS;
    if (stream <= CU_STREAM_PER_THREAD /* or NULL, or CU_STREAM_LEGACY */ || aliquot_bare.cuStreamGetCtx == NULL) {
        return aliquot_bare.cuCtxGetDevice(ordinal);
    }
    result = aliquot_bare.cuStreamGetCtx(stream, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (aliquot_bare.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context) {
        return aliquot_bare.cuCtxGetDevice(ordinal);
    }
    result = aliquot_bare.cuCtxPushCurrent_v2(context);
    if (result == CUDA_SUCCESS) {
        result = aliquot_bare.cuCtxGetDevice(ordinal);
        aliquot_bare.cuCtxPopCurrent_v2(&popped);
    }
    return result;
}

/* The pool's entry, made if need be. What is not known as something else is a pool of the device. A new pool may have
   an old one's handle, whose end was not seen. */
static struct aliquot_pool *entry_of(CUmemoryPool handle, enum kind kind, CUdevice ordinal, bool new) {
    enter();
    struct aliquot_pool *pool = find(kind, handle, 0);
    if (pool != NULL && new) {
        aliquot_table_take_owner(&aliquot_memory, pool, ignore);
        drop(pool);
        pool = NULL;
    }
    if (pool == NULL) {
        pool = add(kind, handle, kind == UNCHARGED ? -1 : aliquot_device_of_ordinal(ordinal), ordinal);
    }
    if (pool != NULL && new) {
        pool->of_program = true;
    }
    leave();
    return pool;
}

/* Pools of host memory cost the device nothing; managed memory may all come to lie on it, wherever it begins. */
static enum kind kind_of(CUmemLocation location, CUmemAllocationType type, CUdevice *ordinal) {
    *ordinal = location.id;
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        return ORDINARY;
    }
    return type == CU_MEM_ALLOCATION_TYPE_MANAGED && aliquot_bare.cuCtxGetDevice(ordinal) == CUDA_SUCCESS ? ORDINARY
                                                                                                          : UNCHARGED;
}

/* ---- allocating ---- */

/* The pool that an allocation is charged to; NULL with CUDA_SUCCESS: to none. What is captured belongs to a graph, and
   is charged when that is launched. All that is asked here is allowed while a stream captures. */
static CUresult find_pool(CUmemoryPool handle, CUstream stream, struct aliquot_pool **pool) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUdevice ordinal = 0;
    *pool = NULL;
    enum aliquot_mode mode = aliquot_config_mode();
    if (mode != ALIQUOT_MODE_ENFORCE) {
        return mode == ALIQUOT_MODE_CLOSED ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
    }
    /* When it can't be told, the driver is going to refuse the allocation for the same reason. */
    if ((aliquot_bare.cuStreamIsCapturing != NULL &&
         aliquot_bare.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS) ||
        status != CU_STREAM_CAPTURE_STATUS_NONE || ordinal_of_stream(stream, &ordinal) != CUDA_SUCCESS) {
        return CUDA_SUCCESS;
    }
    if (handle == NULL && (aliquot_bare.cuDeviceGetMemPool == NULL ||
                           aliquot_bare.cuDeviceGetMemPool(&handle, ordinal) != CUDA_SUCCESS)) {
        return CUDA_SUCCESS;
    }
    *pool = entry_of(handle, ORDINARY, ordinal, false);
    if (*pool == NULL || ((*pool)->kind == ORDINARY && (*pool)->device < 0)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if ((*pool)->kind == UNCHARGED) {
        *pool = NULL;
    }
    return CUDA_SUCCESS;
}

/* Remembers what was allocated; false: it must go, since it took the container over its limit or can't be kept. */
static bool keep(struct aliquot_pool *pool, uint64_t bytes, CUdeviceptr address) {
    struct aliquot_holding holding = {.bytes = bytes, .owner = pool, .device = (uint32_t)pool->device, .pooled = true};
    bool fits = aliquot_pool_end(pool, bytes);
    enter();
    pool->live++;
    leave();
    if (fits && aliquot_charge_keep(&holding, &aliquot_memory, address)) {
        aliquot_pool_landed(pool);
        return true;
    }
    aliquot_pool_freed(&holding, false);
    return false;
}

/* After what was made is freed again. */
static void give_up(struct aliquot_pool *pool) {
    make_room(pool->device, aliquot_account_limit(pool->device));
    aliquot_pool_landed(pool);
}

/* stream_asked: the stream in words that every flavour understands. */
#define ALLOC(symbol, parameters, handle, stream_asked, free, ...)                                                     \
    CUresult symbol parameters {                                                                                       \
        ALIQUOT_NEED(symbol)                                                                                           \
        struct aliquot_pool *charged = NULL;                                                                           \
        CUdeviceptr made = 0;                                                                                          \
        CUresult result = find_pool(handle, stream_asked, &charged);                                                   \
        if (result != CUDA_SUCCESS) {                                                                                  \
            return result;                                                                                             \
        }                                                                                                              \
        if (charged != NULL && !aliquot_pool_begin(charged, bytes)) {                                                  \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                                           \
        }                                                                                                              \
        result = aliquot_bare.symbol(address == NULL ? NULL : &made, __VA_ARGS__);                                     \
        if (result != CUDA_SUCCESS) {                                                                                  \
            if (charged != NULL) {                                                                                     \
                aliquot_pool_end(charged, bytes);                                                                      \
                aliquot_pool_landed(charged);                                                                          \
            }                                                                                                          \
            return result;                                                                                             \
        }                                                                                                              \
        if (charged != NULL && !keep(charged, bytes, made)) {                                                          \
            aliquot_bare.free(made, stream);                                                                           \
            give_up(charged);                                                                                          \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                                           \
        }                                                                                                              \
        *address = made;                                                                                               \
        return CUDA_SUCCESS;                                                                                           \
    }

#define PER_THREAD (stream == NULL ? CU_STREAM_PER_THREAD : stream)

ALLOC(cuMemAllocAsync, (CUdeviceptr * address, size_t bytes, CUstream stream), NULL, stream, cuMemFreeAsync, bytes,
      stream)
ALLOC(cuMemAllocAsync_ptsz, (CUdeviceptr * address, size_t bytes, CUstream stream), NULL, PER_THREAD,
      cuMemFreeAsync_ptsz, bytes, stream)
ALLOC(cuMemAllocFromPoolAsync, (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream), pool, stream,
      cuMemFreeAsync, bytes, pool, stream)
ALLOC(cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream), pool,
      PER_THREAD, cuMemFreeAsync_ptsz, bytes, pool, stream)

/* ---- pools themselves ---- */

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties) {
    ALIQUOT_NEED(cuMemPoolCreate)
    CUresult result = aliquot_bare.cuMemPoolCreate(pool, properties);
    if (result == CUDA_SUCCESS && aliquot_config_mode() == ALIQUOT_MODE_ENFORCE) {
        CUdevice ordinal = 0;
        enum kind kind = kind_of(properties->location, properties->allocType, &ordinal);
        struct aliquot_pool *entry = entry_of(*pool, kind, ordinal, true);
        if (entry == NULL) {
            aliquot_bare.cuMemPoolDestroy(*pool);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return result;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle, CUmemAllocationHandleType type,
                                            unsigned long long flags) {
    ALIQUOT_NEED(cuMemPoolImportFromShareableHandle)
    CUresult result = aliquot_bare.cuMemPoolImportFromShareableHandle(pool, handle, type, flags);
    if (result == CUDA_SUCCESS && aliquot_config_mode() == ALIQUOT_MODE_ENFORCE) {
        entry_of(*pool, UNCHARGED, 0, true); /* charged where it was made */
    }
    return result;
}

/* Where a program can get a pool that it didn't make. */
#define GET(symbol)                                                                                                    \
    CUresult symbol(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {                           \
        ALIQUOT_NEED(symbol)                                                                                           \
        CUdevice ordinal = 0;                                                                                          \
        CUresult result = aliquot_bare.symbol(pool, location, type);                                                   \
        if (result == CUDA_SUCCESS && aliquot_config_mode() == ALIQUOT_MODE_ENFORCE) {                                 \
            enum kind kind = kind_of(*location, type, &ordinal);                                                       \
            entry_of(*pool, kind, ordinal, false);                                                                     \
        }                                                                                                              \
        return result;                                                                                                 \
    }

GET(cuMemGetDefaultMemPool)
GET(cuMemGetMemPool)

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes) {
    ALIQUOT_NEED(cuMemPoolTrimTo)
    CUresult result = aliquot_bare.cuMemPoolTrimTo(pool, keep_bytes);
    if (result == CUDA_SUCCESS) {
        aliquot_pool_true_up();
    }
    return result;
}

/* A pool that is destroyed while some of its memory is in use lives on until that is freed, but can't be asked any
   more: so it gives back first what it can, and keeps its charge until nothing of it is left. */
CUresult cuMemPoolDestroy(CUmemoryPool handle) {
    ALIQUOT_NEED(cuMemPoolDestroy)
    enter();
    struct aliquot_pool *pool = handle == NULL ? NULL : find(ORDINARY, handle, 0);
    enum kind kind = pool == NULL ? UNCHARGED : pool->kind;
    if (kind == ORDINARY && pool->of_program && pool->device >= 0) {
        trim(pool, UINT64_MAX);
    }
    if (pool != NULL) {
        pool->kind = DESTROYED;
        pool->handle = NULL;
        pool->live++; /* until here it is over */
    }
    leave();
    CUresult result = aliquot_bare.cuMemPoolDestroy(handle);
    enter();
    if (pool != NULL && result != CUDA_SUCCESS) {
        pool->kind = kind;
        pool->handle = handle;
    }
    if (pool != NULL) {
        one_freed(pool);
    }
    leave();
    return result;
}

/* After these a pool may hold less. */
#define SYNCHRONIZE(symbol, parameters, arguments)                                                                     \
    CUresult symbol parameters {                                                                                       \
        ALIQUOT_NEED(symbol)                                                                                           \
        CUresult result = aliquot_bare.symbol arguments;                                                               \
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
