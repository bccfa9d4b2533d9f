/*
 * Charges an array what the driver reports for it. The driver need not report the size of ordinary arrays (cuda.h 13.0,
 * cuArrayGetMemoryRequirements: "If the CUDA array is not allocated with flag CUDA_ARRAY3D_DEFERRED_MAPPING
 * CUDA_ERROR_INVALID_VALUE will be returned"). Then the size is computed, with the padding of block-linear memory:
 * blocks of 64 bytes by 8 rows, up to 16 of them stacked (Mesa, nil/image.rs and nvc0_miptree.c). Sparse arrays and
 * arrays with deferred mapping have no memory of their own; the memory mapped to them is charged where it was created.
 */
#include "charge/allocations.h"
#include "charge/charge.h"
#include "memory/vmm.h"

#define BLOCK_WIDTH_BYTES 64
#define BLOCK_HEIGHT_ROWS 8
#define BLOCKS_STACKED_MAX 16 /* vertically */
#define LINE_WIDTH 512        /* bytes; a one-dimensional array is padded to a multiple */

static uint64_t multiply_saturating(uint64_t a, uint64_t b) {
    uint64_t product = 0;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t round_up(uint64_t value, uint64_t unit) {
    return multiply_saturating(value / unit + (value % unit != 0), unit);
}

/* Bytes of one element of one channel (cuda.h, CUarray_format). Unknown formats, planar video and newer ones, count
   4 bytes, the maximum of the known formats. */
static uint64_t channel_bytes(CUarray_format format) {
    switch ((unsigned)format) {
    case 0x01: /* unsigned and signed int8 */
    case 0x08:
    case 0xc0 ... 0xc2: /* unorm and snorm int8: X1, X2, X4 */
    case 0xc6 ... 0xc8:
        return 1;
    case 0x02: /* unsigned and signed int16, half */
    case 0x09:
    case 0x10:
    case 0xc3 ... 0xc5: /* unorm and snorm int16 */
    case 0xc9 ... 0xcb:
        return 2;
    default:
        return 4;
    }
}

/* Bytes of a compressed block of 4 by 4 elements with all channels (BC1 to BC7); 0: the format is not compressed. */
static uint64_t compressed_block_bytes(CUarray_format format) {
    switch ((unsigned)format) {
    case 0x91 ... 0x92: /* BC1 */
    case 0x97 ... 0x98: /* BC4 */
        return 8;
    case 0x93 ... 0x96: /* BC2, BC3 */
    case 0x99 ... 0x9e: /* BC5, BC6H, BC7 */
        return 16;
    default:
        return 0;
    }
}

static bool is_layered(const CUDA_ARRAY3D_DESCRIPTOR_v2 *array) {
    return (array->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
}

/* Bytes of one mipmap level with all its layers or slices. */
static uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR_v2 *array, unsigned level) {
    uint64_t width = array->Width >> level, height = array->Height >> level;
    uint64_t depth = is_layered(array) ? array->Depth : array->Depth >> level;
    uint64_t block = compressed_block_bytes(array->Format), rows = 0, row = 0;
    width = width > 0 ? width : 1;
    if (block > 0) {
        row = multiply_saturating(width / 4 + (width % 4 != 0), block);
        rows = height / 4 + (height % 4 != 0);
    } else {
        row = multiply_saturating(width,
                                  channel_bytes(array->Format) * (array->NumChannels > 0 ? array->NumChannels : 1));
        rows = height;
    }
    depth = depth > 0 ? depth : 1;
    if (array->Height == 0) {
        return multiply_saturating(round_up(row, LINE_WIDTH), depth);
    }
    uint64_t unit = BLOCK_HEIGHT_ROWS;
    while (unit < rows && unit < (uint64_t)BLOCK_HEIGHT_ROWS * BLOCKS_STACKED_MAX) {
        unit *= 2; /* stack as many blocks as the height needs */
    }
    return multiply_saturating(
        multiply_saturating(round_up(row, BLOCK_WIDTH_BYTES), round_up(rows > 0 ? rows : 1, unit)), depth);
}

static bool has_no_memory(const CUDA_ARRAY3D_DESCRIPTOR_v2 *array) {
    return (array->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0;
}

/* Saturates, so that a size that overflows exceeds any limit. */
static uint64_t computed_bytes(const CUDA_ARRAY3D_DESCRIPTOR_v2 *array, unsigned levels) {
    uint64_t sum = 0;
    if (array == NULL || has_no_memory(array)) {
        return 0; /* the driver rejects a NULL descriptor */
    }
    size_t largest = array->Width > array->Height ? array->Width : array->Height;
    if (!is_layered(array) && array->Depth > largest) {
        largest = array->Depth;
    }
    /* No level is smaller than one element; the driver creates no more levels. */
    for (unsigned level = 0; level < levels && (level == 0 || (level < 64 && largest >> level > 0)); level++) {
        if (__builtin_add_overflow(sum, level_bytes(array, level), &sum)) {
            return UINT64_MAX;
        }
    }
    return sum;
}

/* Returns the size that the driver reports, or else the computed one. */
#define RETURN_ARRAY_BYTES(get_requirements, array, descriptor, computed)                                              \
    do {                                                                                                               \
        CUDA_ARRAY_MEMORY_REQUIREMENTS requirements = {0};                                                             \
        CUdevice device = 0;                                                                                           \
        if (!has_no_memory(descriptor) && aliquot_real.get_requirements != NULL &&                                     \
            aliquot_real.cuCtxGetDevice(&device) == CUDA_SUCCESS &&                                                    \
            aliquot_real.get_requirements(&requirements, array, device) == CUDA_SUCCESS && requirements.size > 0) {    \
            return requirements.size;                                                                                  \
        }                                                                                                              \
        return computed;                                                                                               \
    } while (0)

static uint64_t array_bytes(CUarray array, const CUDA_ARRAY3D_DESCRIPTOR_v2 *descriptor) {
    RETURN_ARRAY_BYTES(cuArrayGetMemoryRequirements, array, descriptor, computed_bytes(descriptor, 1));
}

static uint64_t mipmap_bytes(CUmipmappedArray array, const CUDA_ARRAY3D_DESCRIPTOR_v2 *descriptor, unsigned levels) {
    RETURN_ARRAY_BYTES(cuMipmappedArrayGetMemoryRequirements, array, descriptor, computed_bytes(descriptor, levels));
}

#define CREATE_ARRAY(symbol, type, depth, flags)                                                                       \
    CUresult symbol(CUarray *array, const type *descriptor) {                                                          \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        CUDA_ARRAY3D_DESCRIPTOR_v2 wide = {0};                                                                         \
        CUarray created = NULL;                                                                                        \
        if (descriptor != NULL) {                                                                                      \
            wide = (CUDA_ARRAY3D_DESCRIPTOR_v2){descriptor->Width,  descriptor->Height,      depth,                    \
                                                descriptor->Format, descriptor->NumChannels, flags};                   \
        }                                                                                                              \
        ALIQUOT_CHARGED_ALLOCATION(&aliquot_allocations_arrays, computed_bytes(&wide, 1),                              \
                                   aliquot_real.symbol(array == NULL ? NULL : &created, descriptor),                   \
                                   array_bytes(created, &wide), created, aliquot_real.cuArrayDestroy(created));        \
        *array = created;                                                                                              \
        return CUDA_SUCCESS;                                                                                           \
    }

CREATE_ARRAY(cuArrayCreate, CUDA_ARRAY_DESCRIPTOR_v1, 0, 0)
CREATE_ARRAY(cuArrayCreate_v2, CUDA_ARRAY_DESCRIPTOR_v2, 0, 0)
CREATE_ARRAY(cuArray3DCreate, CUDA_ARRAY3D_DESCRIPTOR_v1, descriptor->Depth, descriptor->Flags)
CREATE_ARRAY(cuArray3DCreate_v2, CUDA_ARRAY3D_DESCRIPTOR_v2, descriptor->Depth, descriptor->Flags)

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR_v2 *descriptor,
                                unsigned int levels) {
    ALIQUOT_REQUIRE(cuMipmappedArrayCreate)
    CUmipmappedArray created = NULL;
    ALIQUOT_CHARGED_ALLOCATION(&aliquot_allocations_arrays, computed_bytes(descriptor, levels),
                               aliquot_real.cuMipmappedArrayCreate(array == NULL ? NULL : &created, descriptor, levels),
                               mipmap_bytes(created, descriptor, levels), created,
                               aliquot_real.cuMipmappedArrayDestroy(created));
    *array = created;
    return CUDA_SUCCESS;
}

#define DESTROY_ARRAY(symbol, type)                                                                                    \
    CUresult symbol(type array) {                                                                                      \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        struct aliquot_pending_free pending;                                                                           \
        aliquot_charge_before_free(&pending, &aliquot_allocations_arrays, (uint64_t)(uintptr_t)array);                 \
        CUresult result =                                                                                              \
            aliquot_charge_after_free(&pending, &aliquot_allocations_arrays, aliquot_real.symbol(array));              \
        if (result == CUDA_SUCCESS) {                                                                                  \
            aliquot_vmm_array_destroyed((const void *)array);                                                          \
        }                                                                                                              \
        return result;                                                                                                 \
    }

DESTROY_ARRAY(cuArrayDestroy, CUarray)
DESTROY_ARRAY(cuMipmappedArrayDestroy, CUmipmappedArray)
