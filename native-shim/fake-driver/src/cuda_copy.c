/* Copies and fills. */
#define _GNU_SOURCE
#include "cuda_copy.h"
#include "cuda_array.h"
#include "cuda_capture.h"
#include "cuda_graph_memory.h"
#include "cuda_vmm.h"

#include <string.h>
#include <sys/mman.h>

enum copy_space { HOST, DEVICE, ANY };

enum { USE_WRITE = 1, USE_IN_GRAPH = 2 };

/*
 * Whether a range is valid as memory of that space for reading or, with USE_WRITE, for writing. With USE_IN_GRAPH,
 * graph memory that will be allocated by then counts, too. Called with the lock held.
 */
static bool is_range_valid(uintptr_t address, size_t bytes, enum copy_space space, unsigned use) {
    while (bytes != 0) {
        const struct allocation *allocation = memory_find(address);
        if (allocation == NULL) {
            return space != DEVICE || ((use & USE_IN_GRAPH) != 0 && graph_memory_covers(address, bytes));
        }
        if (!allows_access(allocation, (use & USE_WRITE) != 0)) {
            return false;
        }
        size_t here = allocation->bytes - (address - allocation->base);
        if (bytes <= here) {
            return true;
        }
        if (allocation->kind != MAPPED_MEMORY) {
            return false;
        }
        address += here; /* adjacent mappings form one range */
        bytes -= here;
        space = DEVICE;
    }
    return true;
}

/* A call without a stream parameter runs in the legacy stream and waits for completion. */
#define SYNCHRONOUS ((CUstream)UINTPTR_MAX)

/* enter_with_queue_space() for a copy or a fill. */
static CUresult enter_copy(struct CUctx_st **context, CUstream stream, struct capture_member **capturing) {
    if (stream != SYNCHRONOUS) {
        return enter_with_queue_space(context, stream, 1, capturing);
    }
    CUresult result = enter_context(context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = capture_check_stream_wait(*context, LEGACY_STREAM);
    leave(result);
    return result == CUDA_SUCCESS ? enter_with_queue_space(context, LEGACY_STREAM, 1, capturing) : result;
}

static CUstream stream_or_legacy(CUstream stream) {
    return stream == SYNCHRONOUS ? LEGACY_STREAM : stream;
}

static CUmemorytype memory_type_of(enum copy_space space) {
    return space == ANY ? CU_MEMORYTYPE_UNIFIED : space == HOST ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

/* One side of a three-dimensional copy: its start, and the distances between rows and between layers. */
struct copy_side {
    uintptr_t start;
    size_t pitch, layer;
    enum copy_space space;
};

static CUresult describe_side(CUmemorytype type, const void *host, CUdeviceptr device, CUarray array,
                              const size_t offset[3], size_t pitch, size_t rows, const size_t extent[3],
                              struct copy_side *side) {
    uintptr_t base;
    switch ((int)type) {
    case CU_MEMORYTYPE_HOST:
        base = (uintptr_t)host;
        side->space = ANY;
        break;
    case CU_MEMORYTYPE_DEVICE:
        base = (uintptr_t)device;
        side->space = DEVICE;
        break;
    case CU_MEMORYTYPE_UNIFIED:
        base = (uintptr_t)device;
        side->space = ANY;
        break;
    case CU_MEMORYTYPE_ARRAY:
        side->space = ANY; /* array_region() returns addresses that are not in the allocation tree */
        return array_region(array, offset, extent, &side->start, &side->pitch, &side->layer);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (pitch == 0) {
        pitch = offset[0] + extent[0];
    }
    if (rows == 0) {
        rows = offset[1] + extent[1];
    }
    if (pitch < extent[0] || rows < extent[1] || __builtin_mul_overflow(pitch, rows, &side->layer)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    side->pitch = pitch;
    side->start = base + offset[2] * side->layer + offset[1] * pitch + offset[0];
    return CUDA_SUCCESS;
}

static bool is_side_valid(const struct copy_side *side, const size_t extent[3], unsigned use) {
    size_t last;
    if (__builtin_mul_overflow(side->layer, extent[2] - 1, &last) ||
        __builtin_add_overflow(last, side->pitch * (extent[1] - 1) + extent[0], &last)) {
        return false;
    }
    return is_range_valid(side->start, last, side->space, use);
}

struct copy_plan {
    struct copy_side from, to;
    size_t extent[3];
    bool empty;
};

/* use: 0 or USE_IN_GRAPH. */
static CUresult plan_copy(const CUDA_MEMCPY3D *copy, unsigned use, struct copy_plan *plan) {
    const size_t extent[3] = {copy->WidthInBytes, copy->Height, copy->Depth};
    const size_t source[3] = {copy->srcXInBytes, copy->srcY, copy->srcZ};
    const size_t target[3] = {copy->dstXInBytes, copy->dstY, copy->dstZ};
    CUresult result = describe_side(copy->srcMemoryType, copy->srcHost, copy->srcDevice, copy->srcArray, source,
                                    copy->srcPitch, copy->srcHeight, extent, &plan->from);
    if (result == CUDA_SUCCESS) {
        result = describe_side(copy->dstMemoryType, copy->dstHost, copy->dstDevice, copy->dstArray, target,
                               copy->dstPitch, copy->dstHeight, extent, &plan->to);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    memcpy(plan->extent, extent, sizeof extent);
    plan->empty = extent[0] == 0 || extent[1] == 0 || extent[2] == 0;
    return plan->empty || (is_side_valid(&plan->from, extent, use) && is_side_valid(&plan->to, extent, use | USE_WRITE))
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static void execute_copy(const struct copy_plan *plan) {
    const struct copy_side *from = &plan->from, *to = &plan->to;
    for (size_t z = 0; !plan->empty && z < plan->extent[2]; z++) {
        for (size_t y = 0; y < plan->extent[1]; y++) {
            memmove((void *)(to->start + z * to->layer + y * to->pitch),
                    (const void *)(from->start + z * from->layer + y * from->pitch), plan->extent[0]);
        }
    }
}

void run_memcpy(const CUDA_MEMCPY3D *copy) {
    struct copy_plan plan;
    if (enter_driver() == CUDA_SUCCESS && leave(plan_copy(copy, USE_IN_GRAPH, &plan)) == CUDA_SUCCESS) {
        execute_copy(&plan);
    }
}

static bool is_on_host(CUmemorytype type, CUdeviceptr address) {
    const struct allocation *allocation = type == CU_MEMORYTYPE_UNIFIED ? memory_find((uintptr_t)address) : NULL;
    return type == CU_MEMORYTYPE_HOST ||
           (type == CU_MEMORYTYPE_UNIFIED && (allocation == NULL || memory_is_pinned(allocation)));
}

bool memcpy_reads_host(const CUDA_MEMCPY3D *copy) {
    return is_on_host(copy->srcMemoryType, copy->srcDevice);
}

bool memcpy_writes_host(const CUDA_MEMCPY3D *copy) {
    return is_on_host(copy->dstMemoryType, copy->dstDevice);
}

static struct gpu_work copy_plan_work(const CUDA_MEMCPY3D *copy, const struct copy_plan *plan) {
    enum copy_direction direction = memcpy_writes_host(copy)  ? COPY_DEVICE_TO_HOST
                                    : memcpy_reads_host(copy) ? COPY_HOST_TO_DEVICE
                                                              : COPY_WITHIN_DEVICE;
    return memcpy_work(direction, plan->extent[0] * plan->extent[1] * plan->extent[2]);
}

/*
 * The copy runs without the lock, because calls of other threads also continue on a real GPU. A synchronous copy moves
 * its data when its work is done. Other copies move it immediately, unless outstanding host functions may access it.
 */
static CUresult copy_3d(const CUDA_MEMCPY3D *copy, CUstream stream) {
    struct CUctx_st *context;
    struct capture_member *capturing = NULL;
    struct copy_plan plan;
    if (copy == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_copy(&context, stream, &capturing);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (capturing != NULL) {
        const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY,
                                          .memcpy = {.copyCtx = context, .copyParams = *copy}};
        return leave(capture_add_node(capturing, plan_copy(copy, USE_IN_GRAPH, &plan), &params));
    }
    result = plan_copy(copy, 0, &plan);
    if (result != CUDA_SUCCESS || plan.empty) {
        return leave(result);
    }
    uint64_t number = work_submit(context, stream_or_legacy(stream), copy_plan_work(copy, &plan), NULL);
    struct awaited_work awaited = {.gpu = stream_context(context, stream_or_legacy(stream))->device->gpu};
    /* The host does not wait for device-to-device copies. */
    bool device_to_device = !memcpy_writes_host(copy) && !memcpy_reads_host(copy);
    if (work_has_host_functions() || (stream == SYNCHRONOUS && !device_to_device)) {
        awaited.numbers[0] = number;
    }
    leave(result);
    work_wait(&awaited);
    execute_copy(&plan);
    return result;
}

static CUresult copy_linear(uintptr_t to, enum copy_space to_space, uintptr_t from, enum copy_space from_space,
                            size_t bytes, CUstream stream) {
    const CUDA_MEMCPY3D copy = {.srcMemoryType = memory_type_of(from_space),
                                .srcHost = (const void *)from,
                                .srcDevice = from,
                                .dstMemoryType = memory_type_of(to_space),
                                .dstHost = (void *)to,
                                .dstDevice = to,
                                .WidthInBytes = bytes,
                                .Height = 1,
                                .Depth = 1};
    return copy_3d(&copy, stream);
}

API CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
    return copy_linear((uintptr_t)dst, ANY, (uintptr_t)src, ANY, ByteCount, SYNCHRONOUS);
}

API CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
    return copy_linear((uintptr_t)dst, ANY, (uintptr_t)src, ANY, ByteCount, hStream);
}

API CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount) {
    return copy_linear((uintptr_t)dstDevice, DEVICE, (uintptr_t)srcHost, HOST, ByteCount, SYNCHRONOUS);
}

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream) {
    return copy_linear((uintptr_t)dstDevice, DEVICE, (uintptr_t)srcHost, HOST, ByteCount, hStream);
}

API CUresult cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
    return copy_linear((uintptr_t)dstHost, HOST, (uintptr_t)srcDevice, DEVICE, ByteCount, SYNCHRONOUS);
}

API CUresult cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
    return copy_linear((uintptr_t)dstHost, HOST, (uintptr_t)srcDevice, DEVICE, ByteCount, hStream);
}

API CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
    return copy_linear((uintptr_t)dstDevice, DEVICE, (uintptr_t)srcDevice, DEVICE, ByteCount, SYNCHRONOUS);
}

API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
    return copy_linear((uintptr_t)dstDevice, DEVICE, (uintptr_t)srcDevice, DEVICE, ByteCount, hStream);
}

API CUresult cuMemcpyHtoD(CUdeviceptr_v1 dstDevice, const void *srcHost, unsigned int ByteCount) {
    return cuMemcpyHtoD_v2(dstDevice, srcHost, ByteCount);
}

API CUresult cuMemcpyHtoDAsync(CUdeviceptr_v1 dstDevice, const void *srcHost, unsigned int ByteCount,
                               CUstream hStream) {
    return cuMemcpyHtoDAsync_v2(dstDevice, srcHost, ByteCount, hStream);
}

API CUresult cuMemcpyDtoH(void *dstHost, CUdeviceptr_v1 srcDevice, unsigned int ByteCount) {
    return cuMemcpyDtoH_v2(dstHost, srcDevice, ByteCount);
}

API CUresult cuMemcpyDtoHAsync(void *dstHost, CUdeviceptr_v1 srcDevice, unsigned int ByteCount, CUstream hStream) {
    return cuMemcpyDtoHAsync_v2(dstHost, srcDevice, ByteCount, hStream);
}

API CUresult cuMemcpyDtoD(CUdeviceptr_v1 dstDevice, CUdeviceptr_v1 srcDevice, unsigned int ByteCount) {
    return cuMemcpyDtoD_v2(dstDevice, srcDevice, ByteCount);
}

API CUresult cuMemcpyDtoDAsync(CUdeviceptr_v1 dstDevice, CUdeviceptr_v1 srcDevice, unsigned int ByteCount,
                               CUstream hStream) {
    return cuMemcpyDtoDAsync_v2(dstDevice, srcDevice, ByteCount, hStream);
}

static CUresult copy_peer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                          CUstream stream) {
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = check_context(to_context);
    if (result == CUDA_SUCCESS) {
        result = check_context(from_context);
    }
    leave(result);
    return result == CUDA_SUCCESS ? copy_linear((uintptr_t)to, DEVICE, (uintptr_t)from, DEVICE, bytes, stream) : result;
}

API CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
                          size_t ByteCount) {
    return copy_peer(dstDevice, dstContext, srcDevice, srcContext, ByteCount, SYNCHRONOUS);
}

API CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
                               size_t ByteCount, CUstream hStream) {
    return copy_peer(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream);
}

static CUresult copy_2d(const CUDA_MEMCPY2D *copy, CUstream stream) {
    if (copy == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUDA_MEMCPY3D side = {.srcXInBytes = copy->srcXInBytes,
                                .srcY = copy->srcY,
                                .srcMemoryType = copy->srcMemoryType,
                                .srcHost = copy->srcHost,
                                .srcDevice = copy->srcDevice,
                                .srcArray = copy->srcArray,
                                .srcPitch = copy->srcPitch,
                                .dstXInBytes = copy->dstXInBytes,
                                .dstY = copy->dstY,
                                .dstMemoryType = copy->dstMemoryType,
                                .dstHost = copy->dstHost,
                                .dstDevice = copy->dstDevice,
                                .dstArray = copy->dstArray,
                                .dstPitch = copy->dstPitch,
                                .WidthInBytes = copy->WidthInBytes,
                                .Height = copy->Height,
                                .Depth = 1};
    return copy_3d(&side, stream);
}

API CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy) {
    return copy_2d(pCopy, SYNCHRONOUS);
}
API CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy) {
    return copy_2d(pCopy, SYNCHRONOUS);
}
API CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream) {
    return copy_2d(pCopy, hStream);
}
API CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy) {
    return copy_3d(pCopy, SYNCHRONOUS);
}
API CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream) {
    return copy_3d(pCopy, hStream);
}

/* One row between an array and other memory. */
#define ROW(...)                                                                                                       \
    &(CUDA_MEMCPY3D) {                                                                                                 \
        __VA_ARGS__, .WidthInBytes = ByteCount, .Height = 1, .Depth = 1                                                \
    }
#define ROW_ARRAY(space)                                                                                               \
    .space##MemoryType = CU_MEMORYTYPE_ARRAY, .space##Array = space##Array, .space##XInBytes = space##Offset
#define ROW_HOST(space) .space##MemoryType = CU_MEMORYTYPE_HOST, .space##Host = space##Host
#define ROW_DEVICE(space) .space##MemoryType = CU_MEMORYTYPE_DEVICE, .space##Device = space##Device

API CUresult cuMemcpyAtoH_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
    return copy_3d(ROW(ROW_ARRAY(src), ROW_HOST(dst)), SYNCHRONOUS);
}
API CUresult cuMemcpyAtoHAsync_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                                  CUstream hStream) {
    return copy_3d(ROW(ROW_ARRAY(src), ROW_HOST(dst)), hStream);
}
API CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount) {
    return copy_3d(ROW(ROW_HOST(src), ROW_ARRAY(dst)), SYNCHRONOUS);
}
API CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount,
                                  CUstream hStream) {
    return copy_3d(ROW(ROW_HOST(src), ROW_ARRAY(dst)), hStream);
}
API CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
    return copy_3d(ROW(ROW_ARRAY(src), ROW_DEVICE(dst)), SYNCHRONOUS);
}
API CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount) {
    return copy_3d(ROW(ROW_DEVICE(src), ROW_ARRAY(dst)), SYNCHRONOUS);
}
API CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
    return copy_3d(ROW(ROW_ARRAY(src), ROW_ARRAY(dst)), SYNCHRONOUS);
}

/* Bytes in one row of a fill. */
static size_t memset_row_bytes(const CUDA_MEMSET_NODE_PARAMS_v2 *params) {
    return params->width * params->elementSize;
}

static CUresult check_memset(const CUDA_MEMSET_NODE_PARAMS_v2 *params, unsigned use) {
    size_t row, all, size = params->elementSize;
    if (size != 1 && size != 2 && size != 4) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (params->width == 0 || params->height == 0) {
        return CUDA_SUCCESS;
    }
    if (params->dst % size != 0 || __builtin_mul_overflow(params->width, size, &row) ||
        (params->height > 1 && params->pitch < row) ||
        __builtin_mul_overflow(params->pitch, params->height - 1, &all) || __builtin_add_overflow(all, row, &all) ||
        !is_range_valid((uintptr_t)params->dst, all, DEVICE, use | USE_WRITE)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

/* advice: the madvise() advice that drops pages that become zero; 0: keep all pages. */
static void write_memset(const CUDA_MEMSET_NODE_PARAMS_v2 *params, int advice) {
    size_t row = memset_row_bytes(params), size = params->elementSize;
    unsigned char element[sizeof params->value];
    memcpy(element, &params->value, sizeof element); /* little-endian: the low bytes come first */
    static const unsigned char zeros[4];
    bool zero = memcmp(element, zeros, size) == 0;
    for (size_t y = 0; row != 0 && y < params->height; y++) {
        unsigned char *start = (unsigned char *)(uintptr_t)params->dst + y * params->pitch;
        uintptr_t first = ((uintptr_t)start + 4095) & ~(uintptr_t)4095;
        uintptr_t last = ((uintptr_t)start + row) & ~(uintptr_t)4095;
        /* Dropped pages read as zeros, so that clearing 80 GB takes no host memory. */
        if (zero && advice != 0 && last > first && last - first >= (1u << 20) &&
            madvise((void *)first, last - first, advice) == 0) {
            memset(start, 0, first - (uintptr_t)start);
            memset((void *)last, 0, (uintptr_t)start + row - last);
            continue;
        }
        if (size == 1 || zero) {
            memset(start, element[0], row);
            continue;
        }
        for (size_t x = 0; x < params->width; x++) {
            memcpy(start + x * size, element, size);
        }
    }
}

static int memset_drop_advice(const CUDA_MEMSET_NODE_PARAMS_v2 *params) {
    const struct allocation *allocation = memory_find((uintptr_t)params->dst);
    if (allocation == NULL || allocation->kind == REGISTERED_MEMORY) {
        return 0;
    }
    return allocation->file_backed ? MADV_REMOVE : MADV_DONTNEED;
}

void run_memset(const CUDA_MEMSET_NODE_PARAMS_v2 *params) {
    if (enter_driver() != CUDA_SUCCESS) {
        return;
    }
    int advice = memset_drop_advice(params);
    if (leave(check_memset(params, USE_IN_GRAPH)) == CUDA_SUCCESS) {
        write_memset(params, advice);
    }
}

/* Fills `height` rows of `width` elements of `size` bytes. */
static CUresult memset_rows(uintptr_t to, size_t pitch, unsigned value, size_t size, size_t width, size_t height,
                            CUstream stream) {
    struct CUctx_st *context;
    struct capture_member *capturing = NULL;
    CUresult result = enter_copy(&context, stream, &capturing);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET,
                                      .memset = {.dst = to,
                                                 .pitch = pitch,
                                                 .value = value,
                                                 .elementSize = (unsigned)size,
                                                 .width = width,
                                                 .height = height,
                                                 .ctx = context}};
    if (capturing != NULL) {
        return leave(capture_add_node(capturing, check_memset(&params.memset, USE_IN_GRAPH), &params));
    }
    result = check_memset(&params.memset, 0);
    int advice = memset_drop_advice(&params.memset);
    if (result == CUDA_SUCCESS && width != 0 && height != 0) {
        (void)work_submit(context, stream_or_legacy(stream),
                          memset_work(stream_context(context, stream_or_legacy(stream))->device,
                                      memset_row_bytes(&params.memset) * height),
                          NULL);
    }
    leave(result);
    if (result == CUDA_SUCCESS) {
        write_memset(&params.memset, advice);
    }
    return result;
}

#define DEFINE_MEMSETS(bits, type)                                                                                     \
    API CUresult cuMemsetD##bits##_v2(CUdeviceptr dstDevice, type value, size_t N) {                                   \
        return memset_rows((uintptr_t)dstDevice, 0, value, sizeof value, N, 1, SYNCHRONOUS);                           \
    }                                                                                                                  \
    API CUresult cuMemsetD##bits##Async(CUdeviceptr dstDevice, type value, size_t N, CUstream hStream) {               \
        return memset_rows((uintptr_t)dstDevice, 0, value, sizeof value, N, 1, hStream);                               \
    }                                                                                                                  \
    API CUresult cuMemsetD##bits(CUdeviceptr_v1 dstDevice, type value, unsigned int N) {                               \
        return memset_rows(dstDevice, 0, value, sizeof value, N, 1, SYNCHRONOUS);                                      \
    }                                                                                                                  \
    API CUresult cuMemsetD2D##bits##_v2(CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width,              \
                                        size_t Height) {                                                               \
        return memset_rows((uintptr_t)dstDevice, dstPitch, value, sizeof value, Width, Height, SYNCHRONOUS);           \
    }                                                                                                                  \
    API CUresult cuMemsetD2D##bits##Async(CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width,            \
                                          size_t Height, CUstream hStream) {                                           \
        return memset_rows((uintptr_t)dstDevice, dstPitch, value, sizeof value, Width, Height, hStream);               \
    }                                                                                                                  \
    API CUresult cuMemsetD2D##bits(CUdeviceptr_v1 dstDevice, unsigned int dstPitch, type value, unsigned int Width,    \
                                   unsigned int Height) {                                                              \
        return memset_rows(dstDevice, dstPitch, value, sizeof value, Width, Height, SYNCHRONOUS);                      \
    }

DEFINE_MEMSETS(8, unsigned char)
DEFINE_MEMSETS(16, unsigned short)
DEFINE_MEMSETS(32, unsigned int)
