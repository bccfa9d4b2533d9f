/* Tests of time through the driver API: streams, events, launches, copies and host functions. */
#include "gpu_time.h"
#include "testing.h"

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

enum { GPU_MIB = 1000, SMS = 108 };

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)

/* Entry points that cuda_client.h does not declare, with the names of cuda.h. */
#define SYMBOL(type, name, ...) CUresult (*name)(__VA_ARGS__) = (CUresult(*)(__VA_ARGS__))dlsym(RTLD_DEFAULT, type)

static CUfunction busy, other;

static void start_driver(void) {
    static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                              ".visible .entry aliquot_busy(.param .u64 ns)\n{\n\tret;\n}\n"
                              ".visible .entry other()\n{\n\tret;\n}\n";
    CUmodule module;
    setenv("ALIQUOT_FAKE_SEED", "0", 1);
    start_context(0);
    EQUAL(CUDA_SUCCESS, cuModuleLoadData(&module, ptx));
    EQUAL(CUDA_SUCCESS, cuModuleGetFunction(&busy, module, "aliquot_busy"));
    EQUAL(CUDA_SUCCESS, cuModuleGetFunction(&other, module, "other"));
}

static void launch_busy(CUstream stream, uint64_t ns, unsigned blocks) {
    void *parameters[] = {&ns};
    EQUAL(CUDA_SUCCESS, cuLaunchKernel(busy, blocks, 1, 1, 128, 1, 1, 0, stream, parameters, NULL));
}

static CUstream new_stream(unsigned flags) {
    CUstream stream;
    EQUAL(CUDA_SUCCESS, cuStreamCreate(&stream, flags));
    return stream;
}

static CUevent record(CUstream stream) {
    CUevent event;
    EQUAL(CUDA_SUCCESS, cuEventCreate(&event, 0));
    EQUAL(CUDA_SUCCESS, cuEventRecord(event, stream));
    return event;
}

static double us_between(CUevent from, CUevent to) {
    float ms = -1;
    EQUAL(CUDA_SUCCESS, cuEventSynchronize(from));
    EQUAL(CUDA_SUCCESS, cuEventSynchronize(to));
    EQUAL(CUDA_SUCCESS, cuEventElapsedTime(&ms, from, to));
    return (double)ms * 1e3;
}

/* Launches are microseconds apart, on a busy machine milliseconds. */
#define BETWEEN(least, most, us)                                                                                       \
    do {                                                                                                               \
        double measured_us = (us);                                                                                     \
        if (measured_us < (least)-1 || measured_us > (most)) {                                                         \
            fprintf(stderr, "%s:%d: %s is %.0f, expected %.0f to %.0f\n", __FILE__, __LINE__, #us, measured_us,        \
                    (double)(least), (double)(most));                                                                  \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static void a_stream_is_busy_until_its_kernels_complete(void) {
    start_driver();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    EQUAL(CUDA_SUCCESS, cuStreamQuery(stream));
    launch_busy(stream, 30 * MS, SMS);
    CUevent end = record(stream);
    EQUAL(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    EQUAL(CUDA_ERROR_NOT_READY, cuEventQuery(end));
    float ms;
    EQUAL(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&ms, end, end));
    EQUAL(CUDA_SUCCESS, cuStreamSynchronize(stream));
    EQUAL(CUDA_SUCCESS, cuStreamQuery(stream));
    EQUAL(CUDA_SUCCESS, cuEventQuery(end));
}

static void events_measure_the_duration_of_kernels(void) {
    start_driver();
    CUstream stream = new_stream(0);
    CUevent begin = record(stream);
    for (int i = 0; i < 20; i++) {
        launch_busy(stream, 2 * MS, SMS);
    }
    BETWEEN(40000, 60000, us_between(begin, record(stream)));
    begin = record(stream);
    EQUAL(CUDA_SUCCESS, cuLaunchKernel(other, 2 * SMS * 16, 1, 1, 128, 1, 1, 0, stream, NULL, NULL));
    BETWEEN(12, 20000, us_between(begin, record(stream))); /* 2 us and two waves of 5 us */
}

static void narrow_kernels_of_two_streams_overlap_and_wide_ones_do_not(void) {
    start_driver();
    CUstream one = new_stream(CU_STREAM_NON_BLOCKING), two = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent begin = record(one);
    launch_busy(one, 50 * MS, SMS / 2);
    launch_busy(two, 50 * MS, SMS / 2);
    BETWEEN(50000, 80000, us_between(begin, record(two)));
    begin = record(one);
    launch_busy(one, 50 * MS, SMS);
    launch_busy(two, 50 * MS, SMS);
    BETWEEN(100000, 150000, us_between(begin, record(two)));
}

static void the_legacy_stream_and_blocking_streams_wait_for_each_other(void) {
    start_driver();
    CUstream blocking = new_stream(0), beside = new_stream(CU_STREAM_NON_BLOCKING);
    launch_busy(blocking, 30 * MS, 1);
    launch_busy(NULL, 20 * MS, 1);
    launch_busy(blocking, 10 * MS, 1);
    launch_busy(beside, 5 * MS, 1);
    EQUAL(CUDA_SUCCESS, cuStreamSynchronize(beside));
    EQUAL(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    CUevent begin = record(beside), end = record(blocking);
    BETWEEN(45000, 80000, us_between(begin, end) + 5000);
    EQUAL(CUDA_SUCCESS, cuStreamQuery(NULL));
}

static void a_stream_waits_for_an_event_of_another_stream(void) {
    start_driver();
    CUstream one = new_stream(CU_STREAM_NON_BLOCKING), two = new_stream(CU_STREAM_NON_BLOCKING);
    SYMBOL("cuStreamWaitEvent", wait_event, CUstream, CUevent, unsigned);
    CUevent begin = record(one);
    launch_busy(one, 40 * MS, 1);
    CUevent end = record(one);
    EQUAL(CUDA_SUCCESS, wait_event(two, end, 0));
    launch_busy(two, 10 * MS, 1);
    BETWEEN(50000, 80000, us_between(begin, record(two)));
}

static void a_stream_waits_for_an_event_of_another_gpu(void) {
    start_driver();
    CUstream stream_0 = new_stream(CU_STREAM_NON_BLOCKING);
    CUcontext context_1;
    SYMBOL("cuStreamWaitEvent", wait_event, CUstream, CUevent, unsigned);
    launch_busy(stream_0, 60 * MS, 1);
    CUevent end = record(stream_0);
    EQUAL(CUDA_SUCCESS, cuCtxCreate_v2(&context_1, 0, 1));
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    EQUAL(CUDA_SUCCESS, wait_event(stream, end, 0));
    EQUAL(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    EQUAL(CUDA_SUCCESS, cuStreamSynchronize(stream));
    EQUAL(CUDA_SUCCESS, cuEventQuery(end));
}

static void synchronizing_a_context_waits_for_all_its_streams_even_destroyed_ones(void) {
    start_driver();
    CUstream one = new_stream(0), two = new_stream(CU_STREAM_NON_BLOCKING);
    launch_busy(one, 5 * MS, 1);
    launch_busy(two, 40 * MS, 1);
    CUevent end = record(two);
    EQUAL(CUDA_SUCCESS, cuStreamDestroy_v2(two));
    EQUAL(CUDA_ERROR_NOT_READY, cuEventQuery(end));
    EQUAL(CUDA_SUCCESS, cuCtxSynchronize());
    EQUAL(CUDA_SUCCESS, cuEventQuery(end));
}

static CUevent before_call;
static int call_count;

static void host_function(void *data) {
    EQUAL(CUDA_SUCCESS, cuEventQuery(before_call));
    EQUAL(++call_count, (int)(intptr_t)data);
    usleep(20000);
}

static void stream_callback(CUstream stream, CUresult status, void *data) {
    CHECK(stream != NULL);
    EQUAL(CUDA_SUCCESS, status);
    host_function(data);
}

static void host_functions_run_in_order_and_block_later_work(void) {
    start_driver();
    SYMBOL("cuLaunchHostFunc", launch_host, CUstream, CUhostFn, void *);
    SYMBOL("cuStreamAddCallback", add_callback, CUstream, CUstreamCallback, void *, unsigned);
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    launch_busy(stream, 20 * MS, SMS);
    before_call = record(stream);
    EQUAL(CUDA_SUCCESS, launch_host(stream, host_function, (void *)1));
    EQUAL(CUDA_SUCCESS, add_callback(stream, stream_callback, (void *)2, 0));
    launch_busy(stream, 1 * MS, SMS);
    CUevent end = record(stream);
    EQUAL(0, call_count);
    BETWEEN(41000, 200000, us_between(before_call, end));
    EQUAL(2, call_count);
    EQUAL(CUDA_SUCCESS,
          launch_host(stream, host_function, (void *)3)); /* the driver's callback thread may have ended */
    EQUAL(CUDA_SUCCESS, cuStreamSynchronize(stream));
    EQUAL(3, call_count);
}

static void copies_take_time_by_their_size_and_synchronous_ones_wait(void) {
    enum { SIZE = 10 << 20 };
    CUdeviceptr pointer;
    struct timespec from, to;
    void *host = calloc(1, SIZE);
    SYMBOL("cuMemcpyHtoDAsync_v2", copy_in, CUdeviceptr, const void *, size_t, CUstream);
    start_driver();
    CHECK(host != NULL);
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, SIZE));
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent begin = record(stream);
    EQUAL(CUDA_SUCCESS, copy_in(pointer, host, SIZE, stream));
    BETWEEN(SIZE / 25000, 300000, us_between(begin, record(stream))); /* 25 GB/s */
    launch_busy(NULL, 30 * MS, SMS);
    clock_gettime(CLOCK_MONOTONIC, &from);
    EQUAL(CUDA_SUCCESS, cuMemcpyDtoH_v2(host, pointer, 4));
    clock_gettime(CLOCK_MONOTONIC, &to);
    CHECK((to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec - from.tv_nsec > 25000000);
    launch_busy(NULL, 30 * MS, SMS);
    EQUAL(CUDA_SUCCESS, cuMemsetD8_v2(pointer, 1, SIZE));
    EQUAL(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL)); /* a fill does not wait */
}

static void *use_per_thread_stream(void *unused) {
    (void)unused;
    CUcontext context;
    SYMBOL("cuLaunchKernel_ptsz", launch_own, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
           unsigned, CUstream, void **, void **);
    SYMBOL("cuStreamSynchronize_ptsz", synchronise_own, CUstream);
    uint64_t ns = 10 * MS;
    void *parameters[] = {&ns};
    EQUAL(CUDA_SUCCESS, cuDevicePrimaryCtxRetain(&context, 0));
    EQUAL(CUDA_SUCCESS, cuCtxSetCurrent(context));
    EQUAL(CUDA_SUCCESS, launch_own(busy, 1, 1, 1, 128, 1, 1, 0, NULL, parameters, NULL));
    EQUAL(CUDA_SUCCESS, synchronise_own(NULL));
    return NULL;
}

static void each_thread_has_its_own_per_thread_default_stream(void) {
    CUcontext context;
    pthread_t thread;
    SYMBOL("cuStreamQuery_ptsz", query_own, CUstream);
    start_driver();
    EQUAL(CUDA_SUCCESS, cuDevicePrimaryCtxRetain(&context, 0));
    EQUAL(CUDA_SUCCESS, cuCtxSetCurrent(context));
    launch_busy((CUstream)2, 3000 * MS, 1); /* CU_STREAM_PER_THREAD */
    CHECK(pthread_create(&thread, NULL, use_per_thread_stream, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    EQUAL(CUDA_ERROR_NOT_READY, query_own(NULL));
    EQUAL(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL)); /* the per-thread stream is a blocking stream */
}

static void launches_into_a_full_queue_wait_for_space(void) {
    start_driver();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent begin = record(stream);
    for (int i = 0; i < 1200; i++) {
        launch_busy(stream, 200 * US, SMS);
    }
    BETWEEN(240000, 400000, us_between(begin, record(stream)));
}

/* Records an event on an idle stream while a kernel of 30 ms runs on another one. Returns whether it is complete after
   5 ms. */
static bool event_beside_a_kernel_completes(void) {
    start_driver();
    CUstream one = new_stream(CU_STREAM_NON_BLOCKING), two = new_stream(CU_STREAM_NON_BLOCKING);
    launch_busy(one, 30 * MS, 1);
    CUevent event = record(two);
    gpu_sleep_until(gpu_now() + 5 * MS);
    CUresult result = cuEventQuery(event);
    CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY);
    EQUAL(CUDA_SUCCESS, cuEventSynchronize(event));
    /* If the event has waited, it was for the kernel. */
    EQUAL(result == CUDA_SUCCESS ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS, cuStreamQuery(one));
    return result == CUDA_SUCCESS;
}

static void an_event_waits_for_no_kernel_of_another_stream(void) {
    CHECK(event_beside_a_kernel_completes());
}

static void with_one_connection_an_event_waits_for_earlier_kernels_of_all_streams(void) {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
    CHECK(!event_beside_a_kernel_completes());
}

static void with_eight_connections_the_ninth_stream_shares_a_queue(void) {
    CUstream streams[9];
    setenv("ALIQUOT_FAKE_PROFILE", "connections=8", 1);
    start_driver();
    for (int i = 0; i < 9; i++) {
        streams[i] = new_stream(CU_STREAM_NON_BLOCKING);
    }
    launch_busy(streams[0], 30 * MS, 1);
    CUevent second = record(streams[1]), ninth = record(streams[8]);
    gpu_sleep_until(gpu_now() + 5 * MS);
    EQUAL(CUDA_SUCCESS, cuEventQuery(second));
    EQUAL(CUDA_ERROR_NOT_READY, cuEventQuery(ninth));
}

static void on_a_profile_events_wait_for_all_kernels_of_their_process(void) {
    setenv("ALIQUOT_FAKE_PROFILE", "events=own", 1);
    CHECK(!event_beside_a_kernel_completes());
}

static void on_a_profile_the_clock_of_the_gpu_runs_faster(void) {
    setenv("ALIQUOT_FAKE_PROFILE", "drift=10000", 1);
    start_driver();
    CUstream stream = new_stream(0);
    CUevent begin = record(stream);
    launch_busy(stream, 1000 * MS, SMS);
    BETWEEN(1010000, 1019000, us_between(begin, record(stream)));
}

static void on_a_profile_events_complete_late(void) {
    setenv("ALIQUOT_FAKE_PROFILE", "nastiest,late=1000-1000", 1);
    start_driver();
    CUevent event = record(new_stream(0));
    EQUAL(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    gpu_sleep_until(gpu_now() + 2 * MS);
    EQUAL(CUDA_SUCCESS, cuEventQuery(event));
}

static void on_a_profile_the_first_launch_of_each_kernel_loads_it(void) {
    setenv("ALIQUOT_FAKE_PROFILE", "lazy=50-60", 1);
    start_driver();
    CUstream stream = new_stream(0);
    uint64_t before = gpu_now();
    launch_busy(stream, 0, 1);
    uint64_t first = gpu_now() - before;
    launch_busy(stream, 0, 1);
    uint64_t second = gpu_now() - before - first;
    EQUAL(CUDA_SUCCESS, cuLaunchKernel(other, 1, 1, 1, 128, 1, 1, 0, stream, NULL, NULL));
    uint64_t third = gpu_now() - before - first - second;
    CHECK(first >= 50 * MS && third >= 50 * MS);
    CHECK(second < 50 * MS);
}

int main(int count, char **arguments) {
    static const struct test tests[] = {
        TEST(a_stream_is_busy_until_its_kernels_complete),
        TEST(events_measure_the_duration_of_kernels),
        TEST(narrow_kernels_of_two_streams_overlap_and_wide_ones_do_not),
        TEST(the_legacy_stream_and_blocking_streams_wait_for_each_other),
        TEST(a_stream_waits_for_an_event_of_another_stream),
        TEST(a_stream_waits_for_an_event_of_another_gpu),
        TEST(synchronizing_a_context_waits_for_all_its_streams_even_destroyed_ones),
        TEST(host_functions_run_in_order_and_block_later_work),
        TEST(copies_take_time_by_their_size_and_synchronous_ones_wait),
        TEST(each_thread_has_its_own_per_thread_default_stream),
        TEST(launches_into_a_full_queue_wait_for_space),
        TEST(an_event_waits_for_no_kernel_of_another_stream),
        TEST(with_one_connection_an_event_waits_for_earlier_kernels_of_all_streams),
        TEST(with_eight_connections_the_ninth_stream_shares_a_queue),
        TEST(on_a_profile_events_wait_for_all_kernels_of_their_process),
        TEST(on_a_profile_the_clock_of_the_gpu_runs_faster),
        TEST(on_a_profile_events_complete_late),
        TEST(on_a_profile_the_first_launch_of_each_kernel_loads_it),
    };
    return run_tests(tests, sizeof tests / sizeof tests[0], count, arguments, 2, GPU_MIB);
}
