/*
 * Device, managed and pinned memory, copies and fills.
 *
 * Device memory is lazily populated host memory: allocating 80 GB is free, and only written pages take host memory. A
 * device address is a host address, so that a copy is a memmove(). The allocation tree knows which device an address
 * belongs to. The GPU is charged exactly the requested bytes.
 */
#define _GNU_SOURCE
#include "cuda_memory.h"
#include "cuda_array.h"
#include "cuda_capture.h"
#include "cuda_ipc.h"
#include "cuda_pool.h"
#include "cuda_stream.h"
#include "cuda_vmm.h"
#include "cuda_work.h"
#include "gpu_profile.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PITCH_ALIGNMENT = 512 };

static void *allocation_tree; /* all allocations, by address */
static LIST_HEAD(, allocation) allocations;
static unsigned long long last_allocation_id;

/* Overlapping ranges compare as equal, so that a search for one byte finds the allocation that contains it. */
static int compare_allocation_ranges(const void *a, const void *b) {
    const struct allocation *left = a, *valid = b;
    if (left->base + left->bytes <= valid->base) {
        return -1;
    }
    return valid->base + valid->bytes <= left->base;
}

struct allocation *memory_find(uintptr_t address) {
    struct allocation byte = {.base = address, .bytes = 1};
    if (address == UINTPTR_MAX) {
        return NULL;
    }
    struct allocation *const *node = tfind(&byte, &allocation_tree, compare_allocation_ranges);
    return node != NULL && !(*node)->free_pending ? *node : NULL;
}

struct allocation *memory_search(bool (*wanted)(const struct allocation *allocation, const void *data),
                                 const void *data) {
    struct allocation *allocation = LIST_FIRST(&allocations);
    while (allocation != NULL && !wanted(allocation, data)) {
        allocation = LIST_NEXT(allocation, list);
    }
    return allocation;
}

struct allocation *memory_add(const struct allocation *values) {
    struct allocation *allocation = malloc(sizeof *allocation);
    if (allocation == NULL) {
        return NULL;
    }
    *allocation = *values;
    struct allocation *const *node = tsearch(allocation, &allocation_tree, compare_allocation_ranges);
    if (node == NULL || *node != allocation) {
        free(allocation);
        return NULL;
    }
    allocation->id = ++last_allocation_id;
    LIST_INSERT_HEAD(&allocations, allocation, list);
    return allocation;
}

void memory_remove(struct allocation *allocation) {
    tdelete(allocation, &allocation_tree, compare_allocation_ranges);
    LIST_REMOVE(allocation, list);
    free(allocation);
}

/* flags: additional flags for mmap(). */
static void *map_pages(size_t bytes, int flags) {
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
    if (start != MAP_FAILED) {
        return start;
    }
    log_line("the host has no address space for another %zu bytes", bytes);
    return NULL;
}

/* A forked child has no context and therefore none of its memory. */
static void exclude_from_fork(void *start, size_t bytes) {
    (void)madvise(start, bytes, MADV_DONTFORK);
}

void *memory_map(size_t bytes) {
    void *start = map_pages(bytes, 0);
    if (start != NULL) {
        exclude_from_fork(start, bytes);
    }
    return start;
}

void memory_unmap(void *start, size_t bytes) {
    /* munmap() fails if splitting a mapping would exceed the number of mappings; return at least the pages. */
    if (munmap(start, bytes) != 0) {
        (void)madvise(start, bytes, MADV_DONTNEED);
    }
}

/* What an allocation takes beside small ones of small_bytes together: pages, if the profile says so. */
static uint64_t bytes_in_pages(uint64_t bytes, uint64_t small_bytes) {
    uint64_t page = gpu_profile()->page_bytes;
    if (page == 0) {
        return bytes;
    }
    if (bytes >= page) {
        return round_up(bytes, page);
    }
    return round_up(small_bytes + bytes, page) - round_up(small_bytes, page);
}

static bool is_small(uint64_t bytes) {
    return bytes < gpu_profile()->page_bytes;
}

bool memory_reserve(struct device *device, uint64_t bytes) {
    uint64_t taken = bytes_in_pages(bytes, device->small_bytes);
    if (!gpu_reserve(device->gpu, taken) && !(pools_release_unused(device) && gpu_reserve(device->gpu, taken))) {
        return false;
    }
    device->small_bytes += is_small(bytes) ? bytes : 0;
    return true;
}

void memory_release(struct device *device, uint64_t bytes) {
    device->small_bytes -= is_small(bytes) ? bytes : 0;
    gpu_release(device->gpu, bytes_in_pages(bytes, device->small_bytes));
}

static bool is_on_device(const struct allocation *allocation) {
    return allocation->device != NULL && allocation->kind != PINNED_MEMORY && allocation->kind != REGISTERED_MEMORY;
}

static bool is_charged(enum memory_kind kind) {
    return kind == DEVICE_MEMORY || kind == MANAGED_MEMORY || kind == GLOBAL_MEMORY;
}

void memory_destroy(struct allocation *allocation) {
    if (allocation->kind == DEVICE_MEMORY || allocation->kind == IPC_MEMORY) {
        ipc_release(allocation);
    }
    if (allocation->mapped_bytes != 0) { /* an imported allocation may start within a page */
        memory_unmap((void *)(allocation->base & ~(uintptr_t)4095), allocation->mapped_bytes);
    }
    if (is_charged(allocation->kind)) {
        memory_release(allocation->device, allocation->bytes);
    }
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

void memory_free_of_context(const struct CUctx_st *context) {
    struct allocation *next;
    pending_frees_complete_all(context->device);
    for (struct allocation *allocation = LIST_FIRST(&allocations); allocation != NULL; allocation = next) {
        next = LIST_NEXT(allocation, list);
        if (allocation->context == context) {
            memory_destroy(allocation);
        }
    }
}

/* Maps memory, below 4 GiB if a 32-bit pointer must hold its address; NULL if there is no such address space. */
static void *map_memory_of_kind(enum memory_kind kind, size_t bytes, bool below_4g) {
#ifdef MAP_32BIT
    const int low = MAP_32BIT;
#else
    const int low = 0;
#endif
    void *start = map_pages(bytes, below_4g ? low : 0);
    if (start != NULL && below_4g && (uintptr_t)start + bytes > UINT32_MAX) {
        memory_unmap(start, bytes);
        start = NULL;
    }
    if (start != NULL && is_charged(kind)) {
        exclude_from_fork(start, bytes);
    }
    return start;
}

static CUresult create_allocation(struct CUctx_st *context, enum memory_kind kind, size_t bytes, unsigned flags,
                                  bool below_4g, struct allocation **made) {
    struct allocation values = {
        .bytes = bytes, .kind = kind, .flags = flags, .context = context, .device = context->device};
    if (bytes > SIZE_MAX - 4096 || (is_charged(kind) && !memory_reserve(context->device, bytes))) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    values.mapped_bytes = (bytes + 4095) & ~(size_t)4095;
    void *base = map_memory_of_kind(kind, values.mapped_bytes, below_4g);
    values.base = (uintptr_t)base;
    *made = base != NULL ? memory_add(&values) : NULL;
    if (*made != NULL) {
        return CUDA_SUCCESS;
    }
    if (base != NULL) {
        memory_unmap(base, values.mapped_bytes);
    }
    if (is_charged(kind)) {
        memory_release(context->device, bytes);
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

struct allocation *memory_allocate_globals(struct CUctx_st *context, size_t bytes) {
    struct allocation *made = NULL;
    if (context != NULL) {
        return create_allocation(context, GLOBAL_MEMORY, bytes, 0, false, &made) == CUDA_SUCCESS ? made : NULL;
    }
    struct allocation values = {.bytes = bytes, .kind = PINNED_MEMORY, .device = device_from_ordinal(0)};
    values.mapped_bytes = (bytes + 4095) & ~(size_t)4095;
    void *base = map_memory_of_kind(PINNED_MEMORY, values.mapped_bytes, false);
    values.base = (uintptr_t)base;
    if (base != NULL && (made = memory_add(&values)) == NULL) {
        memory_unmap(base, values.mapped_bytes);
    }
    return made;
}

void memory_free_globals(struct allocation *allocation) {
    if (allocation != NULL) {
        memory_destroy(allocation);
    }
}

/* ---- allocation ---- */

/* Enters the current context for a call that is unsafe during a stream capture. */
static CUresult enter_unsafe_in_capture(struct CUctx_st **context) {
    CUresult result = enter_context(context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = capture_check_unsafe_call();
    return result == CUDA_SUCCESS ? result : leave(result);
}

static CUresult allocate(CUdeviceptr *dptr, size_t bytes, enum memory_kind kind, unsigned flags, bool below_4g) {
    struct CUctx_st *context;
    struct allocation *made;
    if (dptr == NULL || bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_unsafe_in_capture(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = create_allocation(context, kind, bytes, flags, below_4g, &made);
    if (result == CUDA_SUCCESS) {
        *dptr = made->base;
    }
    return leave(result);
}

API CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize) {
    return allocate(dptr, bytesize, DEVICE_MEMORY, 0, false);
}

API CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize) {
    CUdeviceptr wide = 0;
    if (dptr == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = allocate(&wide, bytesize, DEVICE_MEMORY, 0, true);
    if (result == CUDA_SUCCESS) {
        *dptr = (CUdeviceptr_v1)wide;
    }
    return result;
}

static CUresult allocate_pitch(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height, unsigned element,
                               bool below_4g) {
    if (dptr == NULL || pitch == NULL || width == 0 || height == 0 || (element != 4 && element != 8 && element != 16)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (width > SIZE_MAX - PITCH_ALIGNMENT) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    size_t row = (width + PITCH_ALIGNMENT - 1) / PITCH_ALIGNMENT * PITCH_ALIGNMENT;
    size_t bytes;
    if (__builtin_mul_overflow(row, height, &bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = allocate(dptr, bytes, DEVICE_MEMORY, 0, below_4g);
    if (result == CUDA_SUCCESS) {
        *pitch = row;
    }
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
    if (dptr == NULL || pPitch == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = allocate_pitch(&wide, &pitch, WidthInBytes, Height, ElementSizeBytes, true);
    if (result == CUDA_SUCCESS) {
        *dptr = (CUdeviceptr_v1)wide;
        *pPitch = (unsigned)pitch;
    }
    return result;
}

API CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags) {
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return allocate(dptr, bytesize, MANAGED_MEMORY, flags, false);
}

/* The runtime forwards cudaFree(NULL), which by its documentation does nothing; programs use it to create a context. */
API CUresult cuMemFree_v2(CUdeviceptr dptr) {
    struct CUctx_st *context;
    CUresult result = enter_unsafe_in_capture(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (dptr == 0) {
        return leave(CUDA_SUCCESS);
    }
    struct allocation *allocation = memory_find((uintptr_t)dptr);
    if (allocation == NULL || allocation->base != dptr) {
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    return leave(memory_free(allocation));
}

API CUresult cuMemFree(CUdeviceptr_v1 dptr) {
    return cuMemFree_v2(dptr);
}

API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    struct CUctx_st *context;
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint64_t all = context->device->identity->memory_bytes;
    if (free_bytes != NULL) {
        *free_bytes = all - gpu_used(context->device->gpu);
    }
    if (total != NULL) {
        *total = all;
    }
    return leave(CUDA_SUCCESS);
}

API CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total) {
    size_t wide_free, wide_total;
    CUresult result = cuMemGetInfo_v2(&wide_free, &wide_total);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (free_bytes != NULL) {
        *free_bytes = wide_free < UINT32_MAX ? (unsigned)wide_free : UINT32_MAX;
    }
    if (total != NULL) {
        *total = wide_total < UINT32_MAX ? (unsigned)wide_total : UINT32_MAX;
    }
    return CUDA_SUCCESS;
}

API CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr) {
    struct CUctx_st *context;
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct allocation *allocation = memory_find((uintptr_t)dptr);
    if (allocation == NULL) {
        return leave(CUDA_ERROR_NOT_FOUND);
    }
    if (pbase != NULL) {
        *pbase = allocation->base;
    }
    if (psize != NULL) {
        *psize = allocation->bytes;
    }
    return leave(CUDA_SUCCESS);
}

/* ---- pinned host memory ---- */

/* Frees the memory that starts at address if it is of that kind. */
static CUresult free_host_memory(void *address, enum memory_kind kind, CUresult unknown) {
    struct CUctx_st *context;
    CUresult result = enter_unsafe_in_capture(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct allocation *allocation = memory_find((uintptr_t)address);
    if (allocation == NULL || allocation->base != (uintptr_t)address || allocation->kind != kind) {
        return leave(unknown);
    }
    memory_destroy(allocation);
    return leave(CUDA_SUCCESS);
}

API CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags) {
    struct CUctx_st *context;
    struct allocation *made;
    if (pp == NULL || bytesize == 0 || Flags > 7) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_unsafe_in_capture(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = create_allocation(context, PINNED_MEMORY, bytesize, Flags, false, &made);
    if (result == CUDA_SUCCESS) {
        *pp = (void *)made->base;
    }
    return leave(result);
}

API CUresult cuMemAllocHost_v2(void **pp, size_t bytesize) {
    return cuMemHostAlloc(pp, bytesize, CU_MEMHOSTALLOC_DEVICEMAP);
}

API CUresult cuMemFreeHost(void *p) {
    return free_host_memory(p, PINNED_MEMORY, CUDA_ERROR_INVALID_VALUE);
}

API CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags) {
    struct CUctx_st *context;
    if (p == NULL || bytesize == 0 || bytesize > UINTPTR_MAX - (uintptr_t)p || Flags > 15) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_unsafe_in_capture(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct allocation values = {.base = (uintptr_t)p,
                                      .bytes = bytesize,
                                      .kind = REGISTERED_MEMORY,
                                      .flags = Flags,
                                      .context = context,
                                      .device = context->device};
    return leave(memory_add(&values) != NULL ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
}

API CUresult cuMemHostUnregister(void *p) {
    return free_host_memory(p, REGISTERED_MEMORY, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

static bool is_pinned(const struct allocation *allocation) {
    return allocation != NULL && (allocation->kind == PINNED_MEMORY || allocation->kind == REGISTERED_MEMORY);
}

API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags) {
    struct CUctx_st *context;
    if (pdptr == NULL || p == NULL || Flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!is_pinned(memory_find((uintptr_t)p))) {
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    *pdptr = (uintptr_t)p;
    return leave(CUDA_SUCCESS);
}

/* ---- advice and prefetches: checked, and without effect, since all memory is the host's ---- */

/* Called with the lock held. */
static CUresult check_managed_range(CUdeviceptr address, size_t bytes, const CUmemLocation *location) {
    const struct allocation *allocation = memory_find((uintptr_t)address);
    bool managed = allocation != NULL && (allocation->kind == MANAGED_MEMORY ||
                                          (allocation->kind == GLOBAL_MEMORY && allocation->device == NULL));
    if (!managed || bytes == 0 || bytes > allocation->base + allocation->bytes - (uintptr_t)address) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch ((int)location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return device_from_ordinal(location->id) != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Where the first versions of the functions mean. */
static CUmemLocation location_of(CUdevice device) {
    return device == CU_DEVICE_CPU ? (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST}
                                   : (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

API CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location) {
    if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (advice <= CU_MEM_ADVISE_UNSET_READ_MOSTLY || advice == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION) {
        location.type = CU_MEM_LOCATION_TYPE_HOST; /* the caller's is ignored */
    }
    CUresult result = enter_driver();
    return result != CUDA_SUCCESS ? result : leave(check_managed_range(devPtr, count, &location));
}

API CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device) {
    return cuMemAdvise_v2(devPtr, count, advice, location_of(device));
}

API CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
                                   CUstream hStream) {
    struct CUctx_st *context;
    struct capture_member *capturing = NULL;
    if (flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_stream_context(hStream, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = check_managed_range(devPtr, count, &location);
    if (result == CUDA_SUCCESS) {
        result = capture_find(context, hStream, &capturing);
    }
    return leave(capturing != NULL ? capture_reject(capturing) : result); /* it is no node of a graph */
}

API CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream) {
    return cuMemPrefetchAsync_v2(devPtr, count, location_of(dstDevice), 0, hStream);
}

/* ---- pointer attributes ---- */

static bool allows_access(const struct allocation *allocation, bool writing) {
    return allocation->kind != MAPPED_MEMORY || mapping_allows(allocation, writing);
}

static CUresult get_pointer_attribute(void *data, CUpointer_attribute which, uintptr_t pointer) {
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
        if (device && allocation->kind != MANAGED_MEMORY) {
            return CUDA_ERROR_INVALID_VALUE;
        }
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
        *(int *)data = !known ? -2 : allocation->device != NULL ? device_ordinal(allocation->device) : -1;
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
        *(int *)data = !known ? 0 : allows_access(allocation, true) ? 3 : allows_access(allocation, false) ? 1 : 0;
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = known ? allocation_pool(allocation) : NULL;
        break;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

API CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attr, CUdeviceptr ptr) {
    struct CUctx_st *context;
    if (data == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (memory_find((uintptr_t)ptr) == NULL) {
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    return leave(get_pointer_attribute(data, attr, (uintptr_t)ptr));
}

/* Unlike cuPointerGetAttribute, this function also answers for unknown pointers. */
API CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
                                    CUdeviceptr ptr) {
    struct CUctx_st *context;
    if (numAttributes == 0 || attributes == NULL || data == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    bool known = memory_find((uintptr_t)ptr) != NULL;
    for (unsigned i = 0; i < numAttributes && result == CUDA_SUCCESS; i++) {
        if (data[i] == NULL) {
            continue;
        }
        if (!known && attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
            *(unsigned *)data[i] = 0;
            continue;
        }
        if (!known && (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ||
                       attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER)) {
            *(void **)data[i] = NULL;
            continue;
        }
        result = get_pointer_attribute(data[i], attributes[i], (uintptr_t)ptr);
        if (result == CUDA_ERROR_INVALID_VALUE) { /* device memory has no host pointer */
            *(void **)data[i] = NULL;
            result = CUDA_SUCCESS;
        }
    }
    return leave(result);
}

/* ---- copies and fills ---- */

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

CUresult check_memcpy(const CUDA_MEMCPY3D *copy) {
    struct copy_plan plan;
    return plan_copy(copy, USE_IN_GRAPH, &plan);
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
           (type == CU_MEMORYTYPE_UNIFIED && (allocation == NULL || is_pinned(allocation)));
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
        return leave(capture_add_node(capturing, &params));
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

static CUresult check_memset_params(const CUDA_MEMSET_NODE_PARAMS_v2 *params, unsigned use) {
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

CUresult check_memset(const CUDA_MEMSET_NODE_PARAMS_v2 *params) {
    return check_memset_params(params, USE_IN_GRAPH);
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
    if (leave(check_memset_params(params, USE_IN_GRAPH)) == CUDA_SUCCESS) {
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
        return leave(capture_add_node(capturing, &params));
    }
    result = check_memset_params(&params.memset, 0);
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
