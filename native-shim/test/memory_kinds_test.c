/*
 * Tests of all kinds of GPU memory, on the fake driver: pools, virtual memory, arrays, graphs and contexts. They
 * compare the charge with the GPU's own free memory where the driver reports it.
 */
#include "sandbox.h"

#include <pthread.h>

typedef CUmemGenericAllocationHandle handle_t;

#define NO_LIMIT ((size_t)1 << 42) /* more than the GPU has */

/* The driver's own function, without the shim's hook. */
static void *bare(const char *symbol) {
    sandbox_function("cuInit");
    return real_dlsym(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), symbol);
}

/* Free memory of the GPU, regardless of limits. */
static size_t gpu_free_memory(void) {
    size_t available = 0;
    CHECK_EQUAL(((CUresult(*)(size_t *, size_t *))bare("cuMemGetInfo_v2"))(&available, NULL), CUDA_SUCCESS);
    return available;
}

/* Runs body in `count` threads, numbered from 1, and joins them. */
static void run_threads(size_t count, void *(*body)(void *number)) {
    pthread_t threads[8];
    for (size_t i = 0; i < count; i++) {
        CHECK_EQUAL(pthread_create(&threads[i], NULL, body, (void *)(i + 1)), 0);
    }
    for (size_t i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* ---- pools ---- */

static CUresult allocate_async(CUdeviceptr *address, size_t bytes) {
    return CALL(cuMemAllocAsync, CUdeviceptr *, size_t, CUstream)(address, bytes, NULL);
}

static CUresult allocate_from(CUmemoryPool pool, CUdeviceptr *address, size_t bytes) {
    return CALL(cuMemAllocFromPoolAsync, CUdeviceptr *, size_t, CUmemoryPool, CUstream)(address, bytes, pool, NULL);
}

static CUresult free_async(CUdeviceptr address) {
    return CALL(cuMemFreeAsync, CUdeviceptr, CUstream)(address, NULL);
}

static void synchronize(void) {
    CHECK_EQUAL(CALL(cuStreamSynchronize, CUstream)(NULL), CUDA_SUCCESS);
}

static unsigned long long reserved_by(CUmemoryPool pool) {
    cuuint64_t bytes = 0;
    CHECK_EQUAL(CALL(cuMemPoolGetAttribute, CUmemoryPool, CUmemPool_attribute,
                     void *)(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes),
                CUDA_SUCCESS);
    return bytes;
}

static CUmemoryPool default_pool(int device) {
    CUmemoryPool pool = NULL;
    CHECK_EQUAL(CALL(cuDeviceGetDefaultMemPool, CUmemoryPool *, CUdevice)(&pool, device), CUDA_SUCCESS);
    return pool;
}

static CUmemoryPool new_pool(int device) {
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    CUmemoryPool pool = NULL;
    CHECK_EQUAL(CALL(cuMemPoolCreate, CUmemoryPool *, const CUmemPoolProps *)(&pool, &properties), CUDA_SUCCESS);
    return pool;
}

/* The pool keeps freed memory instead of returning it to the GPU. */
static void keep_freed_memory(CUmemoryPool pool) {
    cuuint64_t all = UINT64_MAX;
    CHECK_EQUAL(CALL(cuMemPoolSetAttribute, CUmemoryPool, CUmemPool_attribute,
                     void *)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all),
                CUDA_SUCCESS);
}

TEST(a_pool_is_charged_its_reserved_memory_which_is_what_the_GPU_allocated) {
    CUdeviceptr first = 0, second = 0;
    sandbox(NO_LIMIT, 0);
    use_device(0);
    size_t before = gpu_free_memory();
    CHECK_EQUAL(allocate_async(&first, 1000), CUDA_SUCCESS);
    CHECK(used_in_region() >= 1000, "%llu", used_in_region());
    CHECK_EQUAL(used_in_region(), reserved_by(default_pool(0)));
    CHECK_EQUAL(used_in_region(), before - gpu_free_memory());
    CHECK_EQUAL(allocate_async(&second, 100 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), before - gpu_free_memory());
    CHECK_EQUAL(free_async(first), CUDA_SUCCESS);
    CHECK_EQUAL(free_async(second), CUDA_SUCCESS);
    synchronize();
    CHECK_EQUAL(used_in_region(), 0);
    CHECK_EQUAL(gpu_free_memory(), before);
}

TEST(a_pool_that_shrinks_is_charged_less_after_the_next_synchronization_or_query) {
    static const char *const operations[] = {"stream", "context", "event", "trim", "info"};
    sandbox(1000 * MIB, 0);
    use_device(0);
    for (size_t operation = 0; operation < sizeof operations / sizeof operations[0]; operation++) {
        CUdeviceptr address = 0;
        CUevent event = NULL;
        CHECK_EQUAL(allocate_async(&address, 100 * MIB), CUDA_SUCCESS);
        CHECK_EQUAL(CALL(cuEventCreate, CUevent *, unsigned)(&event, 0), CUDA_SUCCESS);
        CHECK_EQUAL(free_async(address), CUDA_SUCCESS);
        CHECK_EQUAL(CALL(cuEventRecord, CUevent, CUstream)(event, NULL), CUDA_SUCCESS);
        CUresult result = operation == 0   ? CALL(cuStreamSynchronize, CUstream)(NULL)
                          : operation == 1 ? CALL(cuCtxSynchronize, void)()
                          : operation == 2 ? CALL(cuEventSynchronize, CUevent)(event)
                          : operation == 3 ? CALL(cuMemPoolTrimTo, CUmemoryPool, size_t)(default_pool(0), 0)
                                           : ((CUresult(*)(CUstream))bare("cuStreamSynchronize"))(NULL);
        CHECK_EQUAL(result, CUDA_SUCCESS);
        CHECK(operation == 4 || used_in_region() == 0, "%s: %llu", operations[operation], used_in_region());
        CHECK_EQUAL(free_memory(), 1000 * MIB);
        CHECK_EQUAL(used_in_region(), 0);
    }
}

TEST(a_pool_allocation_over_the_limit_is_refused_and_reserves_nothing) {
    CUdeviceptr plain = 0, address = 7;
    sandbox(40 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(allocate(&plain, 20 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(allocate_async(&address, 20 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(allocate_async(&address, 1), CUDA_ERROR_OUT_OF_MEMORY); /* a pool allocates chunks of 32 MiB */
    CHECK_EQUAL(allocate_async(&address, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(address, 7);
    CHECK_EQUAL(used_in_region(), 20 * MIB);
    CHECK_EQUAL(reserved_by(default_pool(0)), 0);
    CHECK_EQUAL(deallocate(plain), CUDA_SUCCESS);
    CHECK_EQUAL(allocate_async(&address, 1), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), reserved_by(default_pool(0)));
}

TEST(a_pool_fills_the_limit_to_the_byte) {
    CUdeviceptr first = 0, second = 0;
    sandbox(96 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(allocate_async(&first, 96 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 96 * MIB);
    CHECK_EQUAL(allocate_async(&second, 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(allocate(&second, 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(free_async(first), CUDA_SUCCESS);
    synchronize();
    CHECK_EQUAL(allocate(&second, 96 * MIB), CUDA_SUCCESS);
}

TEST(a_pool_releases_unused_memory_before_an_allocation_is_refused) {
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    keep_freed_memory(default_pool(0));
    for (int i = 0; i < 20; i++) {
        CHECK_EQUAL(allocate_async(&address, 60 * MIB), CUDA_SUCCESS);
        CHECK_EQUAL(free_async(address), CUDA_SUCCESS);
        synchronize();
        CHECK_EQUAL(used_in_region(), 60 * MIB);
        CHECK_EQUAL(allocate(&address, 90 * MIB), CUDA_SUCCESS);
        CHECK(used_in_region() <= 100 * MIB, "%llu", used_in_region());
        CHECK_EQUAL(deallocate(address), CUDA_SUCCESS);
        CHECK_EQUAL(allocate_async(&address, 100 * MIB), CUDA_SUCCESS);
        CHECK_EQUAL(free_async(address), CUDA_SUCCESS);
        CHECK_EQUAL(allocate_async(&address, 100 * MIB), CUDA_SUCCESS);
        CHECK_EQUAL(free_async(address), CUDA_SUCCESS);
        CHECK_EQUAL(CALL(cuMemPoolTrimTo, CUmemoryPool, size_t)(default_pool(0), 0), CUDA_SUCCESS);
        CHECK_EQUAL(used_in_region(), 0);
    }
}

TEST(plain_and_pool_memory_can_be_freed_by_either_function) {
    CUdeviceptr plain = 0, pooled = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    for (int i = 0; i < 100; i++) {
        CHECK_EQUAL(allocate(&plain, 10 * MIB), CUDA_SUCCESS);
        CHECK_EQUAL(allocate_async(&pooled, 10 * MIB), CUDA_SUCCESS);
        CHECK_EQUAL(used_in_region(), 10 * MIB + reserved_by(default_pool(0)));
        CHECK_EQUAL(i % 2 == 0 ? free_async(plain) : deallocate(plain), CUDA_SUCCESS);
        CHECK_EQUAL(i % 3 == 0 ? free_async(pooled) : deallocate(pooled), CUDA_SUCCESS);
        CHECK_EQUAL(deallocate(pooled), CUDA_ERROR_INVALID_VALUE);
        synchronize();
        CHECK_EQUAL(used_in_region(), 0);
    }
}

TEST(a_pool_is_charged_to_its_own_device_and_not_to_the_current_one) {
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 50 * MIB);
    use_device(1);
    use_device(0);
    CUmemoryPool pool = new_pool(1);
    CHECK_EQUAL(allocate_from(pool, &address, 60 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(allocate_from(pool, &address, 40 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(used_on(0), 0);
    CHECK_EQUAL(used_on(1), reserved_by(pool));
    CHECK_EQUAL(free_async(address), CUDA_SUCCESS);
    synchronize();
    CHECK_EQUAL(used_on(1), reserved_by(pool));
}

TEST(a_pool_that_is_set_as_the_devices_pool_is_charged) {
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    CUmemoryPool pool = new_pool(0);
    CHECK_EQUAL(CALL(cuDeviceSetMemPool, CUdevice, CUmemoryPool)(0, pool), CUDA_SUCCESS);
    CHECK_EQUAL(allocate_async(&address, 64 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 64 * MIB);
    CHECK_EQUAL(reserved_by(pool), 64 * MIB);
    CHECK_EQUAL(CALL(cuMemPoolDestroy, CUmemoryPool)(pool), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 64 * MIB); /* a destroyed pool stays until its memory is freed */
    CHECK_EQUAL(free_async(address), CUDA_SUCCESS);
    synchronize();
    CHECK_EQUAL(used_in_region(), 0);
}

TEST(a_default_pool_stays_charged_when_destroying_it_fails) {
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(allocate_async(&address, 64 * MIB), CUDA_SUCCESS);
    CHECK(CALL(cuMemPoolDestroy, CUmemoryPool)(default_pool(0)) != CUDA_SUCCESS, "a default pool cannot be destroyed");
    CHECK_EQUAL(used_in_region(), 64 * MIB);
    CHECK_EQUAL(free_async(address), CUDA_SUCCESS);
    synchronize();
    CHECK_EQUAL(used_in_region(), 0);
}

TEST(resetting_the_primary_context_releases_all_pool_memory) {
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    CUmemoryPool pool = new_pool(0);
    CHECK_EQUAL(allocate_async(&address, 32 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(allocate_from(pool, &address, 32 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuDevicePrimaryCtxReset_v2, CUdevice)(0), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 0);
    use_device(0);
    CHECK_EQUAL(allocate_async(&address, 32 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 32 * MIB);
}

static void *use_one_pool(void *number) {
    unsigned seed = (unsigned)(uintptr_t)number;
    use_device(0);
    for (int i = 0; i < 300; i++) {
        CUdeviceptr address = 0;
        size_t bytes = (size_t)(1 + rand_r(&seed) % 100) * MIB / 2;
        CUresult result = allocate_async(&address, bytes);
        CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY, "%d", result);
        if (result == CUDA_SUCCESS) {
            CHECK_EQUAL(i % 4 == 0 ? deallocate(address) : free_async(address), CUDA_SUCCESS);
        }
        if (i % 8 == 0) {
            synchronize();
        }
    }
    return NULL;
}

TEST(eight_threads_that_share_a_pool_are_charged_exactly_its_memory) {
    sandbox(300 * MIB, 0);
    use_device(0);
    run_threads(8, use_one_pool);
    synchronize();
    CHECK_EQUAL(used_in_region(), reserved_by(default_pool(0)));
    CHECK_EQUAL(used_in_region(), 0);
}

TEST(the_unused_part_of_a_pool_can_be_allocated_when_the_limit_is_reached) {
    CUdeviceptr first = 0, second = 0, plain = 0;
    sandbox(64 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(allocate_async(&first, 10 * MIB), CUDA_SUCCESS); /* a chunk of 32 MiB */
    CHECK_EQUAL(allocate(&plain, 32 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 64 * MIB);
    CHECK_EQUAL(allocate_async(&second, 10 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(allocate_async(&second, 20 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(used_in_region(), 64 * MIB);
    CHECK_EQUAL(reserved_by(default_pool(0)), 32 * MIB);
}

/* Unused memory, but in pieces too small for the request: the pool grows although as much is unused. */
TEST(a_pool_that_grows_because_it_is_fragmented_is_charged_and_limited) {
    CUdeviceptr piece[8], large = 0;
    sandbox(80 * MIB, 0);
    use_device(0);
    keep_freed_memory(default_pool(0));
    for (int i = 0; i < 8; i++) {
        CHECK_EQUAL(allocate_async(&piece[i], 4 * MIB), CUDA_SUCCESS);
    }
    for (int i = 0; i < 8; i += 2) {
        CHECK_EQUAL(free_async(piece[i]), CUDA_SUCCESS);
    }
    CHECK_EQUAL(used_in_region(), 32 * MIB);
    CHECK_EQUAL(allocate_async(&large, 12 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(reserved_by(default_pool(0)), 64 * MIB);
    CHECK_EQUAL(used_in_region(), 64 * MIB);
    CHECK_EQUAL(allocate_async(&large, 12 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(allocate_async(&large, 12 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(reserved_by(default_pool(0)), 64 * MIB);
    CHECK_EQUAL(used_in_region(), 64 * MIB);
}

static void *use_parts_of_one_pool(void *number) {
    unsigned seed = (unsigned)(uintptr_t)number;
    CUdeviceptr address[8] = {0};
    use_device(0);
    for (int i = 0; i < 200; i++) {
        CUdeviceptr *slot = &address[rand_r(&seed) % 8];
        if (*slot != 0) {
            CHECK_EQUAL(free_async(*slot), CUDA_SUCCESS);
            *slot = 0;
        } else {
            CUresult result = allocate_async(slot, (size_t)(1 + rand_r(&seed) % 64) * MIB / 8);
            CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY, "%d", result);
        }
        if ((uintptr_t)number == 1 && i % 8 == 0) {
            CHECK_EQUAL(CALL(cuMemPoolTrimTo, CUmemoryPool, size_t)(default_pool(0), 0), CUDA_SUCCESS);
        }
    }
    for (int i = 0; i < 8; i++) {
        CHECK(address[i] == 0 || free_async(address[i]) == CUDA_SUCCESS, "free");
    }
    return NULL;
}

TEST(a_pool_that_grows_and_shrinks_under_four_threads_is_never_charged_less_than_it_holds) {
    sandbox(128 * MIB, 0);
    use_device(0);
    keep_freed_memory(default_pool(0));
    for (int round = 0; round < 30; round++) {
        run_threads(4, use_parts_of_one_pool);
        CHECK(used_in_region() >= reserved_by(default_pool(0)), "charged %llu, held %llu",
              (unsigned long long)used_in_region(), reserved_by(default_pool(0)));
        CHECK(reserved_by(default_pool(0)) <= 128 * MIB, "held %llu", reserved_by(default_pool(0)));
        synchronize();
        CHECK_EQUAL(used_in_region(), reserved_by(default_pool(0)));
    }
}

/* Six of these threads allocate one chunk each, and all six chunks fit the limit. */
static void *allocate_a_chunk(void *number) {
    (void)number;
    use_device(0);
    for (int i = 0; i < 300; i++) {
        CUdeviceptr address = 0;
        CHECK_EQUAL(allocate_async(&address, 32 * MIB), CUDA_SUCCESS);
        CHECK_EQUAL(deallocate(address), CUDA_SUCCESS);
    }
    return NULL;
}

TEST(concurrent_pool_allocations_that_fit_together_are_not_refused) {
    sandbox(192 * MIB, 0);
    use_device(0);
    run_threads(6, allocate_a_chunk);
}

/* ---- virtual memory ---- */

static CUmemAllocationProp on_device(int device) {
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
}

static CUresult create(handle_t *handle, size_t bytes, int device) {
    CUmemAllocationProp properties = on_device(device);
    return CALL(cuMemCreate, handle_t *, size_t, const CUmemAllocationProp *, unsigned long long)(handle, bytes,
                                                                                                  &properties, 0);
}

static CUresult release(handle_t handle) {
    return CALL(cuMemRelease, handle_t)(handle);
}

static CUdeviceptr reserve_addresses(size_t bytes) {
    CUdeviceptr address = 0;
    CHECK_EQUAL(CALL(cuMemAddressReserve, CUdeviceptr *, size_t, size_t, CUdeviceptr,
                     unsigned long long)(&address, bytes, 0, 0, 0),
                CUDA_SUCCESS);
    return address;
}

static CUresult map(CUdeviceptr address, size_t bytes, handle_t handle) {
    return CALL(cuMemMap, CUdeviceptr, size_t, size_t, handle_t, unsigned long long)(address, bytes, 0, handle, 0);
}

static CUresult unmap(CUdeviceptr address, size_t bytes) {
    return CALL(cuMemUnmap, CUdeviceptr, size_t)(address, bytes);
}

TEST(virtual_memory_that_is_released_while_mapped_is_charged_until_it_is_unmapped) {
    handle_t handle = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    CUdeviceptr address = reserve_addresses(200 * MIB);
    CHECK_EQUAL(create(&handle, 102 * MIB, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(create(&handle, 100 * MIB, 0), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 100 * MIB);
    CHECK_EQUAL(map(address, 100 * MIB, handle), CUDA_SUCCESS);
    CHECK_EQUAL(map(address + 100 * MIB, 100 * MIB, handle), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 100 * MIB);
    CHECK_EQUAL(release(handle), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 100 * MIB);
    CHECK_EQUAL(unmap(address, 100 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 100 * MIB);
    CHECK_EQUAL(unmap(address + 100 * MIB, 100 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 0);
    CHECK_EQUAL(create(&handle, 100 * MIB, 0), CUDA_SUCCESS);
    CHECK_EQUAL(release(handle), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 0);
    CHECK(release(handle) != CUDA_SUCCESS, "the driver refuses a stale handle");
    CHECK_EQUAL(used_in_region(), 0);
}

TEST(a_retained_handle_keeps_its_memory_charged) {
    handle_t handle = 0, again = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    CUdeviceptr address = reserve_addresses(10 * MIB);
    CHECK_EQUAL(create(&handle, 10 * MIB, 0), CUDA_SUCCESS);
    CHECK_EQUAL(map(address, 10 * MIB, handle), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuMemRetainAllocationHandle, handle_t *, void *)(&again, (void *)(uintptr_t)(address + 4 * MIB)),
                CUDA_SUCCESS);
    CHECK_EQUAL(release(handle), CUDA_SUCCESS);
    CHECK_EQUAL(unmap(address, 10 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 10 * MIB);
    CHECK_EQUAL(map(address, 10 * MIB, again), CUDA_SUCCESS);
    CHECK_EQUAL(release(again), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 10 * MIB);
    CHECK_EQUAL(unmap(address, 10 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 0);
}

TEST(several_mappings_can_be_unmapped_at_once_but_not_half_of_one) {
    enum { PARTS = 20 };
    handle_t handle = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    CUdeviceptr address = reserve_addresses(PARTS * 2 * MIB);
    for (CUdeviceptr i = 0; i < PARTS; i++) { /* as PyTorch's expandable segments do */
        CHECK_EQUAL(create(&handle, 2 * MIB, 0), CUDA_SUCCESS);
        CHECK_EQUAL(map(address + i * 2 * MIB, 2 * MIB, handle), CUDA_SUCCESS);
        CHECK_EQUAL(release(handle), CUDA_SUCCESS);
    }
    CHECK_EQUAL(used_in_region(), PARTS * 2 * MIB);
    CHECK(unmap(address, 3 * MIB) != CUDA_SUCCESS, "one mapping and a half");
    CHECK_EQUAL(used_in_region(), PARTS * 2 * MIB);
    CHECK_EQUAL(unmap(address + 2 * MIB, 6 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), (PARTS - 3) * 2 * MIB);
    CHECK_EQUAL(unmap(address, 2 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(unmap(address + 8 * MIB, (PARTS - 4) * 2 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 0);
}

TEST(virtual_memory_is_charged_to_the_device_that_holds_it) {
    handle_t handle = 0;
    sandbox(100 * MIB, 50 * MIB);
    use_device(1);
    use_device(0);
    CHECK_EQUAL(create(&handle, 52 * MIB, 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(create(&handle, 50 * MIB, 1), CUDA_SUCCESS);
    CHECK_EQUAL(used_on(0), 0);
    CHECK_EQUAL(used_on(1), 50 * MIB);
    CHECK_EQUAL(release(handle), CUDA_SUCCESS);
    CHECK_EQUAL(used_on(1), 0);
}

static CUresult export_handle(int *fd, handle_t handle) {
    return CALL(cuMemExportToShareableHandle, void *, handle_t, CUmemAllocationHandleType,
                unsigned long long)(fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

/* Exports memory of this process and imports it again. */
static handle_t import_own(handle_t handle) {
    handle_t imported = 0;
    int fd = -1;
    CHECK_EQUAL(export_handle(&fd, handle), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuMemImportFromShareableHandle, handle_t *, void *, CUmemAllocationHandleType)(
                    &imported, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                CUDA_SUCCESS);
    return imported;
}

TEST(imported_memory_is_not_charged) {
    handle_t handle = 0, imported = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(create(&handle, 60 * MIB, 0), CUDA_SUCCESS);
    imported = import_own(handle);
    CUdeviceptr address = reserve_addresses(120 * MIB);
    CHECK_EQUAL(map(address, 60 * MIB, handle), CUDA_SUCCESS);
    CHECK_EQUAL(map(address + 60 * MIB, 60 * MIB, imported), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 60 * MIB);
    CHECK_EQUAL(unmap(address, 120 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(release(handle), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 0);
    CHECK_EQUAL(release(imported), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 0);
}

TEST(an_import_that_returns_an_own_handle_needs_its_own_release) {
    handle_t handle = 0, imported = 0;
    setenv("ALIQUOT_FAKE_PROFILE", "import=same", 1);
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(create(&handle, 60 * MIB, 0), CUDA_SUCCESS);
    imported = import_own(handle);
    CHECK_EQUAL(imported, handle);
    CHECK_EQUAL(used_in_region(), 60 * MIB);
    CHECK_EQUAL(release(handle), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 60 * MIB);
    CHECK_EQUAL(release(imported), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 0);
}

static void *create_and_map(void *number) {
    size_t bytes = (size_t)(uintptr_t)number * 2 * MIB;
    use_device(0);
    CUdeviceptr address = reserve_addresses(bytes);
    for (int i = 0; i < 300; i++) {
        handle_t handle = 0;
        CUresult result = create(&handle, bytes, 0);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) {
            continue;
        }
        CHECK_EQUAL(result, CUDA_SUCCESS);
        CHECK_EQUAL(map(address, bytes, handle), CUDA_SUCCESS);
        CHECK_EQUAL(release(handle), CUDA_SUCCESS);
        CHECK_EQUAL(unmap(address, bytes), CUDA_SUCCESS);
    }
    return NULL;
}

TEST(threads_that_create_and_map_memory_leave_no_charge) {
    sandbox(24 * MIB, 0);
    use_device(0);
    run_threads(6, create_and_map);
    CHECK_EQUAL(used_in_region(), 0);
}

/* ---- memory of other processes ---- */

typedef struct {
    char reserved[64];
} CUipcMemHandle;

enum { MEMORY_FD = 200, IPC_FD = 201 }; /* descriptors from which the helper imports */

HELPER(helper_that_imports_100_MiB_and_can_allocate_50) {
    CUipcMemHandle memory;
    CUdeviceptr opened = 0, own = 0;
    handle_t handle = 0;
    join_sandbox();
    CHECK_EQUAL(read(IPC_FD, &memory, sizeof memory), sizeof memory);
    CHECK_EQUAL(CALL(cuIpcOpenMemHandle_v2, CUdeviceptr *, CUipcMemHandle, unsigned)(&opened, memory, 1), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuMemImportFromShareableHandle, handle_t *, void *, CUmemAllocationHandleType)(
                    &handle, (void *)(intptr_t)MEMORY_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                CUDA_SUCCESS);
    CUdeviceptr address = reserve_addresses(40 * MIB);
    CHECK_EQUAL(map(address, 40 * MIB, handle), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 100 * MIB);
    CHECK_EQUAL(allocate(&own, 50 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(allocate(&own, 50 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuIpcCloseMemHandle, CUdeviceptr)(opened), CUDA_SUCCESS);
    CHECK_EQUAL(unmap(address, 40 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(release(handle), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 150 * MIB); /* releasing imported memory changes no charge */
}

TEST(memory_imported_from_another_process_is_charged_only_to_the_exporter) {
    CUipcMemHandle memory;
    CUdeviceptr address = 0;
    handle_t handle = 0;
    int fd = -1, ends[2];
    sandbox(150 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(allocate(&address, 60 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuIpcGetMemHandle, CUipcMemHandle *, CUdeviceptr)(&memory, address), CUDA_SUCCESS);
    CHECK_EQUAL(create(&handle, 40 * MIB, 0), CUDA_SUCCESS);
    CHECK_EQUAL(export_handle(&fd, handle), CUDA_SUCCESS);
    CHECK(pipe(ends) == 0 && write(ends[1], &memory, sizeof memory) == sizeof memory, "pipe");
    IN_CHILD({
        CHECK(dup2(fd, MEMORY_FD) == MEMORY_FD && dup2(ends[0], IPC_FD) == IPC_FD, "descriptors");
        execl("/proc/self/exe", "memory_kinds_test", "helper_that_imports_100_MiB_and_can_allocate_50", NULL);
        exit(EXIT_FAILURE);
    });
    CHECK_EQUAL(deallocate(address), CUDA_SUCCESS);
    CHECK_EQUAL(release(handle), CUDA_SUCCESS);
    CHECK_EQUAL(allocate(&address, 150 * MIB), CUDA_SUCCESS);
}

/* ---- arrays ---- */

static CUresult create_array(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v2 *descriptor) {
    return CALL(cuArray3DCreate_v2, CUarray *, const CUDA_ARRAY3D_DESCRIPTOR_v2 *)(array, descriptor);
}

static CUresult create_mipmap(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR_v2 *descriptor, unsigned levels) {
    return CALL(cuMipmappedArrayCreate, CUmipmappedArray *, const CUDA_ARRAY3D_DESCRIPTOR_v2 *,
                unsigned)(array, descriptor, levels);
}

TEST(an_array_is_charged_what_the_GPU_allocated) {
    static const CUDA_ARRAY3D_DESCRIPTOR_v2 shapes[] = {
        {1, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0},
        {100000, 0, 0, CU_AD_FORMAT_FLOAT, 4, 0},
        {1, 1, 0, CU_AD_FORMAT_FLOAT, 1, 0},
        {1000, 700, 0, CU_AD_FORMAT_FLOAT, 4, 0},
        {33, 129, 0, CU_AD_FORMAT_UNSIGNED_INT8, 2, 0},
        {64, 64, 10, CU_AD_FORMAT_FLOAT, 1, 0},
        {65, 17, 7, CU_AD_FORMAT_UNSIGNED_INT32, 2, CUDA_ARRAY3D_LAYERED},
        {100, 100, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP},
        {1000, 0, 5, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED},
    };
    sandbox(NO_LIMIT, 0);
    use_device(0);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        CUarray array = NULL;
        CUmipmappedArray mipmap = NULL;
        size_t before = gpu_free_memory();
        CHECK_EQUAL(create_array(&array, &shapes[i]), CUDA_SUCCESS);
        CHECK(used_in_region() > 0 && used_in_region() == before - gpu_free_memory(),
              "shape %zu: charged %llu, expected %zu", i, used_in_region(), before - gpu_free_memory());
        CHECK_EQUAL(CALL(cuArrayDestroy, CUarray)(array), CUDA_SUCCESS);
        CHECK_EQUAL(used_in_region(), 0);
        for (unsigned levels = 1; levels <= 4; levels++) {
            if (create_mipmap(&mipmap, &shapes[i], levels) == CUDA_SUCCESS) {
                CHECK(used_in_region() == before - gpu_free_memory(),
                      "shape %zu, %u levels: charged %llu, expected %zu", i, levels, used_in_region(),
                      before - gpu_free_memory());
                CHECK_EQUAL(CALL(cuMipmappedArrayDestroy, CUmipmappedArray)(mipmap), CUDA_SUCCESS);
            }
        }
        CHECK_EQUAL(used_in_region(), 0);
        CHECK_EQUAL(gpu_free_memory(), before);
    }
}

TEST(arrays_of_the_32_bit_ABI_are_charged_too) {
    CUDA_ARRAY_DESCRIPTOR_v1 flat = {1000, 1000, CU_AD_FORMAT_FLOAT, 1};
    CUDA_ARRAY3D_DESCRIPTOR_v1 deep = {100, 100, 100, CU_AD_FORMAT_FLOAT, 1, 0};
    CUarray first = NULL, second = NULL;
    sandbox(NO_LIMIT, 0);
    use_device(0);
    size_t before = gpu_free_memory();
    CHECK_EQUAL(CALL(cuArrayCreate, CUarray *, const CUDA_ARRAY_DESCRIPTOR_v1 *)(&first, &flat), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuArray3DCreate, CUarray *, const CUDA_ARRAY3D_DESCRIPTOR_v1 *)(&second, &deep), CUDA_SUCCESS);
    CHECK(used_in_region() >= 8000000, "%llu", used_in_region());
    CHECK_EQUAL(used_in_region(), before - gpu_free_memory());
}

TEST(arrays_count_toward_the_limit_until_their_context_is_destroyed) {
    CUDA_ARRAY3D_DESCRIPTOR_v2 shape = {4096, 4096, 0, CU_AD_FORMAT_FLOAT, 1, 0}; /* 64 MiB */
    CUarray array = NULL;
    CUmipmappedArray mipmap = NULL;
    CUcontext context = NULL;
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(CALL(cuCtxCreate_v2, CUcontext *, unsigned, CUdevice)(&context, 0, 0), CUDA_SUCCESS);
    CHECK_EQUAL(create_array(&array, &shape), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 64 * MIB);
    CHECK_EQUAL(create_array(&array, &shape), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(create_mipmap(&mipmap, &shape, 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(allocate(&address, 36 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(used_in_region(), 64 * MIB);
    CHECK_EQUAL(CALL(cuCtxDestroy_v2, CUcontext)(context), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 0);
    CHECK(create_array(NULL, &shape) != CUDA_SUCCESS && create_array(&array, NULL) != CUDA_SUCCESS,
          "the driver refuses NULL");
    shape.Width = shape.Height = SIZE_MAX / 2;
    CHECK(create_array(&array, &shape) != CUDA_SUCCESS, "more than the GPU has");
    CHECK_EQUAL(used_in_region(), 0);
}

TEST(an_array_with_deferred_mapping_is_charged_as_the_memory_mapped_to_it) {
    CUDA_ARRAY3D_DESCRIPTOR_v2 shape = {1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_DEFERRED_MAPPING};
    CUarray array = NULL;
    handle_t handle = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(create_array(&array, &shape), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 0);
    CUmemAllocationProp properties = on_device(0);
    properties.allocFlags.usage = 1; /* CU_MEM_CREATE_USAGE_TILE_POOL */
    CHECK_EQUAL(CALL(cuMemCreate, handle_t *, size_t, const CUmemAllocationProp *, unsigned long long)(&handle, 4 * MIB,
                                                                                                       &properties, 0),
                CUDA_SUCCESS);
    CUarrayMapInfo tile = {.resourceType = CU_RESOURCE_TYPE_ARRAY,
                           .resource.array = array,
                           .memOperationType = CU_MEM_OPERATION_TYPE_MAP,
                           .memHandleType = CU_MEM_HANDLE_TYPE_GENERIC,
                           .memHandle.memHandle = handle,
                           .deviceBitMask = 1};
    CHECK_EQUAL(CALL(cuMemMapArrayAsync, CUarrayMapInfo *, unsigned, CUstream)(&tile, 1, NULL), CUDA_SUCCESS);
    CHECK_EQUAL(release(handle), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 4 * MIB);
    CHECK_EQUAL(CALL(cuArrayDestroy, CUarray)(array), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 0);
}

/* ---- graphs ---- */

static CUstream new_stream(void) {
    CUstream stream = NULL;
    CHECK_EQUAL(CALL(cuStreamCreate, CUstream *, unsigned)(&stream, 1), CUDA_SUCCESS);
    return stream;
}

/* A graph that allocates memory and frees it. */
static CUgraph capture_allocation(CUstream stream, size_t bytes) {
    CUdeviceptr address = 0;
    CUgraph graph = NULL;
    CHECK_EQUAL(CALL(cuStreamBeginCapture_v2, CUstream, CUstreamCaptureMode)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
                CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuMemAllocAsync, CUdeviceptr *, size_t, CUstream)(&address, bytes, stream), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuMemFreeAsync, CUdeviceptr, CUstream)(address, stream), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuStreamEndCapture, CUstream, CUgraph *)(stream, &graph), CUDA_SUCCESS);
    return graph;
}

static CUgraphExec instantiate(CUgraph graph) {
    CUgraphExec executable = NULL;
    CHECK_EQUAL(CALL(cuGraphInstantiateWithFlags, CUgraphExec *, CUgraph, unsigned long long)(&executable, graph, 0),
                CUDA_SUCCESS);
    return executable;
}

static CUresult launch(CUgraphExec graph, CUstream stream) {
    return CALL(cuGraphLaunch, CUgraphExec, CUstream)(graph, stream);
}

static unsigned long long reserved_by_graphs(void) {
    cuuint64_t bytes = 0;
    CHECK_EQUAL(CALL(cuDeviceGetGraphMemAttribute, CUdevice, CUgraphMem_attribute,
                     void *)(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes),
                CUDA_SUCCESS);
    return bytes;
}

TEST(a_captured_allocation_is_charged_from_the_launch_of_its_graph_until_the_trim) {
    sandbox(NO_LIMIT, 0);
    use_device(0);
    CUstream stream = new_stream();
    size_t before = gpu_free_memory();
    CUgraphExec graph = instantiate(capture_allocation(stream, 60 * MIB));
    CHECK_EQUAL(used_in_region(), before - gpu_free_memory());
    for (int i = 0; i < 5; i++) {
        CHECK_EQUAL(launch(graph, stream), CUDA_SUCCESS);
        CHECK_EQUAL(used_in_region(), before - gpu_free_memory());
        CHECK_EQUAL(used_in_region(), reserved_by_graphs());
    }
    CHECK(used_in_region() >= 60 * MIB, "%llu", used_in_region());
    CHECK_EQUAL(CALL(cuStreamSynchronize, CUstream)(stream), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuGraphExecDestroy, CUgraphExec)(graph), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuDeviceGraphMemTrim, CUdevice)(0), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 0);
    CHECK_EQUAL(gpu_free_memory(), before);
}

TEST(a_graph_whose_allocations_do_not_fit_is_not_launched) {
    CUdeviceptr plain = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    CUstream stream = new_stream();
    CUgraphExec graph = instantiate(capture_allocation(stream, 64 * MIB));
    CUgraphExec large = instantiate(capture_allocation(stream, 128 * MIB));
    CHECK_EQUAL(launch(large, stream), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(allocate(&plain, 60 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(launch(graph, stream), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CALL(cuGraphUpload, CUgraphExec, CUstream)(graph, stream), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(used_in_region(), 60 * MIB);
    CHECK_EQUAL(deallocate(plain), CUDA_SUCCESS);
    for (int i = 0; i < 3; i++) {
        CHECK_EQUAL(launch(graph, stream), CUDA_SUCCESS); /* each launch uses the same memory */
    }
    CHECK_EQUAL(CALL(cuStreamSynchronize, CUstream)(stream), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), reserved_by_graphs());
    /* The shim releases the memory that the driver keeps for the next launch before it refuses a request. */
    CHECK_EQUAL(allocate(&plain, 100 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(launch(graph, stream), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(deallocate(plain), CUDA_SUCCESS);
    CHECK_EQUAL(launch(graph, stream), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuStreamSynchronize, CUstream)(stream), CUDA_SUCCESS);
}

TEST(a_refused_allocation_does_not_invalidate_a_capture_in_progress) {
    CUdeviceptr address = 0;
    CUgraph graph = NULL;
    sandbox(100 * MIB, 0);
    use_device(0);
    CUstream capturing = new_stream(), other = new_stream();
    keep_freed_memory(default_pool(0));
    CHECK_EQUAL(CALL(cuMemAllocAsync, CUdeviceptr *, size_t, CUstream)(&address, 60 * MIB, other), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuMemFreeAsync, CUdeviceptr, CUstream)(address, other), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuStreamSynchronize, CUstream)(other), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuStreamBeginCapture_v2, CUstream, CUstreamCaptureMode)(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL),
                CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuMemAllocAsync, CUdeviceptr *, size_t, CUstream)(&address, 200 * MIB, other),
                CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CALL(cuMemAllocAsync, CUdeviceptr *, size_t, CUstream)(&address, 90 * MIB, other), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuStreamEndCapture, CUstream, CUgraph *)(capturing, &graph), CUDA_SUCCESS);
}

/* ---- contexts ---- */

static unsigned long long context_charge(void) {
    struct aliquot_region *region = map_region();
    unsigned long long sum = 0;
    for (int i = 0; i < ALIQUOT_REGION_PROCESSES; i++) {
        sum += region->charge[0][i].context_bytes;
    }
    munmap(region, ALIQUOT_REGION_SIZE);
    return sum;
}

TEST(a_process_is_charged_once_for_its_contexts_from_the_first_to_the_last) {
    CUcontext context = NULL, retained = NULL;
    CUdeviceptr address = 0;
    sandbox_context = 256;
    sandbox(1000 * MIB, 0);
    CHECK_EQUAL(CALL(cuInit, unsigned)(0), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 0);
    use_device(0);
    CHECK_EQUAL(used_in_region(), 256 * MIB);
    CHECK_EQUAL(context_charge(), 256 * MIB);
    CHECK_EQUAL(CALL(cuDevicePrimaryCtxRetain, CUcontext *, CUdevice)(&retained, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuCtxCreate_v2, CUcontext *, unsigned, CUdevice)(&context, 0, 0), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 256 * MIB);
    CHECK_EQUAL(allocate(&address, MIB), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuDevicePrimaryCtxReset_v2, CUdevice)(0), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 257 * MIB);
    CHECK_EQUAL(CALL(cuCtxDestroy_v2, CUcontext)(context), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 0);
    CHECK_EQUAL(context_charge(), 0);
    use_device(0);
    CHECK_EQUAL(used_in_region(), 256 * MIB);
}

TEST(a_context_that_does_not_fit_fails_with_out_of_memory_and_says_why_once) {
    int errors[2], stderr_before = -1;
    char said[400];
    CUcontext context = NULL;
    CUdeviceptr address = 0;
    sandbox_context = 256;
    sandbox(255 * MIB, 0);
    CHECK_EQUAL(CALL(cuInit, unsigned)(0), CUDA_SUCCESS);
    CHECK(pipe(errors) == 0 && (stderr_before = dup(STDERR_FILENO)) >= 0, "pipe");
    CHECK(dup2(errors[1], STDERR_FILENO) >= 0, "dup2");
    CUresult retain = CALL(cuDevicePrimaryCtxRetain, CUcontext *, CUdevice)(&context, 0);
    CUresult create = CALL(cuCtxCreate_v2, CUcontext *, unsigned, CUdevice)(&context, 0, 0);
    CHECK(dup2(stderr_before, STDERR_FILENO) >= 0, "dup2");
    CHECK_EQUAL(retain, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(create, CUDA_ERROR_OUT_OF_MEMORY);
    ssize_t length = read(errors[0], said, sizeof said - 1);
    CHECK(length > 0, "nothing on stderr");
    said[length] = 0;
    CHECK(strcmp(said,
                 "aliquot: a CUDA context takes 256 MiB of this GPU, and the container's limit is 255 MiB; request "
                 "more nvidia.com/gpumem\n") == 0,
          "%s", said);
    CHECK(context == NULL, "%p", (void *)context);
    CHECK_EQUAL(allocate(&address, 1), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQUAL(used_in_region(), 0);
}

TEST(a_context_created_without_the_shim_is_charged_with_the_first_allocation) {
    CUcontext context = NULL;
    CUdeviceptr address = 0;
    sandbox_context = 256;
    sandbox(300 * MIB, 0);
    CHECK_EQUAL(CALL(cuInit, unsigned)(0), CUDA_SUCCESS);
    CHECK_EQUAL(((CUresult(*)(CUcontext *, CUdevice))bare("cuDevicePrimaryCtxRetain"))(&context, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuCtxSetCurrent, CUcontext)(context), CUDA_SUCCESS);
    CHECK_EQUAL(allocate(&address, 45 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(allocate(&address, 44 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 300 * MIB);
    CHECK_EQUAL(deallocate(address), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuDevicePrimaryCtxRelease_v2, CUdevice)(0), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 0);
}

TEST(each_process_is_charged_for_its_own_contexts) {
    int ready[2];
    char byte = 0;
    CUdeviceptr address = 0;
    sandbox_context = 100;
    sandbox(250 * MIB, 0);
    CHECK(pipe(ready) == 0, "pipe");
    pid_t peer = fork();
    if (peer == 0) {
        use_device(0);
        CHECK(write(ready[1], "", 1) == 1, "pipe");
        pause();
    }
    CHECK(read(ready[0], &byte, 1) == 1, "pipe");
    use_device(0);
    CHECK_EQUAL(used_in_region(), 200 * MIB);
    CHECK_EQUAL(allocate(&address, 50 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
    kill(peer, SIGKILL);
    waitpid(peer, NULL, 0);
    CHECK_EQUAL(allocate(&address, 150 * MIB), CUDA_SUCCESS);
}

/* ---- unattributed memory and the peak ---- */

TEST(unattributed_memory_found_by_the_node_agent_counts_as_used) {
    CUdeviceptr address = 0;
    size_t available = 0;
    sandbox(100 * MIB, 0);
    struct aliquot_agent_device *agent = map_agent();
    use_device(0);
    CHECK_EQUAL(allocate(&address, MIB), CUDA_SUCCESS);
    agent->unattributed = 30 * MIB;
    CHECK_EQUAL(free_memory(), 69 * MIB);
    CHECK_EQUAL(allocate(&address, 69 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(allocate(&address, 69 * MIB), CUDA_SUCCESS);
    agent->unattributed = UINT64_MAX;
    CHECK_EQUAL(CALL(cuMemGetInfo_v2, size_t *, size_t *)(&available, NULL), CUDA_SUCCESS);
    CHECK_EQUAL(available, 0);
    CHECK_EQUAL(allocate(&address, 1), CUDA_ERROR_OUT_OF_MEMORY);
    agent->unattributed = 0;
    CHECK_EQUAL(allocate(&address, 30 * MIB), CUDA_SUCCESS);
}

/* Code, variables and padding to pages: the program's charge does not contain them, and cuMemGetInfo's difference is
   not charged, because it is that of all processes. */
TEST(memory_of_unknown_size_counts_once_the_node_agent_reports_it) {
    static const char image[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                                ".visible .global .align 8 .b8 table[20000000];\n"
                                ".visible .entry nothing()\n{\nret;\n}\n";
    CUdeviceptr address = 0;
    void *module = NULL;
    setenv("ALIQUOT_FAKE_PROFILE", "nastiest", 1);
    sandbox_context = 500;
    sandbox(600 * MIB, 0);
    struct aliquot_agent_device *agent = map_agent();
    use_device(0);
    CHECK_EQUAL(allocate(&address, 3 * MIB), CUDA_SUCCESS);
    size_t before = gpu_free_memory();
    CHECK_EQUAL(allocate(&address, 3 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(before - gpu_free_memory(), 4 * MIB);
    CHECK_EQUAL(CALL(cuModuleLoadData, void **, const void *)(&module, image), CUDA_SUCCESS);
    CHECK_EQUAL(before - gpu_free_memory(), 24 * MIB); /* 19.1 MiB for the table, 64 KiB of code, in pages */
    CHECK_EQUAL(used_in_region(), 506 * MIB);
    CHECK_EQUAL(free_memory(), 94 * MIB);
    agent->unattributed = 2 * MIB /* padding */ + 20 * MIB /* the module */;
    CHECK_EQUAL(free_memory(), 72 * MIB);
    CHECK_EQUAL(allocate(&address, 72 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(allocate(&address, 72 * MIB), CUDA_SUCCESS);
}

TEST(a_container_cannot_change_what_the_node_agent_says_by_its_region) {
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 0);
    map_agent()->unattributed = 30 * MIB;
    use_device(0);
    CHECK_EQUAL(free_memory(), 70 * MIB);
    struct aliquot_region *region = map_region();
    memset(region, 0, sizeof *region); /* all that a tenant can do */
    CHECK_EQUAL(allocate(&address, 70 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(allocate(&address, 70 * MIB), CUDA_SUCCESS);
}

TEST(without_the_agents_file_nothing_is_unattributed) {
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 0);
    unlink(sandbox_agent);
    use_device(0);
    CHECK_EQUAL(free_memory(), 100 * MIB);
    CHECK_EQUAL(allocate(&address, 100 * MIB), CUDA_SUCCESS);
}

TEST(the_region_records_the_peak_usage) {
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(allocate(&address, 70 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(deallocate(address), CUDA_SUCCESS);
    CHECK_EQUAL(allocate(&address, 101 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(allocate(&address, 20 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(map_region()->charge[0][0].peak, 70 * MIB);
}
