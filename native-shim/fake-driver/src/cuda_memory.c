/*
 * Device, managed and pinned memory, copies and fills.
 *
 * Device memory is host memory that is mapped but not yet there: reserving 80 GB costs nothing, writing to it costs
 * what is written. An address is a host address, so a copy is a memmove; which address belongs to which device the
 * tree of allocations knows. What is charged to the GPU is what was asked for, to the byte.
 */
#define _GNU_SOURCE
#include "cuda_memory.h"
#include "cuda_array.h"
#include "cuda_capture.h"
#include "cuda_ipc.h"
#include "cuda_pool.h"
#include "cuda_vmm.h"
#include "cuda_work.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PITCH_ALIGNMENT = 512 };

static void *tree; /* of all allocations, by address */
static struct allocation *allocations;
static unsigned long long last_id;

/* Ranges that overlap are equal, so that a search for one byte finds the allocation around it. */
static int by_address(const void *a, const void *b) {
    const struct allocation *left = a, *right = b;
    if (left->base + left->bytes <= right->base)
        return -1;
    return right->base + right->bytes <= left->base;
}

struct allocation *memory_find(uintptr_t address) {
    struct allocation byte = {.base = address, .bytes = 1};
    if (address == UINTPTR_MAX)
        return NULL;
    struct allocation *const *node = tfind(&byte, &tree, by_address);
    return node != NULL && !(*node)->freed ? *node : NULL;
}

struct allocation *memory_search(bool (*wanted)(const struct allocation *allocation, const void *data),
                                 const void *data) {
    struct allocation *allocation = allocations;
    while (allocation != NULL && !wanted(allocation, data))
        allocation = allocation->next;
    return allocation;
}

struct allocation *memory_add(const struct allocation *values) {
    struct allocation *allocation = malloc(sizeof *allocation);
    if (allocation == NULL)
        return NULL;
    *allocation = *values;
    struct allocation *const *node = tsearch(allocation, &tree, by_address);
    if (node == NULL || *node != allocation) {
        free(allocation);
        return NULL;
    }
    allocation->id = ++last_id;
    allocation->previous = NULL;
    allocation->next = allocations;
    if (allocations != NULL)
        allocations->previous = allocation;
    allocations = allocation;
    return allocation;
}

void memory_remove(struct allocation *allocation) {
    tdelete(allocation, &tree, by_address);
    if (allocation->previous != NULL)
        allocation->previous->next = allocation->next;
    else
        allocations = allocation->next;
    if (allocation->next != NULL)
        allocation->next->previous = allocation->previous;
    free(allocation);
}

/* Flags are mmap's. */
static void *map(size_t bytes, int flags) {
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
    if (start != MAP_FAILED)
        return start;
    note("the host has no address space for %zu bytes", bytes);
    return NULL;
}

/* A forked child has no context, so it has none of its memory. */
static void hide_from_children(void *start, size_t bytes) {
    (void)madvise(start, bytes, MADV_DONTFORK);
}

void *memory_map(size_t bytes) {
    void *start = map(bytes, 0);
    if (start != NULL)
        hide_from_children(start, bytes);
    return start;
}

void memory_unmap(void *start, size_t bytes) {
    /* munmap fails when a hole would need one mapping too many: then at least the memory goes back. */
    if (munmap(start, bytes) != 0)
        (void)madvise(start, bytes, MADV_DONTNEED);
}

bool memory_reserve(struct device *device, uint64_t bytes) {
    return gpu_reserve(device->gpu, bytes) || (pools_shrink(device) && gpu_reserve(device->gpu, bytes));
}

static bool is_on_device(const struct allocation *allocation) {
    return allocation->device != NULL && allocation->kind != PINNED_MEMORY && allocation->kind != REGISTERED_MEMORY;
}

static bool is_plain(enum memory_kind kind) {
    return kind == DEVICE_MEMORY || kind == MANAGED_MEMORY || kind == GLOBAL_MEMORY;
}

void memory_destroy(struct allocation *allocation) {
    if (allocation->kind == DEVICE_MEMORY || allocation->kind == IPC_MEMORY)
        ipc_forget(allocation);
    if (allocation->mapped != 0) /* an import may start within a page */
        memory_unmap((void *)(allocation->base & ~(uintptr_t)4095), allocation->mapped);
    if (is_plain(allocation->kind))
        gpu_release(allocation->device->gpu, allocation->bytes);
    memory_remove(allocation);
}

CUresult memory_free(struct allocation *allocation) {
    switch (allocation->kind) {
    case DEVICE_MEMORY:
    case MANAGED_MEMORY:
        memory_destroy(allocation);
        return CUDA_SUCCESS;
    case IMPORTED_MEMORY:
        memory_destroy(allocation);
        return CUDA_SUCCESS;
    case POOL_MEMORY:
    case GRAPH_MEMORY:
        pool_free(allocation);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

void memory_free_all(const struct CUctx_st *context) {
    struct allocation *next;
    frees_finish(context->device);
    for (struct allocation *allocation = allocations; allocation != NULL; allocation = next) {
        next = allocation->next;
        if (allocation->context == context)
            memory_destroy(allocation);
    }
}

/* Below 4 GiB where a 32-bit pointer must hold it; NULL if there is no such room. */
static void *map_for(enum memory_kind kind, size_t bytes, bool below_4g) {
#ifdef MAP_32BIT
    const int low = MAP_32BIT;
#else
    const int low = 0;
#endif
    void *start = map(bytes, below_4g ? low : 0);
    if (start != NULL && below_4g && (uintptr_t)start + bytes > UINT32_MAX) {
        memory_unmap(start, bytes);
        start = NULL;
    }
    if (start != NULL && is_plain(kind))
        hide_from_children(start, bytes);
    return start;
}

static CUresult create(struct CUctx_st *context, enum memory_kind kind, size_t bytes, unsigned flags, bool below_4g,
                       struct allocation **made) {
    struct allocation values = {
        .bytes = bytes, .kind = kind, .flags = flags, .context = context, .device = context->device};
    if (bytes > SIZE_MAX - 4096 || (is_plain(kind) && !memory_reserve(context->device, bytes)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    values.mapped = (bytes + 4095) & ~(size_t)4095;
    void *base = map_for(kind, values.mapped, below_4g);
    values.base = (uintptr_t)base;
    *made = base != NULL ? memory_add(&values) : NULL;
    if (*made != NULL)
        return CUDA_SUCCESS;
    if (base != NULL)
        memory_unmap(base, values.mapped);
    if (is_plain(kind))
        gpu_release(context->device->gpu, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

struct allocation *memory_new_globals(struct CUctx_st *context, size_t bytes) {
    struct allocation *made = NULL;
    if (context != NULL)
        return create(context, GLOBAL_MEMORY, bytes, 0, false, &made) == CUDA_SUCCESS ? made : NULL;
    struct allocation values = {.bytes = bytes, .kind = PINNED_MEMORY, .device = device_of(0)};
    values.mapped = (bytes + 4095) & ~(size_t)4095;
    void *base = map_for(PINNED_MEMORY, values.mapped, false);
    values.base = (uintptr_t)base;
    if (base != NULL && (made = memory_add(&values)) == NULL)
        memory_unmap(base, values.mapped);
    return made;
}

void memory_free_globals(struct allocation *allocation) {
    if (allocation != NULL)
        memory_destroy(allocation);
}

/* ---- allocating ---- */

/* The start of what isn't safe while a stream is captured. */
static CUresult enter_unsafe(struct CUctx_st **context) {
    CUresult result = enter(context);
    if (result != CUDA_SUCCESS)
        return result;
    result = capture_forbids();
    return result == CUDA_SUCCESS ? result : leave(result);
}

static CUresult allocate(CUdeviceptr *dptr, size_t bytes, enum memory_kind kind, unsigned flags, bool below_4g) {
    struct CUctx_st *context;
    struct allocation *made;
    if (dptr == NULL || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_unsafe(&context);
    if (result != CUDA_SUCCESS)
        return result;
    result = create(context, kind, bytes, flags, below_4g, &made);
    if (result == CUDA_SUCCESS)
        *dptr = made->base;
    return leave(result);
}

API CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize) {
    return allocate(dptr, bytesize, DEVICE_MEMORY, 0, false);
}

API CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize) {
    CUdeviceptr wide = 0;
    if (dptr == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = allocate(&wide, bytesize, DEVICE_MEMORY, 0, true);
    if (result == CUDA_SUCCESS)
        *dptr = (CUdeviceptr_v1)wide;
    return result;
}

static CUresult allocate_pitch(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height, unsigned element,
                               bool below_4g) {
    if (dptr == NULL || pitch == NULL || width == 0 || height == 0 || (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    if (width > SIZE_MAX - PITCH_ALIGNMENT)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t row = (width + PITCH_ALIGNMENT - 1) / PITCH_ALIGNMENT * PITCH_ALIGNMENT;
    size_t bytes;
    if (__builtin_mul_overflow(row, height, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = allocate(dptr, bytes, DEVICE_MEMORY, 0, below_4g);
    if (result == CUDA_SUCCESS)
        *pitch = row;
    return result;
}

API CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                                unsigned int ElementSizeBytes) {
    return allocate_pitch(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes, false);
}

API CUresult cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch, unsigned int WidthInBytes, unsigned int Height,
                             unsigned int ElementSizeBytes) {
    CUdeviceptr wide = 0;
    size_t pitch = 0;
    if (dptr == NULL || pPitch == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = allocate_pitch(&wide, &pitch, WidthInBytes, Height, ElementSizeBytes, true);
    if (result == CUDA_SUCCESS) {
        *dptr = (CUdeviceptr_v1)wide;
        *pPitch = (unsigned)pitch;
    }
    return result;
}

API CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags) {
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    return allocate(dptr, bytesize, MANAGED_MEMORY, flags, false);
}

/* The runtime passes cudaFree(NULL) on, which is documented to do nothing and is how programs start a context. */
API CUresult cuMemFree_v2(CUdeviceptr dptr) {
    struct CUctx_st *context;
    CUresult result = enter_unsafe(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (dptr == 0)
        return leave(CUDA_SUCCESS);
    struct allocation *allocation = memory_find((uintptr_t)dptr);
    if (allocation == NULL || allocation->base != dptr)
        return leave(CUDA_ERROR_INVALID_VALUE);
    return leave(memory_free(allocation));
}

API CUresult cuMemFree(CUdeviceptr_v1 dptr) {
    return cuMemFree_v2(dptr);
}

API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    struct CUctx_st *context;
    CUresult result = enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t all = context->device->identity->memory_bytes;
    if (free_bytes != NULL)
        *free_bytes = all - gpu_used(context->device->gpu);
    if (total != NULL)
        *total = all;
    return leave(CUDA_SUCCESS);
}

API CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total) {
    size_t wide_free, wide_total;
    CUresult result = cuMemGetInfo_v2(&wide_free, &wide_total);
    if (result != CUDA_SUCCESS)
        return result;
    if (free_bytes != NULL)
        *free_bytes = wide_free < UINT32_MAX ? (unsigned)wide_free : UINT32_MAX;
    if (total != NULL)
        *total = wide_total < UINT32_MAX ? (unsigned)wide_total : UINT32_MAX;
    return CUDA_SUCCESS;
}

API CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr) {
    struct CUctx_st *context;
    CUresult result = enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    const struct allocation *allocation = memory_find((uintptr_t)dptr);
    if (allocation == NULL)
        return leave(CUDA_ERROR_NOT_FOUND);
    if (pbase != NULL)
        *pbase = allocation->base;
    if (psize != NULL)
        *psize = allocation->bytes;
    return leave(CUDA_SUCCESS);
}

API CUresult cuMemGetAddressRange(CUdeviceptr_v1 *pbase, unsigned int *psize, CUdeviceptr_v1 dptr) {
    CUdeviceptr base;
    size_t size;
    CUresult result = cuMemGetAddressRange_v2(&base, &size, dptr);
    if (result != CUDA_SUCCESS)
        return result;
    if (pbase != NULL)
        *pbase = (CUdeviceptr_v1)base;
    if (psize != NULL)
        *psize = size < UINT32_MAX ? (unsigned)size : UINT32_MAX;
    return CUDA_SUCCESS;
}

/* ---- pinned host memory ---- */

/* Frees what starts at address, if it is of that kind. */
static CUresult free_host(void *address, enum memory_kind kind, CUresult unknown) {
    struct CUctx_st *context;
    CUresult result = enter_unsafe(&context);
    if (result != CUDA_SUCCESS)
        return result;
    struct allocation *allocation = memory_find((uintptr_t)address);
    if (allocation == NULL || allocation->base != (uintptr_t)address || allocation->kind != kind)
        return leave(unknown);
    memory_destroy(allocation);
    return leave(CUDA_SUCCESS);
}

API CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags) {
    struct CUctx_st *context;
    struct allocation *made;
    if (pp == NULL || bytesize == 0 || Flags > 7)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_unsafe(&context);
    if (result != CUDA_SUCCESS)
        return result;
    result = create(context, PINNED_MEMORY, bytesize, Flags, false, &made);
    if (result == CUDA_SUCCESS)
        *pp = (void *)made->base;
    return leave(result);
}

API CUresult cuMemAllocHost_v2(void **pp, size_t bytesize) {
    return cuMemHostAlloc(pp, bytesize, CU_MEMHOSTALLOC_DEVICEMAP);
}

API CUresult cuMemAllocHost(void **pp, unsigned int bytesize) {
    return cuMemHostAlloc(pp, bytesize, CU_MEMHOSTALLOC_DEVICEMAP);
}

API CUresult cuMemFreeHost(void *p) {
    return free_host(p, PINNED_MEMORY, CUDA_ERROR_INVALID_VALUE);
}

API CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags) {
    struct CUctx_st *context;
    if (p == NULL || bytesize == 0 || bytesize > UINTPTR_MAX - (uintptr_t)p || Flags > 15)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_unsafe(&context);
    if (result != CUDA_SUCCESS)
        return result;
    const struct allocation values = {.base = (uintptr_t)p,
                                      .bytes = bytesize,
                                      .kind = REGISTERED_MEMORY,
                                      .flags = Flags,
                                      .context = context,
                                      .device = context->device};
    return leave(memory_add(&values) != NULL ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
}

API CUresult cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags) {
    return cuMemHostRegister_v2(p, bytesize, Flags);
}

API CUresult cuMemHostUnregister(void *p) {
    return free_host(p, REGISTERED_MEMORY, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

static bool is_pinned(const struct allocation *allocation) {
    return allocation != NULL && (allocation->kind == PINNED_MEMORY || allocation->kind == REGISTERED_MEMORY);
}

API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags) {
    struct CUctx_st *context;
    if (pdptr == NULL || p == NULL || Flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!is_pinned(memory_find((uintptr_t)p)))
        return leave(CUDA_ERROR_INVALID_VALUE);
    *pdptr = (uintptr_t)p;
    return leave(CUDA_SUCCESS);
}

API CUresult cuMemHostGetDevicePointer(CUdeviceptr_v1 *pdptr, void *p, unsigned int Flags) {
    CUdeviceptr wide = 0;
    if (pdptr == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cuMemHostGetDevicePointer_v2(&wide, p, Flags);
    if (result == CUDA_SUCCESS && wide > UINT32_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *pdptr = (CUdeviceptr_v1)wide;
    return result;
}

API CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p) {
    struct CUctx_st *context;
    if (pFlags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    const struct allocation *allocation = memory_find((uintptr_t)p);
    if (!is_pinned(allocation))
        return leave(CUDA_ERROR_INVALID_VALUE);
    *pFlags = allocation->flags;
    return leave(CUDA_SUCCESS);
}

/* ---- pointer attributes ---- */

static bool allows(const struct allocation *allocation, bool writing) {
    return allocation->kind != MAPPED_MEMORY || mapping_allows(allocation, writing);
}

static CUresult attribute(void *data, CUpointer_attribute which, uintptr_t pointer) {
    const struct allocation *allocation = memory_find(pointer);
    bool known = allocation != NULL;
    bool device = known && is_on_device(allocation);
    switch ((int)which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = known ? allocation->context : NULL;
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(CUmemorytype *)data = device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = pointer;
        break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (device && allocation->kind != MANAGED_MEMORY)
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)data = (void *)pointer;
        break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(int *)data = 0;
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(int *)data = known && allocation->kind == DEVICE_MEMORY;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = known ? allocation->id : 0;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(int *)data = known && allocation->kind == MANAGED_MEMORY;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = !known ? -2 : allocation->device != NULL ? ordinal_of(allocation->device) : -1;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = known ? allocation->base : 0;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = known ? allocation->bytes : 0;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(int *)data = known;
        break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)data =
            known && allocation->kind == MAPPED_MEMORY ? mapping_handle_types(allocation) : CU_MEM_HANDLE_TYPE_NONE;
        break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        /* CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ is 1, ..._READWRITE 3 */
        *(int *)data = !known ? 0 : allows(allocation, true) ? 3 : allows(allocation, false) ? 1 : 0;
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = known ? pool_of(allocation) : NULL;
        break;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

API CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attr, CUdeviceptr ptr) {
    struct CUctx_st *context;
    if (data == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (memory_find((uintptr_t)ptr) == NULL)
        return leave(CUDA_ERROR_INVALID_VALUE);
    return leave(attribute(data, attr, (uintptr_t)ptr));
}

/* Unlike the single form this one answers for unknown pointers too. */
API CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
                                    CUdeviceptr ptr) {
    struct CUctx_st *context;
    if (numAttributes == 0 || attributes == NULL || data == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    bool known = memory_find((uintptr_t)ptr) != NULL;
    for (unsigned i = 0; i < numAttributes && result == CUDA_SUCCESS; i++) {
        if (data[i] == NULL)
            continue;
        if (!known && attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
            *(unsigned *)data[i] = 0;
            continue;
        }
        if (!known && (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ||
                       attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER)) {
            *(void **)data[i] = NULL;
            continue;
        }
        result = attribute(data[i], attributes[i], (uintptr_t)ptr);
        if (result == CUDA_ERROR_INVALID_VALUE) { /* no host pointer for device memory */
            *(void **)data[i] = NULL;
            result = CUDA_SUCCESS;
        }
    }
    return leave(result);
}

API CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attr, CUdeviceptr ptr) {
    struct CUctx_st *context;
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    const struct allocation *allocation = memory_find((uintptr_t)ptr);
    bool right = attr == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && allocation != NULL && is_on_device(allocation);
    return leave(right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE); /* all copies are synchronous as it is */
}

/* ---- copies and fills ---- */

enum side { HOST, DEVICE, ANY };

enum { WRITING = 1, PLANNED = 2 };

/*
 * Whether bytes from address may be read or, with WRITING, written as that side; with PLANNED by a graph, whose memory
 * may be taken by then. With the lock held.
 */
static bool is_valid(uintptr_t address, size_t bytes, enum side side, unsigned use) {
    while (bytes != 0) {
        const struct allocation *allocation = memory_find(address);
        if (allocation == NULL)
            return side != DEVICE || ((use & PLANNED) != 0 && graph_memory_covers(address, bytes));
        if (!allows(allocation, (use & WRITING) != 0))
            return false;
        size_t here = allocation->bytes - (address - allocation->base);
        if (bytes <= here)
            return true;
        if (allocation->kind != MAPPED_MEMORY)
            return false;
        address += here; /* mappings side by side are one piece of memory */
        bytes -= here;
        side = DEVICE;
    }
    return true;
}

/* A call that isn't given a stream uses the legacy one, and waits for it. */
#define AT_ONCE ((CUstream)UINTPTR_MAX)

/* enter_with_room for a copy or fill. */
static CUresult enter_in_order(struct CUctx_st **context, CUstream stream, struct capturing **capturing) {
    if (stream != AT_ONCE)
        return enter_with_room(context, stream, 1, capturing);
    CUresult result = enter(context);
    if (result != CUDA_SUCCESS)
        return result;
    result = capture_forbids_stream(*context, LEGACY_STREAM);
    leave(result);
    return result == CUDA_SUCCESS ? enter_with_room(context, LEGACY_STREAM, 1, capturing) : result;
}

static CUstream order_of(CUstream stream) {
    return stream == AT_ONCE ? LEGACY_STREAM : stream;
}

static CUmemorytype type_of(enum side side) {
    return side == ANY ? CU_MEMORYTYPE_UNIFIED : side == HOST ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

/* One side of a rectangular copy: where it starts and how far it is from row to row and from layer to layer. */
struct box {
    uintptr_t start;
    size_t pitch, layer;
    enum side side;
};

static CUresult box_of(CUmemorytype type, const void *host, CUdeviceptr device, CUarray array, const size_t offset[3],
                       size_t pitch, size_t rows, const size_t extent[3], struct box *box) {
    uintptr_t base;
    switch ((int)type) {
    case CU_MEMORYTYPE_HOST:
        base = (uintptr_t)host;
        box->side = ANY;
        break;
    case CU_MEMORYTYPE_DEVICE:
        base = (uintptr_t)device;
        box->side = DEVICE;
        break;
    case CU_MEMORYTYPE_UNIFIED:
        base = (uintptr_t)device;
        box->side = ANY;
        break;
    case CU_MEMORYTYPE_ARRAY:
        box->side = ANY; /* what array_part finds, nobody else knows */
        return array_part(array, offset, extent, &box->start, &box->pitch, &box->layer);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (pitch == 0)
        pitch = offset[0] + extent[0];
    if (rows == 0)
        rows = offset[1] + extent[1];
    if (pitch < extent[0] || rows < extent[1] || __builtin_mul_overflow(pitch, rows, &box->layer))
        return CUDA_ERROR_INVALID_VALUE;
    box->pitch = pitch;
    box->start = base + offset[2] * box->layer + offset[1] * pitch + offset[0];
    return CUDA_SUCCESS;
}

static bool is_box_valid(const struct box *box, const size_t extent[3], unsigned use) {
    size_t last;
    if (__builtin_mul_overflow(box->layer, extent[2] - 1, &last) ||
        __builtin_add_overflow(last, box->pitch * (extent[1] - 1) + extent[0], &last))
        return false;
    return is_valid(box->start, last, box->side, use);
}

struct boxes {
    struct box from, to;
    size_t extent[3];
    bool empty;
};

/* use: 0 or PLANNED. */
static CUresult boxes_of(const CUDA_MEMCPY3D *copied, unsigned use, struct boxes *boxes) {
    const size_t extent[3] = {copied->WidthInBytes, copied->Height, copied->Depth};
    const size_t source[3] = {copied->srcXInBytes, copied->srcY, copied->srcZ};
    const size_t target[3] = {copied->dstXInBytes, copied->dstY, copied->dstZ};
    CUresult result = box_of(copied->srcMemoryType, copied->srcHost, copied->srcDevice, copied->srcArray, source,
                             copied->srcPitch, copied->srcHeight, extent, &boxes->from);
    if (result == CUDA_SUCCESS)
        result = box_of(copied->dstMemoryType, copied->dstHost, copied->dstDevice, copied->dstArray, target,
                        copied->dstPitch, copied->dstHeight, extent, &boxes->to);
    if (result != CUDA_SUCCESS)
        return result;
    memcpy(boxes->extent, extent, sizeof extent);
    boxes->empty = extent[0] == 0 || extent[1] == 0 || extent[2] == 0;
    return boxes->empty || (is_box_valid(&boxes->from, extent, use) && is_box_valid(&boxes->to, extent, use | WRITING))
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static void move_boxes(const struct boxes *boxes) {
    const struct box *from = &boxes->from, *to = &boxes->to;
    for (size_t z = 0; !boxes->empty && z < boxes->extent[2]; z++)
        for (size_t y = 0; y < boxes->extent[1]; y++)
            memmove((void *)(to->start + z * to->layer + y * to->pitch),
                    (const void *)(from->start + z * from->layer + y * from->pitch), boxes->extent[0]);
}

CUresult check_copy(const CUDA_MEMCPY3D *copied) {
    struct boxes boxes;
    return boxes_of(copied, PLANNED, &boxes);
}

void do_copy(const CUDA_MEMCPY3D *copied) {
    struct boxes boxes;
    if (enter_driver() == CUDA_SUCCESS && leave(boxes_of(copied, PLANNED, &boxes)) == CUDA_SUCCESS)
        move_boxes(&boxes);
}

static bool is_on_host(CUmemorytype type, CUdeviceptr address) {
    const struct allocation *allocation = type == CU_MEMORYTYPE_UNIFIED ? memory_find((uintptr_t)address) : NULL;
    return type == CU_MEMORYTYPE_HOST ||
           (type == CU_MEMORYTYPE_UNIFIED && (allocation == NULL || is_pinned(allocation)));
}

bool copies_from_host(const CUDA_MEMCPY3D *copied) {
    return is_on_host(copied->srcMemoryType, copied->srcDevice);
}

bool copies_to_host(const CUDA_MEMCPY3D *copied) {
    return is_on_host(copied->dstMemoryType, copied->dstDevice);
}

static struct gpu_work work_of_copy(const CUDA_MEMCPY3D *copied, const struct boxes *boxes) {
    enum way way = copies_to_host(copied) ? WAY_OUT : copies_from_host(copied) ? WAY_IN : WAY_WITHIN;
    return copy_work(way, boxes->extent[0] * boxes->extent[1] * boxes->extent[2]);
}

/*
 * The copy itself runs without the lock, as other threads' calls go on beside it on a real GPU too. The data of one
 * without a stream moves when it is over; that of the others at once, unless functions that are yet to be called could
 * have to do with it.
 */
static CUresult copy_box(const CUDA_MEMCPY3D *copied, CUstream stream) {
    struct CUctx_st *context;
    struct capturing *capturing = NULL;
    struct boxes boxes;
    if (copied == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_in_order(&context, stream, &capturing);
    if (result != CUDA_SUCCESS)
        return result;
    if (capturing != NULL) {
        const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY,
                                          .memcpy = {.copyCtx = context, .copyParams = *copied}};
        return leave(capture_node(capturing, &params));
    }
    result = boxes_of(copied, 0, &boxes);
    if (result != CUDA_SUCCESS || boxes.empty)
        return leave(result);
    uint64_t number = work_put(context, order_of(stream), work_of_copy(copied, &boxes), NULL);
    struct awaited awaited = {.gpu = work_context(context, order_of(stream))->device->gpu};
    bool within = !copies_to_host(copied) && !copies_from_host(copied); /* the host doesn't wait for those */
    if (work_has_calls() || (stream == AT_ONCE && !within))
        awaited.numbers[0] = number;
    leave(result);
    work_wait(&awaited);
    move_boxes(&boxes);
    return result;
}

static CUresult copy(uintptr_t to, enum side to_side, uintptr_t from, enum side from_side, size_t bytes,
                     CUstream stream) {
    const CUDA_MEMCPY3D copied = {.srcMemoryType = type_of(from_side),
                                  .srcHost = (const void *)from,
                                  .srcDevice = from,
                                  .dstMemoryType = type_of(to_side),
                                  .dstHost = (void *)to,
                                  .dstDevice = to,
                                  .WidthInBytes = bytes,
                                  .Height = 1,
                                  .Depth = 1};
    return copy_box(&copied, stream);
}

API CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
    return copy((uintptr_t)dst, ANY, (uintptr_t)src, ANY, ByteCount, AT_ONCE);
}

API CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
    return copy((uintptr_t)dst, ANY, (uintptr_t)src, ANY, ByteCount, hStream);
}

API CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount) {
    return copy((uintptr_t)dstDevice, DEVICE, (uintptr_t)srcHost, HOST, ByteCount, AT_ONCE);
}

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream) {
    return copy((uintptr_t)dstDevice, DEVICE, (uintptr_t)srcHost, HOST, ByteCount, hStream);
}

API CUresult cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
    return copy((uintptr_t)dstHost, HOST, (uintptr_t)srcDevice, DEVICE, ByteCount, AT_ONCE);
}

API CUresult cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
    return copy((uintptr_t)dstHost, HOST, (uintptr_t)srcDevice, DEVICE, ByteCount, hStream);
}

API CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
    return copy((uintptr_t)dstDevice, DEVICE, (uintptr_t)srcDevice, DEVICE, ByteCount, AT_ONCE);
}

API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
    return copy((uintptr_t)dstDevice, DEVICE, (uintptr_t)srcDevice, DEVICE, ByteCount, hStream);
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
    if (result != CUDA_SUCCESS)
        return result;
    result = check_context(to_context);
    if (result == CUDA_SUCCESS)
        result = check_context(from_context);
    leave(result);
    return result == CUDA_SUCCESS ? copy((uintptr_t)to, DEVICE, (uintptr_t)from, DEVICE, bytes, stream) : result;
}

API CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
                          size_t ByteCount) {
    return copy_peer(dstDevice, dstContext, srcDevice, srcContext, ByteCount, AT_ONCE);
}

API CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
                               size_t ByteCount, CUstream hStream) {
    return copy_peer(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream);
}

static CUresult copy_rectangle(const CUDA_MEMCPY2D *copied, CUstream stream) {
    if (copied == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const CUDA_MEMCPY3D box = {.srcXInBytes = copied->srcXInBytes,
                               .srcY = copied->srcY,
                               .srcMemoryType = copied->srcMemoryType,
                               .srcHost = copied->srcHost,
                               .srcDevice = copied->srcDevice,
                               .srcArray = copied->srcArray,
                               .srcPitch = copied->srcPitch,
                               .dstXInBytes = copied->dstXInBytes,
                               .dstY = copied->dstY,
                               .dstMemoryType = copied->dstMemoryType,
                               .dstHost = copied->dstHost,
                               .dstDevice = copied->dstDevice,
                               .dstArray = copied->dstArray,
                               .dstPitch = copied->dstPitch,
                               .WidthInBytes = copied->WidthInBytes,
                               .Height = copied->Height,
                               .Depth = 1};
    return copy_box(&box, stream);
}

API CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy) {
    return copy_rectangle(pCopy, AT_ONCE);
}
API CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy) {
    return copy_rectangle(pCopy, AT_ONCE);
}
API CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream) {
    return copy_rectangle(pCopy, hStream);
}
API CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy) {
    return copy_box(pCopy, AT_ONCE);
}
API CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream) {
    return copy_box(pCopy, hStream);
}

/* One row between an array and something else. */
#define ROW(...)                                                                                                       \
    &(CUDA_MEMCPY3D) {                                                                                                 \
        __VA_ARGS__, .WidthInBytes = ByteCount, .Height = 1, .Depth = 1                                                \
    }
#define ROW_ARRAY(side)                                                                                                \
    .side##MemoryType = CU_MEMORYTYPE_ARRAY, .side##Array = side##Array, .side##XInBytes = side##Offset
#define ROW_HOST(side) .side##MemoryType = CU_MEMORYTYPE_HOST, .side##Host = side##Host
#define ROW_DEVICE(side) .side##MemoryType = CU_MEMORYTYPE_DEVICE, .side##Device = side##Device

API CUresult cuMemcpyAtoH_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
    return copy_box(ROW(ROW_ARRAY(src), ROW_HOST(dst)), AT_ONCE);
}
API CUresult cuMemcpyAtoHAsync_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                                  CUstream hStream) {
    return copy_box(ROW(ROW_ARRAY(src), ROW_HOST(dst)), hStream);
}
API CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount) {
    return copy_box(ROW(ROW_HOST(src), ROW_ARRAY(dst)), AT_ONCE);
}
API CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount,
                                  CUstream hStream) {
    return copy_box(ROW(ROW_HOST(src), ROW_ARRAY(dst)), hStream);
}
API CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
    return copy_box(ROW(ROW_ARRAY(src), ROW_DEVICE(dst)), AT_ONCE);
}
API CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount) {
    return copy_box(ROW(ROW_DEVICE(src), ROW_ARRAY(dst)), AT_ONCE);
}
API CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
    return copy_box(ROW(ROW_ARRAY(src), ROW_ARRAY(dst)), AT_ONCE);
}

/* Of a fill: bytes in a row. */
static size_t row_of(const CUDA_MEMSET_NODE_PARAMS_v2 *filled) {
    return filled->width * filled->elementSize;
}

static CUresult check_rows(const CUDA_MEMSET_NODE_PARAMS_v2 *filled, unsigned use) {
    size_t row, all, size = filled->elementSize;
    if (size != 1 && size != 2 && size != 4)
        return CUDA_ERROR_INVALID_VALUE;
    if (filled->width == 0 || filled->height == 0)
        return CUDA_SUCCESS;
    if (filled->dst % size != 0 || __builtin_mul_overflow(filled->width, size, &row) ||
        (filled->height > 1 && filled->pitch < row) ||
        __builtin_mul_overflow(filled->pitch, filled->height - 1, &all) || __builtin_add_overflow(all, row, &all) ||
        !is_valid((uintptr_t)filled->dst, all, DEVICE, use | WRITING))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult check_fill(const CUDA_MEMSET_NODE_PARAMS_v2 *filled) {
    return check_rows(filled, PLANNED);
}

/* drop: how to drop pages that become zero; 0: not at all. */
static void fill_rows(const CUDA_MEMSET_NODE_PARAMS_v2 *filled, int drop) {
    size_t row = row_of(filled), size = filled->elementSize;
    unsigned char element[sizeof filled->value];
    memcpy(element, &filled->value, sizeof element); /* its low bytes come first */
    static const unsigned char zeros[4];
    bool zero = memcmp(element, zeros, size) == 0;
    for (size_t y = 0; row != 0 && y < filled->height; y++) {
        unsigned char *start = (unsigned char *)(uintptr_t)filled->dst + y * filled->pitch;
        uintptr_t first = ((uintptr_t)start + 4095) & ~(uintptr_t)4095;
        uintptr_t last = ((uintptr_t)start + row) & ~(uintptr_t)4095;
        /* Dropped pages read as zeros, so clearing 80 GB takes no host memory. */
        if (zero && drop != 0 && last > first && last - first >= (1u << 20) &&
            madvise((void *)first, last - first, drop) == 0) {
            memset(start, 0, first - (uintptr_t)start);
            memset((void *)last, 0, (uintptr_t)start + row - last);
            continue;
        }
        if (size == 1 || zero) {
            memset(start, element[0], row);
            continue;
        }
        for (size_t x = 0; x < filled->width; x++)
            memcpy(start + x * size, element, size);
    }
}

static int drop_of(const CUDA_MEMSET_NODE_PARAMS_v2 *filled) {
    const struct allocation *allocation = memory_find((uintptr_t)filled->dst);
    if (allocation == NULL || allocation->kind == REGISTERED_MEMORY)
        return 0;
    return allocation->shared ? MADV_REMOVE : MADV_DONTNEED;
}

void do_fill(const CUDA_MEMSET_NODE_PARAMS_v2 *filled) {
    if (enter_driver() != CUDA_SUCCESS)
        return;
    int drop = drop_of(filled);
    if (leave(check_rows(filled, PLANNED)) == CUDA_SUCCESS)
        fill_rows(filled, drop);
}

/* Fills height rows of width elements of size bytes. */
static CUresult fill(uintptr_t to, size_t pitch, unsigned value, size_t size, size_t width, size_t height,
                     CUstream stream) {
    struct CUctx_st *context;
    struct capturing *capturing = NULL;
    CUresult result = enter_in_order(&context, stream, &capturing);
    if (result != CUDA_SUCCESS)
        return result;
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET,
                                      .memset = {.dst = to,
                                                 .pitch = pitch,
                                                 .value = value,
                                                 .elementSize = (unsigned)size,
                                                 .width = width,
                                                 .height = height,
                                                 .ctx = context}};
    if (capturing != NULL)
        return leave(capture_node(capturing, &params));
    result = check_rows(&params.memset, 0);
    int drop = drop_of(&params.memset);
    if (result == CUDA_SUCCESS && width != 0 && height != 0)
        (void)work_put(context, order_of(stream),
                       fill_work(work_context(context, order_of(stream))->device, row_of(&params.memset) * height),
                       NULL);
    leave(result);
    if (result == CUDA_SUCCESS)
        fill_rows(&params.memset, drop);
    return result;
}

#define FILLS(bits, type)                                                                                              \
    API CUresult cuMemsetD##bits##_v2(CUdeviceptr dstDevice, type value, size_t N) {                                   \
        return fill((uintptr_t)dstDevice, 0, value, sizeof value, N, 1, AT_ONCE);                                      \
    }                                                                                                                  \
    API CUresult cuMemsetD##bits##Async(CUdeviceptr dstDevice, type value, size_t N, CUstream hStream) {               \
        return fill((uintptr_t)dstDevice, 0, value, sizeof value, N, 1, hStream);                                      \
    }                                                                                                                  \
    API CUresult cuMemsetD##bits(CUdeviceptr_v1 dstDevice, type value, unsigned int N) {                               \
        return fill(dstDevice, 0, value, sizeof value, N, 1, AT_ONCE);                                                 \
    }                                                                                                                  \
    API CUresult cuMemsetD2D##bits##_v2(CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width,              \
                                        size_t Height) {                                                               \
        return fill((uintptr_t)dstDevice, dstPitch, value, sizeof value, Width, Height, AT_ONCE);                      \
    }                                                                                                                  \
    API CUresult cuMemsetD2D##bits##Async(CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width,            \
                                          size_t Height, CUstream hStream) {                                           \
        return fill((uintptr_t)dstDevice, dstPitch, value, sizeof value, Width, Height, hStream);                      \
    }                                                                                                                  \
    API CUresult cuMemsetD2D##bits(CUdeviceptr_v1 dstDevice, unsigned int dstPitch, type value, unsigned int Width,    \
                                   unsigned int Height) {                                                              \
        return fill(dstDevice, dstPitch, value, sizeof value, Width, Height, AT_ONCE);                                 \
    }

FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned int)
