/* Hooks of plain memory and of memory queries. NVIDIA's documentation describes the functions. */
#include "charge/allocations.h"
#include "charge/charge.h"
#include "charge/pool.h"
#include "driver/device.h"
#include "limits/account.h"
#include "limits/config.h"

static uint64_t limit_of(int device) {
    return device < 0 ? 0 : aliquot_account_limit(device);
}

static uint64_t remaining_bytes(int device) {
    uint64_t limit = limit_of(device);
    uint64_t used = device < 0 ? 0 : aliquot_account_used(device);
    return used < limit ? limit - used : 0;
}

static unsigned int saturated(uint64_t bytes) {
    return bytes > UINT32_MAX ? UINT32_MAX : (unsigned int)bytes;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    ALIQUOT_REQUIRE(cuDeviceTotalMem_v2)
    CUresult result = aliquot_real.cuDeviceTotalMem_v2(bytes, device);
    if (result == CUDA_SUCCESS && aliquot_config_mode() == ALIQUOT_MODE_ENFORCE) {
        *bytes = limit_of(aliquot_device_of_ordinal(device));
    }
    return result;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device) {
    ALIQUOT_REQUIRE(cuDeviceTotalMem)
    CUresult result = aliquot_real.cuDeviceTotalMem(bytes, device);
    if (result == CUDA_SUCCESS && aliquot_config_mode() == ALIQUOT_MODE_ENFORCE) {
        *bytes = saturated(limit_of(aliquot_device_of_ordinal(device)));
    }
    return result;
}

/* Limits the real figures of the current device's memory to the container's. */
static void limit_memory_info(uint64_t *free, uint64_t *total) {
    if (aliquot_config_mode() != ALIQUOT_MODE_ENFORCE) {
        return;
    }
    CUcontext context = NULL;
    int device = -1;
    aliquot_device_of_current(&context, &device);
    aliquot_pool_update_charges();
    uint64_t remaining = remaining_bytes(device);
    *total = limit_of(device);
    *free = remaining < *free ? remaining : *free;
}

#define MEMORY_INFO(symbol, type, converted)                                                                           \
    CUresult symbol(type *free, type *total) {                                                                         \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        type real_free = 0, real_total = 0;                                                                            \
        CUresult result = aliquot_real.symbol(&real_free, &real_total);                                                \
        if (result != CUDA_SUCCESS) {                                                                                  \
            return result;                                                                                             \
        }                                                                                                              \
        uint64_t free_bytes = real_free, total_bytes = real_total;                                                     \
        limit_memory_info(&free_bytes, &total_bytes);                                                                  \
        if (free != NULL) {                                                                                            \
            *free = converted(free_bytes);                                                                             \
        }                                                                                                              \
        if (total != NULL) {                                                                                           \
            *total = converted(total_bytes);                                                                           \
        }                                                                                                              \
        return CUDA_SUCCESS;                                                                                           \
    }

MEMORY_INFO(cuMemGetInfo, unsigned int, saturated)
MEMORY_INFO(cuMemGetInfo_v2, size_t, (size_t))

#define ALLOC_PLAIN(symbol, free, pointer, size)                                                                       \
    CUresult symbol(pointer *address, size bytes) {                                                                    \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        pointer created = 0;                                                                                           \
        ALIQUOT_CHARGED_ALLOCATION(&aliquot_allocations_memory, bytes,                                                 \
                                   aliquot_real.symbol(address == NULL ? NULL : &created, bytes), bytes, created,      \
                                   aliquot_real.free(created));                                                        \
        *address = created;                                                                                            \
        return CUDA_SUCCESS;                                                                                           \
    }

ALLOC_PLAIN(cuMemAlloc, cuMemFree, CUdeviceptr_v1, unsigned int)
ALLOC_PLAIN(cuMemAlloc_v2, cuMemFree_v2, CUdeviceptr, size_t)

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags) {
    ALIQUOT_REQUIRE(cuMemAllocManaged)
    CUdeviceptr created = 0;
    ALIQUOT_CHARGED_ALLOCATION(&aliquot_allocations_memory, bytes,
                               aliquot_real.cuMemAllocManaged(address == NULL ? NULL : &created, bytes, flags), bytes,
                               created, aliquot_real.cuMemFree_v2(created));
    *address = created;
    return CUDA_SUCCESS;
}

/* Saturates, so that a size that overflows exceeds any limit. */
static uint64_t pitched_bytes(uint64_t width, uint64_t height) {
    uint64_t bytes = 0;
    return __builtin_mul_overflow(width, height, &bytes) ? UINT64_MAX : bytes;
}

#define ALLOC_PITCHED(symbol, free, pointer, size)                                                                     \
    CUresult symbol(pointer *address, size *pitch, size width, size height, unsigned int element) {                    \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        pointer created = 0;                                                                                           \
        size created_pitch = 0;                                                                                        \
        ALIQUOT_CHARGED_ALLOCATION(&aliquot_allocations_memory, pitched_bytes(width, height),                          \
                                   aliquot_real.symbol(address == NULL ? NULL : &created,                              \
                                                       pitch == NULL ? NULL : &created_pitch, width, height, element), \
                                   pitched_bytes(created_pitch, height), created, aliquot_real.free(created));         \
        *address = created;                                                                                            \
        *pitch = created_pitch;                                                                                        \
        return CUDA_SUCCESS;                                                                                           \
    }

ALLOC_PITCHED(cuMemAllocPitch, cuMemFree, CUdeviceptr_v1, unsigned int)
ALLOC_PITCHED(cuMemAllocPitch_v2, cuMemFree_v2, CUdeviceptr, size_t)

/* Each of these functions frees memory of any kind, plain or from a pool, immediately or in stream order. */
#define FREE_MEMORY(symbol, parameters, arguments, at_once)                                                            \
    CUresult symbol parameters {                                                                                       \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        struct aliquot_pending_free pending;                                                                           \
        aliquot_charge_before_free(&pending, &aliquot_allocations_memory, address);                                    \
        CUresult result =                                                                                              \
            aliquot_charge_after_free(&pending, &aliquot_allocations_memory, aliquot_real.symbol arguments);           \
        if (result == CUDA_SUCCESS && pending.known && pending.allocation.pooled) {                                    \
            aliquot_pool_freed(&pending.allocation, at_once);                                                          \
        }                                                                                                              \
        return result;                                                                                                 \
    }

FREE_MEMORY(cuMemFree, (CUdeviceptr_v1 address), (address), true)
FREE_MEMORY(cuMemFree_v2, (CUdeviceptr address), (address), true)
FREE_MEMORY(cuMemFreeAsync, (CUdeviceptr address, CUstream stream), (address, stream), false)
FREE_MEMORY(cuMemFreeAsync_ptsz, (CUdeviceptr address, CUstream stream), (address, stream), false)
