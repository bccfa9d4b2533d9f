/* Hooks of memory pools, of allocations from them, and of the calls in which pools shrink. */
#include "charge/allocations.h"
#include "charge/charge.h"
#include "charge/context.h"
#include "charge/pool.h"
#include "driver/capture.h"
#include "driver/device.h"
#include "limits/account.h"
#include "limits/config.h"

/* Pools of host memory use no device memory. Managed memory may move to the device completely, wherever it starts. */
static enum aliquot_pool_kind kind_of(CUmemLocation location, CUmemAllocationType type, CUdevice *ordinal) {
    *ordinal = location.id;
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        return ALIQUOT_POOL_CHARGED;
    }
    return type == CU_MEM_ALLOCATION_TYPE_MANAGED && aliquot_real.cuCtxGetDevice(ordinal) == CUDA_SUCCESS
               ? ALIQUOT_POOL_CHARGED
               : ALIQUOT_POOL_UNCHARGED;
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
    *pool = aliquot_pool_cached(handle);
    *pool = *pool != NULL ? *pool : aliquot_pool_find(handle, ALIQUOT_POOL_CHARGED, ordinal, false);
    if (*pool == NULL || ((*pool)->kind == ALIQUOT_POOL_CHARGED && (*pool)->device < 0)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if ((*pool)->kind == ALIQUOT_POOL_UNCHARGED) {
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
    if (!aliquot_context_ensure_charged(pool->device) || !aliquot_pool_reserve_growth(growth, pool, bytes)) {
        aliquot_pool_count_free(pool, bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

/* Whether the charge covers what the pool holds. False also if another thread changes the charge meanwhile: it may have
   asked the driver before this operation grew the pool. version: the pool's, before. */
static bool is_covered(const struct aliquot_growth *growth, unsigned version) {
    const struct aliquot_pool *pool = growth->pool;
    uint64_t reserved = 0;
    bool known = aliquot_pool_reserved_bytes(pool, &reserved);
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
        !aliquot_charge_record(&allocation, &aliquot_allocations_memory, address)) {
        return false;
    }
    if (!covered) {
        aliquot_pool_finish_growth(growth);
    } else if (atomic_fetch_sub(&pool->growing, 1) == 1 && atomic_load(&pool->version) != version) {
        aliquot_pool_update_charge(pool); /* what other threads have left to the last */
    }
    return true;
}

/* After the driver has rejected an allocation. */
static void cancel_allocation(struct aliquot_growth *growth, uint64_t bytes) {
    aliquot_pool_count_free(growth->pool, bytes);
    aliquot_pool_settle_growth(growth);
    aliquot_pool_finish_growth(growth);
}

/* After an allocation that could not be charged has been freed. */
static void finish_rejected_allocation(const struct aliquot_growth *growth, uint64_t bytes) {
    aliquot_pool_count_free(growth->pool, bytes);
    aliquot_pool_trim_device(growth->pool->device, aliquot_account_limit(growth->pool->device));
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
        enum aliquot_pool_kind kind = kind_of(properties->location, properties->allocType, &ordinal);
        struct aliquot_pool *entry = aliquot_pool_find(*pool, kind, ordinal, true);
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
        aliquot_pool_find(*pool, ALIQUOT_POOL_UNCHARGED, 0, true); /* charged where it was created */
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
            enum aliquot_pool_kind kind = kind_of(*location, type, &ordinal);                                          \
            aliquot_pool_find(*pool, kind, ordinal, false);                                                            \
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

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
    ALIQUOT_REQUIRE(cuMemPoolDestroy)
    enum aliquot_pool_kind kind;
    struct aliquot_pool *pool = aliquot_pool_begin_destroy(handle, &kind);
    CUresult result = aliquot_real.cuMemPoolDestroy(handle);
    aliquot_pool_end_destroy(pool, handle, kind, result == CUDA_SUCCESS);
    return result;
}
