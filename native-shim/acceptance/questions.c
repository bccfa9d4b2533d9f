/*
 * Questions to a GPU and its driver. The compute limit and the accounting of memory rest on the answers. The program
 * runs without the shim and prints one JSON object; the script runs it and reads NVML meanwhile.
 *
 *     questions delays RATE         how late an event on an idle stream completes
 *     questions timeline SECONDS    when the GPU ran this process's kernel, on the GPU's own clock
 *     questions drift SECONDS       how fast the clocks of the GPU and the host drift apart
 *     questions no-context          what event functions return without a current context
 *     questions import              whether an import of the process's own memory returns the same handle
 *     questions first [LIBCUBLAS]   how long the host waits for a kernel's first launch, which may load its code
 *     questions bytes [LIBCUBLAS]   waits after each step that uses memory of the GPU
 *     questions fault               the error of a kernel that writes where no memory is
 *     questions ptx                 prints the kernel of `timeline` in PTX, without a driver
 */
#include "busy.h"

#include <string.h>

typedef int event_query(CUevent);
typedef int event_record(CUevent, CUstream);

static event_query *query;
static event_record *record;

static CUevent new_event(unsigned flags) {
    CUevent event;
    MUST(CALL(cuEventCreate, CUevent *, unsigned)(&event, flags));
    return event;
}

static void wait_for_line(void) {
    fflush(stdout);
    for (int c = getchar(); c != '\n'; c = getchar()) {
        if (c == EOF) {
            exit(EXIT_SUCCESS);
        }
    }
}

/* ---- Delays of probes */

enum {
    MAX_OWN_STREAMS = 16,
    PROBES = 120,
    KERNEL_NS = 200000,
    QUEUED_NS = 5000000, /* work that the process keeps queued on all its streams together, twice */
};

static const double late = 100e-6; /* seconds: no event on an idle GPU takes as long */

/* The process's own kernels, while a probe is measured: each of count streams always has a batch queued. */
static struct {
    CUfunction function;
    CUstream streams[MAX_OWN_STREAMS];
    CUevent events[MAX_OWN_STREAMS][2];
    long submitted[MAX_OWN_STREAMS];
    unsigned blocks;
    uint64_t nanoseconds, iterations;
} own;

static void submit_own(int stream, int count) {
    void *parameters[] = {&own.nanoseconds, &own.iterations};
    for (int i = 0; i < QUEUED_NS / KERNEL_NS / count + 1; i++) {
        busy_launch(own.function, own.blocks, 128, own.streams[stream], parameters);
    }
    MUST(record(own.events[stream][own.submitted[stream]++ % 2], own.streams[stream]));
}

/* Queues another batch on each stream that has fewer than two. */
static void refill_own(int count) {
    for (int stream = 0; stream < count; stream++) {
        if (own.submitted[stream] < 2 || query(own.events[stream][own.submitted[stream] % 2]) == CUDA_SUCCESS) {
            submit_own(stream, count);
        }
    }
}

static double delay_of_probe(CUstream stream, CUevent event) {
    double start = driver_now();
    int result;
    MUST(record(event, stream));
    while ((result = query(event)) == CUDA_ERROR_NOT_READY) {
    }
    driver_must(result, "cuEventQuery");
    return driver_now() - start;
}

static void delays_with(int priority, const char *priority_name, int count, _Bool last) {
    double delays[PROBES];
    unsigned random = 1;
    CUstream stream;
    CUevent event = new_event(0);
    /* Each time the streams are new, the probe's last: hardware queues may be assigned to streams in turn, and
       with one own stream the probe must not share its queue. */
    for (int i = 0; i < count; i++) {
        MUST(CALL(cuStreamCreate, CUstream *, unsigned)(&own.streams[i], CU_STREAM_NON_BLOCKING));
        own.submitted[i] = 0;
    }
    MUST(CALL(cuStreamCreateWithPriority, CUstream *, unsigned, int)(&stream, CU_STREAM_NON_BLOCKING, priority));
    int late_count = 0;
    for (int i = -5; i < PROBES; i++) {
        refill_own(count);
        double delay = delay_of_probe(stream, event);
        if (i >= 0) {
            delays[i] = delay;
            late_count += delay > late;
        }
        /* Irregular pauses of 0.5 to 3.5 ms, so that the probes meet no rhythm of the GPU's time slices. */
        random = random * 1664525 + 1013904223;
        for (double end = driver_now() + 0.5e-3 + (random >> 16) / 65536.0 * 3e-3; driver_now() < end;) {
            refill_own(count);
        }
    }
    MUST(CALL(cuCtxSynchronize, void)());
    qsort(delays, PROBES, sizeof delays[0], driver_ascending);
    printf("{\"priority\": \"%s\", \"own_streams\": %d, \"median_us\": %.1f, \"p90_us\": %.1f, \"max_us\": %.1f, "
           "\"late\": %.3f}%s",
           priority_name, count, delays[PROBES / 2] * 1e6, delays[PROBES * 9 / 10] * 1e6, delays[PROBES - 1] * 1e6,
           (double)late_count / PROBES, last ? "" : ", ");
    MUST(CALL(cuStreamDestroy_v2, CUstream)(stream));
    for (int i = 0; i < count; i++) {
        MUST(CALL(cuStreamDestroy_v2, CUstream)(own.streams[i]));
    }
}

static void delays(double rate) {
    static const int counts[] = {0, 1, MAX_OWN_STREAMS};
    int lowest, highest;
    MUST(CALL(cuCtxGetStreamPriorityRange, int *, int *)(&lowest, &highest));
    own.blocks = busy_blocks();
    own.nanoseconds = KERNEL_NS;
    own.iterations = (uint64_t)(rate * KERNEL_NS / 1000) + 1;
    own.function = busy_function("aliquot_busy");
    for (int i = 0; i < MAX_OWN_STREAMS; i++) {
        own.events[i][0] = new_event(CU_EVENT_DISABLE_TIMING);
        own.events[i][1] = new_event(CU_EVENT_DISABLE_TIMING);
    }
    printf("{\"delays\": [");
    for (int i = 0; i < 3; i++) {
        delays_with(lowest, "lowest", counts[i], 0);
        delays_with(highest, "highest", counts[i], i == 2);
    }
    printf("]}\n");
}

/* ---- Time slices */

/*
 * One thread reads the GPU's clock without pause. It notes each time between two readings that is longer than the
 * threshold: then it did not run. Header of the result: start, end, number of gaps, shortest step of the clock.
 */
static const char timeline_ptx[] =
    ".version 6.0\n"
    ".target sm_50\n"
    ".address_size 64\n"
    ".visible .entry timeline(.param .u64 result, .param .u64 most, .param .u64 duration, .param .u64 threshold)\n"
    "{\n"
    "    .reg .pred %p<4>;\n"
    "    .reg .b64 %rd<13>;\n"
    "    ld.param.u64 %rd1, [result];\n"
    "    cvta.to.global.u64 %rd1, %rd1;\n"
    "    ld.param.u64 %rd2, [most];\n"
    "    ld.param.u64 %rd3, [duration];\n"
    "    ld.param.u64 %rd4, [threshold];\n"
    "    mov.u64 %rd5, %globaltimer;\n"
    "    mov.u64 %rd6, %rd5;\n" /* the reading before */
    "    mov.u64 %rd7, 0;\n"    /* gaps */
    "    mov.u64 %rd11, -1;\n"  /* shortest step */
    "    add.u64 %rd12, %rd1, 32;\n"
    "next:\n"
    "    mov.u64 %rd8, %globaltimer;\n"
    "    sub.u64 %rd9, %rd8, %rd6;\n"
    "    setp.eq.u64 %p1, %rd9, 0;\n"
    "    @%p1 bra next;\n"
    "    min.u64 %rd11, %rd11, %rd9;\n"
    "    setp.lt.u64 %p1, %rd9, %rd4;\n"
    "    @%p1 bra short;\n"
    "    st.global.u64 [%rd12], %rd6;\n"
    "    st.global.u64 [%rd12+8], %rd8;\n"
    "    add.u64 %rd12, %rd12, 16;\n"
    "    add.u64 %rd7, %rd7, 1;\n"
    "    setp.ge.u64 %p2, %rd7, %rd2;\n"
    "    @%p2 bra done;\n"
    "short:\n"
    "    mov.u64 %rd6, %rd8;\n"
    "    sub.u64 %rd10, %rd8, %rd5;\n"
    "    setp.lt.u64 %p3, %rd10, %rd3;\n"
    "    @%p3 bra next;\n"
    "done:\n"
    "    st.global.u64 [%rd1], %rd5;\n"
    "    st.global.u64 [%rd1+8], %rd8;\n"
    "    st.global.u64 [%rd1+16], %rd7;\n"
    "    st.global.u64 [%rd1+24], %rd11;\n"
    "    ret;\n"
    "}\n";

static void timeline(double seconds) {
    static uint64_t result[4 + 2 * 4096];
    uint64_t most = 4096, duration = (uint64_t)(seconds * 1e9), threshold = 5000;
    CUdeviceptr address;
    CUfunction function = busy_load(timeline_ptx, "timeline");
    MUST(CALL(cuMemAlloc_v2, CUdeviceptr *, size_t)(&address, sizeof result));
    MUST(CALL(cuMemcpyHtoD_v2, CUdeviceptr, const void *, size_t)(address, result, sizeof result));
    printf("{}\n");
    wait_for_line();
    void *parameters[] = {&address, &most, &duration, &threshold};
    busy_launch(function, 1, 1, NULL, parameters);
    MUST(CALL(cuMemcpyDtoH_v2, void *, CUdeviceptr, size_t)(result, address, sizeof result));
    printf("{\"computed\": %s, \"start\": %llu, \"end\": %llu, \"step_ns\": %llu, \"gaps\": [",
           result[0] != 0 ? "true" : "false", (unsigned long long)result[0], (unsigned long long)result[1],
           (unsigned long long)result[3]);
    for (uint64_t i = 0; i < result[2] && i < most; i++) {
        printf("%s[%llu, %llu]", i == 0 ? "" : ", ", (unsigned long long)result[4 + 2 * i],
               (unsigned long long)result[5 + 2 * i]);
    }
    printf("]}\n");
}

/* The node agent's check makes a GPU report an error of a program so. */
static void fault(void) {
    uint64_t most = 0, duration = 0, threshold = 5000;
    CUdeviceptr address = 4096;
    CUfunction function = busy_load(timeline_ptx, "timeline");
    printf("{}\n");
    wait_for_line();
    void *parameters[] = {&address, &most, &duration, &threshold};
    busy_launch(function, 1, 1, NULL, parameters);
    printf("{\"error\": \"%s\"}\n", driver_error(CALL(cuCtxSynchronize, void)()));
    driver_wait_for_script();
}

/* ---- Drift of the clocks */

enum { MAX_DRIFT_SAMPLES = 4096 };

/* Compares the GPU's time between events with the host's, four times a second. Of five events the one counts whose
   completion the host learned soonest. */
static void drift(double seconds) {
    static double host[MAX_DRIFT_SAMPLES], gpu[MAX_DRIFT_SAMPLES]; /* seconds since the first sample */
    CUevent events[6];
    for (int i = 0; i < 6; i++) {
        events[i] = new_event(0);
    }
    CUevent before = events[5];
    double start = driver_now(), first = 0;
    int count = 0;
    while (driver_now() < start + seconds && count < MAX_DRIFT_SAMPLES) {
        int best = 0;
        double shortest = 1, middle = 0;
        for (int i = 0; i < 5; i++) {
            double recorded = driver_now(), delay = delay_of_probe(NULL, events[i]);
            if (delay < shortest) {
                best = i;
                shortest = delay;
                middle = recorded + delay / 2;
            }
        }
        if (count == 0) {
            first = middle;
        } else {
            float milliseconds;
            MUST(CALL(cuEventElapsedTime, float *, CUevent, CUevent)(&milliseconds, before, events[best]));
            host[count] = middle - first;
            gpu[count] = gpu[count - 1] + milliseconds / 1e3;
        }
        CUevent chosen = events[best];
        events[best] = before;
        before = chosen;
        count++;
        driver_sleep(0.25);
    }
    /* Least squares of the difference of the clocks over the host's time. */
    double mean_x = 0, mean_y = 0, xx = 0, xy = 0, worst = 0;
    for (int i = 0; i < count; i++) {
        mean_x += host[i] / count;
        mean_y += (gpu[i] - host[i]) / count;
    }
    for (int i = 0; i < count; i++) {
        xx += (host[i] - mean_x) * (host[i] - mean_x);
        xy += (host[i] - mean_x) * (gpu[i] - host[i] - mean_y);
    }
    double slope = xx > 0 ? xy / xx : 0;
    for (int i = 0; i < count; i++) {
        double residual = gpu[i] - host[i] - mean_y - slope * (host[i] - mean_x);
        residual = residual < 0 ? -residual : residual;
        worst = residual > worst ? residual : worst;
    }
    printf("{\"ppm\": %.2f, \"residual_us\": %.2f, \"samples\": %d, \"seconds\": %.1f}\n", slope * 1e6, worst * 1e6,
           count, seconds);
}

/* ---- Calls without a context */

static void no_context(void) {
    CUevent first = new_event(0), second = new_event(0);
    float milliseconds = 0;
    MUST(record(first, NULL));
    MUST(record(second, NULL));
    MUST(CALL(cuCtxSynchronize, void)());
    MUST(CALL(cuCtxSetCurrent, CUcontext)(NULL));
    const char *queried = driver_error(query(second));
    const char *elapsed =
        driver_error(CALL(cuEventElapsedTime, float *, CUevent, CUevent)(&milliseconds, first, second));
    const char *recorded = driver_error(record(first, NULL));
    printf("{\"cuEventQuery\": \"%s\", \"cuEventElapsedTime\": \"%s\", \"cuEventRecord\": \"%s\"}\n", queried, elapsed,
           recorded);
}

/* ---- Import of own memory */

static void import(void) {
    struct allocation_properties properties = driver_device_memory;
    properties.handle_types = 1; /* file descriptor */
    typedef unsigned long long handle;
    size_t granularity = driver_granularity(&properties);
    handle own_handle, imported = 0, retained = 0;
    int descriptor = -1;
    CUdeviceptr address;
    MUST(CALL(cuMemCreate, handle *, size_t, const void *, unsigned long long)(&own_handle, granularity, &properties,
                                                                               0));
    MUST(CALL(cuMemExportToShareableHandle, void *, handle, int, unsigned long long)(&descriptor, own_handle, 1, 0));
    MUST(CALL(cuMemImportFromShareableHandle, handle *, void *, int)(&imported, (void *)(intptr_t)descriptor, 1));
    MUST(CALL(cuMemAddressReserve, CUdeviceptr *, size_t, size_t, CUdeviceptr,
              unsigned long long)(&address, granularity, 0, 0, 0));
    MUST(CALL(cuMemMap, CUdeviceptr, size_t, size_t, handle, unsigned long long)(address, granularity, 0, own_handle,
                                                                                 0));
    MUST(CALL(cuMemRetainAllocationHandle, handle *, void *)(&retained, (void *)(uintptr_t)address));
    printf("{\"granularity\": %zu, \"import_is_same_handle\": %s, \"retain_is_same_handle\": %s}\n", granularity,
           imported == own_handle ? "true" : "false", retained == own_handle ? "true" : "false");
}

/* ---- cuBLAS */

enum { MATRIX = 1024 };

static struct {
    void *handle;
    int (*create)(void **);
    int (*multiply)(void *, int, int, int, int, int, const float *, const float *, int, const float *, int,
                    const float *, float *, int);
    float *matrices;
} cublas;

/* Ends the program if the library cannot be loaded. */
static void cublas_load(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (library != NULL) {
        *(void **)&cublas.create = dlsym(library, "cublasCreate_v2");
        *(void **)&cublas.multiply = dlsym(library, "cublasSgemm_v2");
    }
    if (library == NULL || cublas.create == NULL || cublas.multiply == NULL) {
        const char *reason = dlerror();
        printf("{\"missing\": \"%s\"}\n", reason == NULL ? "a function" : reason);
        exit(EXIT_SUCCESS);
    }
}

static void cublas_must(int result, const char *call) {
    if (result != 0) {
        printf("{\"missing\": \"%s returns %d\"}\n", call, result);
        exit(EXIT_SUCCESS);
    }
}

static void cublas_create(void) {
    cublas_must(cublas.create(&cublas.handle), "cublasCreate");
}

static void cublas_allocate(void) {
    CUdeviceptr address;
    MUST(CALL(cuMemAlloc_v2, CUdeviceptr *, size_t)(&address, 3 * MATRIX * MATRIX * sizeof(float)));
    cublas.matrices = (float *)(uintptr_t)address;
}

static void cublas_multiply(void) {
    float one = 1, zero = 0, *a = cublas.matrices, *b = a + MATRIX * MATRIX, *c = b + MATRIX * MATRIX;
    cublas_must(
        cublas.multiply(cublas.handle, 0, 0, MATRIX, MATRIX, MATRIX, &one, a, MATRIX, b, MATRIX, &zero, c, MATRIX),
        "cublasSgemm");
}

/* ---- First launches */

/* Milliseconds that the host spends in a call, and not the GPU. */
static double time_call(void (*call)(void)) {
    MUST(CALL(cuCtxSynchronize, void)());
    double start = driver_now();
    call();
    return (driver_now() - start) * 1e3;
}

static CUfunction first_function;

static void load_first(void) {
    first_function = busy_function("nothing");
}

static void launch_first(void) {
    busy_launch(first_function, 1, 32, NULL, NULL);
}

static void first(const char *library) {
    double load = time_call(load_first), launched = time_call(launch_first), again = time_call(launch_first);
    char cublas_times[80] = "";
    if (library != NULL) {
        cublas_load(library);
        cublas_create();
        cublas_allocate();
        double called = time_call(cublas_multiply), called_again = time_call(cublas_multiply);
        snprintf(cublas_times, sizeof cublas_times, ", \"first_cublas_ms\": %.3f, \"second_cublas_ms\": %.4f", called,
                 called_again);
    }
    printf("{\"load_ms\": %.3f, \"first_launch_ms\": %.3f, \"second_launch_ms\": %.4f%s}\n", load, launched, again,
           cublas_times);
}

/* ---- Bytes of memory */

static void step(const char *name) {
    printf("{\"step\": \"%s\"}\n", name);
    wait_for_line();
}

static void bytes(const char *library) {
    CUdeviceptr address;
    CUcontext context;
    int device;
    MUST(CALL(cuInit, unsigned)(0));
    MUST(CALL(cuDeviceGet, int *, int)(&device, 0));
    step("start");
    MUST(CALL(cuDevicePrimaryCtxRetain, CUcontext *, int)(&context, device));
    MUST(CALL(cuCtxSetCurrent, CUcontext)(context));
    step("context");
    busy_launch(busy_function("nothing"), 1, 32, NULL, NULL);
    MUST(CALL(cuCtxSynchronize, void)());
    step("first kernel");
    MUST(CALL(cuMemAlloc_v2, CUdeviceptr *, size_t)(&address, 1));
    step("1 byte");
    MUST(CALL(cuMemAlloc_v2, CUdeviceptr *, size_t)(&address, 2 * MIB + 1));
    step("2 MiB + 1 byte");
    if (library != NULL) {
        cublas_allocate();
        step("matrices");
        cublas_load(library);
        cublas_create();
        step("cublasCreate");
        cublas_multiply();
        MUST(CALL(cuCtxSynchronize, void)());
        step("cublasSgemm");
    }
    printf("{\"end\": true}\n");
}

int main(int count, char **arguments) {
    const char *name = count > 1 ? arguments[1] : "";
    if (strcmp(name, "ptx") == 0) {
        printf("%s", timeline_ptx);
        return EXIT_SUCCESS;
    }
    query = (event_query *)driver_function("cuEventQuery");
    record = (event_record *)driver_function("cuEventRecord");
    if (strcmp(name, "bytes") == 0) {
        bytes(count > 2 ? arguments[2] : NULL);
        return EXIT_SUCCESS;
    }
    driver_start();
    if (strcmp(name, "first") == 0) {
        first(count > 2 ? arguments[2] : NULL);
        return EXIT_SUCCESS;
    }
    if (strcmp(name, "delays") == 0 && count == 3) {
        delays(atof(arguments[2]));
    } else if (strcmp(name, "timeline") == 0 && count == 3) {
        timeline(atof(arguments[2]));
    } else if (strcmp(name, "drift") == 0 && count == 3) {
        drift(atof(arguments[2]));
    } else if (strcmp(name, "no-context") == 0) {
        no_context();
    } else if (strcmp(name, "import") == 0) {
        import();
    } else if (strcmp(name, "fault") == 0) {
        fault();
    } else {
        fprintf(stderr, "usage: questions delays RATE | timeline SECONDS | drift SECONDS | no-context | import | "
                        "first [LIBCUBLAS] | bytes [LIBCUBLAS] | fault | ptx\n");
        return 2;
    }
    return EXIT_SUCCESS;
}
