/* Tests of memory pools and stream-ordered allocation through the driver API. */
#include "testing.h"

enum { GPU_MIB = 1000 };

static CUmemoryPool get_default_pool(void) {
    CUmemoryPool pool;
    EQUAL(CUDA_SUCCESS, cuDeviceGetDefaultMemPool(&pool, 0));
    return pool;
}

static uint64_t pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute) {
    cuuint64_t value;
    EQUAL(CUDA_SUCCESS, cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static void expect_pool(CUmemoryPool pool, uint64_t used, uint64_t reserved) {
    EQUAL(used, pool_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    EQUAL(reserved, pool_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
}

static CUmemoryPool new_pool(int ordinal, size_t max_bytes) {
    CUmemoryPool pool;
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal},
                                       .maxSize = max_bytes};
    EQUAL(CUDA_SUCCESS, cuMemPoolCreate(&pool, &properties));
    return pool;
}

static void a_pool_reserves_whole_chunks(void) {
    CUdeviceptr small, second, large;
    gpu_file *gpu = open_gpu(0);
    start_context(0);
    CUmemoryPool pool = get_default_pool();
    expect_pool(pool, 0, 0);
    EQUAL(CUDA_SUCCESS, cuMemAllocAsync(&small, 1, NULL));
    EQUAL(0, small % 512);
    expect_pool(pool, 512, 32 * MIB);
    EQUAL(CUDA_SUCCESS, cuMemAllocAsync(&second, 31 * MIB, NULL));
    expect_pool(pool, 31 * MIB + 512, 32 * MIB);
    EQUAL(CUDA_SUCCESS, cuMemAllocAsync(&large, 100 * MIB + 1, NULL));
    expect_pool(pool, 131 * MIB + 1024, 134 * MIB);
    EQUAL(134 * MIB, gpu_used(gpu));
    EQUAL(CUDA_SUCCESS, cuMemFreeAsync(small, NULL));
    EQUAL(CUDA_SUCCESS, cuMemFreeAsync(large, NULL));
    expect_pool(pool, 31 * MIB, 134 * MIB);
    EQUAL(CUDA_SUCCESS, cuMemAllocAsync(&large, 102 * MIB, NULL)); /* fits into the reserved memory */
    expect_pool(pool, 133 * MIB, 134 * MIB);
    EQUAL(134 * MIB, gpu_used(gpu));
}

static void a_pool_shrinks_to_its_threshold_when_the_host_synchronizes(void) {
    CUdeviceptr pointers[4];
    CUstream stream;
    CUevent event;
    cuuint64_t threshold = 64 * MIB, none = 0;
    gpu_file *gpu = open_gpu(0);
    start_context(0);
    CUmemoryPool pool = get_default_pool();
    EQUAL(CUDA_SUCCESS, cuStreamCreate(&stream, 0));
    EQUAL(CUDA_SUCCESS, cuEventCreate(&event, 0));
    EQUAL(0, pool_attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
    for (int i = 0; i < 4; i++) {
        EQUAL(CUDA_SUCCESS, cuMemAllocAsync(&pointers[i], 32 * MIB, stream));
    }
    for (int i = 0; i < 3; i++) {
        EQUAL(CUDA_SUCCESS, cuMemFreeAsync(pointers[i], stream));
    }
    expect_pool(pool, 32 * MIB, 128 * MIB);
    EQUAL(CUDA_SUCCESS, cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    EQUAL(CUDA_SUCCESS, cuStreamSynchronize(stream));
    expect_pool(pool, 32 * MIB, 64 * MIB);
    EQUAL(CUDA_SUCCESS, cuEventRecord(event, stream));
    EQUAL(CUDA_SUCCESS, cuEventSynchronize(event));
    expect_pool(pool, 32 * MIB, 64 * MIB);
    EQUAL(CUDA_SUCCESS, cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &none));
    EQUAL(CUDA_SUCCESS, cuEventSynchronize(event));
    expect_pool(pool, 32 * MIB, 32 * MIB);
    EQUAL(CUDA_SUCCESS, cuMemFreeAsync(pointers[3], stream));
    EQUAL(32 * MIB, gpu_used(gpu));
    EQUAL(CUDA_SUCCESS, cuCtxSynchronize());
    EQUAL(0, gpu_used(gpu));
    EQUAL(128 * MIB, pool_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH));
    EQUAL(128 * MIB, pool_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &threshold));
    EQUAL(CUDA_SUCCESS, cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &none));
    EQUAL(CUDA_SUCCESS, cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &none));
    EQUAL(0, pool_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH));
    EQUAL(0, pool_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH));
}

static void trimming_keeps_used_memory_and_the_requested_minimum(void) {
    CUdeviceptr pointers[4];
    start_context(0);
    CUmemoryPool pool = get_default_pool();
    for (int i = 0; i < 4; i++) {
        EQUAL(CUDA_SUCCESS, cuMemAllocAsync(&pointers[i], 20 * MIB, NULL));
    }
    expect_pool(pool, 80 * MIB, 128 * MIB);
    for (int i = 0; i < 3; i++) {
        EQUAL(CUDA_SUCCESS, cuMemFreeAsync(pointers[i], NULL));
    }
    EQUAL(CUDA_SUCCESS, cuMemPoolTrimTo(pool, 500 * MIB));
    expect_pool(pool, 20 * MIB, 128 * MIB);
    EQUAL(CUDA_SUCCESS, cuMemPoolTrimTo(pool, 40 * MIB));
    expect_pool(pool, 20 * MIB, 64 * MIB);
    EQUAL(CUDA_SUCCESS, cuMemPoolTrimTo(pool, 0));
    expect_pool(pool, 20 * MIB, 32 * MIB);
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemPoolTrimTo((CUmemoryPool)pointers, 0));
}

static void plain_and_stream_ordered_frees_can_be_mixed(void) {
    CUdeviceptr plain, managed, ordered;
    gpu_file *gpu = open_gpu(0);
    start_context(0);
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&plain, 10 * MIB));
    EQUAL(CUDA_SUCCESS, cuMemAllocManaged(&managed, 10 * MIB, CU_MEM_ATTACH_GLOBAL));
    EQUAL(CUDA_SUCCESS, cuMemAllocAsync(&ordered, 10 * MIB, NULL));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(ordered + 512, NULL));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(ordered + 512));
    EQUAL(CUDA_SUCCESS, cuMemFreeAsync(plain, NULL));
    EQUAL(CUDA_SUCCESS, cuMemFreeAsync(managed, NULL));
    EQUAL(CUDA_SUCCESS, cuMemFree_v2(ordered));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(ordered));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(plain, NULL));
    EQUAL(CUDA_SUCCESS, cuCtxSynchronize());
    EQUAL(0, gpu_used(gpu));
    void *pinned;
    EQUAL(CUDA_SUCCESS, cuMemHostAlloc(&pinned, 4096, 0));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync((CUdeviceptr)(uintptr_t)pinned, NULL));
    EQUAL(CUDA_ERROR_INVALID_HANDLE, cuMemAllocAsync(&plain, 1, (CUstream)(uintptr_t)0x1234));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemAllocAsync(&plain, 0, NULL));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemAllocAsync(NULL, 1, NULL));
}

static void unused_pool_memory_is_released_for_other_allocations(void) {
    CUdeviceptr pooled, plain, other;
    cuuint64_t all = UINT64_MAX;
    gpu_file *gpu = open_gpu(0);
    start_context(0);
    CUmemoryPool pool = get_default_pool(), second = new_pool(0, 0);
    EQUAL(CUDA_SUCCESS, cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    EQUAL(CUDA_SUCCESS, cuMemAllocAsync(&pooled, 900 * MIB, NULL));
    EQUAL(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&plain, 101 * MIB));
    EQUAL(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&other, 101 * MIB, NULL));
    EQUAL(CUDA_SUCCESS, cuMemFreeAsync(pooled, NULL));
    EQUAL(CUDA_SUCCESS, cuCtxSynchronize());
    EQUAL(900 * MIB, gpu_used(gpu));
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&plain, 101 * MIB));
    EQUAL(101 * MIB, gpu_used(gpu));
    EQUAL(CUDA_SUCCESS, cuMemAllocAsync(&pooled, 890 * MIB, NULL));
    EQUAL(CUDA_SUCCESS, cuMemFreeAsync(pooled, NULL));
    EQUAL(CUDA_SUCCESS, cuMemAllocFromPoolAsync(&other, 800 * MIB, second, NULL));
    EQUAL(901 * MIB, gpu_used(gpu));
    /* Less than a chunk is free on the GPU: the pool reserves only the requested size. */
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&plain, 90 * MIB));
    EQUAL(CUDA_SUCCESS, cuMemAllocAsync(&pooled, 3 * MIB, NULL));
    expect_pool(pool, 3 * MIB, 4 * MIB);
}

static void a_destroyed_pool_lives_until_its_last_allocation_is_freed(void) {
    CUdeviceptr pointer, late;
    CUmemoryPool now;
    gpu_file *gpu = open_gpu(0);
    start_context(0);
    CUmemoryPool pool = new_pool(0, 0);
    EQUAL(CUDA_SUCCESS, cuDeviceSetMemPool(0, pool));
    EQUAL(CUDA_SUCCESS, cuMemAllocAsync(&pointer, MIB, NULL));
    expect_pool(pool, MIB, 32 * MIB);
    EQUAL(CUDA_SUCCESS, cuMemPoolDestroy(pool));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(pool));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&late, MIB, pool, NULL));
    EQUAL(CUDA_SUCCESS, cuDeviceGetMemPool(&now, 0));
    CHECK(now == get_default_pool());
    EQUAL(CUDA_SUCCESS, cuMemsetD8_v2(pointer, 7, MIB));
    EQUAL(32 * MIB, gpu_used(gpu));
    EQUAL(CUDA_SUCCESS, cuMemFreeAsync(pointer, NULL));
    EQUAL(0, gpu_used(gpu));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(get_default_pool()));
}

static void a_pool_does_not_exceed_its_maximum_size(void) {
    CUdeviceptr pointer;
    start_context(0);
    CUmemoryPool pool = new_pool(0, 40 * MIB);
    EQUAL(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&pointer, 41 * MIB, pool, NULL));
    EQUAL(CUDA_SUCCESS, cuMemAllocFromPoolAsync(&pointer, 20 * MIB, pool, NULL));
    EQUAL(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&pointer, 20 * MIB, pool, NULL));
    EQUAL(CUDA_SUCCESS, cuMemAllocFromPoolAsync(&pointer, 12 * MIB, pool, NULL));
    EQUAL(CUDA_SUCCESS, cuMemAllocFromPoolAsync(&pointer, 8 * MIB, pool, NULL));
    expect_pool(pool, 40 * MIB, 40 * MIB);
}

static void a_pool_belongs_to_its_device_not_to_the_current_context(void) {
    CUdeviceptr pointer;
    CUstream stream;
    int ordinal = -1;
    CUcontext first, owner = (CUcontext)&first;
    CUmemoryPool of_pointer;
    gpu_file *gpus[2] = {open_gpu(0), open_gpu(1)};
    start_context(1);
    first = start_context(0);
    EQUAL(CUDA_SUCCESS, cuStreamCreate(&stream, 0));
    CUmemoryPool pool = new_pool(1, 0);
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuDeviceSetMemPool(0, pool));
    EQUAL(CUDA_SUCCESS, cuMemAllocFromPoolAsync(&pointer, MIB, pool, stream));
    EQUAL(0, gpu_used(gpus[0]));
    EQUAL(32 * MIB, gpu_used(gpus[1]));
    EQUAL(CUDA_SUCCESS, cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer));
    EQUAL(1, ordinal);
    EQUAL(CUDA_SUCCESS, cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, pointer));
    CHECK(owner == NULL);
    EQUAL(CUDA_SUCCESS, cuPointerGetAttribute(&of_pointer, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer + 5));
    CHECK(of_pointer == pool);
    const CUmemAccessDesc allow = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    EQUAL(CUDA_SUCCESS, cuMemPoolSetAccess(pool, &allow, 1));
    EQUAL(CUDA_SUCCESS, cuCtxSetCurrent(NULL)); /* the device follows from the stream */
    EQUAL(CUDA_SUCCESS, cuCtxSetCurrent(NULL));
    EQUAL(CUDA_SUCCESS, cuMemAllocAsync(&pointer, MIB, stream));
    EQUAL(CUDA_ERROR_INVALID_CONTEXT, cuMemAllocAsync(&pointer, MIB, NULL));
    EQUAL(32 * MIB, gpu_used(gpus[0]));
    EQUAL(CUDA_SUCCESS, cuCtxDestroy_v2(first));
    EQUAL(0, gpu_used(gpus[0]));
    EQUAL(32 * MIB, gpu_used(gpus[1]));
}

static void pools_are_destroyed_with_the_last_context_of_their_device(void) {
    CUdeviceptr pointer;
    CUcontext first, second;
    gpu_file *gpu = open_gpu(0);
    first = start_context(0);
    EQUAL(CUDA_SUCCESS, cuCtxCreate_v2(&second, 0, 0));
    CUmemoryPool pool = new_pool(0, 0), destroyed = new_pool(0, 0);
    EQUAL(CUDA_SUCCESS, cuMemAllocFromPoolAsync(&pointer, MIB, destroyed, NULL));
    EQUAL(CUDA_SUCCESS, cuMemPoolDestroy(destroyed));
    for (int i = 0; i < 10; i++) {
        EQUAL(CUDA_SUCCESS, cuMemAllocFromPoolAsync(&pointer, 10 * MIB, pool, NULL));
    }
    EQUAL(CUDA_SUCCESS, cuCtxDestroy_v2(second));
    EQUAL(CUDA_SUCCESS, cuMemsetD8_v2(pointer, 7, MIB));
    EQUAL(160 * MIB, gpu_used(gpu));
    EQUAL(CUDA_SUCCESS, cuCtxDestroy_v2(first));
    EQUAL(0, gpu_used(gpu));
    start_context(0);
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(pointer, NULL));
    expect_pool(pool, 0, 0);
    EQUAL(CUDA_SUCCESS, cuMemAllocFromPoolAsync(&pointer, 10 * MIB, pool, NULL));
}

static void random_allocations_keep_their_data_and_leak_nothing(void) {
    enum { POINTERS = 300, STEPS = 30000 };
    static struct {
        CUdeviceptr address;
        unsigned words, value;
    } live[POINTERS];
    unsigned seed = (unsigned)getpid();
    printf("seed %u\n", seed);
    gpu_file *gpu = open_gpu(0);
    start_context(0);
    CUmemoryPool pool = get_default_pool();
    uint64_t used = 0;
    for (int step = 0; step < STEPS; step++) {
        unsigned i = (unsigned)rand_r(&seed) % POINTERS;
        if (live[i].address != 0) {
            unsigned first, last;
            EQUAL(CUDA_SUCCESS, cuMemcpyDtoH_v2(&first, live[i].address, 4));
            EQUAL(CUDA_SUCCESS, cuMemcpyDtoH_v2(&last, live[i].address + 4 * (live[i].words - 1), 4));
            EQUAL(live[i].value, first);
            EQUAL(live[i].value, last);
            EQUAL(CUDA_SUCCESS,
                  rand_r(&seed) % 2 ? cuMemFreeAsync(live[i].address, NULL) : cuMemFree_v2(live[i].address));
            used -= (4 * (uint64_t)live[i].words + 511) / 512 * 512;
            live[i].address = 0;
        } else {
            unsigned largest = rand_r(&seed) % 20 == 0 ? 1 << 20 : 1 << 10;
            live[i].words = (unsigned)rand_r(&seed) % largest + 1;
            live[i].value = (unsigned)step;
            EQUAL(CUDA_SUCCESS, cuMemAllocAsync(&live[i].address, 4 * (size_t)live[i].words, NULL));
            EQUAL(CUDA_SUCCESS, cuMemsetD32_v2(live[i].address, live[i].value, 1));
            EQUAL(CUDA_SUCCESS, cuMemsetD32_v2(live[i].address + 4 * (live[i].words - 1), live[i].value, 1));
            used += (4 * (uint64_t)live[i].words + 511) / 512 * 512;
        }
        EQUAL(used, pool_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
        if (step % 1000 == 0) {
            EQUAL(CUDA_SUCCESS, cuCtxSynchronize());
        }
        EQUAL(gpu_used(gpu), pool_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    }
    for (int i = 0; i < POINTERS; i++) {
        if (live[i].address != 0) {
            EQUAL(CUDA_SUCCESS, cuMemFreeAsync(live[i].address, NULL));
        }
    }
    EQUAL(CUDA_SUCCESS, cuCtxSynchronize());
    expect_pool(pool, 0, 0);
    EQUAL(0, gpu_used(gpu));
}

static void one_pool_serves_100000_allocations(void) {
    enum { COUNT = 100000 };
    static CUdeviceptr pointers[COUNT];
    start_context(0);
    for (int i = 0; i < COUNT; i++) {
        EQUAL(CUDA_SUCCESS, cuMemAllocAsync(&pointers[i], 300, NULL));
    }
    expect_pool(get_default_pool(), COUNT * 512, 64 * MIB);
    for (int i = 0; i < COUNT; i += 2) {
        EQUAL(CUDA_SUCCESS, cuMemFreeAsync(pointers[i], NULL));
    }
    for (int i = 1; i < COUNT; i += 2) {
        EQUAL(CUDA_SUCCESS, cuMemFreeAsync(pointers[i], NULL));
    }
    EQUAL(CUDA_SUCCESS, cuCtxSynchronize());
    expect_pool(get_default_pool(), 0, 0);
}

static const char busy_kernel_ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                                      ".visible .entry aliquot_busy(.param .u64 ns)\n{\n\tret;\n}\n";

/* Keeps a stream busy for ms milliseconds. */
static void keep_busy(CUstream stream, uint64_t ms) {
    static CUmodule module;
    CUfunction busy;
    uint64_t ns = ms * 1000000;
    void *parameters[] = {&ns};
    if (module == NULL) {
        EQUAL(CUDA_SUCCESS, cuModuleLoadData(&module, busy_kernel_ptx));
    }
    EQUAL(CUDA_SUCCESS, cuModuleGetFunction(&busy, module, "aliquot_busy"));
    EQUAL(CUDA_SUCCESS, cuLaunchKernel(busy, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

static void stream_ordered_frees_take_effect_when_the_stream_reaches_them(void) {
    CUdeviceptr pooled, plain, same, other;
    CUstream busy, idle;
    gpu_file *gpu = open_gpu(0);
    start_context(0);
    CUmemoryPool pool = get_default_pool();
    EQUAL(CUDA_SUCCESS, cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
    EQUAL(CUDA_SUCCESS, cuStreamCreate(&idle, CU_STREAM_NON_BLOCKING));
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&plain, 50 * MIB));
    EQUAL(CUDA_SUCCESS, cuMemAllocAsync(&pooled, 100 * MIB, busy));
    keep_busy(busy, 400);
    EQUAL(CUDA_SUCCESS, cuMemFreeAsync(pooled, busy));
    EQUAL(CUDA_SUCCESS, cuMemFreeAsync(plain, busy));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(pooled, busy));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(plain));
    EQUAL(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(pooled, 0, 1));
    EQUAL(CUDA_SUCCESS, cuStreamSynchronize(idle));
    EQUAL(CUDA_SUCCESS, cuMemPoolTrimTo(pool, 0));
    EQUAL(150 * MIB, gpu_used(gpu));
    EQUAL(CUDA_SUCCESS, cuMemAllocAsync(&other, 100 * MIB, idle)); /* another stream gets different memory */
    CHECK(other != pooled);
    EQUAL(250 * MIB, gpu_used(gpu));
    EQUAL(CUDA_SUCCESS, cuMemAllocAsync(&same, 100 * MIB, busy)); /* the same stream gets the same memory */
    EQUAL(pooled, same);
    EQUAL(250 * MIB, gpu_used(gpu));
    EQUAL(CUDA_SUCCESS, cuMemFreeAsync(same, busy));
    EQUAL(CUDA_ERROR_NOT_READY, cuStreamQuery(busy));
    EQUAL(CUDA_SUCCESS, cuStreamSynchronize(busy));
    EQUAL(100 * MIB, gpu_used(gpu));
    expect_pool(pool, 100 * MIB, 100 * MIB);
    keep_busy(busy, 10000);
    EQUAL(CUDA_SUCCESS, cuMemFreeAsync(other, busy));
    EQUAL(CUDA_SUCCESS, cuDevicePrimaryCtxReset_v2(0)); /* not the context of these streams */
    EQUAL(100 * MIB, gpu_used(gpu));
    CUcontext context;
    EQUAL(CUDA_SUCCESS, cuCtxGetCurrent(&context));
    EQUAL(CUDA_SUCCESS, cuCtxDestroy_v2(context));
    EQUAL(0, gpu_used(gpu));
}

static void on_a_full_gpu_a_stream_waits_for_memory_that_another_frees(void) {
    CUdeviceptr pointer, later;
    CUstream busy, idle;
    int no = 0, yes = 1;
    start_context(0);
    CUmemoryPool pool = get_default_pool();
    EQUAL(CUDA_SUCCESS, cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
    EQUAL(CUDA_SUCCESS, cuStreamCreate(&idle, CU_STREAM_NON_BLOCKING));
    EQUAL(CUDA_SUCCESS, cuMemAllocAsync(&pointer, 800 * MIB, busy));
    keep_busy(busy, 300);
    EQUAL(CUDA_SUCCESS, cuMemFreeAsync(pointer, busy));
    const CUmemPool_attribute lend = CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
    EQUAL(CUDA_SUCCESS, cuMemPoolSetAttribute(pool, lend, &no));
    EQUAL(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&later, 700 * MIB, idle));
    EQUAL(CUDA_SUCCESS, cuStreamQuery(idle));
    EQUAL(CUDA_SUCCESS, cuMemPoolSetAttribute(pool, lend, &yes));
    EQUAL(CUDA_SUCCESS, cuMemAllocAsync(&later, 700 * MIB, idle));
    EQUAL(pointer, later);
    EQUAL(CUDA_ERROR_NOT_READY, cuStreamQuery(idle)); /* it waits for the other stream */
    EQUAL(CUDA_SUCCESS, cuStreamSynchronize(idle));
    EQUAL(CUDA_SUCCESS, cuStreamQuery(busy));
}

static void without_graphs_graph_memory_is_zero(void) {
    cuuint64_t value = 1;
    int attribute;
    start_context(0);
    EQUAL(CUDA_SUCCESS, cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &value));
    EQUAL(0, value);
    EQUAL(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetGraphMemAttribute(9, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &value));
    EQUAL(CUDA_SUCCESS, cuDeviceGraphMemTrim(0));
    EQUAL(CUDA_ERROR_INVALID_DEVICE, cuDeviceGraphMemTrim(-1));
    EQUAL(CUDA_SUCCESS, cuDeviceGetAttribute(&attribute, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
    EQUAL(1, attribute);
}

int main(int count, char **arguments) {
    static const struct test tests[] = {
        TEST(a_pool_reserves_whole_chunks),
        TEST(a_pool_shrinks_to_its_threshold_when_the_host_synchronizes),
        TEST(trimming_keeps_used_memory_and_the_requested_minimum),
        TEST(plain_and_stream_ordered_frees_can_be_mixed),
        TEST(unused_pool_memory_is_released_for_other_allocations),
        TEST(a_destroyed_pool_lives_until_its_last_allocation_is_freed),
        TEST(a_pool_does_not_exceed_its_maximum_size),
        TEST(a_pool_belongs_to_its_device_not_to_the_current_context),
        TEST(pools_are_destroyed_with_the_last_context_of_their_device),
        TEST(random_allocations_keep_their_data_and_leak_nothing),
        TEST(one_pool_serves_100000_allocations),
        TEST(stream_ordered_frees_take_effect_when_the_stream_reaches_them),
        TEST(on_a_full_gpu_a_stream_waits_for_memory_that_another_frees),
        TEST(without_graphs_graph_memory_is_zero),
    };
    return run_tests(tests, sizeof tests / sizeof tests[0], count, arguments, 2, GPU_MIB);
}
