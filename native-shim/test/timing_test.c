/* Tests of programs that measure kernels by timing events under a compute limit, on the fake driver and in virtual
 * time. */
#include "sandbox.h"

#include <math.h>
#include <time.h>

static const char image[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                            ".visible .entry aliquot_busy(.param .u64 nanoseconds)\n{\n    ret;\n}\n";

static void *function;

static void launch(uint64_t nanoseconds) {
    void *parameters[] = {&nanoseconds};
    CHECK_EQUAL(CALL(cuLaunchKernel, void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     void *, void **, void **)(function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL),
                CUDA_SUCCESS);
}

static CUevent new_event(unsigned flags) {
    CUevent event = NULL;
    CHECK_EQUAL(CALL(cuEventCreate, CUevent *, unsigned)(&event, flags), CUDA_SUCCESS);
    return event;
}

static void record(CUevent event) {
    CHECK_EQUAL(CALL(cuEventRecord, CUevent, CUstream)(event, NULL), CUDA_SUCCESS);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double elapsed_ms(CUevent start, CUevent end) {
    float ms = 0;
    CHECK_EQUAL(CALL(cuEventSynchronize, CUevent)(end), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuEventElapsedTime, float *, CUevent, CUevent)(&ms, start, end), CUDA_SUCCESS);
    return (double)ms;
}

/* A process with 30 percent of the GPU that is throttled, as in training. */
static void begin(void) {
    static char clock_path[] = "/tmp/aliquot-timing-XXXXXX";
    void *module = NULL;
    int fd = mkstemp(clock_path);
    CHECK(fd >= 0, "cannot create the clock file");
    close(fd);
    setenv("ALIQUOT_VIRTUAL_TIME", clock_path, 1);
    setenv("ALIQUOT_VIRTUAL_TIME_PARTICIPANTS", "1", 1);
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(CALL(cuModuleLoadData, void **, const void *)(&module, image), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuModuleGetFunction, void **, void *, const char *)(&function, module, "aliquot_busy"),
                CUDA_SUCCESS);
    for (int i = 0; i < 300; i++) {
        launch(1000000);
    }
    CHECK(map_region()->device[0].throttled > 0, "launches were throttled");
    unlink(clock_path);
}

TEST(an_autotuner_measures_each_candidate_without_the_time_for_which_launches_are_throttled) {
    begin();
    CUevent start = new_event(0), end = new_event(0), other = new_event(2 /* CU_EVENT_DISABLE_TIMING */);
    double begun = seconds(), used = 0;
    for (int candidate = 0; candidate < 40; candidate++) {
        uint64_t ns = 1000000 + 100000 * (uint64_t)(candidate % 7);
        for (int repetition = 0; repetition < 5; repetition++) {
            launch(300000); /* clears the cache */
            record(other);
            record(start);
            launch(ns);
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
    begin();
    CUevent start = new_event(0), end = new_event(0);
    for (int candidate = 0; candidate < 20; candidate++) {
        record(start);
        for (int i = 0; i < 10; i++) {
            launch(1500000);
        }
        record(end);
        double ms = elapsed_ms(start, end);
        CHECK(fabs(ms - 15) < 0.3, "%.3f ms", ms);
    }
}
