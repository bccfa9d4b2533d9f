/* Tests of arrays, textures and surfaces through the driver API. */
#include "testing.h"

enum { GPU_MIB = 1000 };

static CUarray new_array(size_t width, size_t height, size_t depth, unsigned flags) {
    CUarray array;
    const CUDA_ARRAY3D_DESCRIPTOR shape = {width, height, depth, CU_AD_FORMAT_FLOAT, 1, flags};
    EQUAL(CUDA_SUCCESS, cuArray3DCreate_v2(&array, &shape));
    return array;
}

static void an_array_is_charged_in_whole_blocks(void) {
    const struct {
        size_t width, height, depth;
        CUarray_format format;
        unsigned channels, flags;
        uint64_t bytes;
    } shapes[] = {
        {1, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0, 512},
        {129, 0, 0, CU_AD_FORMAT_FLOAT, 1, 0, 1024},
        {1, 1, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0, 64 * 8},
        {17, 9, 0, CU_AD_FORMAT_FLOAT, 1, 0, 128 * 16},
        {16, 33, 0, CU_AD_FORMAT_HALF, 2, 0, 64 * 64},
        {16, 129, 0, CU_AD_FORMAT_SIGNED_INT32, 1, 0, 64 * 256},
        {16, 8, 5, CU_AD_FORMAT_UNSIGNED_INT32, 4, 0, 256 * 8 * 5},
        {1024, 1024, 0, CU_AD_FORMAT_FLOAT, 4, 0, 16 * MIB},
        {100, 0, 3, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED, 3 * 512},
        {64, 64, 6, CU_AD_FORMAT_UNORM_INT8X1, 1, CUDA_ARRAY3D_CUBEMAP, 6 * 4096},
        {64, 8, 0, CU_AD_FORMAT_SNORM_INT16X4, 4, 0, 512 * 8},
    };
    gpu_file *gpu = open_gpu(0);
    start_context(0);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const CUDA_ARRAY3D_DESCRIPTOR shape = {shapes[i].width,  shapes[i].height,   shapes[i].depth,
                                               shapes[i].format, shapes[i].channels, shapes[i].flags};
        CUDA_ARRAY3D_DESCRIPTOR found;
        CUarray array;
        EQUAL(CUDA_SUCCESS, cuArray3DCreate_v2(&array, &shape));
        EQUAL(shapes[i].bytes, gpu_used(gpu));
        EQUAL(CUDA_SUCCESS, cuArray3DGetDescriptor_v2(&found, array));
        EQUAL(0, memcmp(&shape, &found, sizeof shape));
        EQUAL(CUDA_SUCCESS, cuArrayDestroy(array));
        EQUAL(0, gpu_used(gpu));
        EQUAL(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(array));
    }
    CUarray array;
    const CUDA_ARRAY_DESCRIPTOR_v1 oldest = {16, 8, CU_AD_FORMAT_FLOAT, 1};
    EQUAL(CUDA_SUCCESS, cuArrayCreate(&array, &oldest));
    EQUAL(512, gpu_used(gpu));
    const CUDA_ARRAY_DESCRIPTOR large = {131072, 65536, CU_AD_FORMAT_FLOAT, 4};
    EQUAL(CUDA_ERROR_OUT_OF_MEMORY, cuArrayCreate_v2(&array, &large));
    EQUAL(512, gpu_used(gpu));
}

static void invalid_array_shapes_are_refused(void) {
    const struct {
        CUDA_ARRAY3D_DESCRIPTOR shape;
        CUresult result;
    } wrong[] = {
        {{0, 0, 0, CU_AD_FORMAT_FLOAT, 1, 0}, CUDA_ERROR_INVALID_VALUE},
        {{8, 8, 0, CU_AD_FORMAT_FLOAT, 3, 0}, CUDA_ERROR_INVALID_VALUE},
        {{8, 0, 8, CU_AD_FORMAT_FLOAT, 1, 0}, CUDA_ERROR_INVALID_VALUE},
        {{8, 8, 8, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP}, CUDA_ERROR_INVALID_VALUE},
        {{8, 8, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED}, CUDA_ERROR_INVALID_VALUE},
        {{131073, 0, 0, CU_AD_FORMAT_FLOAT, 1, 0}, CUDA_ERROR_INVALID_VALUE},
        {{8, 8, 0, CU_AD_FORMAT_SNORM_INT16X4, 1, 0}, CUDA_ERROR_INVALID_VALUE},
        {{8, 8, 0, CU_AD_FORMAT_NV12, 1, 0}, CUDA_ERROR_NOT_SUPPORTED},
        {{8, 8, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE}, CUDA_ERROR_NOT_SUPPORTED},
    };
    CUarray array;
    gpu_file *gpu = open_gpu(0);
    start_context(0);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        EQUAL(wrong[i].result, cuArray3DCreate_v2(&array, &wrong[i].shape));
    }
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate_v2(&array, NULL));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuArrayCreate_v2(NULL, &(CUDA_ARRAY_DESCRIPTOR){8, 8, CU_AD_FORMAT_FLOAT, 1}));
    EQUAL(0, gpu_used(gpu));
}

static void boxes_are_copied_to_arrays_and_back(void) {
    enum { X = 21, Y = 9, Z = 4 };
    static float in[Z][Y][X], out[Z][Y][X], part[2][3][5];
    start_context(0);
    CUarray array = new_array(X, Y, Z, 0), other = new_array(X, Y, Z, 0);
    for (int i = 0; i < X * Y * Z; i++) {
        (&in[0][0][0])[i] = (float)i;
    }
    CUDA_MEMCPY3D to = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = in,
                        .srcPitch = sizeof in[0][0],
                        .srcHeight = Y,
                        .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                        .dstArray = array,
                        .WidthInBytes = sizeof in[0][0],
                        .Height = Y,
                        .Depth = Z};
    EQUAL(CUDA_SUCCESS, cuMemcpy3D_v2(&to));
    CUDA_MEMCPY3D across = to;
    across.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    across.srcArray = array;
    across.dstArray = other;
    EQUAL(CUDA_SUCCESS, cuMemcpy3D_v2(&across));
    CUDA_MEMCPY3D from = to;
    from.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    from.srcArray = other;
    from.dstMemoryType = CU_MEMORYTYPE_HOST;
    from.dstHost = out;
    from.dstPitch = sizeof out[0][0];
    from.dstHeight = Y;
    EQUAL(CUDA_SUCCESS, cuMemcpy3D_v2(&from));
    EQUAL(0, memcmp(in, out, sizeof in));
    from.srcXInBytes = 4 * sizeof(float);
    from.srcY = 2;
    from.srcZ = 1;
    from.dstHost = part;
    from.dstPitch = sizeof part[0][0];
    from.dstHeight = 3;
    from.WidthInBytes = sizeof part[0][0];
    from.Height = 3;
    from.Depth = 2;
    EQUAL(CUDA_SUCCESS, cuMemcpy3D_v2(&from));
    for (int z = 0; z < 2; z++) {
        for (int y = 0; y < 3; y++) {
            for (int x = 0; x < 5; x++) {
                CHECK(part[z][y][x] == in[z + 1][y + 2][x + 4]);
            }
        }
    }
    from.srcZ = 3;
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D_v2(&from));
    from.srcZ = 0;
    from.srcXInBytes = (X - 4) * sizeof(float); /* into the padding */
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D_v2(&from));
    EQUAL(CUDA_SUCCESS, cuArrayDestroy(other));
    from.srcXInBytes = 0;
    EQUAL(CUDA_ERROR_INVALID_HANDLE, cuMemcpy3D_v2(&from));
}

static void rows_and_rectangles_are_copied_to_arrays_and_back(void) {
    char in[300], out[300] = {0}, square[4][16];
    CUdeviceptr pointer;
    CUarray row, second, plane;
    const CUDA_ARRAY_DESCRIPTOR line = {300, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1}, field = {16, 4, CU_AD_FORMAT_HALF, 1};
    start_context(0);
    for (int i = 0; i < 300; i++) {
        in[i] = (char)(i * 3);
    }
    EQUAL(CUDA_SUCCESS, cuArrayCreate_v2(&row, &line));
    EQUAL(CUDA_SUCCESS, cuArrayCreate_v2(&second, &line));
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, 300));
    EQUAL(CUDA_SUCCESS, cuMemcpyHtoA_v2(row, 0, in, 300));
    EQUAL(CUDA_SUCCESS, cuMemcpyAtoA_v2(second, 0, row, 0, 300));
    EQUAL(CUDA_SUCCESS, cuMemcpyAtoD_v2(pointer, second, 10, 290));
    EQUAL(CUDA_SUCCESS, cuMemcpyDtoA_v2(row, 0, pointer, 290));
    EQUAL(CUDA_SUCCESS, cuMemcpyAtoH_v2(out, row, 0, 300));
    EQUAL(0, memcmp(in + 10, out, 290));
    EQUAL(0, memcmp(in + 290, out + 290, 10));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemcpyAtoH_v2(out, row, 1, 300));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemcpyAtoH_v2(out, row, SIZE_MAX, 2));
    EQUAL(CUDA_SUCCESS, cuArrayCreate_v2(&plane, &field));
    CUDA_MEMCPY2D to = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = in,
                        .srcPitch = 32,
                        .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                        .dstArray = plane,
                        .WidthInBytes = 32,
                        .Height = 4};
    EQUAL(CUDA_SUCCESS, cuMemcpy2D_v2(&to));
    CUDA_MEMCPY2D from = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                          .srcArray = plane,
                          .srcXInBytes = 16,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = square,
                          .dstPitch = 16,
                          .WidthInBytes = 16,
                          .Height = 4};
    EQUAL(CUDA_SUCCESS, cuMemcpy2D_v2(&from));
    for (int y = 0; y < 4; y++) {
        EQUAL(0, memcmp(in + 32 * y + 16, square[y], 16));
    }
    from.srcY = 1;
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&from));
}

static void mipmap_levels_share_the_memory_of_the_mipmap(void) {
    CUmipmappedArray mipmap;
    CUarray level;
    CUDA_ARRAY_DESCRIPTOR found;
    char in[4] = "abc", out[4];
    const CUDA_ARRAY3D_DESCRIPTOR shape = {64, 32, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
    gpu_file *gpu = open_gpu(0);
    start_context(0);
    EQUAL(CUDA_SUCCESS, cuMipmappedArrayCreate(&mipmap, &shape, 100));
    EQUAL(64 * (32 + 16 + 8 + 8 + 8 + 8 + 8), gpu_used(gpu)); /* 64x32 down to 1x1 */
    EQUAL(CUDA_SUCCESS, cuMipmappedArrayGetLevel(&level, mipmap, 6));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayGetLevel(&level, mipmap, 7));
    EQUAL(CUDA_SUCCESS, cuMipmappedArrayGetLevel(&level, mipmap, 3));
    EQUAL(CUDA_SUCCESS, cuArrayGetDescriptor_v2(&found, level));
    EQUAL(8, found.Width);
    EQUAL(4, found.Height);
    EQUAL(CUDA_SUCCESS, cuMemcpyHtoA_v2(level, 4, in, 4));
    EQUAL(CUDA_SUCCESS, cuMemcpyAtoH_v2(out, level, 4, 4));
    EQUAL(0, memcmp(in, out, 4));
    EQUAL(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(level));
    EQUAL(CUDA_SUCCESS, cuMipmappedArrayDestroy(mipmap));
    EQUAL(0, gpu_used(gpu));
    EQUAL(CUDA_ERROR_INVALID_HANDLE, cuMemcpyAtoH_v2(out, level, 0, 4));
    EQUAL(CUDA_ERROR_INVALID_HANDLE, cuMipmappedArrayGetLevel(&level, mipmap, 0));
}

static void arrays_are_freed_with_their_context(void) {
    CUcontext context;
    CUmipmappedArray mipmap;
    const CUDA_ARRAY3D_DESCRIPTOR shape = {64, 32, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
    gpu_file *gpu = open_gpu(0);
    start_context(0);
    EQUAL(CUDA_SUCCESS, cuCtxCreate_v2(&context, 0, 0));
    CUarray array = new_array(1024, 1024, 0, 0);
    EQUAL(CUDA_SUCCESS, cuMipmappedArrayCreate(&mipmap, &shape, 3));
    CHECK(gpu_used(gpu) > 4 * MIB);
    EQUAL(CUDA_SUCCESS, cuCtxDestroy_v2(context));
    EQUAL(0, gpu_used(gpu));
    EQUAL(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(array));
}

static void deferred_arrays_use_the_memory_that_is_mapped_to_them(void) {
    CUDA_ARRAY_MEMORY_REQUIREMENTS needed;
    CUmemGenericAllocationHandle memory;
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                            .allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL};
    char in[4] = "abc", out[4];
    gpu_file *gpu = open_gpu(0);
    start_context(0);
    CUarray array = new_array(1000, 1000, 0, CUDA_ARRAY3D_DEFERRED_MAPPING), plain = new_array(8, 8, 0, 0);
    EQUAL(512, gpu_used(gpu)); /* the other array */
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuArrayGetMemoryRequirements(&needed, plain, 0));
    EQUAL(CUDA_SUCCESS, cuArrayGetMemoryRequirements(&needed, array, 0));
    EQUAL(4032 * 1024, needed.size);
    EQUAL(2 * MIB, needed.alignment);
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoA_v2(array, 0, in, 4));
    EQUAL(CUDA_SUCCESS, cuMemCreate(&memory, 6 * MIB, &properties, 0));
    CUarrayMapInfo info = {.resourceType = CU_RESOURCE_TYPE_ARRAY,
                           .resource.array = array,
                           .memOperationType = CU_MEM_OPERATION_TYPE_MAP,
                           .memHandle.memHandle = memory,
                           .offset = 4 * MIB,
                           .deviceBitMask = 1};
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemMapArrayAsync(&info, 1, NULL)); /* too little memory behind the offset */
    info.offset = 2 * MIB;
    EQUAL(CUDA_SUCCESS, cuMemMapArrayAsync(&info, 1, NULL));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemMapArrayAsync(&info, 1, NULL));
    EQUAL(CUDA_SUCCESS, cuMemRelease(memory));
    EQUAL(CUDA_SUCCESS, cuMemcpyHtoA_v2(array, 0, in, 4));
    EQUAL(CUDA_SUCCESS, cuMemcpyAtoH_v2(out, array, 0, 4));
    EQUAL(0, memcmp(in, out, 4));
    EQUAL(6 * MIB + 512, gpu_used(gpu));
    info.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
    info.memHandle.memHandle = 0;
    EQUAL(CUDA_SUCCESS, cuMemMapArrayAsync(&info, 1, NULL));
    EQUAL(512, gpu_used(gpu));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoA_v2(array, 0, in, 4));
    EQUAL(CUDA_SUCCESS, cuArrayDestroy(array));
}

int main(int count, char **arguments) {
    static const struct test tests[] = {
        TEST(an_array_is_charged_in_whole_blocks),
        TEST(invalid_array_shapes_are_refused),
        TEST(boxes_are_copied_to_arrays_and_back),
        TEST(rows_and_rectangles_are_copied_to_arrays_and_back),
        TEST(mipmap_levels_share_the_memory_of_the_mipmap),
        TEST(arrays_are_freed_with_their_context),
        TEST(deferred_arrays_use_the_memory_that_is_mapped_to_them),
    };
    return run_tests(tests, sizeof tests / sizeof tests[0], count, arguments, 2, GPU_MIB);
}
