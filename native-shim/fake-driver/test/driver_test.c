/* Tests of the driver API: devices, memory, launches, entry points. */
#include "gpu_health.h"
#include "testing.h"

#include <dlfcn.h>
#include <pthread.h>

enum { GPU_MIB = 1000 };

static void copied_data_is_read_back_unchanged(void) {
    enum { SIZE = 3 << 20 };
    CUdeviceptr one, other;
    unsigned char *in = malloc(SIZE), *out = malloc(SIZE);
    CHECK(in != NULL && out != NULL);
    for (int i = 0; i < SIZE; i++) {
        in[i] = (unsigned char)(i * 7 + i / 251);
    }
    start_context(0);
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&one, SIZE));
    EQUAL(CUDA_SUCCESS, cuMemAllocManaged(&other, SIZE, CU_MEM_ATTACH_GLOBAL));
    EQUAL(CUDA_SUCCESS, cuMemcpyHtoD_v2(one, in, SIZE));
    EQUAL(CUDA_SUCCESS, cuMemcpyDtoD_v2(other, one, SIZE));
    EQUAL(CUDA_SUCCESS, cuMemcpyDtoH_v2(out, other, SIZE));
    EQUAL(0, memcmp(in, out, SIZE));
    EQUAL(0, memcmp(in, (void *)(uintptr_t)other, SIZE)); /* the host can read managed memory */
    EQUAL(CUDA_SUCCESS, cuMemsetD32_v2(one + 4, 0xcafe, 2));
    EQUAL(CUDA_SUCCESS, cuMemcpyDtoH_v2(out, one, 16));
    EQUAL(in[3], out[3]);
    EQUAL(0xcafe, *(unsigned *)(void *)(out + 4));
    EQUAL(in[12], out[12]);
    EQUAL(CUDA_SUCCESS, cuMemsetD8_v2(one + 5, 0, SIZE - 10)); /* the driver zeroes whole pages by dropping them */
    EQUAL(CUDA_SUCCESS, cuMemcpyDtoH_v2(out, one, SIZE));
    EQUAL(in[0], out[0]);
    EQUAL(in[SIZE - 5], out[SIZE - 5]);
    for (int i = 5; i < SIZE - 5; i++) {
        CHECK(out[i] == 0);
    }
}

static void copies_out_of_bounds_are_refused_and_copy_nothing(void) {
    CUdeviceptr pointer;
    char buffer[64] = "unchanged";
    start_context(0);
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, 32));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(buffer, pointer, 33));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(buffer, pointer + 16, 17));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(0x1000, buffer, 1));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(pointer, 1, 33));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(pointer + 16));
    EQUAL(CUDA_SUCCESS, cuMemFree_v2(pointer));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(pointer));
    EQUAL(0, strcmp(buffer, "unchanged"));
}

static void rectangles_are_copied_with_their_pitch(void) {
    CUdeviceptr pointer;
    size_t pitch;
    int in[5][7], out[5][3];
    for (int y = 0; y < 5; y++) {
        for (int x = 0; x < 7; x++) {
            in[y][x] = 100 * y + x;
        }
    }
    start_context(0);
    EQUAL(CUDA_SUCCESS, cuMemAllocPitch_v2(&pointer, &pitch, sizeof in[0], 5, 4));
    EQUAL(512, pitch);
    CUDA_MEMCPY2D to = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = in,
                        .srcPitch = sizeof in[0],
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = pointer,
                        .dstPitch = pitch,
                        .WidthInBytes = sizeof in[0],
                        .Height = 5};
    CUDA_MEMCPY2D from = {.srcXInBytes = 2 * sizeof(int),
                          .srcY = 1,
                          .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = pointer,
                          .srcPitch = pitch,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = out,
                          .dstPitch = sizeof out[0],
                          .WidthInBytes = sizeof out[0],
                          .Height = 4};
    EQUAL(CUDA_SUCCESS, cuMemcpy2D_v2(&to));
    EQUAL(CUDA_SUCCESS, cuMemcpy2D_v2(&from));
    for (int y = 0; y < 4; y++) {
        for (int x = 0; x < 3; x++) {
            EQUAL(100 * (y + 1) + x + 2, out[y][x]);
        }
    }
    from.Height = 5; /* one row beyond the allocation */
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&from));
}

static uint64_t free_bytes(void) {
    size_t now, total;
    EQUAL(CUDA_SUCCESS, cuMemGetInfo_v2(&now, &total));
    EQUAL(GPU_MIB * MIB, total);
    return now;
}

static void allocations_are_charged_to_the_byte(void) {
    CUdeviceptr plain, pitched, managed;
    size_t pitch;
    void *pinned;
    start_context(0);
    EQUAL(GPU_MIB * MIB, free_bytes()); /* contexts on these GPUs take no memory */
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&plain, 1));
    EQUAL(GPU_MIB * MIB - 1, free_bytes());
    EQUAL(CUDA_SUCCESS, cuMemAllocPitch_v2(&pitched, &pitch, 513, 10, 16));
    EQUAL(GPU_MIB * MIB - 1 - 10240, free_bytes());
    EQUAL(CUDA_SUCCESS, cuMemAllocManaged(&managed, 5000, CU_MEM_ATTACH_HOST));
    EQUAL(GPU_MIB * MIB - 1 - 10240 - 5000, free_bytes());
    EQUAL(CUDA_SUCCESS, cuMemHostAlloc(&pinned, 100 * MIB, 0));
    EQUAL(GPU_MIB * MIB - 1 - 10240 - 5000, free_bytes());
    EQUAL(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&plain, GPU_MIB * MIB));
    EQUAL(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&plain, SIZE_MAX));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&plain, 0));
    EQUAL(CUDA_SUCCESS, cuMemFree_v2(managed));
    EQUAL(CUDA_SUCCESS, cuMemFree_v2(pitched));
    EQUAL(CUDA_SUCCESS, cuMemFreeHost(pinned));
    EQUAL(GPU_MIB * MIB - 1, free_bytes());
}

static void memory_is_freed_with_its_context(void) {
    CUdeviceptr pointer;
    CUcontext first, second, primary, current;
    unsigned flags;
    int active;
    gpu_file *gpu = open_gpu(0);
    first = start_context(0);
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, 100 * MIB));
    EQUAL(CUDA_SUCCESS, cuCtxCreate_v2(&second, 0, 0));
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, 10 * MIB));
    EQUAL(110 * MIB, gpu_used(gpu));
    EQUAL(CUDA_SUCCESS, cuCtxDestroy_v2(second));
    EQUAL(100 * MIB, gpu_used(gpu));
    EQUAL(CUDA_SUCCESS, cuCtxGetCurrent(&current));
    CHECK(current == first);
    EQUAL(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSetCurrent(second));
    EQUAL(CUDA_SUCCESS, cuCtxDestroy_v2(first));
    EQUAL(0, gpu_used(gpu));
    EQUAL(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&pointer, 1));

    EQUAL(CUDA_SUCCESS, cuDevicePrimaryCtxRetain(&primary, 0));
    EQUAL(CUDA_SUCCESS, cuDevicePrimaryCtxRetain(&current, 0));
    CHECK(primary == current);
    EQUAL(CUDA_SUCCESS, cuCtxSetCurrent(primary));
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, 7 * MIB));
    EQUAL(CUDA_SUCCESS, cuDevicePrimaryCtxRelease_v2(0));
    EQUAL(7 * MIB, gpu_used(gpu));
    EQUAL(CUDA_SUCCESS, cuDevicePrimaryCtxRelease_v2(0));
    EQUAL(0, gpu_used(gpu));
    EQUAL(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
    EQUAL(CUDA_SUCCESS, cuDevicePrimaryCtxGetState(0, &flags, &active));
    EQUAL(0, active);
    EQUAL(CUDA_SUCCESS, cuDevicePrimaryCtxRetain(&current, 0));
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, 7 * MIB));
    EQUAL(CUDA_SUCCESS, cuDevicePrimaryCtxReset_v2(0));
    EQUAL(0, gpu_used(gpu));
}

static void a_process_is_charged_for_contexts_once_per_gpu(void) {
    char error[GPU_ERROR_LENGTH];
    struct gpu_identity costly, full;
    CUcontext first, second, primary;
    CUdeviceptr pointer;
    gpu_file *gpus[2];
    identify(&costly, 0, GPU_MIB, 256);
    EQUAL(GPU_CHANGED, gpu_create(test_folder, &costly, error));
    identify(&full, 1, GPU_MIB, GPU_MIB);
    EQUAL(GPU_CHANGED, gpu_create(test_folder, &full, error));
    for (unsigned i = 0; i < 2; i++) {
        gpus[i] = open_gpu(i);
    }
    first = start_context(0);
    EQUAL(256 * MIB, gpu_used(gpus[0]));
    EQUAL(CUDA_SUCCESS, cuCtxCreate_v2(&second, 0, 0));
    EQUAL(CUDA_SUCCESS, cuDevicePrimaryCtxRetain(&primary, 0));
    EQUAL(256 * MIB, gpu_used(gpus[0]));
    EQUAL((GPU_MIB - 256) * MIB, free_bytes());
    EQUAL(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&pointer, (GPU_MIB - 255) * MIB));
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, (GPU_MIB - 256) * MIB));
    EQUAL(CUDA_SUCCESS, cuCtxDestroy_v2(second));
    EQUAL(256 * MIB, gpu_used(gpus[0]));
    EQUAL(CUDA_SUCCESS, cuCtxDestroy_v2(first));
    EQUAL(256 * MIB, gpu_used(gpus[0]));
    EQUAL(CUDA_SUCCESS, cuDevicePrimaryCtxReset_v2(0));
    EQUAL(0, gpu_used(gpus[0]));
    CHECK(gpu_attach(gpus[1]) && gpu_reserve(gpus[1], 1));
    EQUAL(CUDA_ERROR_OUT_OF_MEMORY, cuDevicePrimaryCtxRetain(&primary, 1));
    EQUAL(CUDA_ERROR_OUT_OF_MEMORY, cuCtxCreate_v2(&first, 0, 1));
    gpu_release(gpus[1], 1);
    EQUAL(CUDA_SUCCESS, cuDevicePrimaryCtxRetain(&primary, 1));
    EQUAL(GPU_MIB * MIB, gpu_used(gpus[1]));
}

static void the_oldest_api_versions_return_32_bit_pointers(void) {
    CUdeviceptr_v1 pointer;
    unsigned value = 0;
    start_context(0);
    EQUAL(CUDA_SUCCESS, cuMemAlloc(&pointer, 1000));
    EQUAL(CUDA_SUCCESS, cuMemsetD32_v2(pointer, 77, 250));
    EQUAL(CUDA_SUCCESS, cuMemcpyDtoH_v2(&value, pointer + 996, 4));
    EQUAL(77, value);
    EQUAL(CUDA_SUCCESS, cuMemFree(pointer));
}

static void pointer_attributes_describe_the_allocation(void) {
    CUdeviceptr device, managed;
    int ordinal = -1;
    CUmemorytype type;
    size_t size;
    char local;
    start_context(1);
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&device, 4096));
    EQUAL(CUDA_SUCCESS, cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    EQUAL(CUDA_SUCCESS, cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, device + 9));
    EQUAL(1, ordinal);
    EQUAL(CUDA_SUCCESS, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device));
    EQUAL(CU_MEMORYTYPE_DEVICE, type);
    EQUAL(CUDA_SUCCESS, cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, device + 4095));
    EQUAL(4096, size);
    int is_managed = 0;
    EQUAL(CUDA_SUCCESS, cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, managed));
    EQUAL(1, is_managed);
    EQUAL(CUDA_ERROR_INVALID_VALUE,
          cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)&local));
    EQUAL(CUDA_SUCCESS, cuMemHostRegister_v2(&local, 1, 0));
    EQUAL(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(&local, 1, 0));
    EQUAL(CUDA_SUCCESS, cuMemHostUnregister(&local));
    EQUAL(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(&local));
}

static void the_compute_capability_is_that_of_the_attributes(void) {
    int major = 0, minor = -1;
    EQUAL(CUDA_ERROR_NOT_INITIALIZED, cuDeviceComputeCapability(&major, &minor, 0));
    EQUAL(CUDA_SUCCESS, cuInit(0));
    EQUAL(CUDA_SUCCESS, cuDeviceComputeCapability(&major, &minor, 0));
    EQUAL(8, major);
    EQUAL(0, minor);
    EQUAL(CUDA_ERROR_INVALID_DEVICE, cuDeviceComputeCapability(&major, &minor, 3));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuDeviceComputeCapability(NULL, &minor, 0));
}

static void advice_and_prefetches_of_managed_memory_are_checked_and_change_nothing(void) {
    const CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 1}, host = {CU_MEM_LOCATION_TYPE_HOST, 0},
                        nowhere = {CU_MEM_LOCATION_TYPE_DEVICE, 3};
    const CUmem_advise mostly_read = CU_MEM_ADVISE_SET_READ_MOSTLY, prefer = CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
    CUdeviceptr managed, plain;
    CUstream stream;
    CUgraph graph;
    uint32_t value = 0;
    start_context(0);
    EQUAL(CUDA_SUCCESS, cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&plain, 4096));
    EQUAL(CUDA_SUCCESS, cuMemsetD32_v2(managed, 77, 1024));
    EQUAL(CUDA_SUCCESS, cuMemAdvise(managed, 4096, prefer, 1));
    EQUAL(CUDA_SUCCESS, cuMemAdvise(managed, 4096, prefer, CU_DEVICE_CPU));
    EQUAL(CUDA_ERROR_INVALID_DEVICE, cuMemAdvise(managed, 4096, prefer, 3));
    EQUAL(CUDA_SUCCESS, cuMemAdvise(managed, 4096, mostly_read, 3));
    EQUAL(CUDA_SUCCESS, cuMemAdvise_v2(managed + 4095, 1, prefer, device));
    EQUAL(CUDA_ERROR_INVALID_DEVICE, cuMemAdvise_v2(managed, 4096, prefer, nowhere));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemAdvise_v2(managed + 4095, 2, mostly_read, host));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemAdvise_v2(plain, 4096, mostly_read, host));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemAdvise_v2(managed, 4096, (CUmem_advise)7, host));
    EQUAL(CUDA_SUCCESS, cuMemPrefetchAsync(managed, 4096, 1, NULL));
    EQUAL(CUDA_SUCCESS, cuMemPrefetchAsync(managed, 4096, CU_DEVICE_CPU, NULL));
    EQUAL(CUDA_SUCCESS, cuMemPrefetchAsync_v2(managed, 4096, device, 0, NULL));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync_v2(managed, 4096, device, 1, NULL));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync_v2(plain, 4096, device, 0, NULL));
    EQUAL(CUDA_SUCCESS, cuMemcpyDtoH_v2(&value, managed + 4092, 4));
    EQUAL(77, value);
    EQUAL(CUDA_SUCCESS, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EQUAL(CUDA_SUCCESS, cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EQUAL(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemPrefetchAsync_v2(managed, 4096, device, 0, stream));
    EQUAL(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
}

static const char empty_kernel_ptx[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry nothing()\n{\n\tret;\n}\n";

static void launches_validate_their_arguments(void) {
    CUmodule module;
    CUfunction function, same;
    CUstream stream;
    CUevent before, after;
    float ms = -1;
    start_context(0);
    EQUAL(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, "no module at all"));
    EQUAL(CUDA_SUCCESS, cuModuleLoadData(&module, empty_kernel_ptx));
    EQUAL(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "noth"));
    EQUAL(CUDA_SUCCESS, cuModuleGetFunction(&function, module, "nothing"));
    EQUAL(CUDA_SUCCESS, cuModuleGetFunction(&same, module, "nothing"));
    CHECK(function == same);
    EQUAL(CUDA_SUCCESS, cuStreamCreate(&stream, 0));
    EQUAL(CUDA_SUCCESS, cuEventCreate(&before, 0));
    EQUAL(CUDA_SUCCESS, cuEventCreate(&after, 0));
    EQUAL(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, before, after)); /* not recorded */
    EQUAL(CUDA_SUCCESS, cuEventRecord(before, stream));
    EQUAL(CUDA_SUCCESS, cuLaunchKernel(function, 1, 1, 1, 1024, 1, 1, 0, stream, NULL, NULL));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(function, 1, 1, 1, 1025, 1, 1, 0, stream, NULL, NULL));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    EQUAL(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    EQUAL(CUDA_SUCCESS, cuEventRecord(after, stream));
    EQUAL(CUDA_SUCCESS, cuEventSynchronize(after));
    EQUAL(CUDA_SUCCESS, cuEventElapsedTime(&ms, before, after));
    CHECK(ms >= 0 && ms < 10000);
    EQUAL(CUDA_SUCCESS, cuStreamDestroy_v2(stream));
    EQUAL(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
}

static void *get_proc_address(const char *name, int version, cuuint64_t flags,
                              CUdriverProcAddressQueryResult expected) {
    void *function = &function;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    CUresult result = cuGetProcAddress_v2(name, &function, version, flags, &status);
    EQUAL(expected, status);
    EQUAL(CUDA_SUCCESS, result);
    CHECK((function != NULL) == (expected == CU_GET_PROC_ADDRESS_SUCCESS));
    void *first = &first;
    result = cuGetProcAddress(name, &first, version, flags);
    EQUAL(function != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND, result);
    CHECK(first == (function != NULL ? function : (void *)&first));
    return function;
}

static void proc_address_lookup_returns_the_requested_version(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    const struct {
        const char *name;
        int version;
        cuuint64_t flags;
        const char *symbol;
    } known[] = {
        {"cuMemAlloc", 2000, 0, "cuMemAlloc"},
        {"cuMemAlloc", 3010, 0, "cuMemAlloc"},
        {"cuMemAlloc", 3020, 0, "cuMemAlloc_v2"},
        {"cuMemAlloc", 13000, 0, "cuMemAlloc_v2"},
        {"cuMemAlloc", 13000, 2, "cuMemAlloc_v2"},
        {"cuMemAlloc", 99000, 0, "cuMemAlloc_v2"},
        {"cuMemcpyHtoD", 7000, 0, "cuMemcpyHtoD_v2"},
        {"cuMemcpyHtoD", 7000, 1, "cuMemcpyHtoD_v2"},
        {"cuMemcpyHtoD", 7000, 2, "cuMemcpyHtoD_v2_ptds"},
        {"cuLaunchKernel", 7000, 2, "cuLaunchKernel_ptsz"},
        {"cuDeviceGetUuid", 11000, 0, "cuDeviceGetUuid"},
        {"cuDeviceGetUuid", 11040, 0, "cuDeviceGetUuid_v2"},
        {"cuCtxCreate", 12040, 0, "cuCtxCreate_v3"},
        {"cuCtxCreate", 12050, 0, "cuCtxCreate_v4"},
        {"cuGetProcAddress", 11030, 0, "cuGetProcAddress"},
        {"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"},
        {"cuDevicePrimaryCtxRelease", 11000, 0, "cuDevicePrimaryCtxRelease_v2"},
    };
    CHECK(library != NULL);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        void *found = get_proc_address(known[i].name, known[i].version, known[i].flags, CU_GET_PROC_ADDRESS_SUCCESS);
        if (found != dlsym(library, known[i].symbol)) {
            fprintf(stderr, "%s of %d, flags %d, is not %s\n", known[i].name, known[i].version, (int)known[i].flags,
                    known[i].symbol);
            exit(1);
        }
    }
    CHECK(dlsym(library, "cuLaunchKernel") != dlsym(library, "cuLaunchKernel_ptsz"));
    get_proc_address("", 13000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    get_proc_address("cuMemAlloc_v2", 13000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    get_proc_address("cuMemcpyHtoD", 3020, 2, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    get_proc_address("cuLaunchKernel", 4000, 2, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    get_proc_address("cuCtxGetId", 11000, 0, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    void *none;
    get_proc_address("cuInit", 1999, 0, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2("cuInit", &none, 2000, 4, NULL));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2("cuInit", NULL, 2000, 0, NULL));
}

static void a_green_context_works_in_its_primary_context(void) {
    CUdevResource all, parts[2], rest;
    CUdevResourceDesc desc;
    CUgreenCtx green;
    CUcontext context, current;
    CUstream stream;
    CUdeviceptr pointer;
    unsigned groups = 2;
    int active;
    unsigned flags;
    EQUAL(CUDA_SUCCESS, cuInit(0));
    EQUAL(CUDA_SUCCESS, cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    EQUAL(CUDA_SUCCESS, cuDevSmResourceSplitByCount(parts, &groups, &all, &rest, 0, 7));
    EQUAL(2, groups);
    EQUAL(8, parts[1].sm.smCount);
    EQUAL(all.sm.smCount - 16, rest.sm.smCount);
    EQUAL(CUDA_SUCCESS, cuDevResourceGenerateDesc(&desc, parts, 1));
    EQUAL(CUDA_SUCCESS, cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    EQUAL(CUDA_SUCCESS, cuCtxFromGreenCtx(&context, green));
    EQUAL(CUDA_SUCCESS, cuCtxSetCurrent(context));
    EQUAL(CUDA_SUCCESS, cuCtxGetCurrent(&current));
    CHECK(current == context);
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, MIB));
    EQUAL(CUDA_SUCCESS, cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    EQUAL(CUDA_SUCCESS, cuMemsetD32Async(pointer, 7, 4, stream));
    EQUAL(CUDA_SUCCESS, cuStreamSynchronize(stream));
    EQUAL(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(context));

    CUcontext primary;
    EQUAL(CUDA_SUCCESS, cuDevicePrimaryCtxRetain(&primary, 0));
    CHECK(primary != context);
    EQUAL(CUDA_SUCCESS, cuGreenCtxDestroy(green));
    EQUAL(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemFree_v2(pointer));
    EQUAL(CUDA_SUCCESS, cuCtxSetCurrent(primary));
    EQUAL(CUDA_SUCCESS, cuMemFree_v2(pointer)); /* the memory stays in the primary context */
    EQUAL(CUDA_SUCCESS, cuDevicePrimaryCtxRelease_v2(0));
    EQUAL(CUDA_SUCCESS, cuDevicePrimaryCtxGetState(0, &flags, &active));
    EQUAL(0, active);
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuGreenCtxDestroy(green));
}

static void errors_have_names(void) {
    const char *text;
    EQUAL(CUDA_SUCCESS, cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
    EQUAL(0, strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY"));
    EQUAL(CUDA_SUCCESS, cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    EQUAL(0, strcmp(text, "out of memory"));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)12345, &text));
    CHECK(text == NULL);
}

static void calls_before_cuInit_fail(void) {
    CUdeviceptr pointer;
    int count;
    EQUAL(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
    EQUAL(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc_v2(&pointer, 1));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuInit(1));
    EQUAL(CUDA_SUCCESS, cuInit(0));
    EQUAL(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&pointer, 1));
    EQUAL(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&count, 3));
}

/* Checks the indexes of the test GPUs that a process with CUDA_VISIBLE_DEVICES=list sees, in order. */
static void expect_visible_devices(const char *list, const char *expected) {
    int ends[2];
    char seen[64] = "";
    CHECK(pipe(ends) == 0);
    if (fork() == 0) {
        char text[64] = "";
        int count = 0;
        if (list != NULL) {
            setenv("CUDA_VISIBLE_DEVICES", list, 1);
        }
        CUresult result = cuInit(0);
        if (result == CUDA_SUCCESS) {
            EQUAL(CUDA_SUCCESS, cuDeviceGetCount(&count));
        } else {
            EQUAL(CUDA_ERROR_NO_DEVICE, result);
        }
        for (int i = 0; i < count; i++) {
            char name[64];
            EQUAL(CUDA_SUCCESS, cuDeviceGetName(name, sizeof name, i));
            strcat(text, name + strlen("Test GPU "));
        }
        CHECK(write(ends[1], text, sizeof text) == (ssize_t)sizeof text);
        _exit(0);
    }
    CHECK(read(ends[0], seen, sizeof seen) == (ssize_t)sizeof seen);
    wait(NULL);
    if (strcmp(seen, expected) != 0) {
        fprintf(stderr, "CUDA_VISIBLE_DEVICES=%s shows \"%s\", expected \"%s\"\n", list != NULL ? list : "(unset)",
                seen, expected);
        exit(1);
    }
}

static void visible_devices_accepts_every_form(void) {
    char two[64], list[160];
    expect_visible_devices(NULL, "012");
    expect_visible_devices("", "");
    expect_visible_devices("-1", "");
    expect_visible_devices("1", "1");
    expect_visible_devices("2,0", "20");
    expect_visible_devices(" 2 , 1 ", "21");
    expect_visible_devices("0,7,1", "0");
    expect_visible_devices("1,-1,0", "1");
    expect_visible_devices("0,0", "");
    expect_visible_devices("0x1", "");
    expect_visible_devices("NoDevFiles", "");
    snprintf(two, sizeof two, "%s", test_uuid(2));
    expect_visible_devices(two, "2");
    expect_visible_devices("GPU-2", "2");
    expect_visible_devices("gpu-22222222-11", "2");
    expect_visible_devices("GPU-", "");
    expect_visible_devices("GPU-33", "");
    expect_visible_devices("MIG-GPU-2", "");
    snprintf(list, sizeof list, "%s,0", two);
    expect_visible_devices(list, "20");
    snprintf(list, sizeof list, "GPU-1,%s", two);
    expect_visible_devices(list, "12");
}

static void a_lost_gpu_returns_errors_and_other_gpus_still_work(void) {
    CUcontext first, second;
    CUdeviceptr pointer;
    gpu_file *gpu = open_gpu(0);
    first = start_context(0);
    second = start_context(1);
    gpu_raise_xid(gpu, GPU_XID_FELL_OFF_BUS);
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, 1));
    EQUAL(CUDA_SUCCESS, cuCtxSetCurrent(first));
    EQUAL(CUDA_ERROR_UNKNOWN, cuMemAlloc_v2(&pointer, 1));
    EQUAL(CUDA_ERROR_DEVICE_UNAVAILABLE, cuCtxCreate_v2(&first, 0, 0));
    gpu_heal(gpu);
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, 1));
    EQUAL(CUDA_SUCCESS, cuCtxDestroy_v2(second));
}

static void device_attributes_match_the_gpu_files(void) {
    CUuuid uuid;
    int value;
    size_t bytes;
    EQUAL(CUDA_SUCCESS, cuInit(0));
    EQUAL(CUDA_SUCCESS, cuDeviceGetUuid_v2(&uuid, 1));
    EQUAL(0, memcmp(uuid.bytes, "\x11\x11\x11\x11\x11\x11\x82\x22\x83\x33\x44\x44\x44\x44\x44\x44", 16));
    EQUAL(CUDA_SUCCESS, cuDeviceTotalMem_v2(&bytes, 1));
    EQUAL(GPU_MIB * MIB, bytes);
    EQUAL(CUDA_SUCCESS, cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1));
    EQUAL(108, value);
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&value, (CUdevice_attribute)9999, 1));
    EQUAL(CUDA_SUCCESS, cuDriverGetVersion(&value));
    EQUAL(FAKE_CUDA_VERSION, value);
}

static CUcontext shared_context;

static void *use_memory_and_streams(void *argument) {
    enum { POINTERS = 16, BYTES = 4096 };
    unsigned seed = (unsigned)(uintptr_t)argument;
    CUdeviceptr pointers[POINTERS] = {0};
    unsigned char buffer[BYTES];
    EQUAL(CUDA_SUCCESS, cuCtxSetCurrent(shared_context));
    for (int i = 0; i < 2000; i++) {
        CUdeviceptr *pointer = &pointers[(unsigned)rand_r(&seed) % POINTERS];
        if (*pointer == 0) {
            EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(pointer, BYTES));
            EQUAL(CUDA_SUCCESS, cuMemsetD8_v2(*pointer, (unsigned char)seed, BYTES));
        } else {
            EQUAL(CUDA_SUCCESS, cuMemcpyDtoH_v2(buffer, *pointer, BYTES));
            EQUAL(buffer[0], buffer[BYTES - 1]);
            EQUAL(CUDA_SUCCESS, cuMemFree_v2(*pointer));
            *pointer = 0;
        }
        if (i % 50 == 0) {
            CUstream stream;
            EQUAL(CUDA_SUCCESS, cuStreamCreate(&stream, 0));
            EQUAL(CUDA_SUCCESS, cuStreamDestroy_v2(stream));
        }
    }
    for (int i = 0; i < POINTERS; i++) {
        if (pointers[i] != 0) {
            EQUAL(CUDA_SUCCESS, cuMemFree_v2(pointers[i]));
        }
    }
    return NULL;
}

static void threads_share_a_context(void) {
    pthread_t threads[8];
    shared_context = start_context(0);
    for (uintptr_t i = 0; i < 8; i++) {
        EQUAL(0, pthread_create(&threads[i], NULL, use_memory_and_streams, (void *)(i + 1)));
    }
    for (int i = 0; i < 8; i++) {
        EQUAL(0, pthread_join(threads[i], NULL));
    }
    EQUAL(GPU_MIB * MIB, free_bytes());
}

int main(int count, char **arguments) {
    static const struct test tests[] = {
        TEST(calls_before_cuInit_fail),
        TEST(device_attributes_match_the_gpu_files),
        TEST(copied_data_is_read_back_unchanged),
        TEST(copies_out_of_bounds_are_refused_and_copy_nothing),
        TEST(rectangles_are_copied_with_their_pitch),
        TEST(allocations_are_charged_to_the_byte),
        TEST(memory_is_freed_with_its_context),
        TEST(a_process_is_charged_for_contexts_once_per_gpu),
        TEST(the_oldest_api_versions_return_32_bit_pointers),
        TEST(pointer_attributes_describe_the_allocation),
        TEST(the_compute_capability_is_that_of_the_attributes),
        TEST(advice_and_prefetches_of_managed_memory_are_checked_and_change_nothing),
        TEST(launches_validate_their_arguments),
        TEST(proc_address_lookup_returns_the_requested_version),
        TEST(a_green_context_works_in_its_primary_context),
        TEST(errors_have_names),
        TEST(visible_devices_accepts_every_form),
        TEST(a_lost_gpu_returns_errors_and_other_gpus_still_work),
        TEST(threads_share_a_context),
    };
    return run_tests(tests, sizeof tests / sizeof tests[0], count, arguments, 3, GPU_MIB);
}
