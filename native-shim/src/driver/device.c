/*
 * Caches the device of each context: the driver returns the current context in a few nanoseconds, but not always its
 * device. An entry is one word, read and written without a lock: the context's address (48 bits), the generation in
 * which the entry was made (8), and the device + 1. The end of any context starts a new generation.
 */
#include "driver/device.h"

#include "driver/lookup.h"
#include "limits/account.h"
#include "limits/limits.h"
#include "os/fork.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define ORDINAL_CACHE_ENTRIES 64
#define CONTEXT_CACHE_ENTRIES 64
#define CONTEXT_SHIFT 16
#define GENERATION_SHIFT 8
#define DEVICE_MASK UINT64_C(0xff)

static atomic_schar device_of_ordinal[ORDINAL_CACHE_ENTRIES];  /* device + 1; 0: unknown */
static atomic_int ordinal_of_device[ALIQUOT_LIMITS_VGPUS_MAX]; /* valid once device_of_ordinal has the device */
static _Atomic uint64_t device_of_context[CONTEXT_CACHE_ENTRIES];
static atomic_uchar context_generation;

void aliquot_device_invalidate_contexts(void) {
    atomic_fetch_add(&context_generation, 1);
}

/* Ordinals may mean other GPUs. */
static void reset_devices(void) {
    for (size_t i = 0; i < ORDINAL_CACHE_ENTRIES; i++) {
        atomic_store_explicit(&device_of_ordinal[i], 0, memory_order_relaxed);
    }
    for (size_t i = 0; i < CONTEXT_CACHE_ENTRIES; i++) {
        atomic_store_explicit(&device_of_context[i], 0, memory_order_relaxed);
    }
}

ALIQUOT_AFTER_FORK(reset_devices);

int aliquot_device_of_ordinal(CUdevice ordinal) {
    bool cacheable = ordinal >= 0 && ordinal < ORDINAL_CACHE_ENTRIES;
    int cached = cacheable ? atomic_load_explicit(&device_of_ordinal[ordinal], memory_order_acquire) : 0;
    if (cached > 0) {
        return cached - 1;
    }
    CUuuid uuid;
    /* For a MIG device the first version returns the UUID of the whole GPU, the second the UUID of the MIG device. */
    CUresult result = aliquot_real.cuDeviceGetUuid_v2 != NULL ? aliquot_real.cuDeviceGetUuid_v2(&uuid, ordinal)
                      : aliquot_real.cuDeviceGetUuid != NULL  ? aliquot_real.cuDeviceGetUuid(&uuid, ordinal)
                                                              : CUDA_ERROR_NOT_SUPPORTED;
    if (result != CUDA_SUCCESS) {
        return -1;
    }
    uint8_t bytes[16];
    memcpy(bytes, uuid.bytes, sizeof bytes);
    int device = aliquot_account_device(bytes);
    if (device >= 0) {
        atomic_store_explicit(&ordinal_of_device[device], ordinal, memory_order_relaxed);
    }
    if (device >= 0 && cacheable) {
        atomic_store_explicit(&device_of_ordinal[ordinal], (signed char)(device + 1), memory_order_release);
    }
    return device;
}

/* Ordinal of the current context's device, or of another context, which is current meanwhile. */
static CUresult ordinal_of_context(CUcontext context, CUdevice *ordinal) {
    CUcontext current = NULL, popped = NULL;
    if (context == NULL || (aliquot_real.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context)) {
        return aliquot_real.cuCtxGetDevice(ordinal);
    }
    CUresult result =
        aliquot_real.cuCtxPushCurrent_v2 == NULL ? CUDA_ERROR_NOT_SUPPORTED : aliquot_real.cuCtxPushCurrent_v2(context);
    if (result == CUDA_SUCCESS) {
        result = aliquot_real.cuCtxGetDevice(ordinal);
        aliquot_real.cuCtxPopCurrent_v2(&popped);
    }
    return result;
}

/* Queries the driver. entry: where to cache the answer for tag, or NULL. */
static __attribute__((noinline, cold)) CUresult query_device(CUcontext context, int *device, CUdevice *ordinal,
                                                             _Atomic uint64_t *entry, uint64_t tag) {
    CUresult result = ordinal_of_context(context, ordinal);
    *device = result == CUDA_SUCCESS ? aliquot_device_of_ordinal(*ordinal) : -1;
    if (*device >= 0 && entry != NULL) {
        atomic_store_explicit(entry, tag | (uint64_t)(*device + 1), memory_order_release);
    }
    return result;
}

/* Device of a context. ordinal: NULL if the caller does not need it. */
static CUresult device_of(CUcontext context, int *device, CUdevice *ordinal) {
    uint64_t address = (uint64_t)(uintptr_t)context;
    uint64_t tag = address << CONTEXT_SHIFT | (uint64_t)atomic_load_explicit(&context_generation, memory_order_acquire)
                                                  << GENERATION_SHIFT;
    _Atomic uint64_t *entry = &device_of_context[(address >> 6 ^ address >> 12) % CONTEXT_CACHE_ENTRIES];
    uint64_t found = atomic_load_explicit(entry, memory_order_acquire);
    if ((found & ~DEVICE_MASK) == tag && (found & DEVICE_MASK) != 0) {
        *device = (int)(found & DEVICE_MASK) - 1;
        if (ordinal != NULL) {
            *ordinal = atomic_load_explicit(&ordinal_of_device[*device], memory_order_relaxed);
        }
        return CUDA_SUCCESS;
    }
    CUdevice queried = 0;
    return query_device(context, device, ordinal != NULL ? ordinal : &queried,
                        address >> (64 - CONTEXT_SHIFT) == 0 ? entry : NULL, tag);
}

static CUresult device_and_ordinal_of_current(CUcontext *context, int *device, CUdevice *ordinal) {
    CUdevice none = 0;
    *context = NULL;
    *device = -1;
    CUresult result = aliquot_real.cuCtxGetCurrent(context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    /* Without a context it returns the driver's error. */
    return *context == NULL ? query_device(NULL, device, &none, NULL, 0) : device_of(*context, device, ordinal);
}

CUresult aliquot_device_of_current(CUcontext *context, int *device) {
    return device_and_ordinal_of_current(context, device, NULL);
}

CUresult aliquot_device_ordinal_of_context(CUcontext context, CUdevice *ordinal) {
    int device = -1;
    return device_of(context, &device, ordinal);
}

CUresult aliquot_device_ordinal_of_stream(CUstream stream, CUdevice *ordinal) {
    CUcontext context = NULL;
    int device = -1;
    if (stream <= CU_STREAM_PER_THREAD /* or NULL, or CU_STREAM_LEGACY */ || aliquot_real.cuStreamGetCtx == NULL) {
        return device_and_ordinal_of_current(&context, &device, ordinal);
    }
    CUresult result = aliquot_real.cuStreamGetCtx(stream, &context);
    return result != CUDA_SUCCESS ? result : device_of(context, &device, ordinal);
}
