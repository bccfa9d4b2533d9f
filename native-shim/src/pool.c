#include "pool.h"

#include "account.h"
#include "capture.h"
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
#define TRIM_RETRIES 100 /* to reserve bytes while other threads reserve and release, too */

enum pool_kind {
    POOL_CHARGED,   /* charged to its device */
    POOL_UNCHARGED, /* host memory, or imported */
    POOL_OF_GRAPHS, /* graph memory of a device; has no handle */
    POOL_DESTROYED, /* destroyed, but holds memory until its last allocation is freed; has no handle */
};

struct aliquot_pool {
    int device; /* as numbered in account.h; -1: the limit file does not name the device */
    CUdevice ordinal;
    bool created_by_program; /* the program created it and may destroy it */
    _Atomic enum pool_kind kind;
    _Atomic(CUmemoryPool) handle;
    struct aliquot_pool *next;

    pthread_mutex_t mutex;    /* guards the charge */
    _Atomic uint64_t charged; /* bytes: the driver's last figure plus in_flight */
    uint64_t in_flight;       /* bytes reserved for calls that have not returned */
    unsigned rejecting;       /* operations that grew the pool beyond the limit and are being undone */
    /* What the mutex publishes, for operations that do not lock it. */
    atomic_uint version;   /* odd while it is locked */
    atomic_uint refusals;  /* operations that have grown the pool beyond the limit */
    _Atomic uint64_t held; /* charged bytes that are not in flight; 0 while an operation is being rejected */

    _Alignas(64) atomic_uint growing; /* operations that may have grown the pool and have not charged it yet */
    _Atomic int64_t live_bytes;       /* of allocations not freed */
};

#define POOL_CACHE_ENTRIES 64

/* Guards the list of pools, their kinds and handles. It is locked before a pool's mutex. Under these mutexes the driver
   is only asked what a pool holds and told to trim it, neither of which waits for the GPU. Allocation calls are made
   without them: they may wait for work that another thread is about to submit. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct aliquot_pool *pools;
static struct aliquot_slab pool_slab;
static atomic_bool any_pools;
static _Atomic(struct aliquot_pool *) pool_cache[POOL_CACHE_ENTRIES]; /* by handle */

static _Atomic(struct aliquot_pool *) *cache_entry(CUmemoryPool handle) {
    uint64_t address = (uint64_t)(uintptr_t)handle;
    return &pool_cache[(address >> 4 ^ address >> 12) % POOL_CACHE_ENTRIES];
}

void aliquot_pool_reset(void) {
    mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* a thread of the parent may have held it */
    pools = NULL;
    pool_slab.unused = NULL;
    atomic_store(&any_pools, false);
    for (size_t i = 0; i < POOL_CACHE_ENTRIES; i++) {
        atomic_store_explicit(&pool_cache[i], NULL, memory_order_relaxed);
    }
}

static void lock_list(void) {
    pthread_mutex_lock(&mutex);
}

static void unlock_list(void) {
    pthread_mutex_unlock(&mutex);
}

static void lock_pool(struct aliquot_pool *pool) {
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->version, 1);
}

static void unlock_pool(struct aliquot_pool *pool) {
    uint64_t held = pool->rejecting > 0 ? 0 : atomic_load(&pool->charged) - pool->in_flight;
    atomic_store_explicit(&pool->held, held, memory_order_release);
    atomic_fetch_add(&pool->version, 1);
    pthread_mutex_unlock(&pool->mutex);
}

/* Asks the driver how many bytes the pool holds. False: it does not say. If a stream is capturing, even this query
   invalidates the capture (NVIDIA/cccl#11360), except in capture mode RELAXED. */
static bool ask_reserved_bytes(const struct aliquot_pool *pool, uint64_t *reserved) {
    int mode = aliquot_capture_relax_mode();
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    cuuint64_t bytes = 0;
    if (pool->kind == POOL_OF_GRAPHS && aliquot_real.cuDeviceGetGraphMemAttribute != NULL) {
        result =
            aliquot_real.cuDeviceGetGraphMemAttribute(pool->ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes);
    } else if (pool->kind == POOL_CHARGED && aliquot_real.cuMemPoolGetAttribute != NULL) {
        result = aliquot_real.cuMemPoolGetAttribute(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes);
    }
    aliquot_capture_restore_mode(mode);
    *reserved = bytes;
    return result == CUDA_SUCCESS;
}

/* ---- these require the list's mutex ---- */

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
        *pool = (struct aliquot_pool){.kind = kind,
                                      .device = device,
                                      .ordinal = ordinal,
                                      .handle = handle,
                                      .mutex = PTHREAD_MUTEX_INITIALIZER,
                                      .next = pools};
        pools = pool;
        atomic_store_explicit(&any_pools, true, memory_order_release);
    }
    return pool;
}

/* ---- these require the pool's mutex ---- */

static uint64_t driver_reserved_bytes(const struct aliquot_pool *pool) {
    uint64_t bytes = 0;
    return ask_reserved_bytes(pool, &bytes) ? bytes : pool->charged - pool->in_flight; /* unchanged */
}

static void uncharge_pool(struct aliquot_pool *pool, uint64_t bytes) {
    if (bytes > 0) {
        aliquot_account_release(pool->device, bytes);
        pool->charged -= bytes;
    }
}

/* Releases what is charged too much; returns what is charged too little. Bytes in flight may already be in the
   driver's figure: until their operation settles they are charged twice, and other processes see its thread as
   undecided. */
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

/* Sets the charge to the driver's figure. If other threads are growing the pool, they charge its growth, subject to
   the limit. */
static void update_charge(struct aliquot_pool *pool) {
    uint64_t more = refresh_charge(pool);
    if (pool->growing == 0) {
        force_charge(pool, more);
    }
}

/* Trims up to this many bytes from the pool. Memory in use stays. */
static void trim_pool(struct aliquot_pool *pool, uint64_t bytes) {
    uint64_t held = driver_reserved_bytes(pool);
    int mode = aliquot_capture_relax_mode();
    if (pool->kind == POOL_OF_GRAPHS && aliquot_real.cuDeviceGraphMemTrim != NULL) {
        aliquot_real.cuDeviceGraphMemTrim(pool->ordinal);
        aliquot_graph_was_trimmed();
    } else if (pool->kind == POOL_CHARGED && aliquot_real.cuMemPoolTrimTo != NULL && held > 0) {
        uint64_t keep = bytes < held ? held - bytes : 0;
        aliquot_real.cuMemPoolTrimTo(pool->handle, keep);
        if (keep > 0 && driver_reserved_bytes(pool) > keep) {
            aliquot_real.cuMemPoolTrimTo(pool->handle, 0); /* a pool releases whole chunks only */
        }
    }
    aliquot_capture_restore_mode(mode);
    update_charge(pool);
}

/* ---- */

static void update_pool_charge(struct aliquot_pool *pool) {
    lock_pool(pool);
    update_charge(pool);
    unlock_pool(pool);
}

static void ignore_allocation(const struct aliquot_allocation *allocation) {
    (void)allocation;
}

static void release_pool_charge(struct aliquot_pool *pool) {
    lock_pool(pool);
    uncharge_pool(pool, pool->charged);
    unlock_pool(pool);
}

/* Requires the list's mutex. */
static void remove_pool(struct aliquot_pool *pool) {
    release_pool_charge(pool);
    for (size_t i = 0; i < POOL_CACHE_ENTRIES; i++) {
        if (atomic_load(&pool_cache[i]) == pool) {
            atomic_store(&pool_cache[i], NULL);
        }
    }
    for (struct aliquot_pool **link = &pools; *link != NULL; link = &(*link)->next) {
        if (*link == pool) {
            *link = pool->next;
            aliquot_slab_give(&pool_slab, pool);
            break;
        }
    }
}

static void remove_destroyed_pools(void) {
    lock_list();
    for (struct aliquot_pool *pool = pools, *next = NULL; pool != NULL; pool = next) {
        next = pool->next;
        if (pool->kind == POOL_DESTROYED && pool->live_bytes <= 0 && pool->growing == 0) {
            remove_pool(pool);
        }
    }
    unlock_list();
}

/* The last of them removes a destroyed pool. */
static void count_free(struct aliquot_pool *pool, uint64_t bytes) {
    atomic_fetch_sub(&pool->live_bytes, (int64_t)bytes);
    if (pool->kind == POOL_DESTROYED) {
        remove_destroyed_pools();
    }
}

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

/* Trims pools until this many bytes fit. False: they cannot fit. */
static bool trim_pools(int device, uint64_t bytes) {
    if (!atomic_load_explicit(&any_pools, memory_order_acquire) || bytes > aliquot_account_limit(device)) {
        return false;
    }
    lock_list();
    uint64_t before = charged_on(device);
    for (struct aliquot_pool *pool = pools; pool != NULL; pool = pool->next) {
        if (pool->device == device && pool->charged > 0) {
            update_pool_charge(pool); /* the pool may have shrunk by itself */
        }
    }
    for (struct aliquot_pool *pool = pools; pool != NULL; pool = pool->next) {
        uint64_t lack = missing_bytes(device, bytes);
        if (pool->device == device && pool->charged > 0 && lack > 0) {
            lock_pool(pool);
            trim_pool(pool, lack);
            unlock_pool(pool);
        }
    }
    bool released = charged_on(device) < before;
    unlock_list();
    return released ||
           aliquot_account_may_fit(device, bytes); /* another thread may have released bytes, or be about to */
}

/* Repeats, because other threads may take the released bytes first, and release more. */
static bool reserve_with_trim(int device, uint64_t bytes, bool (*from_account)(int device, uint64_t bytes)) {
    bool reserved = from_account(device, bytes);
    for (int i = 0; i < TRIM_RETRIES && !reserved && trim_pools(device, bytes); i++) {
        reserved = from_account(device, bytes);
    }
    if (!reserved) {
        aliquot_account_count_denied(device);
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

void aliquot_pool_update_charges(void) {
    if (!atomic_load_explicit(&any_pools, memory_order_acquire)) {
        return;
    }
    lock_list();
    for (struct aliquot_pool *pool = pools; pool != NULL; pool = pool->next) {
        if (pool->charged > 0) {
            update_pool_charge(pool);
        }
    }
    unlock_list();
}

bool aliquot_pool_reserve_growth(struct aliquot_growth *growth, struct aliquot_pool *pool, uint64_t bytes) {
    if (pool->device < 0 || !reserve_growth(pool->device, bytes)) {
        return false;
    }
    atomic_fetch_add(&pool->growing, 1);
    lock_pool(pool);
    pool->charged += bytes;
    pool->in_flight += bytes;
    *growth = (struct aliquot_growth){
        .pool = pool, .reserved = bytes, .refusals = atomic_load(&pool->refusals), .undecided = true};
    unlock_pool(pool);
    return true;
}

/* Of operations that grow a pool at the same time, all are refused if one of them cannot reserve the growth, because
   it is not known which of them caused it. */
bool aliquot_pool_settle_growth(struct aliquot_growth *growth) {
    struct aliquot_pool *pool = growth->pool;
    lock_pool(pool);
    pool->in_flight -= growth->reserved;
    uint64_t more = refresh_charge(pool);
    bool fits = pool->refusals == growth->refusals;
    unlock_pool(pool);
    if (growth->undecided) {
        aliquot_account_decided(pool->device);
    }
    while (more > 0 && fits) {
        bool reserved = reserve_growth(pool->device, more);
        lock_pool(pool);
        pool->charged += reserved ? more : 0;
        uint64_t before = more;
        /* Another thread may have charged the same growth, or bytes in flight have settled. */
        more = refresh_charge(pool);
        fits = pool->refusals == growth->refusals;
        if (fits && !reserved && more >= before) {
            force_charge(pool, more);
            pool->refusals++;
            pool->rejecting++;
            growth->refused = true;
            fits = false;
        }
        unlock_pool(pool);
        if (reserved) {
            aliquot_account_decided(pool->device);
        }
    }
    return fits;
}

void aliquot_pool_finish_growth(const struct aliquot_growth *growth) {
    struct aliquot_pool *pool = growth->pool;
    bool last = atomic_fetch_sub(&pool->growing, 1) == 1;
    if (last || growth->refused) {
        lock_pool(pool);
        pool->rejecting -= growth->refused;
        update_charge(pool);
        unlock_pool(pool);
    }
    if (pool->kind == POOL_DESTROYED) {
        remove_destroyed_pools();
    }
}

void aliquot_pool_freed(const struct aliquot_allocation *allocation, bool at_once) {
    struct aliquot_pool *pool = allocation->owner;
    if (at_once) {
        update_pool_charge(pool);
    }
    count_free(pool, allocation->bytes);
}

struct aliquot_pool *aliquot_pool_of_graphs(int device, CUdevice ordinal) {
    lock_list();
    struct aliquot_pool *pool = find_pool(POOL_OF_GRAPHS, NULL, device);
    pool = pool != NULL ? pool : add_pool(POOL_OF_GRAPHS, NULL, device, ordinal);
    unlock_list();
    return pool;
}

void aliquot_pool_last_context_ended(int device) {
    lock_list();
    for (struct aliquot_pool *pool = pools, *next = NULL; pool != NULL; pool = next) {
        next = pool->next;
        if (pool->device == device && pool->growing == 0) {
            aliquot_table_remove_owner(&aliquot_memory_allocations, pool, ignore_allocation);
            release_pool_charge(pool);
            atomic_store(&pool->live_bytes, 0);
            if (pool->kind == POOL_DESTROYED) {
                remove_pool(pool);
            }
        }
    }
    unlock_list();
}

/* ---- which pool, and is it charged? ---- */

/* Returns the pool's entry if the handle was used before. */
static struct aliquot_pool *cached_pool(CUmemoryPool handle) {
    struct aliquot_pool *pool = atomic_load_explicit(cache_entry(handle), memory_order_acquire);
    return pool != NULL && atomic_load_explicit(&pool->handle, memory_order_relaxed) == handle ? pool : NULL;
}

/* Returns the pool's entry, and adds it if it is unknown: a pool of the device unless kind says otherwise. A new
   pool may have the handle of an old one that was destroyed without a hook. */
static struct aliquot_pool *find_or_add_pool(CUmemoryPool handle, enum pool_kind kind, CUdevice ordinal, bool new) {
    lock_list();
    struct aliquot_pool *pool = find_pool(kind, handle, 0);
    if (pool != NULL && new) {
        aliquot_table_remove_owner(&aliquot_memory_allocations, pool, ignore_allocation);
        remove_pool(pool);
        pool = NULL;
    }
    if (pool == NULL) {
        pool = add_pool(kind, handle, kind == POOL_UNCHARGED ? -1 : aliquot_device_of_ordinal(ordinal), ordinal);
    }
    if (pool != NULL && new) {
        pool->created_by_program = true;
    }
    if (pool != NULL) {
        atomic_store_explicit(cache_entry(handle), pool, memory_order_release);
    }
    unlock_list();
    return pool;
}

/* Pools of host memory use no device memory. Managed memory may move to the device completely, wherever it starts. */
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

/* Returns the pool to charge for an allocation; NULL with CUDA_SUCCESS: none. A captured allocation belongs to a
   graph and is charged at its launch. All driver calls here are allowed while a stream captures. */
static CUresult pool_for_allocation(CUmemoryPool handle, CUstream stream, struct aliquot_pool **pool) {
    CUdevice ordinal = 0;
    *pool = NULL;
    enum aliquot_mode mode = aliquot_config_mode();
    if (mode != ALIQUOT_MODE_ENFORCE) {
        return mode == ALIQUOT_MODE_REFUSE ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
    }
    /* If the query fails, the driver rejects the allocation for the same reason. */
    if (aliquot_capture_may_include(stream) || aliquot_device_ordinal_of_stream(stream, &ordinal) != CUDA_SUCCESS) {
        return CUDA_SUCCESS;
    }
    if (handle == NULL && (aliquot_real.cuDeviceGetMemPool == NULL ||
                           aliquot_real.cuDeviceGetMemPool(&handle, ordinal) != CUDA_SUCCESS)) {
        return CUDA_SUCCESS;
    }
    *pool = cached_pool(handle);
    *pool = *pool != NULL ? *pool : find_or_add_pool(handle, POOL_CHARGED, ordinal, false);
    if (*pool == NULL || ((*pool)->kind == POOL_CHARGED && (*pool)->device < 0)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if ((*pool)->kind == POOL_UNCHARGED) {
        *pool = NULL;
    }
    return CUDA_SUCCESS;
}

/* Begins an allocation. Nothing is reserved if the unused part of the pool can hold it; because of fragmentation the
   pool may grow nevertheless. growth->pool is NULL if nothing is charged. Returns the error that the hook must
   return. */
static CUresult begin_allocation(struct aliquot_growth *growth, CUmemoryPool handle, CUstream stream, size_t bytes) {
    struct aliquot_pool *pool = NULL;
    CUresult result = pool_for_allocation(handle, stream, &pool);
    *growth = (struct aliquot_growth){.pool = pool};
    if (result != CUDA_SUCCESS || pool == NULL) {
        return result;
    }
    if (bytes > INT64_MAX / 2) {
        return CUDA_ERROR_OUT_OF_MEMORY; /* more than any limit; the check also keeps live_bytes from overflowing */
    }
    int64_t live = atomic_fetch_add(&pool->live_bytes, (int64_t)bytes) + (int64_t)bytes;
    if (live <= (int64_t)atomic_load_explicit(&pool->held, memory_order_acquire)) {
        atomic_fetch_add(&pool->growing, 1);
        growth->refusals = atomic_load(&pool->refusals);
        return CUDA_SUCCESS;
    }
    if (!aliquot_pool_reserve_growth(growth, pool, bytes)) {
        count_free(pool, bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

/* Whether the charge covers what the pool holds. False also if another thread changes the charge meanwhile: it may have
   asked the driver before this operation grew the pool. version: the pool's, before. */
static bool is_covered(const struct aliquot_growth *growth, unsigned version) {
    const struct aliquot_pool *pool = growth->pool;
    uint64_t reserved = 0;
    bool known = ask_reserved_bytes(pool, &reserved);
    uint64_t held = atomic_load(&pool->held);
    return known && reserved <= held && version % 2 == 0 && pool->refusals == growth->refusals &&
           atomic_load(&pool->version) == version;
}

/* Charges an allocation and records it. False: the caller must free it, because it exceeds the limit or there is no
   memory for the record. */
static bool complete_allocation(struct aliquot_growth *growth, uint64_t bytes, CUdeviceptr address) {
    struct aliquot_pool *pool = growth->pool;
    unsigned version = atomic_load(&pool->version);
    bool covered = !growth->undecided && is_covered(growth, version);
    struct aliquot_allocation allocation = {
        .bytes = bytes, .owner = pool, .device = (uint32_t)pool->device, .pooled = true};
    if ((!covered && !aliquot_pool_settle_growth(growth)) ||
        !aliquot_charge_record(&allocation, &aliquot_memory_allocations, address)) {
        return false;
    }
    if (!covered) {
        aliquot_pool_finish_growth(growth);
    } else if (atomic_fetch_sub(&pool->growing, 1) == 1 && atomic_load(&pool->version) != version) {
        update_pool_charge(pool); /* what other threads have left to the last */
    }
    return true;
}

/* After the driver has rejected an allocation. */
static void cancel_allocation(struct aliquot_growth *growth, uint64_t bytes) {
    count_free(growth->pool, bytes);
    aliquot_pool_settle_growth(growth);
    aliquot_pool_finish_growth(growth);
}

/* After an allocation that could not be charged has been freed. */
static void finish_rejected_allocation(const struct aliquot_growth *growth, uint64_t bytes) {
    count_free(growth->pool, bytes);
    trim_pools(growth->pool->device, aliquot_account_limit(growth->pool->device));
    aliquot_pool_finish_growth(growth);
}

/* stream_asked: the stream, with an explicit handle for the per-thread default stream. */
#define ALLOC_FROM_POOL(symbol, parameters, handle, stream_asked, free, ...)                                           \
    CUresult symbol parameters {                                                                                       \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        struct aliquot_growth growth;                                                                                  \
        CUdeviceptr created = 0;                                                                                       \
        CUresult result = begin_allocation(&growth, handle, stream_asked, bytes);                                      \
        if (result != CUDA_SUCCESS) {                                                                                  \
            return result;                                                                                             \
        }                                                                                                              \
        result = aliquot_real.symbol(address == NULL ? NULL : &created, __VA_ARGS__);                                  \
        if (result != CUDA_SUCCESS && growth.pool != NULL) {                                                           \
            cancel_allocation(&growth, bytes);                                                                         \
        } else if (result == CUDA_SUCCESS && growth.pool != NULL && !complete_allocation(&growth, bytes, created)) {   \
            aliquot_real.free(created, stream);                                                                        \
            finish_rejected_allocation(&growth, bytes);                                                                \
            result = CUDA_ERROR_OUT_OF_MEMORY;                                                                         \
        }                                                                                                              \
        if (result != CUDA_SUCCESS) {                                                                                  \
            return result;                                                                                             \
        }                                                                                                              \
        *address = created;                                                                                            \
        return CUDA_SUCCESS;                                                                                           \
    }

ALLOC_FROM_POOL(cuMemAllocAsync, (CUdeviceptr * address, size_t bytes, CUstream stream), NULL, stream, cuMemFreeAsync,
                bytes, stream)
ALLOC_FROM_POOL(cuMemAllocAsync_ptsz, (CUdeviceptr * address, size_t bytes, CUstream stream), NULL,
                aliquot_per_thread(stream), cuMemFreeAsync_ptsz, bytes, stream)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync, (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream),
                pool, stream, cuMemFreeAsync, bytes, pool, stream)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream),
                pool, aliquot_per_thread(stream), cuMemFreeAsync_ptsz, bytes, pool, stream)

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
        find_or_add_pool(*pool, POOL_UNCHARGED, 0, true); /* charged where it was created */
    }
    return result;
}

/* Functions that return a pool that the program did not create. */
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
        aliquot_pool_update_charges();
    }
    return result;
}

/* A pool that is destroyed while memory of it is in use exists until that is freed, but can no longer be queried. So
   it is trimmed first, and keeps its charge until it is empty. */
CUresult cuMemPoolDestroy(CUmemoryPool handle) {
    ALIQUOT_REQUIRE(cuMemPoolDestroy)
    lock_list();
    struct aliquot_pool *pool = handle == NULL ? NULL : find_pool(POOL_CHARGED, handle, 0);
    enum pool_kind kind = pool == NULL ? POOL_UNCHARGED : pool->kind;
    if (kind == POOL_CHARGED && pool->created_by_program && pool->device >= 0) {
        lock_pool(pool);
        trim_pool(pool, UINT64_MAX);
        unlock_pool(pool);
    }
    if (pool != NULL) {
        pool->kind = POOL_DESTROYED;
        pool->handle = NULL;
        atomic_fetch_add(&pool->growing, 1); /* counted until this function returns, which keeps the entry */
    }
    unlock_list();
    CUresult result = aliquot_real.cuMemPoolDestroy(handle);
    lock_list();
    if (pool != NULL && result != CUDA_SUCCESS) {
        pool->kind = kind;
        pool->handle = handle;
    }
    unlock_list();
    if (pool != NULL) {
        atomic_fetch_sub(&pool->growing, 1);
        remove_destroyed_pools();
    }
    return result;
}

/* A pool may shrink in these calls. */
#define SYNCHRONIZE(symbol, parameters, arguments)                                                                     \
    CUresult symbol parameters {                                                                                       \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        CUresult result = aliquot_real.symbol arguments;                                                               \
        if (result == CUDA_SUCCESS) {                                                                                  \
            aliquot_pool_update_charges();                                                                             \
        }                                                                                                              \
        return result;                                                                                                 \
    }

SYNCHRONIZE(cuStreamSynchronize, (CUstream stream), (stream))
SYNCHRONIZE(cuStreamSynchronize_ptsz, (CUstream stream), (stream))
SYNCHRONIZE(cuEventSynchronize, (CUevent event), (event))
SYNCHRONIZE(cuCtxSynchronize, (void), ())
SYNCHRONIZE(cuCtxSynchronize_v2, (CUcontext context), (context))
