/*
 * A stub of the driver for the shim's ABI tests. It records the function that was called last. Memory is a list in this
 * process. Tests that need more of a driver use the fake driver.
 *
 * STUB_OTHER_ADDRESSES=1: cuGetProcAddress returns addresses that differ from the exported functions', as a real driver
 * may. STUB_UNKNOWN_ADDRESS=1: for cuMemAlloc in CUDA 12.5 and later it returns the address of an unknown ABI.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef unsigned long long CUdeviceptr;
typedef struct context *CUcontext;

#define INVALID_VALUE 1
#define OUT_OF_MEMORY 2
#define NOT_INITIALIZED 3
#define INVALID_CONTEXT 201
#define NOT_FOUND 500

#define DEVICES 2
#define BLOCKS (1 << 17)
#define BLOCK_STEP 8192 /* small, so that addresses fit the 32-bit ABI */
#define MEMORY (UINT64_C(8) << 30)

struct context {
    int device;
    int users;
};

static struct context primary[DEVICES] = {{0, 0}, {1, 0}};
static __thread CUcontext current;
static atomic_int initialized;
static struct {
    _Atomic uint64_t bytes;
    CUcontext context;
    void *pool; /* NULL: not from a pool */
} blocks[BLOCKS];
static atomic_uint next_block;
static _Atomic uint64_t used[DEVICES];

/* The exported name of the function that was called last. */
const char *stub_entered(void);
static const char *entered;
const char *stub_entered(void) {
    return entered;
}

#define EXPORT(name, ...)                                                                                              \
    CUresult name(__VA_ARGS__);                                                                                        \
    CUresult name(__VA_ARGS__)
#define ENTER entered = __func__

EXPORT(cuInit, unsigned flags) {
    ENTER;
    initialized = flags == 0;
    return flags == 0 ? 0 : INVALID_VALUE;
}

EXPORT(cuDeviceGetCount, int *count) {
    *count = DEVICES;
    return 0;
}

static void uuid_of(char uuid[16], int device) {
    memcpy(uuid, "\x8f\x6e\x8f\x0c\x00\x01\x4a\x5b\x9c\x3d\x00\x00\x00\x00\x00\x01", 16);
    uuid[5] = (char)(device + 1);
    uuid[15] = (char)(device + 1);
}

EXPORT(cuDeviceGetUuid, char *uuid, int device) {
    if (device < 0 || device >= DEVICES) {
        return INVALID_VALUE;
    }
    uuid_of(uuid, device);
    return 0;
}

EXPORT(cuDeviceGetUuid_v2, char *uuid, int device) {
    return cuDeviceGetUuid(uuid, device);
}

EXPORT(cuCtxGetCurrent, CUcontext *context) {
    *context = current;
    return initialized ? 0 : NOT_INITIALIZED;
}

EXPORT(cuCtxSetCurrent, CUcontext context) {
    current = context;
    return 0;
}

static __thread CUcontext pushed_over; /* a stack of two */

EXPORT(cuCtxPushCurrent_v2, CUcontext context) {
    pushed_over = current;
    current = context;
    return 0;
}

EXPORT(cuCtxPopCurrent_v2, CUcontext *context) {
    *context = current;
    current = pushed_over;
    return 0;
}

EXPORT(cuCtxGetDevice, int *device) {
    if (current == NULL) {
        return initialized ? INVALID_CONTEXT : NOT_INITIALIZED;
    }
    *device = current->device;
    return 0;
}

#define ANY __attribute__((unused)) /* marks a parameter that the stub ignores */

static CUresult create_context(CUcontext *context, int device) {
    *context = malloc(sizeof **context);
    (*context)->device = device;
    current = *context;
    return 0;
}

#define CREATE(name, ...)                                                                                              \
    EXPORT(name, CUcontext *context, __VA_ARGS__, int device) {                                                        \
        ENTER;                                                                                                         \
        return create_context(context, device);                                                                        \
    }

CREATE(cuCtxCreate, unsigned flags ANY)
CREATE(cuCtxCreate_v2, unsigned flags ANY)
CREATE(cuCtxCreate_v3, void *affinity ANY, int count ANY, unsigned flags ANY)
CREATE(cuCtxCreate_v4, void *parameters ANY, unsigned flags ANY)

static void destroy_context(CUcontext context) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (blocks[i].context == context && blocks[i].bytes != 0) {
            used[context->device] -= blocks[i].bytes;
            blocks[i].bytes = 0;
        }
    }
    if (current == context) {
        current = NULL;
    }
}

#define DESTROY(name)                                                                                                  \
    EXPORT(name, CUcontext context) {                                                                                  \
        ENTER;                                                                                                         \
        destroy_context(context);                                                                                      \
        return 0;                                                                                                      \
    }

DESTROY(cuCtxDestroy)
DESTROY(cuCtxDestroy_v2)

EXPORT(cuDevicePrimaryCtxRetain, CUcontext *context, int device) {
    ENTER;
    primary[device].users++;
    *context = &primary[device];
    return 0;
}

/* A green context is a primary context's. */
static struct context green_contexts[DEVICES] = {{0, 0}, {1, 0}};

EXPORT(cuDeviceGetDevResource, int device ANY, void *resource ANY, int type ANY) {
    return 0;
}

EXPORT(cuDevResourceGenerateDesc, void **description, void *resources, unsigned count ANY) {
    *description = resources;
    return 0;
}

EXPORT(cuGreenCtxCreate, CUcontext *green, void *resources ANY, int device, unsigned flags ANY) {
    ENTER;
    primary[device].users++;
    *green = &green_contexts[device];
    return 0;
}

EXPORT(cuCtxFromGreenCtx, CUcontext *context, CUcontext green) {
    *context = green;
    return 0;
}

static size_t context_limits[16] = {1024, 1 << 20, 8 << 20};

EXPORT(cuCtxGetLimit, size_t *value, int limit) {
    *value = context_limits[limit];
    return 0;
}

EXPORT(cuCtxSetLimit, int limit, size_t value) {
    ENTER;
    context_limits[limit] = value;
    return 0;
}

EXPORT(cuDevicePrimaryCtxGetState, int device, unsigned *flags, int *active) {
    *flags = 0;
    *active = primary[device].users > 0;
    return 0;
}

static CUresult release_primary(int device) {
    if (primary[device].users == 0) {
        return INVALID_CONTEXT;
    }
    if (--primary[device].users == 0) {
        destroy_context(&primary[device]);
    }
    return 0;
}

EXPORT(cuGreenCtxDestroy, CUcontext green) {
    ENTER;
    return release_primary(green->device);
}

EXPORT(cuDevicePrimaryCtxRelease, int device) {
    ENTER;
    return release_primary(device);
}

EXPORT(cuDevicePrimaryCtxRelease_v2, int device) {
    ENTER;
    return release_primary(device);
}

EXPORT(cuDevicePrimaryCtxReset, int device) {
    ENTER;
    destroy_context(&primary[device]);
    primary[device].users = 0;
    return 0;
}

EXPORT(cuDevicePrimaryCtxReset_v2, int device) {
    ENTER;
    destroy_context(&primary[device]);
    primary[device].users = 0;
    return 0;
}

EXPORT(cuDeviceTotalMem, unsigned *bytes, int device) {
    ENTER;
    (void)device;
    *bytes = UINT32_MAX;
    return 0;
}

EXPORT(cuDeviceTotalMem_v2, size_t *bytes, int device) {
    ENTER;
    (void)device;
    *bytes = MEMORY;
    return 0;
}

EXPORT(cuMemGetInfo, unsigned *free, unsigned *total) {
    ENTER;
    if (free != NULL) {
        *free = UINT32_MAX;
    }
    if (total != NULL) {
        *total = UINT32_MAX;
    }
    return current == NULL ? INVALID_CONTEXT : 0;
}

EXPORT(cuMemGetInfo_v2, size_t *free, size_t *total) {
    ENTER;
    if (current == NULL) {
        return INVALID_CONTEXT;
    }
    if (free != NULL) {
        *free = MEMORY - used[current->device];
    }
    if (total != NULL) {
        *total = MEMORY;
    }
    return 0;
}

static CUresult allocate(CUdeviceptr *address, uint64_t bytes) {
    if (current == NULL) {
        return INVALID_CONTEXT;
    }
    if (address == NULL || bytes == 0) {
        return INVALID_VALUE;
    }
    if ((used[current->device] += bytes) > MEMORY) {
        used[current->device] -= bytes;
        return OUT_OF_MEMORY;
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        unsigned block = next_block++ % BLOCKS;
        uint64_t none = 0;
        if (atomic_compare_exchange_strong(&blocks[block].bytes, &none, bytes)) {
            blocks[block].context = current;
            blocks[block].pool = NULL;
            *address = (CUdeviceptr)(block + 1) * BLOCK_STEP;
            return 0;
        }
    }
    used[current->device] -= bytes;
    return OUT_OF_MEMORY;
}

static CUresult free_block(CUdeviceptr address) {
    uint64_t block = address / BLOCK_STEP - 1;
    if (address == 0) {
        return 0;
    }
    if (address % BLOCK_STEP != 0 || block >= BLOCKS || blocks[block].bytes == 0) {
        return INVALID_VALUE;
    }
    used[blocks[block].context->device] -= blocks[block].bytes;
    blocks[block].bytes = 0;
    return 0;
}

EXPORT(cuMemAlloc, unsigned *address, unsigned bytes) {
    ENTER;
    CUdeviceptr made = 0;
    CUresult result = allocate(address == NULL ? NULL : &made, bytes);
    if (result == 0) {
        *address = (unsigned)made;
    }
    return result;
}

EXPORT(cuMemAlloc_v2, CUdeviceptr *address, size_t bytes) {
    ENTER;
    return allocate(address, bytes);
}

EXPORT(cuMemAllocManaged, CUdeviceptr *address, size_t bytes, unsigned flags) {
    ENTER;
    (void)flags;
    return allocate(address, bytes);
}

EXPORT(cuMemAllocPitch, unsigned *address, unsigned *pitch, unsigned width, unsigned height, unsigned element) {
    ENTER;
    (void)element;
    CUdeviceptr made = 0;
    unsigned padded = (width + 511) / 512 * 512;
    CUresult result = allocate(&made, (uint64_t)padded * height);
    if (result == 0) {
        *pitch = padded;
        *address = (unsigned)made;
    }
    return result;
}

EXPORT(cuMemAllocPitch_v2, CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element) {
    ENTER;
    (void)element;
    size_t padded = (width + 511) / 512 * 512;
    CUresult result = allocate(address, padded * height);
    if (result == 0) {
        *pitch = padded;
    }
    return result;
}

EXPORT(cuMemFree, unsigned address) {
    ENTER;
    return free_block(address);
}

EXPORT(cuMemFree_v2, CUdeviceptr address) {
    ENTER;
    return free_block(address);
}

EXPORT(cuMemFreeAsync, CUdeviceptr address, void *stream) {
    ENTER;
    (void)stream;
    return free_block(address);
}

EXPORT(cuMemFreeAsync_ptsz, CUdeviceptr address, void *stream) {
    ENTER;
    (void)stream;
    return free_block(address);
}

/* Functions that only record the call: RECORDED(name, version, flag, exported). The shim does not hook cuStreamQuery.
 */
/* clang-format off */
#define RECORDED_CALLS(RECORDED) \
    RECORDED(cuLaunchKernel, 4000, 0, cuLaunchKernel) \
    RECORDED(cuLaunchKernelEx, 11060, 0, cuLaunchKernelEx) \
    RECORDED(cuLaunchCooperativeKernel, 9000, 0, cuLaunchCooperativeKernel) \
    RECORDED(cuGraphLaunch, 10000, 0, cuGraphLaunch) \
    RECORDED(cuStreamBeginCapture, 10000, 0, cuStreamBeginCapture) \
    RECORDED(cuStreamBeginCapture, 10010, 0, cuStreamBeginCapture_v2) \
    RECORDED(cuStreamBeginCaptureToGraph, 12030, 0, cuStreamBeginCaptureToGraph) \
    RECORDED(cuStreamEndCapture, 10000, 0, cuStreamEndCapture) \
    RECORDED(cuStreamBeginRecaptureToGraph, 13030, 0, cuStreamBeginRecaptureToGraph) \
    RECORDED(cuStreamBeginCaptureToCig, 13010, 0, cuStreamBeginCaptureToCig) \
    RECORDED(cuStreamEndCaptureToCig, 13010, 0, cuStreamEndCaptureToCig) \
    RECORDED(cuStreamBeginRecaptureToGraph, 13030, 2, cuStreamBeginRecaptureToGraph_ptsz) \
    RECORDED(cuStreamBeginCaptureToCig, 13010, 2, cuStreamBeginCaptureToCig_ptsz) \
    RECORDED(cuStreamEndCaptureToCig, 13010, 2, cuStreamEndCaptureToCig_ptsz) \
    RECORDED(cuLaunchKernel, 7000, 2, cuLaunchKernel_ptsz) \
    RECORDED(cuLaunchKernelEx, 11060, 2, cuLaunchKernelEx_ptsz) \
    RECORDED(cuLaunchCooperativeKernel, 9000, 2, cuLaunchCooperativeKernel_ptsz) \
    RECORDED(cuGraphLaunch, 10000, 2, cuGraphLaunch_ptsz) \
    RECORDED(cuStreamBeginCapture, 10000, 2, cuStreamBeginCapture_ptsz) \
    RECORDED(cuStreamBeginCapture, 10010, 2, cuStreamBeginCapture_v2_ptsz) \
    RECORDED(cuStreamBeginCaptureToGraph, 12030, 2, cuStreamBeginCaptureToGraph_ptsz) \
    RECORDED(cuStreamEndCapture, 10000, 2, cuStreamEndCapture_ptsz) \
    RECORDED(cuMemcpy, 4000, 0, cuMemcpy) \
    RECORDED(cuMemcpy, 7000, 2, cuMemcpy_ptds) \
    RECORDED(cuMemcpyAsync, 4000, 0, cuMemcpyAsync) \
    RECORDED(cuMemcpyAsync, 7000, 2, cuMemcpyAsync_ptsz) \
    RECORDED(cuMemcpyPeer, 4000, 0, cuMemcpyPeer) \
    RECORDED(cuMemcpyPeer, 7000, 2, cuMemcpyPeer_ptds) \
    RECORDED(cuMemcpyPeerAsync, 4000, 0, cuMemcpyPeerAsync) \
    RECORDED(cuMemcpyPeerAsync, 7000, 2, cuMemcpyPeerAsync_ptsz) \
    RECORDED(cuMemcpyHtoD, 2000, 0, cuMemcpyHtoD) \
    RECORDED(cuMemcpyHtoD, 3020, 0, cuMemcpyHtoD_v2) \
    RECORDED(cuMemcpyHtoD, 7000, 2, cuMemcpyHtoD_v2_ptds) \
    RECORDED(cuMemcpyDtoH, 2000, 0, cuMemcpyDtoH) \
    RECORDED(cuMemcpyDtoH, 3020, 0, cuMemcpyDtoH_v2) \
    RECORDED(cuMemcpyDtoH, 7000, 2, cuMemcpyDtoH_v2_ptds) \
    RECORDED(cuMemcpyDtoD, 2000, 0, cuMemcpyDtoD) \
    RECORDED(cuMemcpyDtoD, 3020, 0, cuMemcpyDtoD_v2) \
    RECORDED(cuMemcpyDtoD, 7000, 2, cuMemcpyDtoD_v2_ptds) \
    RECORDED(cuMemcpyHtoDAsync, 2000, 0, cuMemcpyHtoDAsync) \
    RECORDED(cuMemcpyHtoDAsync, 3020, 0, cuMemcpyHtoDAsync_v2) \
    RECORDED(cuMemcpyHtoDAsync, 7000, 2, cuMemcpyHtoDAsync_v2_ptsz) \
    RECORDED(cuMemcpyDtoHAsync, 2000, 0, cuMemcpyDtoHAsync) \
    RECORDED(cuMemcpyDtoHAsync, 3020, 0, cuMemcpyDtoHAsync_v2) \
    RECORDED(cuMemcpyDtoHAsync, 7000, 2, cuMemcpyDtoHAsync_v2_ptsz) \
    RECORDED(cuMemcpyDtoDAsync, 3000, 0, cuMemcpyDtoDAsync) \
    RECORDED(cuMemcpyDtoDAsync, 3020, 0, cuMemcpyDtoDAsync_v2) \
    RECORDED(cuMemcpyDtoDAsync, 7000, 2, cuMemcpyDtoDAsync_v2_ptsz) \
    RECORDED(cuMemcpyDtoA, 2000, 0, cuMemcpyDtoA) \
    RECORDED(cuMemcpyDtoA, 3020, 0, cuMemcpyDtoA_v2) \
    RECORDED(cuMemcpyDtoA, 7000, 2, cuMemcpyDtoA_v2_ptds) \
    RECORDED(cuMemcpyAtoD, 2000, 0, cuMemcpyAtoD) \
    RECORDED(cuMemcpyAtoD, 3020, 0, cuMemcpyAtoD_v2) \
    RECORDED(cuMemcpyAtoD, 7000, 2, cuMemcpyAtoD_v2_ptds) \
    RECORDED(cuMemcpyAtoA, 2000, 0, cuMemcpyAtoA) \
    RECORDED(cuMemcpyAtoA, 3020, 0, cuMemcpyAtoA_v2) \
    RECORDED(cuMemcpyAtoA, 7000, 2, cuMemcpyAtoA_v2_ptds) \
    RECORDED(cuMemcpyHtoA, 2000, 0, cuMemcpyHtoA) \
    RECORDED(cuMemcpyHtoA, 3020, 0, cuMemcpyHtoA_v2) \
    RECORDED(cuMemcpyHtoA, 7000, 2, cuMemcpyHtoA_v2_ptds) \
    RECORDED(cuMemcpyAtoH, 2000, 0, cuMemcpyAtoH) \
    RECORDED(cuMemcpyAtoH, 3020, 0, cuMemcpyAtoH_v2) \
    RECORDED(cuMemcpyAtoH, 7000, 2, cuMemcpyAtoH_v2_ptds) \
    RECORDED(cuMemcpyHtoAAsync, 2000, 0, cuMemcpyHtoAAsync) \
    RECORDED(cuMemcpyHtoAAsync, 3020, 0, cuMemcpyHtoAAsync_v2) \
    RECORDED(cuMemcpyHtoAAsync, 7000, 2, cuMemcpyHtoAAsync_v2_ptsz) \
    RECORDED(cuMemcpyAtoHAsync, 2000, 0, cuMemcpyAtoHAsync) \
    RECORDED(cuMemcpyAtoHAsync, 3020, 0, cuMemcpyAtoHAsync_v2) \
    RECORDED(cuMemcpyAtoHAsync, 7000, 2, cuMemcpyAtoHAsync_v2_ptsz) \
    RECORDED(cuMemcpy2D, 2000, 0, cuMemcpy2D) \
    RECORDED(cuMemcpy2D, 3020, 0, cuMemcpy2D_v2) \
    RECORDED(cuMemcpy2D, 7000, 2, cuMemcpy2D_v2_ptds) \
    RECORDED(cuMemcpy2DUnaligned, 2000, 0, cuMemcpy2DUnaligned) \
    RECORDED(cuMemcpy2DUnaligned, 3020, 0, cuMemcpy2DUnaligned_v2) \
    RECORDED(cuMemcpy2DUnaligned, 7000, 2, cuMemcpy2DUnaligned_v2_ptds) \
    RECORDED(cuMemcpy3D, 2000, 0, cuMemcpy3D) \
    RECORDED(cuMemcpy3D, 3020, 0, cuMemcpy3D_v2) \
    RECORDED(cuMemcpy3D, 7000, 2, cuMemcpy3D_v2_ptds) \
    RECORDED(cuMemcpy2DAsync, 2000, 0, cuMemcpy2DAsync) \
    RECORDED(cuMemcpy2DAsync, 3020, 0, cuMemcpy2DAsync_v2) \
    RECORDED(cuMemcpy2DAsync, 7000, 2, cuMemcpy2DAsync_v2_ptsz) \
    RECORDED(cuMemcpy3DAsync, 2000, 0, cuMemcpy3DAsync) \
    RECORDED(cuMemcpy3DAsync, 3020, 0, cuMemcpy3DAsync_v2) \
    RECORDED(cuMemcpy3DAsync, 7000, 2, cuMemcpy3DAsync_v2_ptsz) \
    RECORDED(cuMemcpy3DPeer, 4000, 0, cuMemcpy3DPeer) \
    RECORDED(cuMemcpy3DPeer, 7000, 2, cuMemcpy3DPeer_ptds) \
    RECORDED(cuMemcpy3DPeerAsync, 4000, 0, cuMemcpy3DPeerAsync) \
    RECORDED(cuMemcpy3DPeerAsync, 7000, 2, cuMemcpy3DPeerAsync_ptsz) \
    RECORDED(cuMemcpyBatchAsync, 12080, 0, cuMemcpyBatchAsync) \
    RECORDED(cuMemcpyBatchAsync, 12080, 2, cuMemcpyBatchAsync_ptsz) \
    RECORDED(cuMemcpyBatchAsync, 13000, 0, cuMemcpyBatchAsync_v2) \
    RECORDED(cuMemcpyBatchAsync, 13000, 2, cuMemcpyBatchAsync_v2_ptsz) \
    RECORDED(cuMemcpy3DBatchAsync, 12080, 0, cuMemcpy3DBatchAsync) \
    RECORDED(cuMemcpy3DBatchAsync, 12080, 2, cuMemcpy3DBatchAsync_ptsz) \
    RECORDED(cuMemcpy3DBatchAsync, 13000, 0, cuMemcpy3DBatchAsync_v2) \
    RECORDED(cuMemcpy3DBatchAsync, 13000, 2, cuMemcpy3DBatchAsync_v2_ptsz) \
    RECORDED(cuMemcpyWithAttributesAsync, 13020, 0, cuMemcpyWithAttributesAsync) \
    RECORDED(cuMemcpyWithAttributesAsync, 13020, 2, cuMemcpyWithAttributesAsync_ptsz) \
    RECORDED(cuMemcpy3DWithAttributesAsync, 13020, 0, cuMemcpy3DWithAttributesAsync) \
    RECORDED(cuMemcpy3DWithAttributesAsync, 13020, 2, cuMemcpy3DWithAttributesAsync_ptsz) \
    RECORDED(cuMemsetD8, 2000, 0, cuMemsetD8) \
    RECORDED(cuMemsetD8, 3020, 0, cuMemsetD8_v2) \
    RECORDED(cuMemsetD8, 7000, 2, cuMemsetD8_v2_ptds) \
    RECORDED(cuMemsetD16, 2000, 0, cuMemsetD16) \
    RECORDED(cuMemsetD16, 3020, 0, cuMemsetD16_v2) \
    RECORDED(cuMemsetD16, 7000, 2, cuMemsetD16_v2_ptds) \
    RECORDED(cuMemsetD32, 2000, 0, cuMemsetD32) \
    RECORDED(cuMemsetD32, 3020, 0, cuMemsetD32_v2) \
    RECORDED(cuMemsetD32, 7000, 2, cuMemsetD32_v2_ptds) \
    RECORDED(cuMemsetD8Async, 3020, 0, cuMemsetD8Async) \
    RECORDED(cuMemsetD8Async, 7000, 2, cuMemsetD8Async_ptsz) \
    RECORDED(cuMemsetD16Async, 3020, 0, cuMemsetD16Async) \
    RECORDED(cuMemsetD16Async, 7000, 2, cuMemsetD16Async_ptsz) \
    RECORDED(cuMemsetD32Async, 3020, 0, cuMemsetD32Async) \
    RECORDED(cuMemsetD32Async, 7000, 2, cuMemsetD32Async_ptsz) \
    RECORDED(cuMemsetD2D8, 2000, 0, cuMemsetD2D8) \
    RECORDED(cuMemsetD2D8, 3020, 0, cuMemsetD2D8_v2) \
    RECORDED(cuMemsetD2D8, 7000, 2, cuMemsetD2D8_v2_ptds) \
    RECORDED(cuMemsetD2D16, 2000, 0, cuMemsetD2D16) \
    RECORDED(cuMemsetD2D16, 3020, 0, cuMemsetD2D16_v2) \
    RECORDED(cuMemsetD2D16, 7000, 2, cuMemsetD2D16_v2_ptds) \
    RECORDED(cuMemsetD2D32, 2000, 0, cuMemsetD2D32) \
    RECORDED(cuMemsetD2D32, 3020, 0, cuMemsetD2D32_v2) \
    RECORDED(cuMemsetD2D32, 7000, 2, cuMemsetD2D32_v2_ptds) \
    RECORDED(cuMemsetD2D8Async, 3020, 0, cuMemsetD2D8Async) \
    RECORDED(cuMemsetD2D8Async, 7000, 2, cuMemsetD2D8Async_ptsz) \
    RECORDED(cuMemsetD2D16Async, 3020, 0, cuMemsetD2D16Async) \
    RECORDED(cuMemsetD2D16Async, 7000, 2, cuMemsetD2D16Async_ptsz) \
    RECORDED(cuMemsetD2D32Async, 3020, 0, cuMemsetD2D32Async) \
    RECORDED(cuMemsetD2D32Async, 7000, 2, cuMemsetD2D32Async_ptsz) \
    RECORDED(cuStreamWaitEvent, 3020, 0, cuStreamWaitEvent) \
    RECORDED(cuStreamWaitEvent, 7000, 2, cuStreamWaitEvent_ptsz) \
    RECORDED(cuStreamWaitValue32, 8000, 0, cuStreamWaitValue32) \
    RECORDED(cuStreamWaitValue32, 11070, 0, cuStreamWaitValue32_v2) \
    RECORDED(cuStreamWaitValue32, 8000, 2, cuStreamWaitValue32_ptsz) \
    RECORDED(cuStreamWaitValue32, 11070, 2, cuStreamWaitValue32_v2_ptsz) \
    RECORDED(cuStreamWaitValue64, 9000, 0, cuStreamWaitValue64) \
    RECORDED(cuStreamWaitValue64, 11070, 0, cuStreamWaitValue64_v2) \
    RECORDED(cuStreamWaitValue64, 9000, 2, cuStreamWaitValue64_ptsz) \
    RECORDED(cuStreamWaitValue64, 11070, 2, cuStreamWaitValue64_v2_ptsz) \
    RECORDED(cuStreamBatchMemOp, 8000, 0, cuStreamBatchMemOp) \
    RECORDED(cuStreamBatchMemOp, 11070, 0, cuStreamBatchMemOp_v2) \
    RECORDED(cuStreamBatchMemOp, 8000, 2, cuStreamBatchMemOp_ptsz) \
    RECORDED(cuStreamBatchMemOp, 11070, 2, cuStreamBatchMemOp_v2_ptsz) \
    RECORDED(cuWaitExternalSemaphoresAsync, 10000, 0, cuWaitExternalSemaphoresAsync) \
    RECORDED(cuWaitExternalSemaphoresAsync, 10000, 2, cuWaitExternalSemaphoresAsync_ptsz) \
    RECORDED(cuLaunchHostFunc, 10000, 0, cuLaunchHostFunc) \
    RECORDED(cuLaunchHostFunc, 10000, 2, cuLaunchHostFunc_ptsz) \
    RECORDED(cuStreamAddCallback, 5000, 0, cuStreamAddCallback) \
    RECORDED(cuStreamAddCallback, 7000, 2, cuStreamAddCallback_ptsz) \
    RECORDED(cuStreamDestroy, 2000, 0, cuStreamDestroy) \
    RECORDED(cuStreamDestroy, 4000, 0, cuStreamDestroy_v2) \
    RECORDED(cuLaunchCooperativeKernelMultiDevice, 9000, 0, cuLaunchCooperativeKernelMultiDevice) \
    RECORDED(cuLaunch, 2000, 0, cuLaunch) \
    RECORDED(cuLaunchGrid, 2000, 0, cuLaunchGrid) \
    RECORDED(cuLaunchGridAsync, 2000, 0, cuLaunchGridAsync) \
    RECORDED(cuMemPoolDestroy, 11020, 0, cuMemPoolDestroy) \
    RECORDED(cuMemPoolTrimTo, 11020, 0, cuMemPoolTrimTo) \
    RECORDED(cuStreamSynchronize, 2000, 0, cuStreamSynchronize) \
    RECORDED(cuStreamSynchronize, 7000, 2, cuStreamSynchronize_ptsz) \
    RECORDED(cuEventRecord, 2000, 0, cuEventRecord) \
    RECORDED(cuEventRecord, 7000, 2, cuEventRecord_ptsz) \
    RECORDED(cuEventRecordWithFlags, 11010, 0, cuEventRecordWithFlags) \
    RECORDED(cuEventRecordWithFlags, 11010, 2, cuEventRecordWithFlags_ptsz) \
    RECORDED(cuEventSynchronize, 2000, 0, cuEventSynchronize) \
    RECORDED(cuCtxSynchronize, 2000, 0, cuCtxSynchronize) \
    RECORDED(cuCtxSynchronize, 13000, 0, cuCtxSynchronize_v2) \
    RECORDED(cuGraphUpload, 11010, 0, cuGraphUpload) \
    RECORDED(cuGraphUpload, 11010, 2, cuGraphUpload_ptsz) \
    RECORDED(cuGraphExecDestroy, 10000, 0, cuGraphExecDestroy) \
    RECORDED(cuDeviceGraphMemTrim, 11040, 0, cuDeviceGraphMemTrim) \
    RECORDED(cuMemRelease, 10020, 0, cuMemRelease) \
    RECORDED(cuMemMap, 10020, 0, cuMemMap) \
    RECORDED(cuMemUnmap, 10020, 0, cuMemUnmap) \
    RECORDED(cuMemMapArrayAsync, 11010, 0, cuMemMapArrayAsync) \
    RECORDED(cuMemMapArrayAsync, 11010, 2, cuMemMapArrayAsync_ptsz) \
    RECORDED(cuArrayDestroy, 2000, 0, cuArrayDestroy) \
    RECORDED(cuMipmappedArrayDestroy, 5000, 0, cuMipmappedArrayDestroy) \
    RECORDED(cuDestroyExternalMemory, 10000, 0, cuDestroyExternalMemory) \
    RECORDED(cuCtxDetach, 2000, 0, cuCtxDetach) \
    RECORDED(cuStreamQuery, 2000, 0, cuStreamQuery)
/* clang-format on */

#define RECORDED(name, version, flag, exported)                                                                        \
    EXPORT(exported, void) {                                                                                           \
        ENTER;                                                                                                         \
        return 0;                                                                                                      \
    }
RECORDED_CALLS(RECORDED)
#undef RECORDED

/* ---- functions that only the ABI tests call ---- */

/* The stub's pools reserve exactly what is allocated from them. */
static CUresult allocate_from(void *pool, CUdeviceptr *address, size_t bytes) {
    CUresult result = allocate(address, bytes);
    if (result == 0) {
        blocks[*address / BLOCK_STEP - 1].pool = pool;
    }
    return result;
}

#define ALLOC_ASYNC(name, from, ...)                                                                                   \
    EXPORT(name, CUdeviceptr *address, size_t bytes, __VA_ARGS__) {                                                    \
        ENTER;                                                                                                         \
        return allocate_from(from, address, bytes);                                                                    \
    }

static char device_pools[DEVICES];
ALLOC_ASYNC(cuMemAllocAsync, &device_pools[0], void *stream ANY)
ALLOC_ASYNC(cuMemAllocAsync_ptsz, &device_pools[0], void *stream ANY)
ALLOC_ASYNC(cuMemAllocFromPoolAsync, pool, void *pool, void *stream ANY)
ALLOC_ASYNC(cuMemAllocFromPoolAsync_ptsz, pool, void *pool, void *stream ANY)

/* Returns a new handle of any type. */
static void *new_handle(void) {
    static char handles[1 << 16];
    static atomic_uint next;
    return &handles[++next];
}

#define NEW(name, ...)                                                                                                 \
    EXPORT(name, void **made, __VA_ARGS__) {                                                                           \
        ENTER;                                                                                                         \
        *made = new_handle();                                                                                          \
        return 0;                                                                                                      \
    }

NEW(cuMemPoolCreate, const void *properties ANY)
NEW(cuMemPoolImportFromShareableHandle, void *handle ANY, int type ANY, unsigned long long flags ANY)
NEW(cuMemGetDefaultMemPool, const void *location ANY, int type ANY)
NEW(cuMemGetMemPool, const void *location ANY, int type ANY)
NEW(cuGraphInstantiate, void *graph ANY, void **node ANY, char *log ANY, size_t size ANY)
NEW(cuGraphInstantiate_v2, void *graph ANY, void **node ANY, char *log ANY, size_t size ANY)
NEW(cuGraphInstantiateWithFlags, void *graph ANY, unsigned long long flags ANY)
NEW(cuGraphInstantiateWithParams, void *graph ANY, void *parameters ANY)
NEW(cuGraphInstantiateWithParams_ptsz, void *graph ANY, void *parameters ANY)
NEW(cuMemCreate, size_t size ANY, const void *properties ANY, unsigned long long flags ANY)
NEW(cuMemRetainAllocationHandle, void *address ANY)
NEW(cuMemImportFromShareableHandle, void *shared ANY, int type ANY)
NEW(cuImportExternalMemory, const void *description ANY)
NEW(cuArrayCreate, const void *descriptor ANY)
NEW(cuArrayCreate_v2, const void *descriptor ANY)
NEW(cuArray3DCreate, const void *descriptor ANY)
NEW(cuArray3DCreate_v2, const void *descriptor ANY)
NEW(cuMipmappedArrayCreate, const void *descriptor ANY, unsigned levels ANY)

/* Functions that the shim itself calls. */
EXPORT(cuPointerGetAttributes, unsigned count ANY, const int *attributes ANY, void **values, CUdeviceptr address) {
    *(unsigned *)values[0] = address < (CUdeviceptr)(BLOCKS + 1) * BLOCK_STEP ? 2 /* CU_MEMORYTYPE_DEVICE */ : 0;
    return 0;
}

EXPORT(cuDeviceGetMemPool, void **pool, int device) {
    *pool = &device_pools[device];
    return 0;
}

EXPORT(cuMemPoolGetAttribute, void *pool, int attribute, uint64_t *value) {
    (void)attribute; /* the shim only asks for the reserved memory */
    *value = 0;
    for (unsigned i = 0; i < BLOCKS; i++) {
        *value += blocks[i].pool == pool ? blocks[i].bytes : 0;
    }
    return 0;
}

CUresult cuGetProcAddress(const char *, void **, int, uint64_t);
CUresult cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);

static CUresult other_alloc_v2(CUdeviceptr *address, size_t bytes) {
    return cuMemAlloc_v2(address, bytes);
}
static CUresult other_alloc(unsigned *address, unsigned bytes) {
    return cuMemAlloc(address, bytes);
}
static CUresult other_free_v2(CUdeviceptr address) {
    return cuMemFree_v2(address);
}
static CUresult newer_alloc(CUdeviceptr *address, size_t bytes) {
    return allocate(address, bytes);
}

static const struct {
    const char *name;
    int version;
    uint64_t flag; /* the entry is for this flag only; 0: for any */
    void *exported;
    void *other;
} addresses[] = {
    {"cuInit", 2000, 0, (void *)cuInit, NULL},
    {"cuDeviceGetCount", 2000, 0, (void *)cuDeviceGetCount, NULL},
    {"cuDeviceTotalMem", 2000, 0, (void *)cuDeviceTotalMem, NULL},
    {"cuDeviceTotalMem", 3020, 0, (void *)cuDeviceTotalMem_v2, NULL},
    {"cuMemGetInfo", 2000, 0, (void *)cuMemGetInfo, NULL},
    {"cuMemGetInfo", 3020, 0, (void *)cuMemGetInfo_v2, NULL},
    {"cuMemAlloc", 2000, 0, (void *)cuMemAlloc, (void *)other_alloc},
    {"cuMemAlloc", 3020, 0, (void *)cuMemAlloc_v2, (void *)other_alloc_v2},
    {"cuMemAllocPitch", 2000, 0, (void *)cuMemAllocPitch, NULL},
    {"cuMemAllocPitch", 3020, 0, (void *)cuMemAllocPitch_v2, NULL},
    {"cuMemAllocManaged", 6000, 0, (void *)cuMemAllocManaged, NULL},
    {"cuMemFree", 2000, 0, (void *)cuMemFree, NULL},
    {"cuMemFree", 3020, 0, (void *)cuMemFree_v2, (void *)other_free_v2},
    {"cuMemFreeAsync", 11020, 0, (void *)cuMemFreeAsync, NULL},
    {"cuMemFreeAsync", 11020, 2, (void *)cuMemFreeAsync_ptsz, NULL},
    {"cuCtxDestroy", 2000, 0, (void *)cuCtxDestroy, NULL},
    {"cuCtxDestroy", 4000, 0, (void *)cuCtxDestroy_v2, NULL},
    {"cuDevicePrimaryCtxRelease", 7000, 0, (void *)cuDevicePrimaryCtxRelease, NULL},
    {"cuDevicePrimaryCtxRelease", 11000, 0, (void *)cuDevicePrimaryCtxRelease_v2, NULL},
    {"cuDevicePrimaryCtxReset", 7000, 0, (void *)cuDevicePrimaryCtxReset, NULL},
    {"cuDevicePrimaryCtxReset", 11000, 0, (void *)cuDevicePrimaryCtxReset_v2, NULL},
#define RECORDED(name, version, flag, exported) {#name, version, flag, (void *)exported, NULL},
    RECORDED_CALLS(RECORDED)
#undef RECORDED
        {"cuCtxCreate", 2000, 0, (void *)cuCtxCreate, NULL},
    {"cuCtxCreate", 3020, 0, (void *)cuCtxCreate_v2, NULL},
    {"cuCtxCreate", 11040, 0, (void *)cuCtxCreate_v3, NULL},
    {"cuCtxCreate", 12050, 0, (void *)cuCtxCreate_v4, NULL},
    {"cuDevicePrimaryCtxRetain", 7000, 0, (void *)cuDevicePrimaryCtxRetain, NULL},
    {"cuMemAllocAsync", 11020, 0, (void *)cuMemAllocAsync, NULL},
    {"cuMemAllocAsync", 11020, 2, (void *)cuMemAllocAsync_ptsz, NULL},
    {"cuMemAllocFromPoolAsync", 11020, 0, (void *)cuMemAllocFromPoolAsync, NULL},
    {"cuMemAllocFromPoolAsync", 11020, 2, (void *)cuMemAllocFromPoolAsync_ptsz, NULL},
    {"cuMemPoolCreate", 11020, 0, (void *)cuMemPoolCreate, NULL},
    {"cuMemPoolImportFromShareableHandle", 11020, 0, (void *)cuMemPoolImportFromShareableHandle, NULL},
    {"cuMemGetDefaultMemPool", 13000, 0, (void *)cuMemGetDefaultMemPool, NULL},
    {"cuMemGetMemPool", 13000, 0, (void *)cuMemGetMemPool, NULL},
    {"cuGraphInstantiate", 10000, 0, (void *)cuGraphInstantiate, NULL},
    {"cuGraphInstantiate", 11000, 0, (void *)cuGraphInstantiate_v2, NULL},
    {"cuGraphInstantiateWithFlags", 11040, 0, (void *)cuGraphInstantiateWithFlags, NULL},
    {"cuGraphInstantiateWithParams", 12000, 0, (void *)cuGraphInstantiateWithParams, NULL},
    {"cuGraphInstantiateWithParams", 12000, 2, (void *)cuGraphInstantiateWithParams_ptsz, NULL},
    {"cuMemCreate", 10020, 0, (void *)cuMemCreate, NULL},
    {"cuMemRetainAllocationHandle", 11000, 0, (void *)cuMemRetainAllocationHandle, NULL},
    {"cuMemImportFromShareableHandle", 10020, 0, (void *)cuMemImportFromShareableHandle, NULL},
    {"cuImportExternalMemory", 10000, 0, (void *)cuImportExternalMemory, NULL},
    {"cuGreenCtxCreate", 12040, 0, (void *)cuGreenCtxCreate, NULL},
    {"cuGreenCtxDestroy", 12040, 0, (void *)cuGreenCtxDestroy, NULL},
    {"cuCtxSetLimit", 3010, 0, (void *)cuCtxSetLimit, NULL},
    {"cuArrayCreate", 2000, 0, (void *)cuArrayCreate, NULL},
    {"cuArrayCreate", 3020, 0, (void *)cuArrayCreate_v2, NULL},
    {"cuArray3DCreate", 2000, 0, (void *)cuArray3DCreate, NULL},
    {"cuArray3DCreate", 3020, 0, (void *)cuArray3DCreate_v2, NULL},
    {"cuMipmappedArrayCreate", 5000, 0, (void *)cuMipmappedArrayCreate, NULL},
    {"cuGetProcAddress", 11030, 0, (void *)cuGetProcAddress, NULL},
    {"cuGetProcAddress", 12000, 0, (void *)cuGetProcAddress_v2, NULL},
};

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status) {
    int other = getenv("STUB_OTHER_ADDRESSES") != NULL;
    *function = NULL;
    if (getenv("STUB_UNKNOWN_ADDRESS") != NULL && strcmp(symbol, "cuMemAlloc") == 0 && version >= 12050) {
        *function = (void *)newer_alloc;
        return 0;
    }
    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        if (strcmp(symbol, addresses[i].name) == 0 && version >= addresses[i].version &&
            (addresses[i].flag == 0 || addresses[i].flag == flags)) {
            *function = other && addresses[i].other != NULL ? addresses[i].other : addresses[i].exported;
        }
    }
    if (status != NULL) {
        *status = *function == NULL;
    }
    return 0; /* as NVIDIA's drivers 535 and 550: NULL is no error */
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL) == 0 && *function == NULL ? NOT_FOUND : 0;
}
