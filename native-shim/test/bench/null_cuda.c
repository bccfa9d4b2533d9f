/*
 * A driver whose calls cost almost nothing, so that benchmarks measure the shim alone. No call fails. The driver only
 * counts launches; by its events each launch keeps the GPU busy for KERNEL_NS, too little for a compute limit to hold
 * back a launch.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define KERNEL_NS 5

typedef struct context *CUcontext;
typedef struct event {
    uint64_t launched;
} * CUevent;

static __thread uint64_t allocations, launched;

#define EXPORT(name, ...)                                                                                              \
    int name(__VA_ARGS__);                                                                                             \
    int name(__VA_ARGS__)

EXPORT(cuInit, unsigned flags) {
    (void)flags;
    return 0;
}

EXPORT(cuDeviceGetUuid_v2, char *uuid, int device) {
    for (int i = 0; i < 16; i++) {
        uuid[i] = (char)(16 + i + device);
    }
    return 0;
}

EXPORT(cuCtxGetCurrent, CUcontext *context) {
    *context = (CUcontext)(uintptr_t)64;
    return 0;
}

EXPORT(cuCtxSetCurrent, CUcontext context) {
    (void)context;
    return 0;
}

EXPORT(cuCtxGetDevice, int *device) {
    *device = 0;
    return 0;
}

/* Threads get different addresses, because each thread's counter has another address. */
EXPORT(cuMemAlloc_v2, unsigned long long *address, size_t bytes) {
    (void)bytes;
    *address = ((uintptr_t)&allocations << 24) + ++allocations * 512;
    return 0;
}

EXPORT(cuMemFree_v2, unsigned long long address) {
    (void)address;
    return 0;
}

/* The pool holds one chunk all the time. */

EXPORT(cuMemAllocAsync, unsigned long long *address, size_t bytes, void *stream) {
    (void)stream;
    return cuMemAlloc_v2(address, bytes);
}

EXPORT(cuMemFreeAsync, unsigned long long address, void *stream) {
    (void)address, (void)stream;
    return 0;
}

EXPORT(cuDeviceGetMemPool, void **pool, int device) {
    *pool = (void *)(uintptr_t)(64 + device);
    return 0;
}

EXPORT(cuMemPoolGetAttribute, void *pool, int attribute, void *value) {
    (void)pool, (void)attribute;
    *(uint64_t *)value = 32 << 20;
    return 0;
}

EXPORT(cuMemGetInfo_v2, size_t *free, size_t *total) {
    *free = *total = (size_t)80 << 30;
    return 0;
}

EXPORT(cuLaunchKernel, void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
       unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **parameters, void **extra) {
    (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z;
    (void)shared_bytes, (void)stream, (void)parameters, (void)extra;
    launched++;
    return 0;
}

EXPORT(cuMemcpyAsync, unsigned long long destination, unsigned long long source, size_t bytes, void *stream) {
    (void)destination, (void)source, (void)bytes, (void)stream;
    return 0;
}

/* All memory is of the host, so that no compute limit holds back a copy. */
EXPORT(cuPointerGetAttributes, unsigned count, const int *attributes, void **values, unsigned long long address) {
    (void)count, (void)attributes, (void)address;
    *(unsigned *)values[0] = 0;
    return 0;
}

/* Functions by which the shim measures the GPU time of launches. */

EXPORT(cuStreamIsCapturing, void *stream, int *status) {
    (void)stream;
    *status = 0;
    return 0;
}

EXPORT(cuThreadExchangeStreamCaptureMode, int *mode) {
    (void)mode;
    return 0;
}

EXPORT(cuEventCreate, CUevent *event, unsigned flags) {
    (void)flags;
    *event = calloc(1, sizeof **event);
    return 0;
}

EXPORT(cuEventDestroy_v2, CUevent event) {
    free(event);
    return 0;
}

EXPORT(cuEventRecord, CUevent event, void *stream) {
    (void)stream;
    event->launched = launched;
    return 0;
}

EXPORT(cuEventQuery, CUevent event) {
    (void)event;
    return 0;
}

EXPORT(cuEventElapsedTime, float *milliseconds, CUevent start, CUevent end) {
    *milliseconds = (float)(end->launched - start->launched) * (KERNEL_NS / 1e6f);
    return 0;
}
