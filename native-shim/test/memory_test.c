/* Tests of the memory limit from the view of a program: the shim is preloaded, and the tests call the driver. */
#include "sandbox.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

TEST(the_limit_is_exact_to_the_byte) {
    CUdeviceptr first, second, third;
    sandbox(3000 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(allocate(&first, 2900 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(allocate(&second, 100 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(used_in_region(), 2900 * MIB);
    CHECK_EQUAL(allocate(&second, 100 * MIB - 1), CUDA_SUCCESS);
    CHECK_EQUAL(allocate(&third, 2), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(allocate(&third, 1), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 3000 * MIB);
    CHECK_EQUAL(deallocate(first), CUDA_SUCCESS);
    CHECK_EQUAL(allocate(&first, 2900 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(deallocate(first), CUDA_SUCCESS);
    CHECK_EQUAL(deallocate(second), CUDA_SUCCESS);
    CHECK_EQUAL(deallocate(third), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 0);
}

TEST(refused_allocations_are_counted) {
    CUdeviceptr address;
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(allocate(&address, 100 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(map_region()->device[0].denied, 0);
    CHECK_EQUAL(allocate(&address, 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(allocate(&address, 200 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(map_region()->device[0].denied, 2);
}

TEST(a_request_beyond_any_limit_is_refused_without_overflow) {
    CUdeviceptr address = 7;
    size_t pitch = 7;
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(allocate(&address, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(allocate(&address, (size_t)1 << 52), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CALL(cuMemAllocPitch_v2, CUdeviceptr *, size_t *, size_t, size_t,
                     unsigned)(&address, &pitch, (size_t)1 << 33, (size_t)1 << 33, 4),
                CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(address, 7);
    CHECK_EQUAL(pitch, 7);
    CHECK_EQUAL(used_in_region(), 0);
    CHECK_EQUAL(allocate(&address, 100 * MIB), CUDA_SUCCESS);
}

TEST(a_pitched_allocation_is_charged_with_its_pitch_even_one_byte_wide) {
    CUdeviceptr address = 0;
    size_t pitch = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(
        CALL(cuMemAllocPitch_v2, CUdeviceptr *, size_t *, size_t, size_t, unsigned)(&address, &pitch, 1, 1000, 4),
        CUDA_SUCCESS);
    CHECK(pitch > 1, "%zu", pitch);
    CHECK_EQUAL(used_in_region(), pitch * 1000);
    CHECK_EQUAL(deallocate(address), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 0);
}

TEST(a_pitched_allocation_whose_padding_exceeds_the_limit_is_not_charged) {
    CUdeviceptr address = 7;
    size_t pitch = 7;
    sandbox(1 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(
        CALL(cuMemAllocPitch_v2, CUdeviceptr *, size_t *, size_t, size_t, unsigned)(&address, &pitch, 1, 1 << 19, 4),
        CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(address, 7);
    CHECK_EQUAL(pitch, 7);
    CHECK_EQUAL(used_in_region(), 0);
    CHECK_EQUAL(allocate(&address, 1 * MIB), CUDA_SUCCESS);
}

TEST(managed_memory_is_charged_in_full) {
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(CALL(cuMemAllocManaged, CUdeviceptr *, size_t, unsigned)(&address, 100 * MIB + 1, 1),
                CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CALL(cuMemAllocManaged, CUdeviceptr *, size_t, unsigned)(&address, 100 * MIB, 1), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 100 * MIB);
    CHECK_EQUAL(deallocate(address), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 0);
}

TEST(allocations_that_the_driver_refuses_are_not_charged) {
    CUdeviceptr address = 0;
    sandbox((size_t)1 << 42, 0);
    use_device(0);
    CHECK_EQUAL(allocate(&address, (size_t)1 << 41), CUDA_ERROR_OUT_OF_MEMORY); /* more than the GPU has */
    CHECK_EQUAL(allocate(&address, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(allocate(NULL, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(used_in_region(), 0);
}

TEST(without_a_context_allocations_fail_and_nothing_is_charged) {
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 0);
    CHECK_EQUAL(CALL(cuInit, unsigned)(0), CUDA_SUCCESS);
    CHECK_EQUAL(allocate(&address, 1), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQUAL(used_in_region(), 0);
}

/* Else the node agent would take it for a program without the shim. */
TEST(a_process_with_a_context_is_in_the_region_before_it_allocates) {
    sandbox(100 * MIB, 0); /* a context costs nothing by the limit file */
    CHECK_EQUAL(CALL(cuInit, unsigned)(0), CUDA_SUCCESS);
    CHECK_EQUAL(map_region()->header.process_high_water, 0);
    use_device(0);
    CHECK_EQUAL(map_region()->process[0].pid, getpid());
}

TEST(a_free_of_an_unknown_address_reaches_the_driver) {
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(deallocate(0xdead0000), CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr address = 0;
    CHECK_EQUAL(allocate(&address, MIB), CUDA_SUCCESS);
    CHECK_EQUAL(deallocate(address), CUDA_SUCCESS);
    CHECK_EQUAL(deallocate(address), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(used_in_region(), 0);
}

TEST(a_plain_allocation_freed_in_stream_order_is_no_longer_charged) {
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(allocate(&address, 100 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuMemFreeAsync, CUdeviceptr, CUstream)(address, NULL), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 0);
}

/* Runs on the stub only, since the fake driver has no such pools. */
static void check_pool_is_not_charged(CUmemoryPool pool) {
    CUdeviceptr address = 0, plain = 0;
    CHECK_EQUAL(
        CALL(cuMemAllocFromPoolAsync, CUdeviceptr *, size_t, CUmemoryPool, CUstream)(&address, 200 * MIB, pool, NULL),
        CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 0);
    CHECK_EQUAL(allocate(&plain, 100 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuMemFreeAsync, CUdeviceptr, CUstream)(address, NULL), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuMemPoolDestroy, CUmemoryPool)(pool), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 100 * MIB);
    CHECK_EQUAL(deallocate(plain), CUDA_SUCCESS);
}

TEST(host_memory_pools_and_imported_pools_are_not_charged) {
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {CU_MEM_LOCATION_TYPE_HOST, 0}};
    CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0};
    CUmemoryPool pool = NULL;
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(CALL(cuMemPoolCreate, CUmemoryPool *, const CUmemPoolProps *)(&pool, &properties), CUDA_SUCCESS);
    check_pool_is_not_charged(pool);
    CHECK_EQUAL(CALL(cuMemPoolImportFromShareableHandle, CUmemoryPool *, void *, CUmemAllocationHandleType,
                     unsigned long long)(&pool, NULL, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                CUDA_SUCCESS);
    check_pool_is_not_charged(pool);
    CHECK_EQUAL(CALL(cuMemGetDefaultMemPool, CUmemoryPool *, CUmemLocation *,
                     CUmemAllocationType)(&pool, &host, CU_MEM_ALLOCATION_TYPE_PINNED),
                CUDA_SUCCESS);
    check_pool_is_not_charged(pool);
}

TEST(what_a_program_adds_to_the_heap_of_its_kernels_is_charged) {
    CUresult (*set_limit)(CUlimit, size_t) = CALL(cuCtxSetLimit, CUlimit, size_t);
    size_t heap = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(CALL(cuCtxGetLimit, size_t *, CUlimit)(&heap, CU_LIMIT_MALLOC_HEAP_SIZE), CUDA_SUCCESS);
    CHECK_EQUAL(set_limit(CU_LIMIT_MALLOC_HEAP_SIZE, heap + 60 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 60 * MIB);
    CHECK_EQUAL(set_limit(CU_LIMIT_MALLOC_HEAP_SIZE, heap + 100 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(set_limit(CU_LIMIT_STACK_SIZE, 4096), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 60 * MIB);
    CHECK_EQUAL(set_limit(CU_LIMIT_MALLOC_HEAP_SIZE, heap / 2), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 0);
    CHECK_EQUAL(set_limit(CU_LIMIT_MALLOC_HEAP_SIZE, heap + 10 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 10 * MIB);
    CHECK_EQUAL(CALL(cuDevicePrimaryCtxReset_v2, CUdevice)(0), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 0);
}

TEST(imported_memory_of_a_graphics_API_is_charged_and_never_refused) {
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC description = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
                                                    .size = 150 * MIB};
    CUresult (*import)(CUexternalMemory *, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *) =
        CALL(cuImportExternalMemory, CUexternalMemory *, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *);
    CUexternalMemory first = NULL, second = NULL;
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(import(&first, &description), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 150 * MIB);
    CHECK_EQUAL(allocate(&address, 1), CUDA_ERROR_OUT_OF_MEMORY);
    description.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_NVSCIBUF; /* may be of any device */
    CHECK_EQUAL(import(&second, &description), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuDestroyExternalMemory, CUexternalMemory)(first), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuDestroyExternalMemory, CUexternalMemory)(second), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 0);
    CHECK_EQUAL(allocate(&address, 100 * MIB), CUDA_SUCCESS);
}

/* It is charged when its graph is launched. */
TEST(memory_that_is_captured_in_any_way_is_not_charged_at_the_call) {
    static const char *const begin[] = {"cuStreamBeginCapture_v2", "cuStreamBeginCaptureToGraph",
                                        "cuStreamBeginRecaptureToGraph", "cuStreamBeginCaptureToCig"};
    CUresult (*allocate_async)(CUdeviceptr *, size_t, CUstream) =
        CALL(cuMemAllocAsync, CUdeviceptr *, size_t, CUstream);
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    for (size_t i = 0; i < sizeof begin / sizeof begin[0]; i++) {
        for (int per_thread = 0; per_thread < 2; per_thread++) {
            char name[64];
            snprintf(name, sizeof name, "%s%s", begin[i], per_thread ? "_ptsz" : "");
            bool graphics = strcmp(begin[i], "cuStreamBeginCaptureToCig") == 0;
            CHECK_EQUAL(((CUresult(*)())sandbox_function(name))(NULL, NULL, NULL, NULL, NULL, NULL), CUDA_SUCCESS);
            CHECK_EQUAL(allocate_async(&address, MIB, NULL), CUDA_SUCCESS);
            CHECK_EQUAL(used_in_region(), 0);
            snprintf(name, sizeof name, "cuStreamEndCapture%s%s", graphics ? "ToCig" : "", per_thread ? "_ptsz" : "");
            CHECK_EQUAL(((CUresult(*)())sandbox_function(name))(NULL, NULL), CUDA_SUCCESS);
            CHECK_EQUAL(deallocate(address), CUDA_SUCCESS);
            CHECK_EQUAL(allocate_async(&address, MIB, NULL), CUDA_SUCCESS);
            CHECK_EQUAL(used_in_region(), MIB);
            CHECK_EQUAL(deallocate(address), CUDA_SUCCESS);
        }
    }
}

TEST(a_green_context_leaves_no_charge_behind) {
    static uint64_t resource[64];  /* CUdevResource: all multiprocessors */
    const int multiprocessors = 1; /* CU_DEV_RESOURCE_TYPE_SM */
    CUdevResourceDesc description = NULL;
    CUgreenCtx green = NULL;
    CUcontext context = NULL, primary = NULL;
    CUdeviceptr address = 0;
    sandbox_context = 20;
    sandbox(100 * MIB, 0);
    CHECK_EQUAL(CALL(cuInit, unsigned)(0), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuDeviceGetDevResource, CUdevice, void *, int)(0, resource, multiprocessors), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuDevResourceGenerateDesc, CUdevResourceDesc *, void *, unsigned)(&description, resource, 1),
                CUDA_SUCCESS);
    for (int i = 0; i < 3; i++) {
        bool has_primary = i > 0; /* beside the green context */
        if (has_primary) {
            CHECK_EQUAL(CALL(cuDevicePrimaryCtxRetain, CUcontext *, CUdevice)(&primary, 0), CUDA_SUCCESS);
        }
        CHECK_EQUAL(
            CALL(cuGreenCtxCreate, CUgreenCtx *, CUdevResourceDesc, CUdevice, unsigned)(&green, description, 0, 1),
            CUDA_SUCCESS);
        CHECK_EQUAL(CALL(cuCtxFromGreenCtx, CUcontext *, CUgreenCtx)(&context, green), CUDA_SUCCESS);
        CHECK_EQUAL(CALL(cuCtxSetCurrent, CUcontext)(context), CUDA_SUCCESS);
        CHECK_EQUAL(used_in_region(), 20 * MIB);
        CHECK_EQUAL(allocate(&address, 30 * MIB), CUDA_SUCCESS);
        CHECK_EQUAL(allocate(&address, 60 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
        CHECK_EQUAL(CALL(cuGreenCtxDestroy, CUgreenCtx)(green), CUDA_SUCCESS);
        CHECK_EQUAL(used_in_region(), has_primary ? 50 * MIB : 0); /* the memory is the primary context's */
        CHECK_EQUAL(CALL(cuCtxSetCurrent, CUcontext)(has_primary ? primary : NULL), CUDA_SUCCESS);
        if (has_primary && i == 1) {
            CHECK_EQUAL(CALL(cuDevicePrimaryCtxRelease_v2, CUdevice)(0), CUDA_SUCCESS);
        } else if (has_primary) {
            CHECK_EQUAL(deallocate(address), CUDA_SUCCESS);
            CHECK_EQUAL(used_in_region(), 20 * MIB);
            CHECK_EQUAL(CALL(cuDevicePrimaryCtxReset_v2, CUdevice)(0), CUDA_SUCCESS);
        }
        CHECK_EQUAL(used_in_region(), 0);
    }
}

TEST(a_managed_memory_pool_located_on_the_host_is_charged) {
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED,
                                 .location = {CU_MEM_LOCATION_TYPE_HOST, 0}};
    CUmemoryPool pool = NULL;
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(CALL(cuMemPoolCreate, CUmemoryPool *, const CUmemPoolProps *)(&pool, &properties), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuMemAllocFromPoolAsync, CUdeviceptr *, size_t, CUmemoryPool, CUstream)(&address, 100 * MIB + 1,
                                                                                             pool, NULL),
                CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(
        CALL(cuMemAllocFromPoolAsync, CUdeviceptr *, size_t, CUmemoryPool, CUstream)(&address, 100 * MIB, pool, NULL),
        CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 100 * MIB);
}

TEST(destroying_a_context_releases_what_was_allocated_in_it) {
    CUdeviceptr address = 0;
    CUcontext context = NULL;
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(allocate(&address, 10 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuCtxCreate_v2, CUcontext *, unsigned, CUdevice)(&context, 0, 0), CUDA_SUCCESS);
    for (int i = 0; i < 5000; i++) {
        CHECK_EQUAL(allocate(&address, 4096), CUDA_SUCCESS);
    }
    CHECK_EQUAL(used_in_region(), 10 * MIB + 5000 * 4096);
    CHECK_EQUAL(CALL(cuCtxDestroy_v2, CUcontext)(context), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 10 * MIB);
    CHECK_EQUAL(CALL(cuDevicePrimaryCtxReset_v2, CUdevice)(0), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 0);
}

TEST(the_last_release_of_a_primary_context_releases_its_memory) {
    CUdeviceptr address = 0;
    CUcontext context = NULL;
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(CALL(cuDevicePrimaryCtxRetain, CUcontext *, CUdevice)(&context, 0), CUDA_SUCCESS);
    CHECK_EQUAL(allocate(&address, MIB), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuDevicePrimaryCtxRelease_v2, CUdevice)(0), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), MIB);
    CHECK_EQUAL(CALL(cuDevicePrimaryCtxRelease_v2, CUdevice)(0), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 0);
}

TEST(programs_see_the_limit_as_the_memory_of_the_GPU) {
    CUdeviceptr address = 0;
    size_t available = 0, total = 0;
    sandbox(3000 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(CALL(cuDeviceTotalMem_v2, size_t *, CUdevice)(&total, 0), CUDA_SUCCESS);
    CHECK_EQUAL(total, 3000 * MIB);
    CHECK_EQUAL(allocate(&address, 1000 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuMemGetInfo_v2, size_t *, size_t *)(&available, &total), CUDA_SUCCESS);
    CHECK_EQUAL(available, 2000 * MIB);
    CHECK_EQUAL(total, 3000 * MIB);
}

TEST(cuMemGetInfo_accepts_NULL_pointers) {
    size_t value = 0;
    sandbox(3000 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(CALL(cuMemGetInfo_v2, size_t *, size_t *)(NULL, &value), CUDA_SUCCESS);
    CHECK_EQUAL(value, 3000 * MIB);
    CHECK_EQUAL(CALL(cuMemGetInfo_v2, size_t *, size_t *)(&value, NULL), CUDA_SUCCESS);
    CHECK_EQUAL(value, 3000 * MIB);
    CHECK_EQUAL(CALL(cuMemGetInfo_v2, size_t *, size_t *)(NULL, NULL), CUDA_SUCCESS);
}

TEST(a_GPU_that_is_not_in_the_limit_file_has_no_memory) {
    CUdeviceptr address = 0;
    size_t total = 7;
    sandbox(3000 * MIB, 0);
    use_device(1);
    CHECK_EQUAL(CALL(cuDeviceTotalMem_v2, size_t *, CUdevice)(&total, 1), CUDA_SUCCESS);
    CHECK_EQUAL(total, 0);
    CHECK_EQUAL(allocate(&address, 1), CUDA_ERROR_OUT_OF_MEMORY);
    use_device(0);
    CHECK_EQUAL(allocate(&address, 3000 * MIB), CUDA_SUCCESS);
}

TEST(two_GPUs_have_separate_limits) {
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 200 * MIB);
    use_device(1);
    CHECK_EQUAL(allocate(&address, 200 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(allocate(&address, 1), CUDA_ERROR_OUT_OF_MEMORY);
    use_device(0);
    CHECK_EQUAL(free_memory(), 100 * MIB);
    CHECK_EQUAL(allocate(&address, 100 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(allocate(&address, 1), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST(two_processes_share_one_limit) {
    CUdeviceptr address = 0;
    int ready[2], go[2];
    char byte = 0;
    sandbox(100 * MIB, 0);
    CHECK(pipe(ready) == 0 && pipe(go) == 0, "pipe");
    pid_t peer = fork();
    if (peer == 0) {
        use_device(0);
        CHECK_EQUAL(allocate(&address, 60 * MIB), CUDA_SUCCESS);
        CHECK(write(ready[1], "", 1) == 1 && read(go[0], &byte, 1) == 1, "pipe");
        CHECK_EQUAL(free_memory(), 0);
        exit(EXIT_SUCCESS);
    }
    CHECK(read(ready[0], &byte, 1) == 1, "pipe");
    use_device(0);
    CHECK_EQUAL(allocate(&address, 40 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(free_memory(), 40 * MIB);
    CHECK_EQUAL(allocate(&address, 40 * MIB), CUDA_SUCCESS);
    CHECK(write(go[1], "", 1) == 1, "pipe");
    int status = 0;
    waitpid(peer, &status, 0);
    CHECK_EQUAL(status, 0);
    CHECK_EQUAL(allocate(&address, 60 * MIB), CUDA_SUCCESS); /* the shim reaps the peer before it would refuse */
}

TEST(a_changed_limit_file_takes_effect_within_a_second) {
    CUdeviceptr first = 0, second = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(allocate(&first, 100 * MIB), CUDA_SUCCESS);
    write_limits(200 * MIB, 0);
    usleep(150000);
    CHECK_EQUAL(allocate(&second, 100 * MIB), CUDA_SUCCESS);
    write_limits(50 * MIB, 0);
    usleep(150000);
    CHECK_EQUAL(free_memory(), 0);
    CHECK_EQUAL(deallocate(second), CUDA_SUCCESS);
    CHECK_EQUAL(allocate(&second, 1), CUDA_ERROR_OUT_OF_MEMORY); /* allocations stay, further ones are refused */
    CHECK_EQUAL(deallocate(first), CUDA_SUCCESS);
    CHECK_EQUAL(allocate(&first, 50 * MIB), CUDA_SUCCESS);
}

TEST(the_last_valid_limits_stay_when_the_limit_file_becomes_invalid_or_missing) {
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    write_file(sandbox_limits, "nonsense", 8);
    usleep(150000);
    CHECK_EQUAL(allocate(&address, 100 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
    unlink(sandbox_limits);
    usleep(150000);
    CHECK_EQUAL(allocate(&address, 100 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(allocate(&address, 100 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(deallocate(address), CUDA_SUCCESS);
    write_limits(300 * MIB, 0);
    usleep(150000);
    CHECK_EQUAL(allocate(&address, 300 * MIB), CUDA_SUCCESS);
}

TEST(a_forked_child_gets_its_own_slot_and_does_not_change_its_parents) {
    CUdeviceptr address = 0, in_parent = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(allocate(&in_parent, 30 * MIB), CUDA_SUCCESS);
    IN_CHILD({
        CHECK_EQUAL(used_in_region(), 30 * MIB);
        use_device(0);
        CHECK_EQUAL(allocate(&address, 70 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
        CHECK_EQUAL(allocate(&address, 70 * MIB), CUDA_SUCCESS);
        CHECK_EQUAL(used_in_region(), 100 * MIB);
    });
    CHECK_EQUAL(allocate(&address, 70 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 100 * MIB);
    CHECK_EQUAL(deallocate(in_parent), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 70 * MIB);
}

TEST(a_dead_parents_memory_is_free_while_its_child_runs) {
    CUdeviceptr address = 0;
    int done[2];
    char byte = 0;
    sandbox(100 * MIB, 0);
    CHECK(pipe(done) == 0, "pipe");
    IN_CHILD({
        use_device(0);
        CHECK_EQUAL(allocate(&address, 100 * MIB), CUDA_SUCCESS);
        int running[2];
        CHECK(pipe(running) == 0, "pipe");
        if (fork() == 0) {
            CHECK(write(running[1], "", 1) == 1, "pipe"); /* before it runs, it may hold its parent's locks */
            close(done[1]);
            CHECK(read(done[0], &byte, 1) == 0, "end of file"); /* runs until the test has ended */
            exit(EXIT_SUCCESS);
        }
        CHECK(read(running[0], &byte, 1) == 1, "pipe");
    });
    use_device(0);
    CHECK_EQUAL(allocate(&address, 100 * MIB), CUDA_SUCCESS);
}

TEST(a_program_that_is_started_by_fork_and_exec_inherits_nothing) {
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(allocate(&address, 100 * MIB), CUDA_SUCCESS);
    IN_CHILD({
        execl("/bin/sh", "sh", "-c", "test -z \"$(ls -l /proc/$$/fd | grep region)\"", NULL);
        exit(EXIT_FAILURE);
    });
}

struct race {
    atomic_ullong held;
    atomic_ullong peak;
    atomic_int refused;
};

static void *race_for_memory(void *argument) {
    struct race *race = argument;
    use_device(0);
    unsigned seed = (unsigned)(uintptr_t)&seed;
    for (int i = 0; i < 2000; i++) {
        CUdeviceptr address = 0;
        size_t bytes = (size_t)(1 + rand_r(&seed) % 40) * MIB;
        CUresult result = allocate(&address, bytes);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) {
            race->refused++;
            continue;
        }
        CHECK_EQUAL(result, CUDA_SUCCESS);
        unsigned long long held = race->held += bytes;
        unsigned long long peak = race->peak;
        while (held > peak && !atomic_compare_exchange_weak(&race->peak, &peak, held)) {
        }
        if (i % 16 == 0) {
            sched_yield();
        }
        race->held -= bytes;
        CHECK_EQUAL(deallocate(address), CUDA_SUCCESS);
    }
    return NULL;
}

TEST(eight_threads_that_race_for_one_limit_never_exceed_it) {
    static struct race race;
    pthread_t threads[8];
    sandbox(100 * MIB, 0);
    use_device(0);
    for (size_t i = 0; i < 8; i++) {
        CHECK_EQUAL(pthread_create(&threads[i], NULL, race_for_memory, &race), 0);
    }
    for (size_t i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("peak %llu bytes, %d requests refused\n", race.peak, race.refused);
    CHECK(race.peak <= 100 * MIB, "%llu", race.peak);
    CHECK_EQUAL(used_in_region(), 0);
}

/* Three of these threads allocate 75 MiB together, so every request fits the limit. */
static void *allocate_25_MiB_repeatedly(void *argument) {
    (void)argument;
    use_device(0);
    for (int i = 0; i < 20000; i++) {
        CUdeviceptr address = 0;
        CHECK_EQUAL(allocate(&address, 25 * MIB), CUDA_SUCCESS);
        CHECK_EQUAL(deallocate(address), CUDA_SUCCESS);
    }
    return NULL;
}

static void *request_too_much_repeatedly(void *stop) {
    use_device(0);
    while (!atomic_load((atomic_bool *)stop)) {
        CUdeviceptr address = 0;
        /* Never fits beside the 10 MiB in use. While the request is undecided, the other requests do not fit either. */
        CHECK_EQUAL(allocate(&address, 95 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    }
    return NULL;
}

TEST(a_request_that_fits_is_not_refused_because_of_one_that_does_not) {
    static atomic_bool stop;
    CUdeviceptr address = 0;
    pthread_t successful[3], refused[2];
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(allocate(&address, 10 * MIB), CUDA_SUCCESS);
    for (size_t i = 0; i < 2; i++) {
        CHECK_EQUAL(pthread_create(&refused[i], NULL, request_too_much_repeatedly, &stop), 0);
    }
    for (size_t i = 0; i < 3; i++) {
        CHECK_EQUAL(pthread_create(&successful[i], NULL, allocate_25_MiB_repeatedly, NULL), 0);
    }
    for (size_t i = 0; i < 3; i++) {
        pthread_join(successful[i], NULL);
    }
    stop = true;
    for (size_t i = 0; i < 2; i++) {
        pthread_join(refused[i], NULL);
    }
    CHECK_EQUAL(used_in_region(), 10 * MIB);
}

TEST(a_process_whose_request_fits_is_not_refused_because_of_others_that_do_not) {
    pid_t refused[2], successful[3];
    sandbox(100 * MIB, 0);
    for (size_t i = 0; i < 2; i++) {
        refused[i] = fork();
        if (refused[i] == 0) {
            static atomic_bool never;
            CUdeviceptr address = 0;
            use_device(0);
            CHECK_EQUAL(allocate(&address, 6 * MIB), CUDA_SUCCESS);
            request_too_much_repeatedly(&never);
        }
    }
    for (size_t i = 0; i < 3; i++) {
        successful[i] = fork();
        if (successful[i] == 0) {
            use_device(0);
            allocate_25_MiB_repeatedly(NULL);
            exit(EXIT_SUCCESS);
        }
    }
    int failed = 0;
    for (size_t i = 0; i < 3; i++) {
        int status = 0;
        waitpid(successful[i], &status, 0);
        failed += status != 0;
    }
    for (size_t i = 0; i < 2; i++) {
        kill(refused[i], SIGKILL);
        waitpid(refused[i], NULL, 0);
    }
    CHECK_EQUAL(failed, 0);
}

TEST(a_hundred_thousand_live_allocations_are_tracked) {
    enum { COUNT = 100000 };
    static CUdeviceptr addresses[COUNT];
    sandbox(3000 * MIB, 0);
    use_device(0);
    CUresult (*alloc)(CUdeviceptr *, size_t) = CALL(cuMemAlloc_v2, CUdeviceptr *, size_t);
    CUresult (*dealloc)(CUdeviceptr) = CALL(cuMemFree_v2, CUdeviceptr);
    for (size_t i = 0; i < COUNT; i++) {
        CHECK_EQUAL(alloc(&addresses[i], i % 1000 + 1), CUDA_SUCCESS);
    }
    CHECK_EQUAL(used_in_region(), COUNT / 1000 * (1000 * 1001 / 2));
    for (size_t i = 0; i < COUNT; i += 2) {
        CHECK_EQUAL(dealloc(addresses[i]), CUDA_SUCCESS);
    }
    for (size_t i = 1; i < COUNT; i += 2) {
        CHECK_EQUAL(dealloc(addresses[COUNT - i]), CUDA_SUCCESS);
    }
    CHECK_EQUAL(used_in_region(), 0);
}

TEST(errno_is_preserved_by_calls_that_succeed_and_calls_that_fail) {
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 0);
    sandbox_function("cuInit");
    errno = 4711;
    use_device(0);
    CHECK_EQUAL(allocate(&address, MIB), CUDA_SUCCESS);
    CHECK_EQUAL(allocate(&address, 100 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    usleep(150000);
    errno = 4711;
    CHECK_EQUAL(deallocate(address), CUDA_SUCCESS);
    free_memory();
    CHECK_EQUAL(errno, 4711);
}

TEST(a_stopped_process_delays_a_refusal_only_for_a_bounded_time) {
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(allocate(&address, MIB), CUDA_SUCCESS);
    int fd = open(sandbox_region, O_RDWR | O_CLOEXEC);
    struct flock lock = {.l_type = F_WRLCK, .l_start = ALIQUOT_REGION_DECISION_LOCK, .l_len = 1};
    CHECK(fcntl(fd, F_OFD_SETLK, &lock) == 0, "the decision lock"); /* as if a process were stopped while it decides */
    double start = seconds();
    CHECK_EQUAL(allocate(&address, 100 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(seconds() - start < 10, "%f s", seconds() - start);
}

TEST(the_shim_keeps_no_descriptor_that_a_program_could_close) {
    CUdeviceptr address = 0;
    struct stat status, region;
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(allocate(&address, 60 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(allocate(&address, 60 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(stat(sandbox_region, &region) == 0, "%s", sandbox_region);
    for (int fd = 0; fd < 256; fd++) {
        CHECK(fstat(fd, &status) != 0 || status.st_ino != region.st_ino || status.st_dev != region.st_dev, "%d", fd);
    }
    IN_CHILD({
        execl("/proc/self/exe", "memory_test", "helper_that_gets_40_MiB_and_no_more", NULL);
        exit(EXIT_FAILURE);
    });
    CHECK_EQUAL(used_in_region(), 60 * MIB + 40 * MIB); /* and the child did not take the parent for dead */
}

TEST(a_process_that_forges_charges_cannot_exceed_the_limit) {
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(allocate(&address, 60 * MIB), CUDA_SUCCESS);
    struct aliquot_region *region = map_region();
    memset(region->charge, 0, sizeof region->charge);
    region->header.process_high_water = 0;
    CHECK_EQUAL(allocate(&address, 60 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    for (int i = 0; i < ALIQUOT_REGION_PROCESSES; i++) {
        region->charge[0][i].word = (uint64_t) - (int64_t)(60 * MIB);
    }
    CHECK_EQUAL(allocate(&address, 60 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(free_memory() <= 40 * MIB, 1);
}

TEST(charges_of_dead_processes_are_removed) {
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(allocate(&address, MIB), CUDA_SUCCESS);
    struct aliquot_region *region = map_region();
    region->header.process_high_water = 0xffffffff;
    for (int i = 1; i < ALIQUOT_REGION_PROCESSES; i++) {
        region->charge[0][i].word = UINT64_MAX;
    }
    CHECK_EQUAL(allocate(&address, 99 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(used_in_region(), 100 * MIB);
}

TEST(a_damaged_header_is_repaired) {
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 0);
    char garbage[4096];
    memset(garbage, 0xa5, sizeof garbage);
    memset(garbage + 192, 0, sizeof garbage - 192);
    write_file(sandbox_region, garbage, sizeof garbage);
    use_device(0);
    CHECK_EQUAL(allocate(&address, 100 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(allocate(&address, 100 * MIB), CUDA_SUCCESS);
    struct stat status;
    CHECK(stat(sandbox_region, &status) == 0, "%s", sandbox_region);
    CHECK_EQUAL(status.st_size, ALIQUOT_REGION_SIZE);
    struct aliquot_region *region = map_region();
    CHECK_EQUAL(region->header.magic, ALIQUOT_REGION_MAGIC);
    CHECK_EQUAL(region->header.total_size, ALIQUOT_REGION_SIZE);
    CHECK_EQUAL(region->header.charge_size, 64);
}

TEST(a_half_written_device_entry_is_completed) {
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 0);
    static struct aliquot_region image;
    memcpy(image.device[0].uuid, uuid_of(0)->bytes, 8); /* a process was killed after the first half */
    write_file(sandbox_region, &image, sizeof image);
    use_device(0);
    CHECK_EQUAL(allocate(&address, 100 * MIB), CUDA_SUCCESS);
    struct aliquot_region *region = map_region();
    CHECK(memcmp(region->device[0].uuid, uuid_of(0)->bytes, 16) == 0, "the UUID");
    CHECK_EQUAL(region->device[1].uuid_half[0], 0);
    CHECK_EQUAL(used_in_region(), 100 * MIB);
}

/* Returns the result of cuInit, and in `line` what the shim printed on stderr. */
static CUresult init_and_capture(char *line, size_t size) {
    int pipe_ends[2], saved = dup(STDERR_FILENO);
    CHECK(pipe(pipe_ends) == 0, "pipe");
    sandbox_function("cuInit");
    dup2(pipe_ends[1], STDERR_FILENO);
    CUresult result = CALL(cuInit, unsigned)(0);
    CUresult again = CALL(cuInit, unsigned)(0);
    dup2(saved, STDERR_FILENO);
    close(pipe_ends[1]);
    ssize_t length = read(pipe_ends[0], line, size - 1);
    line[length < 0 ? 0 : length] = 0;
    CHECK_EQUAL(again, result);
    return result;
}

HELPER(helper_that_gets_40_MiB_and_no_more) {
    CUdeviceptr address = 0;
    join_sandbox();
    CHECK_EQUAL(allocate(&address, 40 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(allocate(&address, 40 * MIB), CUDA_SUCCESS);
}

static void check_fails_closed(const char *reason) {
    char line[4096];
    CUdeviceptr address = 0;
    CHECK_EQUAL(init_and_capture(line, sizeof line), CUDA_ERROR_NOT_PERMITTED);
    CHECK(strncmp(line, "aliquot: ", 9) == 0 && strchr(line, '\n') == line + strlen(line) - 1, "found: %s", line);
    CHECK(strstr(line, reason) != NULL, "%s in: %s", reason, line);
    CHECK_EQUAL(allocate(&address, 1), CUDA_ERROR_NOT_PERMITTED);
}

static void check_fails_closed_with(const void *limits, size_t length, const char *reason) {
    sandbox_empty();
    write_file(sandbox_region, "", 0);
    write_file(sandbox_limits, limits, length);
    check_fails_closed(reason);
}

TEST(an_empty_limit_file_fails_closed) {
    check_fails_closed_with("", 0, "expected GPU-<UUID");
}

TEST(a_limit_file_of_10_MB_fails_closed) {
    size_t length = 10000000;
    char *text = malloc(length);
    memset(text, 'x', length);
    check_fails_closed_with(text, length, "at most 65536 bytes");
}

TEST(a_limit_file_that_is_a_folder_fails_closed) {
    sandbox_empty();
    write_file(sandbox_region, "", 0);
    CHECK(mkdir(sandbox_limits, 0777) == 0, "%s", sandbox_limits);
    check_fails_closed("cannot be read");
    rmdir(sandbox_limits);
}

TEST(a_missing_limit_file_beside_a_region_fails_closed) {
    sandbox_empty();
    write_file(sandbox_region, "", 0);
    check_fails_closed("expected here");
}

TEST(a_missing_region_fails_closed) {
    sandbox_empty();
    write_limits(100 * MIB, 0);
    check_fails_closed("cannot be opened");
}

TEST(any_user_that_can_write_the_region_is_limited_and_other_users_get_an_error) {
    CUdeviceptr address = 0;
    if (getuid() != 0) {
        SKIP("only root can change its user ID");
    }
    sandbox(100 * MIB, 0);
    CHECK(chmod(sandbox_folder, 0755) == 0 && chmod(sandbox_region, 0666) == 0, "modes");
    IN_CHILD({
        CHECK(setuid(65534) == 0, "setuid");
        use_device(0);
        CHECK_EQUAL(allocate(&address, 100 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
        CHECK_EQUAL(allocate(&address, 100 * MIB), CUDA_SUCCESS);
    });
    CHECK(chmod(sandbox_region, 0644) == 0, "mode");
    IN_CHILD({
        CHECK(setuid(65534) == 0, "setuid");
        check_fails_closed("expected mode 0666");
    });
}

TEST(a_region_of_another_version_fails_closed) {
    static struct aliquot_region image = {.header = {.magic = ALIQUOT_REGION_MAGIC, .version = 2}};
    sandbox_empty();
    write_limits(100 * MIB, 0);
    write_file(sandbox_region, &image, sizeof image);
    check_fails_closed("another version");
}

TEST(a_region_without_a_free_device_entry_fails_closed) {
    static struct aliquot_region image;
    memset(image.device, 0x77, sizeof image.device);
    sandbox_empty();
    write_limits(100 * MIB, 0);
    write_file(sandbox_region, &image, sizeof image);
    check_fails_closed("no free entry for a GPU");
}

TEST(a_region_that_is_a_device_fails_closed) {
    sandbox_empty();
    setenv("ALIQUOT_REGION", "/dev/null", 1);
    write_limits(100 * MIB, 0);
    check_fails_closed("not a regular file");
}

TEST(without_limit_file_and_region_calls_pass_through_unchanged) {
    CUdeviceptr address = 0;
    size_t total = 0;
    char line[4096];
    sandbox_empty();
    CHECK_EQUAL(init_and_capture(line, sizeof line), CUDA_SUCCESS);
    CHECK_EQUAL(line[0], 0);
    use_device(0);
    CHECK_EQUAL(allocate(&address, 4000 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuDeviceTotalMem_v2, size_t *, CUdevice)(&total, 0), CUDA_SUCCESS);
    CHECK(total > 4000 * MIB, "%zu", total);
    CHECK_EQUAL(deallocate(address), CUDA_SUCCESS);
}

TEST(without_ALIQUOT_REGION_each_process_has_the_limit_for_itself) {
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 0);
    unsetenv("ALIQUOT_REGION");
    use_device(0);
    CHECK_EQUAL(allocate(&address, 100 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(allocate(&address, 100 * MIB), CUDA_SUCCESS);
    IN_CHILD({
        use_device(0);
        CHECK_EQUAL(allocate(&address, 100 * MIB), CUDA_SUCCESS);
    });
}
