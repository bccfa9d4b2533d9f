/*
 * A driver that only knows what the shim's ABI tests ask: which of its functions was called, with every pointer
 * answered the way a real driver may, other than its exported addresses. Memory is a list in this process. For
 * everything else there is the fake driver.
 *
 * STUB_OTHER_ADDRESSES=1: cuGetProcAddress answers addresses of its own, not the exported functions'.
 * STUB_UNKNOWN_ADDRESS=1: and for cuMemAlloc in CUDA 12.5 and later one that no earlier version has.
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
#define BLOCK_STEP 8192 /* addresses of the 32-bit ABI must fit */
#define MEMORY (UINT64_C(8) << 30)

struct context {
    int device;
    int users;
};

static struct context primary[DEVICES] = {{0, 0}, {1, 0}};
static __thread CUcontext current;
static atomic_int initialised;
static struct {
    _Atomic uint64_t bytes;
    CUcontext context;
} blocks[BLOCKS];
static atomic_uint next_block;
static _Atomic uint64_t used[DEVICES];

/* The exported name of the last function entered, for the tests. */
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
    initialised = flags == 0;
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
    return initialised ? 0 : NOT_INITIALIZED;
}

EXPORT(cuCtxSetCurrent, CUcontext context) {
    current = context;
    return 0;
}

EXPORT(cuCtxGetDevice, int *device) {
    if (current == NULL) {
        return initialised ? INVALID_CONTEXT : NOT_INITIALIZED;
    }
    *device = current->device;
    return 0;
}

EXPORT(cuCtxCreate_v2, CUcontext *context, unsigned flags, int device) {
    (void)flags;
    *context = malloc(sizeof **context);
    (*context)->device = device;
    current = *context;
    return 0;
}

static void end(CUcontext context) {
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

EXPORT(cuCtxDestroy, CUcontext context) {
    ENTER;
    end(context);
    return 0;
}

EXPORT(cuCtxDestroy_v2, CUcontext context) {
    ENTER;
    end(context);
    return 0;
}

EXPORT(cuDevicePrimaryCtxRetain, CUcontext *context, int device) {
    primary[device].users++;
    *context = &primary[device];
    return 0;
}

EXPORT(cuDevicePrimaryCtxGetState, int device, unsigned *flags, int *active) {
    *flags = 0;
    *active = primary[device].users > 0;
    return 0;
}

static CUresult release(int device) {
    if (primary[device].users == 0) {
        return INVALID_CONTEXT;
    }
    if (--primary[device].users == 0) {
        end(&primary[device]);
    }
    return 0;
}

EXPORT(cuDevicePrimaryCtxRelease, int device) {
    ENTER;
    return release(device);
}

EXPORT(cuDevicePrimaryCtxRelease_v2, int device) {
    ENTER;
    return release(device);
}

EXPORT(cuDevicePrimaryCtxReset, int device) {
    ENTER;
    end(&primary[device]);
    primary[device].users = 0;
    return 0;
}

EXPORT(cuDevicePrimaryCtxReset_v2, int device) {
    ENTER;
    end(&primary[device]);
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
            *address = (CUdeviceptr)(block + 1) * BLOCK_STEP;
            return 0;
        }
    }
    used[current->device] -= bytes;
    return OUT_OF_MEMORY;
}

static CUresult give_back(CUdeviceptr address) {
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
    return give_back(address);
}

EXPORT(cuMemFree_v2, CUdeviceptr address) {
    ENTER;
    return give_back(address);
}

EXPORT(cuMemFreeAsync, CUdeviceptr address, void *stream) {
    ENTER;
    (void)stream;
    return give_back(address);
}

EXPORT(cuMemFreeAsync_ptsz, CUdeviceptr address, void *stream) {
    ENTER;
    (void)stream;
    return give_back(address);
}

/* What starts work and captures it only says that it was entered: LAUNCH(name, version, flag, exported). */
/* clang-format off */
#define LAUNCHES(LAUNCH) \
    LAUNCH(cuLaunchKernel, 4000, 0, cuLaunchKernel) \
    LAUNCH(cuLaunchKernelEx, 11060, 0, cuLaunchKernelEx) \
    LAUNCH(cuLaunchCooperativeKernel, 9000, 0, cuLaunchCooperativeKernel) \
    LAUNCH(cuGraphLaunch, 10000, 0, cuGraphLaunch) \
    LAUNCH(cuStreamBeginCapture, 10000, 0, cuStreamBeginCapture) \
    LAUNCH(cuStreamBeginCapture, 10010, 0, cuStreamBeginCapture_v2) \
    LAUNCH(cuStreamBeginCaptureToGraph, 12030, 0, cuStreamBeginCaptureToGraph) \
    LAUNCH(cuStreamEndCapture, 10000, 0, cuStreamEndCapture) \
    LAUNCH(cuLaunchKernel, 7000, 2, cuLaunchKernel_ptsz) \
    LAUNCH(cuLaunchKernelEx, 11060, 2, cuLaunchKernelEx_ptsz) \
    LAUNCH(cuLaunchCooperativeKernel, 9000, 2, cuLaunchCooperativeKernel_ptsz) \
    LAUNCH(cuGraphLaunch, 10000, 2, cuGraphLaunch_ptsz) \
    LAUNCH(cuStreamBeginCapture, 10000, 2, cuStreamBeginCapture_ptsz) \
    LAUNCH(cuStreamBeginCapture, 10010, 2, cuStreamBeginCapture_v2_ptsz) \
    LAUNCH(cuStreamBeginCaptureToGraph, 12030, 2, cuStreamBeginCaptureToGraph_ptsz) \
    LAUNCH(cuStreamEndCapture, 10000, 2, cuStreamEndCapture_ptsz) \
    LAUNCH(cuLaunchCooperativeKernelMultiDevice, 9000, 0, cuLaunchCooperativeKernelMultiDevice) \
    LAUNCH(cuLaunch, 2000, 0, cuLaunch) \
    LAUNCH(cuLaunchGrid, 2000, 0, cuLaunchGrid) \
    LAUNCH(cuLaunchGridAsync, 2000, 0, cuLaunchGridAsync)
/* clang-format on */

#define LAUNCH(name, version, flag, exported)                                                                          \
    EXPORT(exported, void) {                                                                                           \
        ENTER;                                                                                                         \
        return 0;                                                                                                      \
    }
LAUNCHES(LAUNCH)
#undef LAUNCH

/* A function that the shim doesn't hook. */
EXPORT(cuStreamSynchronize, void *stream) {
    ENTER;
    (void)stream;
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
    uint64_t flag; /* answers this flag only; 0: any */
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
#define LAUNCH(name, version, flag, exported) {#name, version, flag, (void *)exported, NULL},
    LAUNCHES(LAUNCH)
#undef LAUNCH
        {"cuStreamSynchronize", 2000, 0, (void *)cuStreamSynchronize, NULL},
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
    return *function == NULL ? NOT_FOUND : 0;
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}
