/* The hooks of the driver API that carry logic; what each means is in NVIDIA's documentation of that function. */
#include "account.h"
#include "config.h"
#include "device.h"
#include "lookup.h"
#include "table.h"

#include <stdbool.h>

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

/* An allocation, from before the driver is asked until it is remembered. */
struct charge {
    bool counted;
    struct aliquot_holding holding;
};

/* Reserves bytes on the current context's device. */
static CUresult begin(struct charge *charge, uint64_t bytes) {
    enum aliquot_mode mode = aliquot_config_mode();
    charge->counted = mode == ALIQUOT_MODE_ENFORCE;
    if (!charge->counted) {
        return mode == ALIQUOT_MODE_CLOSED ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
    }
    CUcontext context = NULL;
    int device = -1;
    CUresult result = aliquot_device_of_current(&context, &device);
    if (result != CUDA_SUCCESS) {
        return result; /* no context, not initialised: what the allocation would have answered */
    }
    if (device < 0 || !aliquot_account_reserve(device, bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    charge->holding = (struct aliquot_holding){.bytes = bytes, .context = context, .device = (uint32_t)device};
    return CUDA_SUCCESS;
}

static void give_back(const struct aliquot_holding *holding) {
    aliquot_account_release((int)holding->device, holding->bytes);
}

/* What was reserved is now what the driver really took. False: that is over the limit. */
static bool true_up(struct charge *charge, uint64_t bytes) {
    if (!charge->counted) {
        return true;
    }
    uint64_t reserved = charge->holding.bytes;
    if (bytes > reserved && !aliquot_account_reserve((int)charge->holding.device, bytes - reserved)) {
        return false;
    }
    if (bytes < reserved) {
        aliquot_account_release((int)charge->holding.device, reserved - bytes);
    }
    charge->holding.bytes = bytes;
    return true;
}

/* After the driver failed. */
static CUresult cancel(struct charge *charge, CUresult result) {
    if (charge->counted) {
        give_back(&charge->holding);
    }
    return result;
}

/* After the driver made it. False: it can't be remembered, so it must go. */
static bool keep(const struct charge *charge, CUdeviceptr address) {
    struct aliquot_holding old;
    bool replaced = false;
    if (!charge->counted) {
        return true;
    }
    bool kept = aliquot_table_put(address, &charge->holding, &old, &replaced);
    if (replaced) {
        give_back(&old); /* freed in a way that we don't see: the driver gave the same address again */
    }
    return kept;
}

CUresult cuInit(unsigned int flags) {
    if (!aliquot_lookup_cuda() || aliquot_bare.cuInit == NULL) {
        return CUDA_ERROR_NO_DEVICE;
    }
    return aliquot_config_mode() == ALIQUOT_MODE_CLOSED ? CUDA_ERROR_NOT_PERMITTED : aliquot_bare.cuInit(flags);
}

/* Every hook begins so: the driver's function, or an error that says that it has none. */
#define NEED(function)                                                                                                 \
    if (!aliquot_lookup_cuda() || aliquot_bare.function == NULL) {                                                     \
        return CUDA_ERROR_NOT_SUPPORTED;                                                                               \
    }

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    NEED(cuDeviceTotalMem_v2)
    CUresult result = aliquot_bare.cuDeviceTotalMem_v2(bytes, device);
    if (result == CUDA_SUCCESS && aliquot_config_mode() == ALIQUOT_MODE_ENFORCE) {
        *bytes = limit_of(aliquot_device_of_ordinal(device));
    }
    return result;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device) {
    NEED(cuDeviceTotalMem)
    CUresult result = aliquot_bare.cuDeviceTotalMem(bytes, device);
    if (result == CUDA_SUCCESS && aliquot_config_mode() == ALIQUOT_MODE_ENFORCE) {
        *bytes = saturated(limit_of(aliquot_device_of_ordinal(device)));
    }
    return result;
}

/* What the container sees of the current device's memory, from what there really is. */
static void show_memory(uint64_t *free, uint64_t *total) {
    if (aliquot_config_mode() != ALIQUOT_MODE_ENFORCE) {
        return;
    }
    int device = aliquot_device_current();
    uint64_t room = room_on(device);
    *total = limit_of(device);
    *free = room < *free ? room : *free;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
    NEED(cuMemGetInfo_v2)
    size_t real_free = 0, real_total = 0;
    CUresult result = aliquot_bare.cuMemGetInfo_v2(&real_free, &real_total);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint64_t shown_free = real_free, shown_total = real_total;
    show_memory(&shown_free, &shown_total);
    if (free != NULL) {
        *free = shown_free;
    }
    if (total != NULL) {
        *total = shown_total;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(unsigned int *free, unsigned int *total) {
    NEED(cuMemGetInfo)
    unsigned int real_free = 0, real_total = 0;
    CUresult result = aliquot_bare.cuMemGetInfo(&real_free, &real_total);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint64_t shown_free = real_free, shown_total = real_total;
    show_memory(&shown_free, &shown_total);
    if (free != NULL) {
        *free = saturated(shown_free);
    }
    if (total != NULL) {
        *total = saturated(shown_total);
    }
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    NEED(cuMemAlloc_v2)
    struct charge charge;
    CUresult result = begin(&charge, bytes);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    CUdeviceptr made = 0;
    result = aliquot_bare.cuMemAlloc_v2(address == NULL ? NULL : &made, bytes);
    if (result != CUDA_SUCCESS) {
        return cancel(&charge, result);
    }
    if (!keep(&charge, made)) {
        aliquot_bare.cuMemFree_v2(made);
        return cancel(&charge, CUDA_ERROR_OUT_OF_MEMORY);
    }
    *address = made;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr_v1 *address, unsigned int bytes) {
    NEED(cuMemAlloc)
    struct charge charge;
    CUresult result = begin(&charge, bytes);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    CUdeviceptr_v1 made = 0;
    result = aliquot_bare.cuMemAlloc(address == NULL ? NULL : &made, bytes);
    if (result != CUDA_SUCCESS) {
        return cancel(&charge, result);
    }
    if (!keep(&charge, made)) {
        aliquot_bare.cuMemFree(made);
        return cancel(&charge, CUDA_ERROR_OUT_OF_MEMORY);
    }
    *address = made;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags) {
    NEED(cuMemAllocManaged)
    struct charge charge;
    CUresult result = begin(&charge, bytes);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    CUdeviceptr made = 0;
    result = aliquot_bare.cuMemAllocManaged(address == NULL ? NULL : &made, bytes, flags);
    if (result != CUDA_SUCCESS) {
        return cancel(&charge, result);
    }
    if (!keep(&charge, made)) {
        aliquot_bare.cuMemFree_v2(made);
        return cancel(&charge, CUDA_ERROR_OUT_OF_MEMORY);
    }
    *address = made;
    return CUDA_SUCCESS;
}

/* Saturating, so that what overflows is over any limit. */
static uint64_t area(uint64_t width, uint64_t height) {
    uint64_t bytes = 0;
    return __builtin_mul_overflow(width, height, &bytes) ? UINT64_MAX : bytes;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned int element) {
    NEED(cuMemAllocPitch_v2)
    struct charge charge;
    CUresult result = begin(&charge, area(width, height));
    if (result != CUDA_SUCCESS) {
        return result;
    }
    CUdeviceptr made = 0;
    size_t made_pitch = 0;
    result = aliquot_bare.cuMemAllocPitch_v2(address == NULL ? NULL : &made, pitch == NULL ? NULL : &made_pitch, width,
                                             height, element);
    if (result != CUDA_SUCCESS) {
        return cancel(&charge, result);
    }
    if (!true_up(&charge, area(made_pitch, height)) || !keep(&charge, made)) {
        aliquot_bare.cuMemFree_v2(made);
        return cancel(&charge, CUDA_ERROR_OUT_OF_MEMORY);
    }
    *address = made;
    *pitch = made_pitch;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *address, unsigned int *pitch, unsigned int width, unsigned int height,
                         unsigned int element) {
    NEED(cuMemAllocPitch)
    struct charge charge;
    CUresult result = begin(&charge, area(width, height));
    if (result != CUDA_SUCCESS) {
        return result;
    }
    CUdeviceptr_v1 made = 0;
    unsigned int made_pitch = 0;
    result = aliquot_bare.cuMemAllocPitch(address == NULL ? NULL : &made, pitch == NULL ? NULL : &made_pitch, width,
                                          height, element);
    if (result != CUDA_SUCCESS) {
        return cancel(&charge, result);
    }
    if (!true_up(&charge, area(made_pitch, height)) || !keep(&charge, made)) {
        aliquot_bare.cuMemFree(made);
        return cancel(&charge, CUDA_ERROR_OUT_OF_MEMORY);
    }
    *address = made;
    *pitch = made_pitch;
    return CUDA_SUCCESS;
}

/* An address is forgotten before the driver frees it, since it may be another thread's right after. What is not known
   (imported, from a pool, or nonsense) is the driver's business. */
struct freeing {
    bool known;
    CUdeviceptr address;
    struct aliquot_holding holding;
};

static struct freeing start_freeing(CUdeviceptr address) {
    struct freeing freeing = {.address = address};
    freeing.known = aliquot_table_take(address, &freeing.holding);
    return freeing;
}

static CUresult end_freeing(const struct freeing *freeing, CUresult result) {
    if (freeing->known && result == CUDA_SUCCESS) {
        give_back(&freeing->holding);
    } else if (freeing->known) {
        keep(&(struct charge){.counted = true, .holding = freeing->holding}, freeing->address);
    }
    return result;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
    NEED(cuMemFree_v2)
    struct freeing freeing = start_freeing(address);
    return end_freeing(&freeing, aliquot_bare.cuMemFree_v2(address));
}

CUresult cuMemFree(CUdeviceptr_v1 address) {
    NEED(cuMemFree)
    struct freeing freeing = start_freeing(address);
    return end_freeing(&freeing, aliquot_bare.cuMemFree(address));
}

/* Plain allocations may be freed in stream order, too. */
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    NEED(cuMemFreeAsync)
    struct freeing freeing = start_freeing(address);
    return end_freeing(&freeing, aliquot_bare.cuMemFreeAsync(address, stream));
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
    NEED(cuMemFreeAsync_ptsz)
    struct freeing freeing = start_freeing(address);
    return end_freeing(&freeing, aliquot_bare.cuMemFreeAsync_ptsz(address, stream));
}

/* The end of a context is the end of the memory made in it. */
static CUresult end_context(CUcontext context, CUresult result) {
    if (result == CUDA_SUCCESS && context != NULL) {
        aliquot_device_forget_contexts();
        aliquot_table_take_context(context, give_back);
    }
    return result;
}

CUresult cuCtxDestroy(CUcontext context) {
    NEED(cuCtxDestroy)
    return end_context(context, aliquot_bare.cuCtxDestroy(context));
}

CUresult cuCtxDestroy_v2(CUcontext context) {
    NEED(cuCtxDestroy_v2)
    return end_context(context, aliquot_bare.cuCtxDestroy_v2(context));
}

static bool is_active(CUdevice device) {
    unsigned int flags = 0;
    int active = 0;
    return aliquot_bare.cuDevicePrimaryCtxGetState != NULL &&
           aliquot_bare.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active != 0;
}

/* The device's primary context if it exists; else NULL. Its handle is only to be had by retaining it. */
static CUcontext primary_context(CUdevice device) {
    CUcontext context = NULL;
    if (aliquot_config_mode() != ALIQUOT_MODE_ENFORCE || !is_active(device) ||
        aliquot_bare.cuDevicePrimaryCtxRetain == NULL ||
        aliquot_bare.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) {
        return NULL;
    }
    if (aliquot_bare.cuDevicePrimaryCtxRelease_v2 != NULL) {
        aliquot_bare.cuDevicePrimaryCtxRelease_v2(device);
    } else if (aliquot_bare.cuDevicePrimaryCtxRelease != NULL) {
        aliquot_bare.cuDevicePrimaryCtxRelease(device);
    }
    return context;
}

/* After a release: the context lives on while others hold it. */
static CUresult end_if_inactive(CUdevice device, CUcontext context, CUresult result) {
    return end_context(is_active(device) ? NULL : context, result);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    NEED(cuDevicePrimaryCtxRelease)
    CUcontext context = primary_context(device);
    return end_if_inactive(device, context, aliquot_bare.cuDevicePrimaryCtxRelease(device));
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    NEED(cuDevicePrimaryCtxRelease_v2)
    CUcontext context = primary_context(device);
    return end_if_inactive(device, context, aliquot_bare.cuDevicePrimaryCtxRelease_v2(device));
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
    NEED(cuDevicePrimaryCtxReset)
    CUcontext context = primary_context(device);
    return end_context(context, aliquot_bare.cuDevicePrimaryCtxReset(device));
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    NEED(cuDevicePrimaryCtxReset_v2)
    CUcontext context = primary_context(device);
    return end_context(context, aliquot_bare.cuDevicePrimaryCtxReset_v2(device));
}
