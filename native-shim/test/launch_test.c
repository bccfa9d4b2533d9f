/* Tests of launches under a compute limit from threads and processes, on the fake driver; also run under sanitizers. */
#include "kernel.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>

enum { THREADS = 4, LAUNCHES = 250 };
static const uint64_t kernel_time = 100000; /* ns; 100 ms for all launches, including the burst */

static CUcontext context;

static void use_context(void) {
    use_device(0);
    CHECK_EQUAL(CALL(cuCtxGetCurrent, CUcontext *)(&context), CUDA_SUCCESS);
    load_kernel();
}

static uint64_t throttled(const struct aliquot_region *region) {
    return __atomic_load_n(&region->device[0].throttled, __ATOMIC_RELAXED);
}

static void *launch_on_a_stream(void *unused) {
    void *stream = NULL;
    CHECK_EQUAL(CALL(cuCtxSetCurrent, CUcontext)(context), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuStreamCreate, void **, unsigned)(&stream, 1), CUDA_SUCCESS);
    for (int i = 0; i < LAUNCHES; i++) {
        CHECK_EQUAL(launch(stream, 1, kernel_time), CUDA_SUCCESS);
    }
    CHECK_EQUAL(CALL(cuStreamSynchronize, void *)(stream), CUDA_SUCCESS);
    return unused;
}

static int threads_of_this_process(void) {
    int count = -2; /* . and .. */
    DIR *tasks = opendir("/proc/self/task");
    while (readdir(tasks) != NULL) {
        count++;
    }
    closedir(tasks);
    return count;
}

TEST(threads_share_the_compute_limit_and_the_measuring_thread_ends) {
    pthread_t threads[THREADS];
    sandbox(100 * MIB, 0);
    int before = threads_of_this_process();
    use_context();
    for (size_t i = 0; i < THREADS; i++) {
        CHECK_EQUAL(pthread_create(&threads[i], NULL, launch_on_a_stream, NULL), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    struct aliquot_region *region = map_region();
    uint64_t charged = region->device[0].gpu_time;
    printf("charged %.1f ms, held back for %.1f ms\n", (double)charged / 1e6,
           (double)region->device[0].throttled / 1e6);
    CHECK(charged > 0 && region->charge[0][0].gpu_time > 0, "%llu ns", (unsigned long long)charged);
#ifndef __SANITIZE_THREAD__ /* the sanitizer's runtime has a thread of its own */
    for (int tries = 0; threads_of_this_process() > before && tries < 500; tries++) {
        usleep(10000); /* the measuring thread ends when it has nothing to measure */
    }
    CHECK_EQUAL(threads_of_this_process(), before);
#else
    (void)before;
#endif
}

TEST(fills_and_copies_within_the_GPU_are_charged_by_their_bytes) {
    enum { FILLS = 20, BYTES = 4 * MIB };
    unsigned long long from = 0, to = 0;
    int khz = 0, bits = 0;
    sandbox(100 * MIB, 0);
    use_context();
    CHECK_EQUAL(CALL(cuMemAlloc_v2, unsigned long long *, size_t)(&from, BYTES), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuMemAlloc_v2, unsigned long long *, size_t)(&to, BYTES), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuDeviceGetAttribute, int *, int, int)(&khz, 36, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuDeviceGetAttribute, int *, int, int)(&bits, 37, 0), CUDA_SUCCESS);
    double bytes_per_ns = khz * 2.0 * bits / 8 * 0.8 / 1e6;
    for (int i = 0; i < FILLS; i++) {
        CHECK_EQUAL(CALL(cuMemsetD32Async, unsigned long long, unsigned, size_t, void *)(from, 1, BYTES / 4, NULL),
                    CUDA_SUCCESS);
    }
    struct aliquot_region *region = map_region();
    double filled = (double)region->device[0].gpu_time, expected = FILLS * (double)BYTES / bytes_per_ns;
    CHECK(filled > expected * 0.98 && filled < expected * 1.02, "%.0f ns instead of %.0f", filled, expected);
    CHECK_EQUAL(
        CALL(cuMemcpyDtoDAsync_v2, unsigned long long, unsigned long long, size_t, void *)(to, from, BYTES, NULL),
        CUDA_SUCCESS);
    double copied = (double)region->device[0].gpu_time - filled;
    expected = 2 * (double)BYTES / bytes_per_ns; /* read and written */
    CHECK(copied > expected * 0.98 && copied < expected * 1.02, "%.0f ns instead of %.0f", copied, expected);
    void *host = calloc(1, BYTES);
    CHECK_EQUAL(CALL(cuMemcpyHtoDAsync_v2, unsigned long long, const void *, size_t, void *)(to, host, BYTES, NULL),
                CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuMemcpyDtoHAsync_v2, void *, unsigned long long, size_t, void *)(host, to, BYTES, NULL),
                CUDA_SUCCESS);
    CHECK_EQUAL((uint64_t)(filled + copied), region->device[0].gpu_time);
}

TEST(launches_that_the_driver_refuses_are_not_charged) {
    sandbox(100 * MIB, 0);
    use_context();
    for (int i = 0; i < 1000; i++) {
        CHECK(launch(NULL, 0, kernel_time) != CUDA_SUCCESS, "a grid without blocks");
    }
    struct aliquot_region *region = map_region();
    CHECK_EQUAL(throttled(region), 0);
    CHECK_EQUAL(region->device[0].gpu_time, 0);
}

static void check_unlimited(const char *cores) {
    sandbox_cores = cores;
    sandbox(100 * MIB, 0);
    int before = threads_of_this_process();
    use_context();
    for (int i = 0; i < LAUNCHES; i++) {
        CHECK_EQUAL(launch(NULL, 1, kernel_time), CUDA_SUCCESS);
    }
    struct aliquot_region *region = map_region();
    CHECK_EQUAL(threads_of_this_process(), before);
    CHECK_EQUAL(throttled(region), 0);
    CHECK_EQUAL(region->device[0].tat, 0);
    CHECK_EQUAL(region->device[0].gpu_time, 0);
}

TEST(without_a_compute_limit_nothing_is_charged_and_no_thread_is_started) {
    check_unlimited("cores=0");
}

TEST(with_policy_none_nothing_is_charged_and_no_thread_is_started) {
    check_unlimited("cores=30 policy=none");
}

/* Launches until the shim holds back launches (or, with false, no longer does); false if this takes over 20 s. */
static bool launch_until(const struct aliquot_region *region, bool held_back) {
    double start = seconds();
    do {
        uint64_t before = throttled(region);
        for (int i = 0; i < LAUNCHES; i++) { /* 25 ms, more than the burst */
            CHECK_EQUAL(launch(NULL, 1, kernel_time), CUDA_SUCCESS);
        }
        CHECK_EQUAL(CALL(cuCtxSynchronize, void)(), CUDA_SUCCESS);
        if ((throttled(region) != before) == held_back) {
            return true;
        }
    } while (seconds() - start < 20);
    return false;
}

TEST(a_changed_compute_limit_applies_to_a_running_process) {
    sandbox(100 * MIB, 0);
    use_context();
    struct aliquot_region *region = map_region();
    CHECK(launch_until(region, true), "held back at 30 percent");
    sandbox_cores = "cores=100";
    write_limits(100 * MIB, 0);
    CHECK(launch_until(region, false), "no longer held back at 100 percent");
    sandbox_cores = "cores=30";
    write_limits(100 * MIB, 0);
    CHECK(launch_until(region, true), "held back again");
}

TEST(a_context_can_be_reset_while_its_launches_are_being_measured) {
    sandbox(100 * MIB, 0);
    for (int i = 0; i < 5; i++) {
        use_context();
        for (int j = 0; j < LAUNCHES; j++) {
            CHECK_EQUAL(launch(NULL, 1, kernel_time), CUDA_SUCCESS);
        }
        CHECK_EQUAL(CALL(cuDevicePrimaryCtxReset_v2, CUdevice)(0), CUDA_SUCCESS);
    }
    CHECK(map_region()->device[0].gpu_time > 0, "the GPU time of the launches is charged");
}

static atomic_bool stop;

static void *launch_until_stopped(void *unused) {
    void *stream = NULL;
    CHECK_EQUAL(CALL(cuCtxSetCurrent, CUcontext)(context), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuStreamCreate, void **, unsigned)(&stream, 1), CUDA_SUCCESS);
    while (!atomic_load(&stop)) {
        CHECK_EQUAL(launch(stream, 1, kernel_time), CUDA_SUCCESS);
    }
    return unused;
}

TEST(a_thread_that_is_held_back_does_not_invalidate_a_capture_of_another_thread) {
    enum { NODES = 20, GLOBAL = 0 };
    pthread_t thread;
    void *stream = NULL, *graph = NULL;
    size_t nodes = 0;
    sandbox(100 * MIB, 0);
    use_context();
    struct aliquot_region *region = map_region();
    CHECK_EQUAL(CALL(cuStreamCreate, void **, unsigned)(&stream, 1), CUDA_SUCCESS);
    CHECK_EQUAL(pthread_create(&thread, NULL, launch_until_stopped, NULL), 0);
    while (throttled(region) == 0) {
        usleep(1000);
    }
    uint64_t before = throttled(region);
    CHECK_EQUAL(CALL(cuStreamBeginCapture_v2, void *, int)(stream, GLOBAL), CUDA_SUCCESS);
    for (int i = 0; i < NODES; i++) {
        CHECK_EQUAL(launch(stream, 1, kernel_time), CUDA_SUCCESS);
        usleep(10000); /* meanwhile the other thread's batches begin, end and are measured */
    }
    CHECK_EQUAL(CALL(cuStreamEndCapture, void *, void **)(stream, &graph), CUDA_SUCCESS);
    CHECK(throttled(region) > before, "the other thread was held back during the capture");
    CHECK_EQUAL(CALL(cuGraphGetNodes, void *, void **, size_t *)(graph, NULL, &nodes), CUDA_SUCCESS);
    CHECK_EQUAL(nodes, NODES);
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
}

/* ---- processes ---- */

enum { MANY = 600 }; /* launches: 60 ms of GPU time */

static void launch_many(void) {
    for (int i = 0; i < MANY; i++) {
        CHECK_EQUAL(launch(NULL, 1, kernel_time), CUDA_SUCCESS);
    }
    CHECK_EQUAL(CALL(cuCtxSynchronize, void)(), CUDA_SUCCESS);
}

/* Two processes launched MANY kernels each. Together they can use 26 ms at once (the burst and the allowed debt), and
   the rest at 30 percent: more than 300 ms in total. A process with its own limit would need only 110 ms. */
static void check_that_they_shared(const struct aliquot_region *region, double start) {
    double took = seconds() - start;
    CHECK(took > 0.2, "%.3f s", took);
    uint64_t sum = 0;
    for (int slot = 0; slot < 2; slot++) {
        uint64_t charged = region->charge[0][slot].gpu_time;
        CHECK(charged > kernel_time * MANY / 2, "process %d: %llu ns", slot, (unsigned long long)charged);
        sum += charged;
    }
    CHECK(region->device[0].gpu_time >= sum, "%llu ns in total", (unsigned long long)region->device[0].gpu_time);
    CHECK(throttled(region) > 0, "they were held back");
}

TEST(a_forked_child_launches_under_its_parents_limit) {
    size_t available = 0;
    int status = 0;
    sandbox(100 * MIB, 0);
    CHECK(CALL(cuMemGetInfo_v2, size_t *, size_t *)(&available, NULL) != CUDA_SUCCESS,
          "the shim is initialized, the driver is not");
    double start = seconds();
    pid_t child = fork();
    use_context();
    launch_many();
    if (child == 0) {
        exit(EXIT_SUCCESS);
    }
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
    check_that_they_shared(map_region(), start);
}

HELPER(helper_that_launches_under_an_existing_limit) {
    join_sandbox();
    use_context();
    launch_many();
}

TEST(a_forked_and_executed_program_launches_under_the_same_limit) {
    int status = 0;
    sandbox(100 * MIB, 0);
    use_context();
    CHECK_EQUAL(launch(NULL, 1, kernel_time), CUDA_SUCCESS);
    double start = seconds();
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "launch_test", "helper_that_launches_under_an_existing_limit", NULL);
        _exit(EXIT_FAILURE);
    }
    launch_many();
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
    check_that_they_shared(map_region(), start);
}

TEST(a_program_in_a_time_namespace_follows_the_arbiter_like_any_other) {
    int status = 0;
    sandbox(100 * MIB, 0);
    CHECK(truncate(sandbox_region, ALIQUOT_REGION_SIZE) == 0, "%s", sandbox_region);
    struct aliquot_agent_device *agent = map_agent();
    struct aliquot_region *region = map_region();
    double start = seconds();
    check_time_namespace(1000);
    pid_t child = fork();
    if (child == 0) {
        use_context();
        CHECK_EQUAL(launch(NULL, 1, kernel_time), CUDA_SUCCESS);
        exit(EXIT_SUCCESS);
    }
    for (int waited = 0; waited < 200 && waitpid(child, &status, WNOHANG) == 0;) {
        agent->turn = ALIQUOT_GRANT(seconds() * 1e3, ALIQUOT_TURN_WAITS);
        waited += region->device[0].wanted != 0;
        usleep(1000);
    }
    double wanted = (double)region->device[0].wanted / 1e9;
    CHECK(wanted >= start && wanted <= seconds(), "the launch is at %.3f s, the test at %.3f s", wanted, seconds());
    CHECK_EQUAL(throttled(region), 0); /* yet: it waits */
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK(status == 0 && throttled(region) > 200000000, "status %d, %.0f ms", status, (double)throttled(region) / 1e6);
}

/* CUDA does not work in a child of a process that has initialized it. */
TEST(a_forked_child_whose_calls_fail_is_not_charged_and_does_not_disturb_its_parents_launches) {
    sandbox(100 * MIB, 0);
    use_context();
    struct aliquot_region *region = map_region();
    for (int i = 0; i < 5; i++) {
        for (int j = 0; j < LAUNCHES; j++) { /* the shim measures some of them during the fork */
            CHECK_EQUAL(launch(NULL, 1, kernel_time), CUDA_SUCCESS);
        }
        IN_CHILD({
            for (int j = 0; j < LAUNCHES; j++) {
                CHECK(launch(NULL, 1, kernel_time) != CUDA_SUCCESS, "the driver refuses it");
            }
        });
    }
    CHECK_EQUAL(CALL(cuCtxSynchronize, void)(), CUDA_SUCCESS);
    for (int tries = 0; region->device[0].gpu_time < kernel_time * LAUNCHES * 5 / 2 && tries < 500; tries++) {
        usleep(10000); /* launches are charged after the shim has measured them */
    }
    uint64_t charged = region->device[0].gpu_time;
    CHECK(charged > kernel_time * LAUNCHES * 5 / 2, "%llu ns", (unsigned long long)charged);
    CHECK_EQUAL(region->charge[0][0].gpu_time, charged);
    CHECK_EQUAL(region->charge[0][1].gpu_time, 0);
}

/* ---- the measuring thread ---- */

TEST(launches_are_measured_while_their_program_makes_no_call) {
    /* ns; a thousand times what a launch is charged before the first measurement, and longer than a busy machine keeps
       the launch from returning, which is taken for the time to load the kernel */
    enum { KERNEL = 50000000 };
    sandbox(100 * MIB, 0);
    use_context();
    struct aliquot_region *region = map_region();
    CHECK_EQUAL(launch(NULL, 1, KERNEL), CUDA_SUCCESS);
    for (int tries = 0; region->device[0].gpu_time == 0 && tries < 500; tries++) {
        usleep(10000);
    }
    uint64_t charged = region->device[0].gpu_time;
    CHECK(charged >= KERNEL / 2, "%llu ns", (unsigned long long)charged);
}

/* ---- exit ---- */

static int threads_at_start;

/* Registered after the driver's handler and before the shim's, so it runs after that one: as the driver's does. */
static void check_that_no_thread_is_left(void) {
    int left = threads_of_this_process() - threads_at_start;
    for (int i = 0; i < 10; i++) {
        launch(NULL, 1, kernel_time); /* as a destructor may; no new thread comes */
    }
#ifndef __SANITIZE_THREAD__ /* the sanitizer's runtime has a thread of its own */
    if (left != 0 || threads_of_this_process() != threads_at_start) {
        fprintf(stderr, "%d threads are left at exit, %d after launches\n", left,
                threads_of_this_process() - threads_at_start);
        _exit(EXIT_FAILURE);
    }
#else
    (void)left;
#endif
}

/* Ways in which a program ends while its launches are being measured. */
enum { MAIN_RETURNS, ANOTHER_THREAD_EXITS, ANOTHER_THREAD_LAUNCHES, NO_EXIT_HANDLERS, WAYS };

static void *launch_and_exit(void *unused) {
    launch(NULL, 1, kernel_time);
    exit(EXIT_SUCCESS);
    return unused;
}

static void *launch_on(void *unused) {
    CHECK_EQUAL(CALL(cuCtxSetCurrent, CUcontext)(context), CUDA_SUCCESS);
    while (true) {
        launch(NULL, 1, kernel_time);
    }
    return unused;
}

HELPER(helper_that_ends_while_its_launches_are_measured) {
    int way = atoi(getenv("WAY"));
    pthread_t thread;
    threads_at_start = threads_of_this_process();
    join_sandbox();
    use_context();
    if (way == MAIN_RETURNS) {
        atexit(check_that_no_thread_is_left);
    }
    launch(NULL, 1, kernel_time);
    if (way == ANOTHER_THREAD_EXITS || way == ANOTHER_THREAD_LAUNCHES) {
        CHECK_EQUAL(pthread_create(&thread, NULL, way == ANOTHER_THREAD_EXITS ? launch_and_exit : launch_on, NULL), 0);
    }
    if (way == ANOTHER_THREAD_EXITS) {
        pthread_join(thread, NULL); /* the program ends first */
    } else if (way == NO_EXIT_HANDLERS) {
        _exit(EXIT_SUCCESS);
    }
}

/* A crash is a status; a hang exceeds the time limit of CTest. */
TEST(short_programs_end_without_crash_or_hang) {
    const int programs = getenv("ALIQUOT_LONG") != NULL ? 1000 : 100;
#if defined(__SANITIZE_THREAD__)
    char options[512]; /* by default the sanitizer's runtime sleeps for a second if a thread is left */
    snprintf(options, sizeof options, "%s:atexit_sleep_ms=0", getenv("TSAN_OPTIONS"));
    setenv("TSAN_OPTIONS", options, 1);
#endif
    sandbox(100 * MIB, 0);
    for (int i = 0; i < programs; i++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) {
            char way[16];
            snprintf(way, sizeof way, "%d", i % WAYS);
            setenv("WAY", way, 1);
            execl("/proc/self/exe", "launch_test", "helper_that_ends_while_its_launches_are_measured", NULL);
            _exit(EXIT_FAILURE);
        }
        CHECK_EQUAL(waitpid(child, &status, 0), child);
        CHECK(status == 0, "program %d: %#x", i, (unsigned)status);
    }
}
