/*
 * Tests of NVML's process utilization in virtual time, with a clock that advances on every read
 * (ALIQUOT_VIRTUAL_TIME_TICK). Periods therefore end during a query, which happens on a real machine once in a few
 * thousand queries.
 */
#include "gpu_time.h"
#include "nvml_abi.h"
#include "testing.h"

#include <dlfcn.h>

enum { GPU_MIB = 100, SMS = 108, TENANTS = 2, QUERIES = 40 };

#define MS UINT64_C(1000000)

static pid_t spawn_busy_tenant(void) {
    pid_t pid = fork();
    if (pid != 0) {
        return pid;
    }
    setenv("ALIQUOT_FAKE_SEED", "0", 1);
    gpu_file *gpu = open_gpu(0);
    CHECK(gpu_attach(gpu));
    const struct gpu_work work = {.ns = 1000 * MS, .sms = SMS};
    for (int i = 0; i < 600; i++) {
        CHECK(gpu_submit(gpu, &work, NULL) != 0);
    }
    for (;;) {
        sleep(1000);
    }
}

static void *nvml_function(const char *name) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *found = library == NULL ? NULL : dlsym(library, name);
    CHECK(found != NULL);
    return found;
}

/* Returns percent times microseconds since *since, and advances *since to the end of the measured time. */
static unsigned long long query_usage(nvmlDevice_t device, unsigned long long *since) {
    nvmlReturn_t (*processes)(nvmlDevice_t, nvmlProcessUtilizationSample_t *, unsigned *, unsigned long long) =
        nvml_function("nvmlDeviceGetProcessUtilization");
    nvmlProcessUtilizationSample_t samples[TENANTS];
    unsigned count = TENANTS;
    nvmlReturn_t result = processes(device, samples, &count, *since);
    if (result == NVML_ERROR_NOT_FOUND) {
        return 0;
    }
    EQUAL(NVML_SUCCESS, result);
    unsigned long long used = 0, until = samples[0].timeStamp;
    for (unsigned i = 0; i < count; i++) {
        EQUAL(until, samples[i].timeStamp);
        used += samples[i].smUtil * (until - *since);
    }
    *since = until;
    return used;
}

static void a_period_that_ends_during_a_query_is_counted_once(void) {
    nvmlReturn_t (*init)(void) = nvml_function("nvmlInit_v2");
    nvmlReturn_t (*by_index)(unsigned, nvmlDevice_t *) = nvml_function("nvmlDeviceGetHandleByIndex_v2");
    nvmlDevice_t device;
    EQUAL(NVML_SUCCESS, init());
    EQUAL(NVML_SUCCESS, by_index(0, &device));
    pid_t tenants[TENANTS];
    for (int i = 0; i < TENANTS; i++) {
        tenants[i] = spawn_busy_tenant();
    }
    usleep(2000000);
    unsigned long long since = 1, used = 0, measured = 0;
    while (query_usage(device, &since) == 0) { /* until the tenants run */
        usleep(100000);
    }
    usleep(1000000);
    query_usage(device, &since); /* both tenants have turns from here on */
    unsigned long long begin = since, reading = 0;
    for (int i = 0; i < QUERIES; i++) {
        usleep(600000 + (unsigned)i * 7000);
        uint64_t before = gpu_now();
        used += query_usage(device, &since);
        reading += gpu_now() - before;
    }
    measured = since - begin;
    CHECK(reading / QUERIES > 5 * MS); /* long enough for periods to end during a query */
    double percent = (double)used / (double)measured;
    fprintf(stderr, "%.1f percent of %.1f s\n", percent, (double)measured / 1e6);
    CHECK(percent > 97 && percent < 102);
    for (int i = 0; i < TENANTS; i++) {
        kill(tenants[i], SIGKILL);
        CHECK(waitpid(tenants[i], NULL, 0) == tenants[i]);
    }
}

/* Kernels of 30 ms with pauses of other lengths, so that each query covers busy and idle periods. */
static pid_t spawn_varying_tenant(unsigned pause_ms) {
    pid_t pid = fork();
    if (pid != 0) {
        return pid;
    }
    setenv("ALIQUOT_FAKE_SEED", "0", 1);
    gpu_file *gpu = open_gpu(0);
    CHECK(gpu_attach(gpu));
    const struct gpu_work work = {.ns = 30 * MS, .sms = SMS};
    for (;;) {
        gpu_wait(gpu, gpu_submit(gpu, &work, NULL));
        usleep(pause_ms * 1000);
    }
}

static void process_utilization_adds_up_to_the_time_that_the_gpu_was_busy(void) {
    nvmlReturn_t (*init)(void) = nvml_function("nvmlInit_v2");
    nvmlReturn_t (*by_index)(unsigned, nvmlDevice_t *) = nvml_function("nvmlDeviceGetHandleByIndex_v2");
    nvmlDevice_t device;
    EQUAL(NVML_SUCCESS, init());
    EQUAL(NVML_SUCCESS, by_index(0, &device));
    gpu_file *gpu = open_gpu(0);
    const pid_t tenants[TENANTS] = {spawn_varying_tenant(50), spawn_varying_tenant(410)};
    struct gpu_process running[TENANTS];
    while (gpu_processes(gpu, running, TENANTS) < TENANTS) {
        usleep(100000);
    }
    unsigned long long since = 1, used = 0;
    while (query_usage(device, &since) == 0) {
        usleep(100000);
    }
    unsigned long long begin = since;
    uint64_t before = gpu_busy_ns(gpu, -1), by_process = 0;
    for (int i = 0; i < QUERIES; i++) {
        usleep(1000000);
        used += query_usage(device, &since);
    }
    uint64_t busy = gpu_busy_ns(gpu, -1);
    for (int i = 0; i < TENANTS; i++) {
        by_process += gpu_busy_ns(gpu, running[i].slot);
    }
    double reported = (double)used / 100 / 1e6, real = (double)(busy - before) / 1e9;
    fprintf(stderr, "%.3f s reported, %.3f s busy of %.1f s\n", reported, real, (double)(since - begin) / 1e6);
    CHECK(real > 5 && real < 35); /* neither idle nor always busy */
    CHECK(reported - real < QUERIES * 0.02 && real - reported < QUERIES * 0.02);
    CHECK(by_process - busy < 100 * MS); /* work goes on between the two readings */
    for (int i = 0; i < TENANTS; i++) {
        kill(tenants[i], SIGKILL);
        CHECK(waitpid(tenants[i], NULL, 0) == tenants[i]);
    }
}

int main(int count, char **arguments) {
    static const struct test tests[] = {
        TEST(a_period_that_ends_during_a_query_is_counted_once),
        TEST(process_utilization_adds_up_to_the_time_that_the_gpu_was_busy),
    };
    return run_tests(tests, sizeof tests / sizeof tests[0], count, arguments, 1, GPU_MIB);
}
