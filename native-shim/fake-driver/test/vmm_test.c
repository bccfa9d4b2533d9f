/* Tests of virtual memory management through the driver API. */
#include "testing.h"

#include <fcntl.h>

enum { GPU_MIB = 1000 };

static const CUmemAllocationProp first_gpu_memory = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                     .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static const CUmemAllocationProp exportable_memory = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static const CUmemAccessDesc read_write_access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
static const CUmemAccessDesc read_only_access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READ};
static const CUmemAccessDesc no_access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_NONE};

static CUmemGenericAllocationHandle create_allocation(uint64_t mib) {
    CUmemGenericAllocationHandle handle;
    EQUAL(CUDA_SUCCESS, cuMemCreate(&handle, mib * MIB, &first_gpu_memory, 0));
    return handle;
}

static CUdeviceptr reserve_address(uint64_t mib) {
    CUdeviceptr address;
    EQUAL(CUDA_SUCCESS, cuMemAddressReserve(&address, mib * MIB, 0, 0, 0));
    EQUAL(0, address % (2 * MIB));
    return address;
}

static void mapped_memory_keeps_its_data_across_mappings(void) {
    start_context(0);
    CUdeviceptr at = reserve_address(16);
    unsigned *in = malloc(8 * MIB), *out = malloc(8 * MIB);
    CHECK(in != NULL && out != NULL);
    for (unsigned i = 0; i < 2 * MIB; i++) {
        in[i] = i * 2654435761u;
    }
    for (unsigned i = 0; i < 4; i++) { /* like an allocator with growing segments */
        EQUAL(CUDA_SUCCESS, cuMemMap(at + i * 2 * MIB, 2 * MIB, 0, create_allocation(2), 0));
    }
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(at, in, 8)); /* no access yet */
    EQUAL(CUDA_SUCCESS, cuMemSetAccess(at, 8 * MIB, &read_write_access, 1));
    EQUAL(CUDA_SUCCESS, cuMemcpyHtoD_v2(at, in, 8 * MIB));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(at + 4, in, 8 * MIB));
    EQUAL(CUDA_SUCCESS, cuMemcpyDtoH_v2(out, at, 8 * MIB));
    EQUAL(0, memcmp(in, out, 8 * MIB));
    EQUAL(CUDA_SUCCESS, cuMemsetD8_v2(at + MIB, 0, 6 * MIB));
    EQUAL(CUDA_SUCCESS, cuMemcpyDtoH_v2(out, at, 8 * MIB));
    EQUAL(0, memcmp(in, out, MIB));
    EQUAL(0, memcmp(in + 7 * MIB / 4, out + 7 * MIB / 4, MIB));
    for (size_t i = MIB / 4; i < 7 * MIB / 4; i++) {
        CHECK(out[i] == 0);
    }
    EQUAL(CUDA_SUCCESS, cuMemSetAccess(at, 2 * MIB, &read_only_access, 1));
    EQUAL(CUDA_SUCCESS, cuMemcpyDtoH_v2(out, at, 8 * MIB));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(at + MIB, in, 2 * MIB));
    EQUAL(CUDA_SUCCESS, cuMemSetAccess(at, 2 * MIB, &no_access, 1));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(out, at, 4));
}

static void memory_exists_while_it_is_mapped_or_has_a_handle(void) {
    CUmemGenericAllocationHandle again;
    gpu_file *gpu = open_gpu(0);
    start_context(0);
    CUmemGenericAllocationHandle handle = create_allocation(4);
    CUdeviceptr one = reserve_address(4), other = reserve_address(4);
    unsigned value = 0;
    EQUAL(4 * MIB, gpu_used(gpu));
    EQUAL(CUDA_SUCCESS, cuMemMap(one, 4 * MIB, 0, handle, 0));
    EQUAL(CUDA_SUCCESS, cuMemMap(other, 4 * MIB, 0, handle, 0));
    EQUAL(CUDA_SUCCESS, cuMemRelease(handle));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));
    EQUAL(4 * MIB, gpu_used(gpu));
    EQUAL(CUDA_SUCCESS, cuMemSetAccess(one, 4 * MIB, &read_write_access, 1));
    EQUAL(CUDA_SUCCESS, cuMemSetAccess(other, 4 * MIB, &read_write_access, 1));
    EQUAL(CUDA_SUCCESS, cuMemsetD32_v2(one, 77, 1));
    EQUAL(CUDA_SUCCESS, cuMemcpyDtoH_v2(&value, other, 4)); /* the same memory */
    EQUAL(77, value);
    EQUAL(CUDA_SUCCESS, cuMemUnmap(one, 4 * MIB));
    EQUAL(4 * MIB, gpu_used(gpu));
    EQUAL(CUDA_SUCCESS, cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(other + MIB)));
    CHECK(again == handle);
    EQUAL(CUDA_SUCCESS, cuMemUnmap(other, 4 * MIB));
    EQUAL(4 * MIB, gpu_used(gpu));
    EQUAL(CUDA_SUCCESS, cuMemMap(one, 4 * MIB, 0, again, 0));
    EQUAL(CUDA_SUCCESS, cuMemRelease(again));
    EQUAL(4 * MIB, gpu_used(gpu));
    EQUAL(CUDA_SUCCESS, cuMemUnmap(one, 4 * MIB));
    EQUAL(0, gpu_used(gpu));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)one));
}

static void virtual_memory_needs_no_context(void) {
    gpu_file *gpu = open_gpu(0);
    EQUAL(CUDA_SUCCESS, cuInit(0));
    CUmemGenericAllocationHandle handle = create_allocation(4);
    EQUAL(4 * MIB, gpu_used(gpu));
    EQUAL(CUDA_SUCCESS, cuCtxDestroy_v2(start_context(0)));
    EQUAL(4 * MIB, gpu_used(gpu));
    EQUAL(CUDA_SUCCESS, cuMemRelease(handle));
    EQUAL(0, gpu_used(gpu));
}

static void invalid_arguments_are_refused(void) {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    size_t granularity;
    CUmemAllocationProp wrong = first_gpu_memory;
    gpu_file *gpu = open_gpu(0);
    start_context(0);
    EQUAL(CUDA_SUCCESS,
          cuMemGetAllocationGranularity(&granularity, &first_gpu_memory, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    EQUAL(2 * MIB, granularity);
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, MIB, &first_gpu_memory, 0));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, 0, &first_gpu_memory, 0));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, 2 * MIB, &first_gpu_memory, 1));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemCreate(NULL, 2 * MIB, &first_gpu_memory, 0));
    EQUAL(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, (GPU_MIB + 2) * MIB, &first_gpu_memory, 0));
    wrong.location.id = 7;
    EQUAL(CUDA_ERROR_INVALID_DEVICE, cuMemCreate(&handle, 2 * MIB, &wrong, 0));
    wrong = first_gpu_memory;
    wrong.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, 2 * MIB, &wrong, 0));
    wrong = first_gpu_memory;
    wrong.type = CU_MEM_ALLOCATION_TYPE_INVALID;
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, 2 * MIB, &wrong, 0));
    wrong = first_gpu_memory;
    wrong.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    EQUAL(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, 2 * MIB, &wrong, 0));
    EQUAL(0, gpu_used(gpu));

    handle = create_allocation(4);
    address = reserve_address(8);
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemMap(address, 4 * MIB, 2 * MIB, handle, 0)); /* offsets are not supported */
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemMap(address + MIB, 2 * MIB, 0, handle, 0));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemMap(address, 6 * MIB, 0, handle, 0));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemMap(address + 6 * MIB, 4 * MIB, 0, handle, 0));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemMap(2 * MIB, 4 * MIB, 0, handle, 0));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemMap(address, 4 * MIB, 0, 0x1234, 0));
    EQUAL(CUDA_SUCCESS, cuMemMap(address, 2 * MIB, 0, handle, 0));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemMap(address, 4 * MIB, 0, handle, 0));
    EQUAL(CUDA_SUCCESS, cuMemMap(address + 2 * MIB, 4 * MIB, 0, handle, 0));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address, 4 * MIB)); /* half of the second mapping */
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address, 8 * MIB)); /* more than is mapped */
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(address, 8 * MIB, &read_write_access, 1));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(address, 4 * MIB, &read_write_access, 1));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(address, 2 * MIB, &read_write_access, 0));
    CUmemAccessDesc other = read_write_access;
    other.location.id = 9;
    EQUAL(CUDA_ERROR_INVALID_DEVICE, cuMemSetAccess(address, 2 * MIB, &other, 1));
    other.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(address, 2 * MIB, &other, 1));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(address, NULL));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, 8 * MIB));
    EQUAL(CUDA_SUCCESS, cuMemUnmap(address, 6 * MIB));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address, 6 * MIB));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, 4 * MIB));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address + 2 * MIB, 6 * MIB));
    EQUAL(CUDA_SUCCESS, cuMemAddressFree(address, 8 * MIB));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, 8 * MIB));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, 100, 0, 0, 0));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, 2 * MIB, 3, 0, 0));
    EQUAL(CUDA_ERROR_OUT_OF_MEMORY, cuMemAddressReserve(&address, UINT64_C(1) << 62, 0, 0, 0));
    EQUAL(CUDA_SUCCESS, cuMemAddressReserve(&address, 2 * MIB, 64 * MIB, 0, 0));
    EQUAL(0, address % (64 * MIB));
}

static void attributes_of_mapped_pointers_describe_the_allocation(void) {
    int ordinal = -3;
    unsigned long long handle_types = 9;
    CUmemorytype type;
    CUcontext owner;
    CUdeviceptr base;
    size_t size;
    CUmemGenericAllocationHandle shareable;
    start_context(1);
    CUdeviceptr address = reserve_address(8);
    EQUAL(CUDA_SUCCESS, cuMemCreate(&shareable, 4 * MIB, &exportable_memory, 0));
    EQUAL(CUDA_SUCCESS, cuMemMap(address + 2 * MIB, 4 * MIB, 0, shareable, 0));
    EQUAL(CUDA_SUCCESS, cuMemSetAccess(address + 2 * MIB, 4 * MIB, &read_write_access, 1));
    EQUAL(CUDA_SUCCESS, cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address + 3 * MIB));
    EQUAL(0, ordinal);
    EQUAL(CUDA_SUCCESS, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 3 * MIB));
    EQUAL(CU_MEMORYTYPE_DEVICE, type);
    EQUAL(CUDA_SUCCESS, cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, address + 3 * MIB));
    CHECK(owner == NULL);
    EQUAL(CUDA_SUCCESS,
          cuPointerGetAttribute(&handle_types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address + 3 * MIB));
    EQUAL(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, handle_types);
    EQUAL(CUDA_SUCCESS, cuMemGetAddressRange_v2(&base, &size, address + 3 * MIB));
    EQUAL(address + 2 * MIB, base);
    EQUAL(4 * MIB, size);
    EQUAL(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(&base, &size, address));
}

static void host_memory_is_not_charged_to_the_gpu(void) {
    CUmemGenericAllocationHandle handle;
    const CUmemAllocationProp of_host = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .location = {CU_MEM_LOCATION_TYPE_HOST, 0}};
    const CUmemAllocationProp of_node = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}};
    const CUmemAccessDesc by_host = {{CU_MEM_LOCATION_TYPE_HOST, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemorytype type;
    gpu_file *gpu = open_gpu(0);
    start_context(0);
    EQUAL(CUDA_SUCCESS, cuMemCreate(&handle, 4 * MIB, &of_host, 0));
    CUdeviceptr address = reserve_address(4);
    EQUAL(CUDA_SUCCESS, cuMemMap(address, 4 * MIB, 0, handle, 0));
    EQUAL(CUDA_SUCCESS, cuMemSetAccess(address, 4 * MIB, &by_host, 1));
    EQUAL(CUDA_SUCCESS, cuMemSetAccess(address, 4 * MIB, &read_write_access, 1));
    memset((void *)(uintptr_t)address, 5, 4 * MIB);
    EQUAL(CUDA_SUCCESS, cuMemsetD8_v2(address, 6, 4 * MIB));
    EQUAL(6, ((unsigned char *)(uintptr_t)address)[4 * MIB - 1]);
    EQUAL(CUDA_SUCCESS, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    EQUAL(CU_MEMORYTYPE_HOST, type);
    EQUAL(CUDA_SUCCESS, cuMemCreate(&handle, 4 * MIB, &of_node, 0));
    EQUAL(CUDA_SUCCESS, cuMemRelease(handle));
    EQUAL(0, gpu_used(gpu));
}

static void an_importing_process_shares_the_memory_and_is_not_charged(void) {
    int ends[2], status;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pid_t child = fork(); /* before the first CUDA call */
    gpu_file *gpu = open_gpu(0);
    CUmemGenericAllocationHandle handle;
    char byte = 0;
    start_context(0);
    CUdeviceptr address = reserve_address(4);
    if (child == 0) {
        unsigned value = 0;
        int descriptor = receive_descriptor(ends[1]);
        EQUAL(CUDA_SUCCESS, cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)descriptor,
                                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        close(descriptor);
        EQUAL(CUDA_SUCCESS, cuMemMap(address, 4 * MIB, 0, handle, 0));
        EQUAL(CUDA_SUCCESS, cuMemSetAccess(address, 4 * MIB, &read_write_access, 1));
        EQUAL(CUDA_SUCCESS, cuMemcpyDtoH_v2(&value, address + 3 * MIB, 4));
        EQUAL(1234, value);
        EQUAL(CUDA_SUCCESS, cuMemsetD32_v2(address, 4321, 1));
        EQUAL(4 * MIB, gpu_used(gpu));
        EQUAL(CUDA_SUCCESS, cuMemRelease(handle));
        CHECK(write(ends[1], &byte, 1) == 1);
        CHECK(read(ends[1], &byte, 1) == 1);
        EQUAL(0, gpu_used(gpu)); /* the exporter has released it */
        EQUAL(CUDA_SUCCESS, cuMemcpyDtoH_v2(&value, address + 3 * MIB, 4));
        EQUAL(1234, value);
        EQUAL(CUDA_SUCCESS, cuMemUnmap(address, 4 * MIB));
        exit(0);
    }
    int descriptor;
    unsigned value = 0;
    handle = create_allocation(2);
    EQUAL(CUDA_ERROR_INVALID_VALUE,
          cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    EQUAL(CUDA_SUCCESS, cuMemRelease(handle));
    EQUAL(CUDA_ERROR_INVALID_VALUE,
          cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)ends[0], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    EQUAL(CUDA_ERROR_INVALID_VALUE,
          cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)-1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    int plain = open("/proc/self/exe", O_RDONLY);
    EQUAL(CUDA_ERROR_INVALID_VALUE,
          cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    EQUAL(CUDA_SUCCESS, cuMemCreate(&handle, 4 * MIB, &exportable_memory, 0));
    EQUAL(CUDA_SUCCESS, cuMemMap(address, 4 * MIB, 0, handle, 0));
    EQUAL(CUDA_SUCCESS, cuMemSetAccess(address, 4 * MIB, &read_write_access, 1));
    EQUAL(CUDA_SUCCESS, cuMemsetD32_v2(address + 3 * MIB, 1234, 1));
    EQUAL(CUDA_SUCCESS, cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    EQUAL(4 * MIB, gpu_used(gpu));
    send_descriptor(ends[0], descriptor);
    close(descriptor);
    CHECK(read(ends[0], &byte, 1) == 1);
    EQUAL(CUDA_SUCCESS, cuMemcpyDtoH_v2(&value, address, 4));
    EQUAL(4321, value);
    EQUAL(CUDA_SUCCESS, cuMemUnmap(address, 4 * MIB));
    EQUAL(CUDA_SUCCESS, cuMemRelease(handle));
    CHECK(write(ends[0], &byte, 1) == 1);
    CHECK(waitpid(child, &status, 0) == child);
    EQUAL(0, status);
}

static void forty_thousand_allocations_can_be_mapped(void) {
    enum { PIECES = 40000 };
    static CUmemGenericAllocationHandle handles[PIECES];
    char error[GPU_ERROR_LENGTH];
    struct gpu_identity large;
    identify(&large, 0, 81920, 0);
    EQUAL(GPU_CHANGED, gpu_create(test_folder, &large, error));
    start_context(0);
    CUdeviceptr address = reserve_address(2 * PIECES);
    for (size_t i = 0; i < PIECES; i++) {
        EQUAL(CUDA_SUCCESS, cuMemCreate(&handles[i], 2 * MIB, &first_gpu_memory, 0));
        EQUAL(CUDA_SUCCESS, cuMemMap(address + i * 2 * MIB, 2 * MIB, 0, handles[i], 0));
        EQUAL(CUDA_SUCCESS, cuMemSetAccess(address + i * 2 * MIB, 2 * MIB, &read_write_access, 1));
        EQUAL(CUDA_SUCCESS, cuMemsetD8_v2(address + i * 2 * MIB, 1, 1));
        EQUAL(CUDA_SUCCESS, cuMemRelease(handles[i]));
    }
    gpu_file *gpu = open_gpu(0);
    EQUAL(2 * PIECES * MIB, gpu_used(gpu));
    EQUAL(CUDA_SUCCESS, cuMemUnmap(address, 2 * PIECES * MIB));
    EQUAL(0, gpu_used(gpu));
    EQUAL(CUDA_SUCCESS, cuMemAddressFree(address, 2 * PIECES * MIB));
}

int main(int count, char **arguments) {
    static const struct test tests[] = {
        TEST(mapped_memory_keeps_its_data_across_mappings),
        TEST(memory_exists_while_it_is_mapped_or_has_a_handle),
        TEST(virtual_memory_needs_no_context),
        TEST(invalid_arguments_are_refused),
        TEST(attributes_of_mapped_pointers_describe_the_allocation),
        TEST(host_memory_is_not_charged_to_the_gpu),
        TEST(an_importing_process_shares_the_memory_and_is_not_charged),
        TEST(forty_thousand_allocations_can_be_mapped),
    };
    return run_tests(tests, sizeof tests / sizeof tests[0], count, arguments, 2, GPU_MIB);
}
