/* Tests of memory and pools that two processes share. */
#include "testing.h"

enum { GPU_MIB = 1000 };

/* Runs the peer in a child process, connected by a socket. */
static pid_t spawn_peer(void (*run)(int socket), int *socket) {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    fflush(NULL);
    pid_t child = fork(); /* before the first CUDA call */
    if (child == 0) {
        close(ends[0]);
        run(ends[1]);
        exit(0);
    }
    close(ends[1]);
    *socket = ends[0];
    return child;
}

static void expect_success(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    EQUAL(0, status);
}

static void send_bytes(int socket, const void *data, size_t bytes) {
    CHECK(write(socket, data, bytes) == (ssize_t)bytes);
}

static void receive_bytes(int socket, void *data, size_t bytes) {
    CHECK(read(socket, data, bytes) == (ssize_t)bytes);
}

static void open_memory_handle(int socket) {
    CUipcMemHandle handle, broken;
    CUdeviceptr first, second, plain;
    CUcontext context;
    unsigned value = 0;
    char byte = 0;
    CUmemorytype type;
    size_t size;
    gpu_file *gpu = open_gpu(0);
    context = start_context(0);
    receive_bytes(socket, &handle, sizeof handle);
    uint64_t before = gpu_used(gpu);
    EQUAL(CUDA_SUCCESS, cuIpcOpenMemHandle_v2(&first, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    EQUAL(CUDA_SUCCESS, cuIpcOpenMemHandle_v2(&second, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    EQUAL(first, second);
    EQUAL(before, gpu_used(gpu)); /* the exporting process is charged */
    EQUAL(CUDA_SUCCESS, cuMemcpyDtoH_v2(&value, first + 20 * MIB, 4));
    EQUAL(1234, value);
    EQUAL(CUDA_SUCCESS, cuMemsetD32_v2(first + 8, 4321, 1));
    EQUAL(CUDA_SUCCESS, cuMemsetD8_v2(first + 10 * MIB, 0, 4 * MIB));
    EQUAL(CUDA_SUCCESS, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, first));
    EQUAL(CU_MEMORYTYPE_DEVICE, type);
    EQUAL(CUDA_SUCCESS, cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, first));
    EQUAL(30 * MIB + 1, size);
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(first));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(first, NULL));
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&plain, 16));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(plain));
    for (size_t i = 0; i < sizeof handle - 32; i++) { /* every byte of the handle that has a meaning */
        broken = handle;
        broken.reserved[i] = (char)(broken.reserved[i] ^ 0x55);
        if (cuIpcOpenMemHandle_v2(&second, broken, 1) == CUDA_SUCCESS) {
            CHECK(i == 16 || i >= 24); /* 16: a size within the same page; from 24: unused while open */
            EQUAL(CUDA_SUCCESS, cuIpcCloseMemHandle(second));
        }
    }
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2(&second, handle, 2));
    send_bytes(socket, &byte, 1);
    receive_bytes(socket, &byte, 1);
    EQUAL(CUDA_SUCCESS, cuIpcCloseMemHandle(first));
    EQUAL(CUDA_SUCCESS, cuMemcpyDtoH_v2(&value, first, 4)); /* still open: it was opened twice */
    EQUAL(CUDA_SUCCESS, cuIpcCloseMemHandle(first));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(first));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(&value, first, 4));
    EQUAL(CUDA_ERROR_MAP_FAILED, cuIpcOpenMemHandle_v2(&first, handle, 1)); /* the exporter has freed it */
    EQUAL(CUDA_SUCCESS, cuCtxDestroy_v2(context));
}

static void memory_opened_through_a_handle_is_not_charged_again(void) {
    int socket;
    pid_t child = spawn_peer(open_memory_handle, &socket);
    CUipcMemHandle handle;
    CUdeviceptr pointer, pooled;
    unsigned value = 0;
    char byte = 0;
    int capable = 0;
    gpu_file *gpu = open_gpu(0);
    start_context(0);
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, 30 * MIB + 1));
    EQUAL(CUDA_SUCCESS,
          cuMemsetD32_v2(pointer + 20 * MIB, 1234, 1)); /* before the export moves the memory to shared pages */
    EQUAL(CUDA_SUCCESS, cuMemsetD32_v2(pointer + 12 * MIB, 99, 1));
    EQUAL(CUDA_SUCCESS, cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, pointer));
    EQUAL(1, capable);
    EQUAL(CUDA_SUCCESS, cuIpcGetMemHandle(&handle, pointer));
    EQUAL(CUDA_SUCCESS, cuIpcGetMemHandle(&handle, pointer));
    EQUAL(30 * MIB + 1, gpu_used(gpu));
    EQUAL(CUDA_SUCCESS, cuMemcpyDtoH_v2(&value, pointer + 20 * MIB, 4));
    EQUAL(1234, value);
    EQUAL(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle_v2(&pooled, handle, 1));
    EQUAL(CUDA_SUCCESS, cuMemAllocAsync(&pooled, 10, NULL));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, pooled));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, 0x1234));
    EQUAL(CUDA_SUCCESS, cuMemFree_v2(pooled));
    EQUAL(CUDA_SUCCESS, cuIpcGetMemHandle(&handle, pointer));
    send_bytes(socket, &handle, sizeof handle);
    receive_bytes(socket, &byte, 1);
    EQUAL(CUDA_SUCCESS, cuMemcpyDtoH_v2(&value, pointer + 8, 4));
    EQUAL(4321, value);
    EQUAL(CUDA_SUCCESS, cuMemcpyDtoH_v2(&value, pointer + 12 * MIB, 4));
    EQUAL(0, value);
    EQUAL(CUDA_SUCCESS, cuMemFree_v2(pointer));
    send_bytes(socket, &byte, 1);
    expect_success(child);
}

/* A kernel that takes longer than a busy machine keeps this program from asking about it. */
static void launch_busy(CUfunction busy) {
    uint64_t ns = 500000000;
    void *parameters[] = {&ns};
    EQUAL(CUDA_SUCCESS, cuLaunchKernel(busy, 1, 1, 1, 128, 1, 1, 0, NULL, parameters, NULL));
}

/* The exporter's kernels are over when the importer has the handle, and when the exporter says that it recorded again.
 */
static void open_event_handle(int socket) {
    CUipcEventHandle handle;
    CUevent event;
    float ms;
    char byte = 0;
    start_context(0);
    receive_bytes(socket, &handle, sizeof handle);
    EQUAL(CUDA_SUCCESS, cuIpcOpenEventHandle(&event, handle));
    EQUAL(CUDA_SUCCESS, cuEventQuery(event));
    EQUAL(CUDA_SUCCESS, cuStreamWaitEvent(NULL, event, 0));
    EQUAL(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, event, event));
    memset(&handle, 0, sizeof handle);
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuIpcOpenEventHandle(&event, handle));
    send_bytes(socket, &byte, 1);
}

static void an_exported_event_is_complete_in_the_other_process(void) {
    int socket;
    pid_t peer = spawn_peer(open_event_handle, &socket);
    CUipcEventHandle handle;
    CUevent event, plain;
    CUmodule module;
    CUfunction busy;
    char byte;
    start_context(0);
    EQUAL(CUDA_SUCCESS, cuModuleLoadData(&module, ".version 6.0\n.target sm_50\n.address_size 64\n"
                                                  ".visible .entry aliquot_busy(.param .u64 ns)\n{\n\tret;\n}\n"));
    EQUAL(CUDA_SUCCESS, cuModuleGetFunction(&busy, module, "aliquot_busy"));
    EQUAL(CUDA_SUCCESS, cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    EQUAL(CUDA_ERROR_INVALID_HANDLE, cuIpcGetEventHandle(&handle, plain));
    EQUAL(CUDA_SUCCESS, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    launch_busy(busy);
    EQUAL(CUDA_SUCCESS, cuEventRecord(event, NULL));
    EQUAL(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    EQUAL(CUDA_SUCCESS, cuIpcGetEventHandle(&handle, event));
    EQUAL(CUDA_SUCCESS, cuEventQuery(event));
    EQUAL(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenEventHandle(&plain, handle));
    send_bytes(socket, &handle, sizeof handle);
    launch_busy(busy);
    EQUAL(CUDA_SUCCESS, cuEventRecord(event, NULL));
    EQUAL(CUDA_SUCCESS, cuEventQuery(event));
    receive_bytes(socket, &byte, 1);
    expect_success(peer);
}

static void import_pool(int socket) {
    CUmemoryPool pool;
    CUmemPoolPtrExportData data;
    CUdeviceptr pointer;
    unsigned value = 0;
    char byte = 0;
    gpu_file *gpu = open_gpu(0);
    start_context(0);
    int descriptor = receive_descriptor(socket);
    EQUAL(CUDA_SUCCESS, cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)descriptor,
                                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    close(descriptor);
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&pointer, 1, pool, NULL));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuDeviceSetMemPool(0, pool));
    receive_bytes(socket, &data, sizeof data);
    uint64_t before = gpu_used(gpu);
    EQUAL(CUDA_SUCCESS, cuMemPoolImportPointer(&pointer, pool, &data));
    EQUAL(before, gpu_used(gpu));
    EQUAL(CUDA_SUCCESS, cuMemcpyDtoH_v2(&value, pointer + 996, 4));
    EQUAL(1234, value);
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(&value, pointer + 998, 4));
    EQUAL(CUDA_SUCCESS, cuMemsetD32_v2(pointer, 4321, 1));
    EQUAL(CUDA_SUCCESS, cuMemFreeAsync(pointer, NULL));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(pointer));
    EQUAL(CUDA_SUCCESS, cuMemPoolImportPointer(&pointer, pool, &data));
    EQUAL(CUDA_SUCCESS, cuMemFree_v2(pointer));
    data.reserved[9] ^= 1; /* the pool ID */
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportPointer(&pointer, pool, &data));
    data.reserved[9] ^= 1;
    data.reserved[22] ^= 1; /* an offset beyond the end of the pool */
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportPointer(&pointer, pool, &data));
    EQUAL(CUDA_SUCCESS, cuMemPoolDestroy(pool));
    send_bytes(socket, &byte, 1);
}

static void pool_allocations_are_shared_pointer_by_pointer(void) {
    int socket, descriptor;
    pid_t child = spawn_peer(import_pool, &socket);
    CUmemoryPool pool, plain;
    CUmemPoolPtrExportData data;
    CUdeviceptr first, pointer;
    unsigned value = 0;
    char byte = 0;
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    start_context(0);
    EQUAL(CUDA_SUCCESS, cuMemPoolCreate(&pool, &properties));
    EQUAL(CUDA_SUCCESS, cuDeviceGetDefaultMemPool(&plain, 0));
    EQUAL(CUDA_ERROR_INVALID_VALUE,
          cuMemPoolExportToShareableHandle(&descriptor, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    EQUAL(CUDA_SUCCESS,
          cuMemPoolExportToShareableHandle(&descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    send_descriptor(socket, descriptor); /* before the pool has memory */
    close(descriptor);
    EQUAL(CUDA_SUCCESS, cuMemAllocFromPoolAsync(&first, 5000, pool, NULL));
    EQUAL(CUDA_SUCCESS, cuMemAllocFromPoolAsync(&pointer, 1000, pool, NULL));
    EQUAL(CUDA_SUCCESS, cuMemsetD32_v2(pointer, 1234, 250));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportPointer(&data, pointer + 512));
    EQUAL(CUDA_SUCCESS, cuMemPoolExportPointer(&data, pointer));
    send_bytes(socket, &data, sizeof data);
    receive_bytes(socket, &byte, 1);
    EQUAL(CUDA_SUCCESS, cuMemcpyDtoH_v2(&value, pointer, 4));
    EQUAL(4321, value);
    expect_success(child);
    EQUAL(CUDA_SUCCESS, cuMemFreeAsync(first, NULL));
    EQUAL(CUDA_SUCCESS, cuMemFreeAsync(pointer, NULL));
    EQUAL(CUDA_SUCCESS, cuCtxSynchronize());
    gpu_file *gpu = open_gpu(0);
    EQUAL(0, gpu_used(gpu));
    EQUAL(CUDA_SUCCESS, cuMemAllocFromPoolAsync(&pointer, 1000, pool, NULL));
    EQUAL(CUDA_SUCCESS, cuMemcpyDtoH_v2(&value, pointer, 4)); /* memory allocated after the import */
    EQUAL(0, value);
    properties.handleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    EQUAL(CUDA_ERROR_NOT_SUPPORTED, cuMemPoolCreate(&pool, &properties));
}

int main(int count, char **arguments) {
    static const struct test tests[] = {
        TEST(memory_opened_through_a_handle_is_not_charged_again),
        TEST(an_exported_event_is_complete_in_the_other_process),
        TEST(pool_allocations_are_shared_pointer_by_pointer),
    };
    return run_tests(tests, sizeof tests / sizeof tests[0], count, arguments, 2, GPU_MIB);
}
