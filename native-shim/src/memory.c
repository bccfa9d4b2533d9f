/* Plain memory and what programs are shown. What each function means is in NVIDIA's documentation of it. */
#include "memory.h"

#include "account.h"
#include "charge.h"
#include "config.h"
#include "device.h"
#include "pool.h"

struct aliquot_table aliquot_memory;

void aliquot_memory_reset(void) {
    aliquot_table_reset(&aliquot_memory);
}

static uint64_t limit_of(int device) {
    return device < 0 ? 0 : aliquot_account_limit(device);
}

static uint64_t room_on(int device) {
    uint64_t limit = limit_of(device);
    uint64_t used = device < 0 ? 0 : aliquot_account_used(device);
    return used < limit ? limit - used : 0;
}

static unsigned int saturated(uint64_t bytes) {
    return bytes > UINT32_MAX ? UINT32_MAX : (unsigned int)bytes;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    ALIQUOT_NEED(cuDeviceTotalMem_v2)
    CUresult result = aliquot_bare.cuDeviceTotalMem_v2(bytes, device);
    if (result == CUDA_SUCCESS && aliquot_config_mode() == ALIQUOT_MODE_ENFORCE) {
        *bytes = limit_of(aliquot_device_of_ordinal(device));
    }
    return result;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device) {
    ALIQUOT_NEED(cuDeviceTotalMem)
    CUresult result = aliquot_bare.cuDeviceTotalMem(bytes, device);
    if (result == CUDA_SUCCESS && aliquot_config_mode() == ALIQUOT_MODE_ENFORCE) {
        *bytes = saturated(limit_of(aliquot_device_of_ordinal(device)));
    }
    return result;
}

/* What the container sees of the current device's memory, from what there really is. */
static void show(uint64_t *free, uint64_t *total) {
    if (aliquot_config_mode() != ALIQUOT_MODE_ENFORCE) {
        return;
    }
    int device = aliquot_device_current();
    aliquot_pool_true_up();
    uint64_t room = room_on(device);
    *total = limit_of(device);
    *free = room < *free ? room : *free;
}

#define MEMORY_INFO(symbol, type, shown)                                                                               \
    CUresult symbol(type *free, type *total) {                                                                         \
        ALIQUOT_NEED(symbol)                                                                                           \
        type real_free = 0, real_total = 0;                                                                            \
        CUresult result = aliquot_bare.symbol(&real_free, &real_total);                                                \
        if (result != CUDA_SUCCESS) {                                                                                  \
            return result;                                                                                             \
        }                                                                                                              \
        uint64_t free_bytes = real_free, total_bytes = real_total;                                                     \
        show(&free_bytes, &total_bytes);                                                                               \
        if (free != NULL) {                                                                                            \
            *free = shown(free_bytes);                                                                                 \
        }                                                                                                              \
        if (total != NULL) {                                                                                           \
            *total = shown(total_bytes);                                                                               \
        }                                                                                                              \
        return CUDA_SUCCESS;                                                                                           \
    }

MEMORY_INFO(cuMemGetInfo, unsigned int, saturated)
MEMORY_INFO(cuMemGetInfo_v2, size_t, (size_t))

#define ALLOC(symbol, free, pointer, size)                                                                             \
    CUresult symbol(pointer *address, size bytes) {                                                                    \
        ALIQUOT_NEED(symbol)                                                                                           \
        pointer made = 0;                                                                                              \
        ALIQUOT_CHARGED(&aliquot_memory, bytes, aliquot_bare.symbol(address == NULL ? NULL : &made, bytes), bytes,     \
                        made, aliquot_bare.free(made));                                                                \
        *address = made;                                                                                               \
        return CUDA_SUCCESS;                                                                                           \
    }

ALLOC(cuMemAlloc, cuMemFree, CUdeviceptr_v1, unsigned int)
ALLOC(cuMemAlloc_v2, cuMemFree_v2, CUdeviceptr, size_t)

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags) {
    ALIQUOT_NEED(cuMemAllocManaged)
    CUdeviceptr made = 0;
    ALIQUOT_CHARGED(&aliquot_memory, bytes,
                    aliquot_bare.cuMemAllocManaged(address == NULL ? NULL : &made, bytes, flags), bytes, made,
                    aliquot_bare.cuMemFree_v2(made));
    *address = made;
    return CUDA_SUCCESS;
}

/* Saturating, so that what overflows is over any limit. */
static uint64_t area(uint64_t width, uint64_t height) {
    uint64_t bytes = 0;
    return __builtin_mul_overflow(width, height, &bytes) ? UINT64_MAX : bytes;
}

#define ALLOC_PITCH(symbol, free, pointer, size)                                                                       \
    CUresult symbol(pointer *address, size *pitch, size width, size height, unsigned int element) {                    \
        ALIQUOT_NEED(symbol)                                                                                           \
        pointer made = 0;                                                                                              \
        size made_pitch = 0;                                                                                           \
        ALIQUOT_CHARGED(&aliquot_memory, area(width, height),                                                          \
                        aliquot_bare.symbol(address == NULL ? NULL : &made, pitch == NULL ? NULL : &made_pitch, width, \
                                            height, element),                                                          \
                        area(made_pitch, height), made, aliquot_bare.free(made));                                      \
        *address = made;                                                                                               \
        *pitch = made_pitch;                                                                                           \
        return CUDA_SUCCESS;                                                                                           \
    }

ALLOC_PITCH(cuMemAllocPitch, cuMemFree, CUdeviceptr_v1, unsigned int)
ALLOC_PITCH(cuMemAllocPitch_v2, cuMemFree_v2, CUdeviceptr, size_t)

/* Any memory may be freed in any way: plain, from a pool, at once, in stream order. */
#define FREE(symbol, parameters, arguments, at_once)                                                                   \
    CUresult symbol parameters {                                                                                       \
        ALIQUOT_NEED(symbol)                                                                                           \
        struct aliquot_freeing freeing;                                                                                \
        aliquot_charge_start_freeing(&freeing, &aliquot_memory, address);                                              \
        CUresult result = aliquot_charge_end_freeing(&freeing, &aliquot_memory, aliquot_bare.symbol arguments);        \
        if (result == CUDA_SUCCESS && freeing.known && freeing.holding.pooled) {                                       \
            aliquot_pool_freed(&freeing.holding, at_once);                                                             \
        }                                                                                                              \
        return result;                                                                                                 \
    }

FREE(cuMemFree, (CUdeviceptr_v1 address), (address), true)
FREE(cuMemFree_v2, (CUdeviceptr address), (address), true)
FREE(cuMemFreeAsync, (CUdeviceptr address, CUstream stream), (address, stream), false)
FREE(cuMemFreeAsync_ptsz, (CUdeviceptr address, CUstream stream), (address, stream), false)
