/* Device, managed and pinned memory: entry points, advice, and the attributes of pointers. */
#define _GNU_SOURCE
#include "cuda_alloc.h"
#include "cuda_capture.h"
#include "cuda_pool.h"
#include "cuda_vmm.h"

enum { PITCH_ALIGNMENT = 512 };

static CUresult create_allocation(struct CUctx_st *context, enum memory_kind kind, size_t bytes, unsigned flags,
                                  bool below_4g, struct allocation **made) {
    struct allocation values = {
        .bytes = bytes, .kind = kind, .flags = flags, .context = context, .device = context->device};
    if (bytes > SIZE_MAX - 4096 || (memory_is_charged(kind) && !memory_reserve(context->device, bytes))) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    values.mapped_bytes = (bytes + 4095) & ~(size_t)4095;
    void *base = memory_map_kind(kind, values.mapped_bytes, below_4g);
    values.base = (uintptr_t)base;
    *made = base != NULL ? memory_add(&values) : NULL;
    if (*made != NULL) {
        return CUDA_SUCCESS;
    }
    if (base != NULL) {
        memory_unmap(base, values.mapped_bytes);
    }
    if (memory_is_charged(kind)) {
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
    void *base = memory_map_kind(PINNED_MEMORY, values.mapped_bytes, false);
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

API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags) {
    struct CUctx_st *context;
    if (pdptr == NULL || p == NULL || Flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct allocation *allocation = memory_find((uintptr_t)p);
    if (allocation == NULL || !memory_is_pinned(allocation)) {
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

static CUresult get_pointer_attribute(void *data, CUpointer_attribute which, uintptr_t pointer) {
    const struct allocation *allocation = memory_find(pointer);
    bool known = allocation != NULL;
    bool device = known && allocation->device != NULL && !memory_is_pinned(allocation);
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
