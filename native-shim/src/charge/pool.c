#include "charge/pool.h"

#include "charge/allocations.h"
#include "driver/capture.h"
#include "driver/device.h"
#include "limits/account.h"
#include "os/fork.h"
#include "os/slab.h"

#include <pthread.h>
#include <stdatomic.h>

#define TRIM_RETRIES 100 /* to reserve bytes while other threads reserve and release, too */

#define POOL_CACHE_ENTRIES 64

/* Guards the list of pools, their kinds and handles. It is locked before a pool's mutex. Under these mutexes the driver
   is only asked what a pool holds and told to trim it, neither of which waits for the GPU. Allocation calls are made
   without them: they may wait for work that another thread is about to submit. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct aliquot_pool *pools;
static struct aliquot_slab pool_slab;
static atomic_bool any_pools;
static _Atomic(struct aliquot_pool *) pool_cache[POOL_CACHE_ENTRIES]; /* by handle */
atomic_uint aliquot_pool_graph_trims = 1;

static _Atomic(struct aliquot_pool *) *cache_entry(CUmemoryPool handle) {
    uint64_t address = (uint64_t)(uintptr_t)handle;
    return &pool_cache[(address >> 4 ^ address >> 12) % POOL_CACHE_ENTRIES];
}

static void reset_pools(void) {
    mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* a thread of the parent may have held it */
    pools = NULL;
    pool_slab.unused = NULL;
    atomic_store(&any_pools, false);
    for (size_t i = 0; i < POOL_CACHE_ENTRIES; i++) {
        atomic_store_explicit(&pool_cache[i], NULL, memory_order_relaxed);
    }
}

ALIQUOT_AFTER_FORK(reset_pools);

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

/* If a stream is capturing, even this query invalidates the capture (NVIDIA/cccl#11360), except in capture mode
   RELAXED. */
bool aliquot_pool_reserved_bytes(const struct aliquot_pool *pool, uint64_t *reserved) {
    int mode = aliquot_capture_relax_mode();
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    cuuint64_t bytes = 0;
    if (pool->kind == ALIQUOT_POOL_OF_GRAPHS && aliquot_real.cuDeviceGetGraphMemAttribute != NULL) {
        result =
            aliquot_real.cuDeviceGetGraphMemAttribute(pool->ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes);
    } else if (pool->kind == ALIQUOT_POOL_CHARGED && aliquot_real.cuMemPoolGetAttribute != NULL) {
        result = aliquot_real.cuMemPoolGetAttribute(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes);
    }
    aliquot_capture_restore_mode(mode);
    *reserved = bytes;
    return result == CUDA_SUCCESS;
}

/* ---- these require the list's mutex ---- */

static struct aliquot_pool *find_pool(enum aliquot_pool_kind kind, CUmemoryPool handle, int device) {
    struct aliquot_pool *pool = pools;
    while (pool != NULL && (handle != NULL ? pool->handle != handle : pool->kind != kind || pool->device != device)) {
        pool = pool->next;
    }
    return pool;
}

static struct aliquot_pool *add_pool(enum aliquot_pool_kind kind, CUmemoryPool handle, int device, CUdevice ordinal) {
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
    return aliquot_pool_reserved_bytes(pool, &bytes) ? bytes : pool->charged - pool->in_flight; /* unchanged */
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
    if (pool->kind != ALIQUOT_POOL_CHARGED && pool->kind != ALIQUOT_POOL_OF_GRAPHS) {
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
    if (pool->kind == ALIQUOT_POOL_OF_GRAPHS && aliquot_real.cuDeviceGraphMemTrim != NULL) {
        aliquot_real.cuDeviceGraphMemTrim(pool->ordinal);
        atomic_fetch_add(&aliquot_pool_graph_trims, 1);
    } else if (pool->kind == ALIQUOT_POOL_CHARGED && aliquot_real.cuMemPoolTrimTo != NULL && held > 0) {
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

void aliquot_pool_update_charge(struct aliquot_pool *pool) {
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
    pthread_mutex_lock(&mutex);
    for (struct aliquot_pool *pool = pools, *next = NULL; pool != NULL; pool = next) {
        next = pool->next;
        if (pool->kind == ALIQUOT_POOL_DESTROYED && pool->live_bytes <= 0 && pool->growing == 0) {
            remove_pool(pool);
        }
    }
    pthread_mutex_unlock(&mutex);
}

void aliquot_pool_count_free(struct aliquot_pool *pool, uint64_t bytes) {
    atomic_fetch_sub(&pool->live_bytes, (int64_t)bytes);
    if (pool->kind == ALIQUOT_POOL_DESTROYED) {
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

bool aliquot_pool_trim_device(int device, uint64_t bytes) {
    if (!atomic_load_explicit(&any_pools, memory_order_acquire) || bytes > aliquot_account_limit(device)) {
        return false;
    }
    pthread_mutex_lock(&mutex);
    uint64_t before = charged_on(device);
    for (struct aliquot_pool *pool = pools; pool != NULL; pool = pool->next) {
        if (pool->device == device && pool->charged > 0) {
            aliquot_pool_update_charge(pool); /* the pool may have shrunk by itself */
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
    pthread_mutex_unlock(&mutex);
    return released ||
           aliquot_account_may_fit(device, bytes); /* another thread may have released bytes, or be about to */
}

/* Repeats, because other threads may take the released bytes first, and release more. */
static bool reserve_with_trim(int device, uint64_t bytes, bool undecided) {
    bool reserved = aliquot_account_reserve(device, bytes, undecided);
    for (int i = 0; i < TRIM_RETRIES && !reserved && aliquot_pool_trim_device(device, bytes); i++) {
        reserved = aliquot_account_reserve(device, bytes, undecided);
    }
    if (!reserved) {
        aliquot_account_count_denied(device);
    }
    return reserved;
}

bool aliquot_pool_reserve_on_device(int device, uint64_t bytes) {
    return reserve_with_trim(device, bytes, false);
}

void aliquot_pool_update_charges(void) {
    if (!atomic_load_explicit(&any_pools, memory_order_acquire)) {
        return;
    }
    pthread_mutex_lock(&mutex);
    for (struct aliquot_pool *pool = pools; pool != NULL; pool = pool->next) {
        if (pool->charged > 0) {
            aliquot_pool_update_charge(pool);
        }
    }
    pthread_mutex_unlock(&mutex);
}

bool aliquot_pool_reserve_growth(struct aliquot_growth *growth, struct aliquot_pool *pool, uint64_t bytes) {
    if (pool->device < 0 || !reserve_with_trim(pool->device, bytes, true)) {
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
        bool reserved = reserve_with_trim(pool->device, more, true);
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
    if (pool->kind == ALIQUOT_POOL_DESTROYED) {
        remove_destroyed_pools();
    }
}

void aliquot_pool_freed(const struct aliquot_allocation *allocation, bool at_once) {
    struct aliquot_pool *pool = allocation->owner;
    if (at_once) {
        aliquot_pool_update_charge(pool);
    }
    aliquot_pool_count_free(pool, allocation->bytes);
}

struct aliquot_pool *aliquot_pool_of_graphs(int device, CUdevice ordinal) {
    pthread_mutex_lock(&mutex);
    struct aliquot_pool *pool = find_pool(ALIQUOT_POOL_OF_GRAPHS, NULL, device);
    pool = pool != NULL ? pool : add_pool(ALIQUOT_POOL_OF_GRAPHS, NULL, device, ordinal);
    pthread_mutex_unlock(&mutex);
    return pool;
}

void aliquot_pool_last_context_ended(int device) {
    pthread_mutex_lock(&mutex);
    for (struct aliquot_pool *pool = pools, *next = NULL; pool != NULL; pool = next) {
        next = pool->next;
        if (pool->device == device && pool->growing == 0) {
            aliquot_table_remove_owner(&aliquot_allocations_memory, pool, ignore_allocation);
            release_pool_charge(pool);
            atomic_store(&pool->live_bytes, 0);
            if (pool->kind == ALIQUOT_POOL_DESTROYED) {
                remove_pool(pool);
            }
        }
    }
    pthread_mutex_unlock(&mutex);
}

struct aliquot_pool *aliquot_pool_cached(CUmemoryPool handle) {
    struct aliquot_pool *pool = atomic_load_explicit(cache_entry(handle), memory_order_acquire);
    return pool != NULL && atomic_load_explicit(&pool->handle, memory_order_relaxed) == handle ? pool : NULL;
}

/* A new pool may have the handle of an old one that was destroyed without a hook. */
struct aliquot_pool *aliquot_pool_find(CUmemoryPool handle, enum aliquot_pool_kind kind, CUdevice ordinal, bool new) {
    pthread_mutex_lock(&mutex);
    struct aliquot_pool *pool = find_pool(kind, handle, 0);
    if (pool != NULL && new) {
        aliquot_table_remove_owner(&aliquot_allocations_memory, pool, ignore_allocation);
        remove_pool(pool);
        pool = NULL;
    }
    if (pool == NULL) {
        pool =
            add_pool(kind, handle, kind == ALIQUOT_POOL_UNCHARGED ? -1 : aliquot_device_of_ordinal(ordinal), ordinal);
    }
    if (pool != NULL && new) {
        pool->created_by_program = true;
    }
    if (pool != NULL) {
        atomic_store_explicit(cache_entry(handle), pool, memory_order_release);
    }
    pthread_mutex_unlock(&mutex);
    return pool;
}

/* The pool is trimmed first, because it can no longer be queried afterwards. */
struct aliquot_pool *aliquot_pool_begin_destroy(CUmemoryPool handle, enum aliquot_pool_kind *kind) {
    pthread_mutex_lock(&mutex);
    struct aliquot_pool *pool = handle == NULL ? NULL : find_pool(ALIQUOT_POOL_CHARGED, handle, 0);
    *kind = pool == NULL ? ALIQUOT_POOL_UNCHARGED : pool->kind;
    if (*kind == ALIQUOT_POOL_CHARGED && pool->created_by_program && pool->device >= 0) {
        lock_pool(pool);
        trim_pool(pool, UINT64_MAX);
        unlock_pool(pool);
    }
    if (pool != NULL) {
        pool->kind = ALIQUOT_POOL_DESTROYED;
        pool->handle = NULL;
        atomic_fetch_add(&pool->growing, 1); /* until aliquot_pool_end_destroy(), which keeps the entry */
    }
    pthread_mutex_unlock(&mutex);
    return pool;
}

void aliquot_pool_end_destroy(struct aliquot_pool *pool, CUmemoryPool handle, enum aliquot_pool_kind kind,
                              bool destroyed) {
    if (pool == NULL) {
        return;
    }
    pthread_mutex_lock(&mutex);
    if (!destroyed) {
        pool->kind = kind;
        pool->handle = handle;
    }
    pthread_mutex_unlock(&mutex);
    atomic_fetch_sub(&pool->growing, 1);
    remove_destroyed_pools();
}
