/*
 * Hooks of work on streams that is no kernel: copies, fills, waits and host functions. Their time is not that of the
 * kernels around them, so they end the thread's batch on their stream. Copies within the GPU's memory and fills keep
 * the GPU busy; they are charged by their bytes and the memory's bandwidth, and are throttled like launches.
 *
 * Not hooked: synchronous, two- and three-dimensional copies and fills, and copies between arrays. cuMemcpyAsync does
 * not say where its memory lies, and is not charged.
 */
#include "batch.h"
#include "capture.h"
#include "compute.h"
#include "device.h"
#include "launch.h"
#include "limits.h"
#include "lookup.h"

#include <stdatomic.h>

#define DEFAULT_BYTES_PER_US 1000000 /* if the driver does not say the memory's clock and width */

/* Of each device; 0: not known yet. */
static _Atomic uint64_t bytes_per_us[ALIQUOT_LIMITS_VGPUS_MAX];

/* Assumes that copies and fills reach four fifths of the bandwidth that the memory's clock and width allow at two
   transfers a cycle. Not measured on a GPU. */
static uint64_t bandwidth_of(int device) {
    uint64_t known = atomic_load_explicit(&bytes_per_us[device], memory_order_relaxed);
    CUdevice ordinal = 0;
    int khz = 0, bits = 0;
    if (known != 0) {
        return known;
    }
    if (aliquot_real.cuDeviceGetAttribute != NULL && aliquot_real.cuCtxGetDevice(&ordinal) == CUDA_SUCCESS &&
        aliquot_real.cuDeviceGetAttribute(&khz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, ordinal) == CUDA_SUCCESS &&
        aliquot_real.cuDeviceGetAttribute(&bits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, ordinal) ==
            CUDA_SUCCESS &&
        khz > 0 && bits > 0) {
        known = (uint64_t)khz * 2 * (uint64_t)bits / 8 / 1000 * 4 / 5;
    }
    known = known == 0 ? DEFAULT_BYTES_PER_US : known;
    atomic_store_explicit(&bytes_per_us[device], known, memory_order_relaxed);
    return known;
}

/* Slow path of begin_transfer(): launches are limited, or may be. */
static __attribute__((noinline)) void charge_transfer(CUstream stream, uint64_t bytes) {
    CUcontext context = NULL;
    int device = -1;
    int state = __atomic_load_n(&aliquot_compute_state, __ATOMIC_ACQUIRE);
    state = state == ALIQUOT_COMPUTE_UNKNOWN ? aliquot_compute_refresh() : state;
    if (state != ALIQUOT_COMPUTE_LIMITED || aliquot_capture_may_include(stream)) {
        return;
    }
    aliquot_batch_end_own(stream);
    if (bytes == 0 || aliquot_device_of_current(&context, &device) != CUDA_SUCCESS ||
        !aliquot_compute_is_limited(device)) {
        return;
    }
    uint64_t rate = bandwidth_of(device);
    uint64_t ns = bytes / rate * 1000 + bytes % rate * 1000 / rate;
    aliquot_launch_charge(context, device, ns);
    aliquot_compute_add_used(device, ns);
}

/* Before the work is forwarded. bytes: read and written in the GPU's memory. */
static inline void begin_transfer(CUstream stream, uint64_t bytes) {
    if (__builtin_expect(__atomic_load_n(&aliquot_compute_state, __ATOMIC_RELAXED) != ALIQUOT_COMPUTE_FREE, 0)) {
        charge_transfer(stream, bytes);
    }
}

#define TRANSFER(symbol, parameters, arguments, stream, bytes)                                                         \
    CUresult symbol parameters {                                                                                       \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        begin_transfer(stream, bytes);                                                                                 \
        return aliquot_real.symbol arguments;                                                                          \
    }

/* And the variant for per-thread default streams. */
#define TRANSFERS(symbol, parameters, arguments, bytes)                                                                \
    TRANSFER(symbol, parameters, arguments, stream, bytes)                                                             \
    TRANSFER(symbol##_ptsz, parameters, arguments, aliquot_per_thread(stream), bytes)

TRANSFERS(cuMemcpyAsync, (CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream),
          (destination, source, bytes, stream), 0)
TRANSFER(cuMemcpyHtoDAsync, (CUdeviceptr_v1 destination, const void *source, unsigned int bytes, CUstream stream),
         (destination, source, bytes, stream), stream, 0)
TRANSFERS(cuMemcpyHtoDAsync_v2, (CUdeviceptr destination, const void *source, size_t bytes, CUstream stream),
          (destination, source, bytes, stream), 0)
TRANSFER(cuMemcpyDtoHAsync, (void *destination, CUdeviceptr_v1 source, unsigned int bytes, CUstream stream),
         (destination, source, bytes, stream), stream, 0)
TRANSFERS(cuMemcpyDtoHAsync_v2, (void *destination, CUdeviceptr source, size_t bytes, CUstream stream),
          (destination, source, bytes, stream), 0)
TRANSFER(cuMemcpyDtoDAsync, (CUdeviceptr_v1 destination, CUdeviceptr_v1 source, unsigned int bytes, CUstream stream),
         (destination, source, bytes, stream), stream, 2ull * bytes)
TRANSFERS(cuMemcpyDtoDAsync_v2, (CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream),
          (destination, source, bytes, stream), 2ull * bytes)
TRANSFERS(cuMemsetD8Async, (CUdeviceptr destination, unsigned char value, size_t count, CUstream stream),
          (destination, value, count, stream), count)
TRANSFERS(cuMemsetD16Async, (CUdeviceptr destination, unsigned short value, size_t count, CUstream stream),
          (destination, value, count, stream), 2ull * count)
TRANSFERS(cuMemsetD32Async, (CUdeviceptr destination, unsigned int value, size_t count, CUstream stream),
          (destination, value, count, stream), 4ull * count)
TRANSFERS(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags), (stream, event, flags), 0)
TRANSFERS(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data), (stream, function, data), 0)
TRANSFERS(cuStreamAddCallback, (CUstream stream, CUstreamCallback function, void *data, unsigned int flags),
          (stream, function, data, flags), 0)
