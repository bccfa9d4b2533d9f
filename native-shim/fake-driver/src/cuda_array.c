/*
 * Arrays and mipmapped arrays.
 *
 * The size of an array is that of a GPU's block-linear layout: blocks of 64 bytes by 8 rows, stacked 1, 2, 4, 8 or 16
 * high depending on the array's height. An array of a single row is padded to 512 bytes (source: Mesa, nil/image.rs).
 * The data itself is stored row by row with that padding. Programs cannot see the difference, because they only copy
 * to and from arrays.
 */
#define _GNU_SOURCE
#include "cuda_array.h"
#include "cuda_pool.h"
#include "cuda_vmm.h"
#include "cuda_work.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 64, BLOCK_ROWS = 8, MAX_BLOCK_ROWS = 16 * BLOCK_ROWS, SINGLE_ROW_BYTES = 512, MAX_LEVELS = 18 };

/* The memory of an array, or of all levels of a mipmapped array. */
struct backing {
    size_t bytes;
    uintptr_t base;                       /* 0: a deferred array without mapped memory */
    struct physical_allocation *physical; /* of a deferred array; NULL: the array is charged for its own memory */
};

struct CUarray_st {
    struct object object;
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    size_t row_bytes, pitch, rows, layers; /* row_bytes excludes the padding, pitch includes it; layers or slices */
    size_t layer_bytes;                    /* with padding */
    struct backing backing;
    struct CUmipmappedArray_st *mipmap; /* the mipmapped array that this is a level of, or NULL */
    size_t offset;                      /* in the backing of the mipmapped array */
};

struct CUmipmappedArray_st {
    struct object object;
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    struct backing backing;
    unsigned level_count;
    struct CUarray_st *levels[MAX_LEVELS];
};

/* ---- sizes ---- */

/*
 * Bytes of one channel of a format; 0 if the format is unknown. channels returns the number of channels that the
 * format itself defines, or 0.
 */
static size_t channel_bytes(CUarray_format format, unsigned *channels) {
    static const unsigned char normalized_channels[] = {1, 2, 4};
    *channels = 0;
    if ((int)format >= CU_AD_FORMAT_UNORM_INT8X1 && (int)format <= CU_AD_FORMAT_SNORM_INT16X4) {
        unsigned format_index = (unsigned)format - CU_AD_FORMAT_UNORM_INT8X1; /* unorm 8, unorm 16, snorm 8, snorm 16 */
        *channels = normalized_channels[format_index % 3];
        return format_index / 3 % 2 == 0 ? 1 : 2;
    }
    switch ((int)format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default:
        return 0;
    }
}

static bool is_layered(const CUDA_ARRAY3D_DESCRIPTOR *descriptor) {
    return (descriptor->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
}

/* The limits are those of the device attributes. */
static bool is_size_allowed(const CUDA_ARRAY3D_DESCRIPTOR *d) {
    if (d->Width == 0) {
        return false;
    }
    if ((d->Flags & CUDA_ARRAY3D_CUBEMAP) != 0 && (d->Width != d->Height || d->Depth == 0 || d->Depth % 6 != 0 ||
                                                   (d->Depth != 6 && (d->Flags & CUDA_ARRAY3D_LAYERED) == 0))) {
        return false;
    }
    if (is_layered(d)) {
        return d->Depth != 0 && d->Depth <= 2048 && d->Width <= 32768 && d->Height <= 32768;
    }
    if (d->Depth != 0) {
        return d->Height != 0 && d->Width <= 16384 && d->Height <= 16384 && d->Depth <= 16384;
    }
    return d->Width <= 131072 && d->Height <= 65536;
}

static CUresult check_descriptor(const CUDA_ARRAY3D_DESCRIPTOR *descriptor) {
    unsigned format_channels;
    if (!is_size_allowed(descriptor) || (descriptor->Flags & ~0x1ffu) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (channel_bytes(descriptor->Format, &format_channels) == 0 ||
        (descriptor->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_VIDEO_ENCODE_DECODE)) != 0) {
        return CUDA_ERROR_NOT_SUPPORTED; /* block-compressed, planar video, sparse */
    }
    unsigned channels = descriptor->NumChannels;
    if ((channels != 1 && channels != 2 && channels != 4) || (format_channels != 0 && channels != format_channels)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

/* Sets the sizes of one level. The descriptor has passed check_descriptor(). Returns the level's bytes. */
static size_t set_level_shape(struct CUarray_st *array, const CUDA_ARRAY3D_DESCRIPTOR *base, unsigned level) {
    unsigned format_channels;
    CUDA_ARRAY3D_DESCRIPTOR *descriptor = &array->descriptor;
    *descriptor = *base;
    descriptor->Width = base->Width >> level != 0 ? base->Width >> level : 1;
    if (base->Height != 0) {
        descriptor->Height = base->Height >> level != 0 ? base->Height >> level : 1;
    }
    if (base->Depth != 0 && !is_layered(base)) {
        descriptor->Depth = base->Depth >> level != 0 ? base->Depth >> level : 1;
    }
    array->row_bytes =
        descriptor->Width * descriptor->NumChannels * channel_bytes(descriptor->Format, &format_channels);
    array->rows = descriptor->Height != 0 ? descriptor->Height : 1;
    array->layers = descriptor->Depth != 0 ? descriptor->Depth : 1;
    if (descriptor->Height == 0) {
        array->pitch = array->layer_bytes = round_up(array->row_bytes, SINGLE_ROW_BYTES);
    } else {
        size_t block_rows = BLOCK_ROWS;
        while (block_rows < array->rows && block_rows < MAX_BLOCK_ROWS) {
            block_rows *= 2;
        }
        array->pitch = round_up(array->row_bytes, BLOCK_BYTES);
        array->layer_bytes = array->pitch * round_up(array->rows, block_rows);
    }
    return array->layer_bytes * array->layers;
}

/* ---- memory ---- */

static CUresult backing_allocate(struct backing *backing, struct CUctx_st *context, bool deferred) {
    if (deferred) {
        return CUDA_SUCCESS;
    }
    if (!memory_reserve(context->device, backing->bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    backing->base = (uintptr_t)memory_map(round_up(backing->bytes, 4096));
    if (backing->base != 0) {
        return CUDA_SUCCESS;
    }
    memory_release(context->device, backing->bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static void backing_free(struct backing *backing, const struct CUctx_st *context) {
    if (backing->base == 0) {
        return;
    }
    memory_unmap((void *)backing->base, round_up(backing->bytes, 4096));
    backing->base = 0;
    if (backing->physical != NULL) {
        physical_allocation_unmap(backing->physical);
    } else {
        memory_release(context->device, backing->bytes);
    }
    backing->physical = NULL;
}

static void array_free(void *object) {
    struct CUarray_st *array = object;
    backing_free(&array->backing, array->object.context);
}

static void mipmapped_array_free(void *object) {
    struct CUmipmappedArray_st *mipmap = object;
    backing_free(&mipmap->backing, mipmap->object.context);
}

static bool is_deferred(const CUDA_ARRAY3D_DESCRIPTOR *descriptor) {
    return (descriptor->Flags & CUDA_ARRAY3D_DEFERRED_MAPPING) != 0;
}

CUresult array_region(CUarray handle, const size_t offset[3], const size_t extent[3], uintptr_t *start, size_t *pitch,
                      size_t *layer) {
    const struct CUarray_st *array = object_find(KIND_ARRAY, handle);
    if (array == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    const size_t sizes[3] = {array->row_bytes, array->rows, array->layers};
    for (int i = 0; i < 3; i++) {
        if (offset[i] > sizes[i] || extent[i] > sizes[i] - offset[i]) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    uintptr_t base = array->mipmap != NULL ? array->mipmap->backing.base : array->backing.base;
    if (base == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pitch = array->pitch;
    *layer = array->layer_bytes;
    *start = base + array->offset + offset[2] * array->layer_bytes + offset[1] * array->pitch + offset[0];
    return CUDA_SUCCESS;
}

/* ---- arrays ---- */

API CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray) {
    struct CUctx_st *context;
    if (pHandle == NULL || pAllocateArray == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = check_descriptor(pAllocateArray);
    if (result != CUDA_SUCCESS) {
        return leave(result);
    }
    struct CUarray_st *array = object_new(KIND_ARRAY, sizeof *array, context);
    if (array == NULL) {
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    array->object.end = array_free;
    array->backing.bytes = set_level_shape(array, pAllocateArray, 0);
    result = backing_allocate(&array->backing, context, is_deferred(pAllocateArray));
    if (result == CUDA_SUCCESS) {
        *pHandle = array;
    } else {
        object_delete(array);
    }
    return leave(result);
}

/* The fields that all versions of a descriptor have, with the size type of each version. */
#define FIELDS_2D(size, from)                                                                                          \
    .Width = (size)(from).Width, .Height = (size)(from).Height, .Format = (from).Format,                               \
    .NumChannels = (from).NumChannels
#define FIELDS_3D(size, from) FIELDS_2D(size, from), .Depth = (size)(from).Depth, .Flags = (from).Flags

#define DEFINE_CREATE(function, form, type)                                                                            \
    API CUresult function(CUarray *pHandle, const type *pAllocateArray) {                                              \
        if (pAllocateArray == NULL)                                                                                    \
            return CUDA_ERROR_INVALID_VALUE;                                                                           \
        const CUDA_ARRAY3D_DESCRIPTOR descriptor = {form(size_t, *pAllocateArray)};                                    \
        return cuArray3DCreate_v2(pHandle, &descriptor);                                                               \
    }

DEFINE_CREATE(cuArrayCreate_v2, FIELDS_2D, CUDA_ARRAY_DESCRIPTOR)
DEFINE_CREATE(cuArrayCreate, FIELDS_2D, CUDA_ARRAY_DESCRIPTOR_v1)
DEFINE_CREATE(cuArray3DCreate, FIELDS_3D, CUDA_ARRAY3D_DESCRIPTOR_v1)

/* Takes the lock if handle is an object of that kind. answer is the caller's output pointer, which must not be NULL. */
static CUresult enter_array_handle(enum object_kind kind, const void *handle, void *answer) {
    struct CUctx_st *context;
    if (answer == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return object_find(kind, handle) != NULL ? CUDA_SUCCESS : leave(CUDA_ERROR_INVALID_HANDLE);
}

API CUresult cuArrayDestroy(CUarray hArray) {
    CUresult result = enter_array_handle(KIND_ARRAY, hArray, &result);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (hArray->mipmap != NULL) {
        return leave(CUDA_ERROR_INVALID_HANDLE); /* cuMipmappedArrayDestroy destroys the levels */
    }
    object_delete(hArray);
    return leave(CUDA_SUCCESS);
}

API CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor, CUarray hArray) {
    CUresult result = enter_array_handle(KIND_ARRAY, hArray, pArrayDescriptor);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *pArrayDescriptor = hArray->descriptor;
    return leave(CUDA_SUCCESS);
}

#define DEFINE_GET_DESCRIPTOR(function, form, type, size)                                                              \
    API CUresult function(type *pArrayDescriptor, CUarray hArray) {                                                    \
        CUresult result = enter_array_handle(KIND_ARRAY, hArray, pArrayDescriptor);                                    \
        if (result != CUDA_SUCCESS)                                                                                    \
            return result;                                                                                             \
        *pArrayDescriptor = (type){form(size, hArray->descriptor)};                                                    \
        return leave(CUDA_SUCCESS);                                                                                    \
    }

DEFINE_GET_DESCRIPTOR(cuArray3DGetDescriptor, FIELDS_3D, CUDA_ARRAY3D_DESCRIPTOR_v1, unsigned)
DEFINE_GET_DESCRIPTOR(cuArrayGetDescriptor_v2, FIELDS_2D, CUDA_ARRAY_DESCRIPTOR, size_t)
DEFINE_GET_DESCRIPTOR(cuArrayGetDescriptor, FIELDS_2D, CUDA_ARRAY_DESCRIPTOR_v1, unsigned)

/*
 * Called with the lock held. NVIDIA's driver answers for deferred arrays only (cuda.h, cuArrayGetMemoryRequirements).
 */
static CUresult get_memory_requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *answer,
                                        const CUDA_ARRAY3D_DESCRIPTOR *descriptor, const struct backing *backing,
                                        CUdevice device) {
    if (device_from_ordinal(device) == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!is_deferred(descriptor)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memset(answer, 0, sizeof *answer);
    answer->size = backing->bytes;
    answer->alignment = VMM_GRANULARITY;
    return CUDA_SUCCESS;
}

API CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements, CUarray array,
                                          CUdevice device) {
    CUresult result = enter_array_handle(KIND_ARRAY, array, memoryRequirements);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct backing *backing = array->mipmap != NULL ? &array->mipmap->backing : &array->backing;
    return leave(get_memory_requirements(memoryRequirements, &array->descriptor, backing, device));
}

/* ---- mipmapped arrays ---- */

static unsigned max_levels(const CUDA_ARRAY3D_DESCRIPTOR *descriptor) {
    size_t largest = descriptor->Width > descriptor->Height ? descriptor->Width : descriptor->Height;
    if (!is_layered(descriptor) && descriptor->Depth > largest) {
        largest = descriptor->Depth;
    }
    unsigned levels = 0;
    for (; largest != 0; largest /= 2) {
        levels++;
    }
    return levels;
}

static void mipmap_delete(struct CUmipmappedArray_st *mipmap) {
    for (unsigned i = 0; i < mipmap->level_count; i++) {
        object_delete(mipmap->levels[i]);
    }
    object_delete(mipmap);
}

API CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
                                    unsigned int numMipmapLevels) {
    struct CUctx_st *context;
    if (pHandle == NULL || pMipmappedArrayDesc == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = check_descriptor(pMipmappedArrayDesc);
    if (result != CUDA_SUCCESS) {
        return leave(result);
    }
    unsigned maximum = max_levels(pMipmappedArrayDesc);
    unsigned levels = numMipmapLevels == 0 ? 1 : numMipmapLevels < maximum ? numMipmapLevels : maximum;
    struct CUmipmappedArray_st *mipmap = object_new(KIND_MIPMAPPED_ARRAY, sizeof *mipmap, context);
    if (mipmap == NULL) {
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    mipmap->object.end = mipmapped_array_free;
    mipmap->descriptor = *pMipmappedArrayDesc;
    for (; mipmap->level_count < levels && result == CUDA_SUCCESS; mipmap->level_count++) {
        struct CUarray_st *level = object_new(KIND_ARRAY, sizeof *level, context);
        if (level == NULL) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
            break;
        }
        level->mipmap = mipmap;
        level->offset = mipmap->backing.bytes;
        mipmap->backing.bytes += set_level_shape(level, pMipmappedArrayDesc, mipmap->level_count);
        mipmap->levels[mipmap->level_count] = level;
    }
    if (result == CUDA_SUCCESS) {
        result = backing_allocate(&mipmap->backing, context, is_deferred(pMipmappedArrayDesc));
    }
    if (result == CUDA_SUCCESS) {
        *pHandle = mipmap;
    } else {
        mipmap_delete(mipmap);
    }
    return leave(result);
}

API CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
    CUresult result = enter_array_handle(KIND_MIPMAPPED_ARRAY, hMipmappedArray, &result);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    mipmap_delete(hMipmappedArray);
    return leave(CUDA_SUCCESS);
}

API CUresult cuMipmappedArrayGetLevel(CUarray *pLevelArray, CUmipmappedArray hMipmappedArray, unsigned int level) {
    CUresult result = enter_array_handle(KIND_MIPMAPPED_ARRAY, hMipmappedArray, pLevelArray);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (level >= hMipmappedArray->level_count) {
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    *pLevelArray = hMipmappedArray->levels[level];
    return leave(CUDA_SUCCESS);
}

API CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements,
                                                   CUmipmappedArray mipmap, CUdevice device) {
    CUresult result = enter_array_handle(KIND_MIPMAPPED_ARRAY, mipmap, memoryRequirements);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return leave(get_memory_requirements(memoryRequirements, &mipmap->descriptor, &mipmap->backing, device));
}

/* ---- mapping memory to deferred arrays ---- */

/* Returns the backing of the deferred array that a map info refers to; NULL if it refers to anything else. */
static struct backing *deferred_backing(const CUarrayMapInfo *info) {
    if (info->resourceType == CU_RESOURCE_TYPE_ARRAY) {
        struct CUarray_st *array = object_find(KIND_ARRAY, info->resource.array);
        return array != NULL && array->mipmap == NULL && is_deferred(&array->descriptor) ? &array->backing : NULL;
    }
    struct CUmipmappedArray_st *mipmap = info->resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY
                                             ? object_find(KIND_MIPMAPPED_ARRAY, info->resource.mipmap)
                                             : NULL;
    return mipmap != NULL && is_deferred(&mipmap->descriptor) ? &mipmap->backing : NULL;
}

static CUresult map_array(const CUarrayMapInfo *info, struct CUctx_st *context) {
    struct backing *backing = deferred_backing(info);
    CUdevice ordinal = device_ordinal(context->device);
    if (backing == NULL || info->flags != 0 || info->reserved[0] != 0 || info->reserved[1] != 0 || ordinal > 31 ||
        info->deviceBitMask != 1u << ordinal) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (info->memOperationType == CU_MEM_OPERATION_TYPE_UNMAP) {
        if (backing->base == 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        backing_free(backing, context);
        return CUDA_SUCCESS;
    }
    if (info->memOperationType != CU_MEM_OPERATION_TYPE_MAP || info->memHandleType != CU_MEM_HANDLE_TYPE_GENERIC ||
        backing->base != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    void *start;
    CUresult result = physical_allocation_map(info->memHandle.memHandle, context->device, info->offset,
                                              round_up(backing->bytes, 4096), &backing->physical, &start);
    if (result == CUDA_SUCCESS) {
        backing->base = (uintptr_t)start;
    }
    return result;
}

API CUresult cuMemMapArrayAsync(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream) {
    struct CUctx_st *context;
    if (mapInfoList == NULL || count == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_stream_context(hStream, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = map_array(&mapInfoList[i], context);
    }
    return leave(result);
}
