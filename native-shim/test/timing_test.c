/* Tests of programs under a compute limit that measure kernels by timing events, or only copy, on the fake driver and
   in virtual time. */
#include "kernel.h"

#include <math.h>
#include <pthread.h>
#include <time.h>

static void launch_on(CUstream stream, uint64_t nanoseconds) {
    CHECK_EQUAL(launch(stream, 1, nanoseconds), CUDA_SUCCESS);
}

static CUevent new_event(unsigned flags) {
    CUevent event = NULL;
    CHECK_EQUAL(CALL(cuEventCreate, CUevent *, unsigned)(&event, flags), CUDA_SUCCESS);
    return event;
}

static void record(CUevent event) {
    CHECK_EQUAL(CALL(cuEventRecord, CUevent, CUstream)(event, NULL), CUDA_SUCCESS);
}

static double elapsed_ms(CUevent start, CUevent end) {
    float ms = 0;
    CHECK_EQUAL(CALL(cuEventSynchronize, CUevent)(end), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuEventElapsedTime, float *, CUevent, CUevent)(&ms, start, end), CUDA_SUCCESS);
    return (double)ms;
}

static char clock_path[] = "/tmp/aliquot-timing-XXXXXX";

/* A process with 30 percent of the GPU. */
static void begin(void) {
    int fd = mkstemp(clock_path);
    CHECK(fd >= 0, "cannot create the clock file");
    close(fd);
    setenv("ALIQUOT_VIRTUAL_TIME", clock_path, 1);
    setenv("ALIQUOT_VIRTUAL_TIME_PARTICIPANTS", "1", 1);
    sandbox(100 * MIB, 0);
    use_device(0);
}

/* Says in the arbiter's place that no other container uses the GPU. */
static void *say_alone(void *argument) {
    struct aliquot_agent_device *device = argument;
    for (;;) {
        struct timespec period = {.tv_nsec = 20000000};
        __atomic_store_n(&device->active, ALIQUOT_GRANT(seconds() * 1e3, 1), __ATOMIC_RELAXED);
        nanosleep(&period, NULL);
    }
    return NULL;
}

/* The same, and it is throttled, as in training. */
static void begin_throttled(void) {
    pthread_t arbiter;
    begin();
    CHECK_EQUAL(pthread_create(&arbiter, NULL, say_alone, map_agent()), 0);
    load_kernel();
    for (int i = 0; i < 300; i++) {
        launch_on(NULL, 1000000);
    }
    CHECK(map_region()->device[0].throttled > 0, "launches were throttled");
    unlink(clock_path);
}

TEST(an_autotuner_measures_each_candidate_without_the_time_for_which_launches_are_throttled) {
    begin_throttled();
    CUevent start = new_event(0), end = new_event(0), other = new_event(2 /* CU_EVENT_DISABLE_TIMING */);
    double begun = seconds(), used = 0;
    for (int candidate = 0; candidate < 40; candidate++) {
        uint64_t ns = 1000000 + 100000 * (uint64_t)(candidate % 7);
        for (int repetition = 0; repetition < 5; repetition++) {
            launch_on(NULL, 300000); /* clears the cache */
            record(other);
            record(start);
            launch_on(NULL, ns);
            record(end);
            double ms = elapsed_ms(start, end);
            CHECK(fabs(ms - (double)ns / 1e6) < 0.1, "candidate %d takes %.3f ms instead of %.3f", candidate, ms,
                  (double)ns / 1e6);
            used += ms / 1e3 + 0.0003;
        }
    }
    double share = used / (seconds() - begun);
    CHECK(share > 0.27 && share < 0.32, "the program got %.3f of the GPU", share);
}

TEST(ten_launches_between_two_events_take_ten_times_as_long_as_one) {
    begin_throttled();
    CUevent start = new_event(0), end = new_event(0);
    for (int candidate = 0; candidate < 20; candidate++) {
        record(start);
        for (int i = 0; i < 10; i++) {
            launch_on(NULL, 1500000);
        }
        record(end);
        double ms = elapsed_ms(start, end);
        CHECK(fabs(ms - 15) < 0.3, "%.3f ms", ms);
    }
}

/* ---- captures ---- */

static uint64_t charged_after(double pause) {
    struct timespec time = {.tv_nsec = (long)(pause * 1e9)};
    CHECK_EQUAL(nanosleep(&time, NULL), 0);
    return map_region()->device[0].gpu_time;
}

/* A batch of kernels is charged once an event after its last kernel has completed. Such an event would become part of a
   graph if the driver captured the stream already, and the batch could not be measured. */
TEST(kernels_before_a_capture_on_their_stream_are_measured_while_it_captures) {
    CUstream stream = NULL;
    void *graph = NULL;
    size_t nodes = 0;
    begin_throttled();
    CHECK_EQUAL(CALL(cuStreamCreate, CUstream *, unsigned)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    for (int i = 0; i < 1000; i++) { /* the shim learns that they are short */
        launch_on(stream, 100000);
    }
    CHECK_EQUAL(CALL(cuCtxSynchronize, void)(), CUDA_SUCCESS);
    uint64_t before = charged_after(0.1);
    for (int i = 0; i < 3; i++) { /* their batch stays open; some of those before may be in it, too */
        launch_on(stream, 100000);
    }
    CHECK_EQUAL(CALL(cuStreamBeginCapture_v2, CUstream, CUstreamCaptureMode)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
                CUDA_SUCCESS);
    uint64_t charged = charged_after(0.05) - before;
    CHECK(charged > 290000 && charged < 1000000, "3 kernels of 0.1 ms were charged %.3f ms", (double)charged / 1e6);
    CHECK_EQUAL(CALL(cuStreamEndCapture, CUstream, void **)(stream, &graph), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuGraphGetNodes, void *, void **, size_t *)(graph, NULL, &nodes), CUDA_SUCCESS);
    CHECK_EQUAL(nodes, 0);
}

/* ---- copies ---- */

enum { COPIED = 80 * 1024 * 1024, ROWS = 1024 };

/* On the simulated GPU: it copies at 816 GB/s, after 2 us. */
static const double copy_seconds = 2e-6 + COPIED / 815.616e9;

/* The share of the GPU that a program gets in 2 s by copying a GPU's memory, to the same place, which costs the
   simulated GPU's host nothing. */
static void check_share(CUresult (*copy)(CUdeviceptr address)) {
    CUdeviceptr address = 0;
    begin();
    CHECK_EQUAL(allocate(&address, COPIED), CUDA_SUCCESS);
    /* The GPU's clock may be ahead: the test before this one began at the same time. */
    CHECK_EQUAL(copy(address), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuCtxSynchronize, void)(), CUDA_SUCCESS);
    double start = seconds(), copies = 0;
    while (seconds() - start < 2) {
        for (int i = 0; i < 10; i++, copies++) {
            CHECK_EQUAL(copy(address), CUDA_SUCCESS);
        }
        CHECK_EQUAL(CALL(cuCtxSynchronize, void)(), CUDA_SUCCESS);
    }
    double share = copies * copy_seconds / (seconds() - start);
    printf("%.0f copies, %.3f of the GPU\n", copies, share);
    CHECK(share > 0.28 && share < 0.33, "%.3f of the GPU instead of 0.3", share);
    unlink(clock_path);
}

static CUresult copy_async(CUdeviceptr address) {
    return CALL(cuMemcpyAsync, CUdeviceptr, CUdeviceptr, size_t, CUstream)(address, address, COPIED, NULL);
}

TEST(a_program_that_only_copies_by_cuMemcpyAsync_within_the_GPU_gets_its_share) {
    check_share(copy_async);
}

static CUresult copy_synchronously(CUdeviceptr address) {
    return CALL(cuMemcpyDtoD_v2, CUdeviceptr, CUdeviceptr, size_t)(address, address, COPIED);
}

TEST(a_program_that_only_copies_synchronously_within_the_GPU_gets_its_share) {
    check_share(copy_synchronously);
}

static CUresult copy_rows(CUdeviceptr address) {
    const CUDA_MEMCPY2D_v2 copy = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                                   .srcDevice = address,
                                   .srcPitch = COPIED / ROWS,
                                   .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                                   .dstDevice = address,
                                   .dstPitch = COPIED / ROWS,
                                   .WidthInBytes = COPIED / ROWS,
                                   .Height = ROWS};
    return CALL(cuMemcpy2DAsync_v2, const CUDA_MEMCPY2D_v2 *, CUstream)(&copy, NULL);
}

TEST(a_program_that_only_copies_rows_within_the_GPU_gets_its_share) {
    check_share(copy_rows);
}

TEST(the_time_of_synchronous_copies_to_the_host_is_not_taken_for_that_of_the_kernels_before_them) {
    enum { BYTES = 4 * 1024 * 1024, PAIRS = 100 };
    static char host[BYTES];
    CUdeviceptr address = 0;
    begin_throttled();
    CHECK_EQUAL(allocate(&address, BYTES), CUDA_SUCCESS);
    uint64_t before = map_region()->device[0].gpu_time;
    for (int i = 0; i < PAIRS; i++) {
        launch_on(NULL, 100000);
        CHECK_EQUAL(CALL(cuMemcpyDtoH_v2, void *, CUdeviceptr, size_t)(host, address, BYTES), CUDA_SUCCESS);
    }
    double ms = (double)(map_region()->device[0].gpu_time - before) / 1e6;
    printf("%.1f ms\n", ms);
    CHECK(ms > 9 && ms < 12.5, "%d kernels of 0.1 ms were charged %.1f ms", PAIRS, ms);
}
