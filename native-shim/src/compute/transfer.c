/*
 * Hooks of work on streams that is no kernel: copies, fills, waits and host functions. Their time is not that of the
 * kernels around them, so they end the thread's batch on their stream. Copies within the GPU's memory and fills keep
 * the GPU busy; they are charged by their bytes and the memory's bandwidth, and are throttled like launches. Copies
 * between GPUs are charged in the same way to the GPU of the current context. Also the hooks by which a thread waits.
 *
 * Not hooked: prefetches of managed memory.
 */
#include "charge/pool.h"
#include "compute/compute.h"
#include "compute/launch.h"
#include "compute/measure.h"
#include "driver/capture.h"
#include "driver/device.h"
#include "driver/lookup.h"
#include "limits/limits.h"

#include <stdatomic.h>
#include <stdbool.h>

#define DEFAULT_BYTES_PER_US 1000000  /* if the driver does not say the memory's clock and width */
#define BYTES_MAX (UINT64_C(1) << 40) /* more than a GPU has; only a call that fails names more */
/* The driver is not asked where the memory of a shorter copy lies: reading and writing it takes the GPU 0.14 us or less
   at 240 GB/s, about as long as the question takes the thread. In a list there can be many. */
#define ASKED_BYTES_MIN 16384
#define ARRAY_ELEMENT_BYTES 4 /* assumed, where a copy counts elements */

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

/* A copy or fill in progress. */
struct transfer {
    int device;
    uint64_t ns; /* charged; 0: nothing */
};

#define NO_TRANSFER ((struct transfer){-1, 0})

/* Slow path of begin_transfer(): launches are limited, or may be. */
static __attribute__((noinline)) bool end_batch(CUstream stream) {
    int state = __atomic_load_n(&aliquot_account_compute, __ATOMIC_ACQUIRE);
    state = state == ALIQUOT_COMPUTE_UNKNOWN ? aliquot_compute_refresh() : state;
    if (state != ALIQUOT_COMPUTE_LIMITED || aliquot_capture_may_include(stream)) {
        return false;
    }
    aliquot_batch_end_own(stream);
    return true;
}

/* Ends the thread's batch on the stream. True: the work may have to be charged; it is no part of a graph. */
static inline bool begin_transfer(CUstream stream) {
    return __builtin_expect(__atomic_load_n(&aliquot_account_compute, __ATOMIC_RELAXED) != ALIQUOT_COMPUTE_FREE, 0) &&
           end_batch(stream);
}

/* Before the work is forwarded. bytes: read and written in the GPU's memory. */
static __attribute__((noinline)) struct transfer charge_transfer(uint64_t bytes) {
    CUcontext context = NULL;
    struct transfer transfer = NO_TRANSFER;
    if (bytes == 0 || aliquot_device_of_current(&context, &transfer.device) != CUDA_SUCCESS ||
        !aliquot_account_is_compute_limited(transfer.device)) {
        return NO_TRANSFER;
    }
    bytes = bytes < BYTES_MAX ? bytes : BYTES_MAX;
    uint64_t rate = bandwidth_of(transfer.device);
    transfer.ns = bytes / rate * 1000 + bytes % rate * 1000 / rate;
    aliquot_launch_charge(context, transfer.device, transfer.ns);
    return transfer;
}

/* After the work was forwarded. Returns its result. */
static inline CUresult end_transfer(struct transfer transfer, CUresult result) {
    if (transfer.ns != 0 && result == CUDA_SUCCESS) {
        aliquot_compute_add_used(transfer.device, transfer.ns);
    } else if (transfer.ns != 0) {
        aliquot_compute_adjust(transfer.device, -(int64_t)transfer.ns);
    }
    return result;
}

/* ---- bytes that a copy reads and writes in the GPU's memory: 0 if it is from or to the host ---- */

static bool is_gpu_address(CUdeviceptr address) {
    unsigned int type = 0;
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    void *value = &type;
    return aliquot_real.cuPointerGetAttributes != NULL &&
           aliquot_real.cuPointerGetAttributes(1, &attribute, &value, address) == CUDA_SUCCESS &&
           type == CU_MEMORYTYPE_DEVICE;
}

static bool is_on_gpu(CUmemorytype type, CUdeviceptr address) {
    return type == CU_MEMORYTYPE_UNIFIED ? is_gpu_address(address) : type != CU_MEMORYTYPE_HOST;
}

static uint64_t copied_in_list(CUmemorytype from, CUdeviceptr source, CUmemorytype to, CUdeviceptr destination,
                               uint64_t bytes) {
    bool counts = is_on_gpu(from, source) && is_on_gpu(to, destination);
    return !counts ? 0 : bytes < BYTES_MAX ? 2 * bytes : BYTES_MAX;
}

static uint64_t copied(CUmemorytype from, CUdeviceptr source, CUmemorytype to, CUdeviceptr destination,
                       uint64_t bytes) {
    bool unified = from == CU_MEMORYTYPE_UNIFIED || to == CU_MEMORYTYPE_UNIFIED;
    return unified && bytes < ASKED_BYTES_MIN ? 0 : copied_in_list(from, source, to, destination, bytes);
}

static uint64_t copied_between_addresses(CUdeviceptr source, CUdeviceptr destination, uint64_t bytes) {
    return copied(CU_MEMORYTYPE_UNIFIED, source, CU_MEMORYTYPE_UNIFIED, destination, bytes);
}

/* Saturates. */
static uint64_t product(uint64_t width, uint64_t height, uint64_t depth) {
    uint64_t area = 0, volume = 0;
    bool too_large = __builtin_mul_overflow(width, height, &area) || __builtin_mul_overflow(area, depth, &volume);
    return too_large ? UINT64_MAX : volume;
}

/* Of any of the structures CUDA_MEMCPY2D and CUDA_MEMCPY3D. The driver refuses NULL. */
#define COPIED(copy, depth)                                                                                            \
    ((copy) == NULL ? 0                                                                                                \
                    : copied((copy)->srcMemoryType, (copy)->srcDevice, (copy)->dstMemoryType, (copy)->dstDevice,       \
                             product((copy)->WidthInBytes, (copy)->Height, depth)))

static uint64_t copied_by_list(const CUdeviceptr *destinations, const CUdeviceptr *sources, const size_t *bytes,
                               size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; destinations != NULL && sources != NULL && bytes != NULL && i < count && sum < BYTES_MAX; i++) {
        sum += copied_in_list(CU_MEMORYTYPE_UNIFIED, sources[i], CU_MEMORYTYPE_UNIFIED, destinations[i], bytes[i]);
    }
    return sum;
}

static uint64_t copied_by_operations(const CUDA_MEMCPY3D_BATCH_OP *operations, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; operations != NULL && i < count && sum < BYTES_MAX; i++) {
        const CUmemcpy3DOperand *from = &operations[i].src, *to = &operations[i].dst;
        bool from_array = from->type == CU_MEMCPY_OPERAND_TYPE_ARRAY,
             to_array = to->type == CU_MEMCPY_OPERAND_TYPE_ARRAY;
        uint64_t elements =
            product(operations[i].extent.width, operations[i].extent.height, operations[i].extent.depth);
        sum +=
            copied_in_list(from_array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED, from_array ? 0 : from->op.ptr.ptr,
                           to_array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED, to_array ? 0 : to->op.ptr.ptr,
                           product(elements, from_array || to_array ? ARRAY_ELEMENT_BYTES : 1, 1));
    }
    return sum;
}

/* ---- hooks ---- */

#define TRANSFER(unused, symbol, name, version, flags, parameters, arguments, stream, bytes)                           \
    CUresult symbol parameters {                                                                                       \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        struct transfer transfer = begin_transfer(stream) ? charge_transfer(bytes) : NO_TRANSFER;                      \
        return end_transfer(transfer, aliquot_real.symbol arguments);                                                  \
    }

ALIQUOT_TRANSFERS(TRANSFER, )

/* The thread's batches end before it waits: an event that is recorded when the work is done waits for the process's
   next time slice, and no probe says that others have the GPU only then. Pools may shrink in these calls. */
#define SYNCHRONIZE(symbol, parameters, arguments)                                                                     \
    CUresult symbol parameters {                                                                                       \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        aliquot_launch_wait_begins();                                                                                  \
        CUresult result = aliquot_real.symbol arguments;                                                               \
        if (result == CUDA_SUCCESS) {                                                                                  \
            aliquot_pool_update_charges();                                                                             \
        }                                                                                                              \
        return result;                                                                                                 \
    }

SYNCHRONIZE(cuStreamSynchronize, (CUstream stream), (stream))
SYNCHRONIZE(cuStreamSynchronize_ptsz, (CUstream stream), (stream))
SYNCHRONIZE(cuEventSynchronize, (CUevent event), (event))
SYNCHRONIZE(cuCtxSynchronize, (void), ())
SYNCHRONIZE(cuCtxSynchronize_v2, (CUcontext context), (context))
