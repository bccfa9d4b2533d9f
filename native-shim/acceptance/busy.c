/*
 * A tenant that keeps the GPU busy.
 *
 * `busy calibrate` prints the number of kernel iterations that take a microsecond on the idle GPU.
 * `busy RATE NANOSECONDS WARM_UP SECONDS [SHAPE]` launches kernels of NANOSECONDS each (at RATE iterations per
 * microsecond) as fast as the GPU accepts them. After WARM_UP seconds it prints an empty object and measures for
 * SECONDS. Then it prints the work done per second, in seconds of GPU time; when the measurement started, in seconds of
 * CLOCK_MONOTONIC; the work of each tenth of a second since then; and with the last two shapes how long each request
 * took in ms, from its arrival. SHAPE is how the work is submitted:
 *
 *     kernels        single kernels on one stream (default)
 *     streams=N      on N streams, at most 16
 *     wait           the program waits for each kernel
 *     graph          captured into a graph, which is launched again and again
 *     copies         with a copy of 256 KiB from the host after each kernel
 *     device-copies  only copies of 32 MiB within the GPU; the work is in copies and not in seconds
 *     burst=S        single kernels for WARM_UP and S seconds, then none for S seconds, then again
 *     think=S        requests of one kernel, each S seconds after the end of the one before
 *     poisson=PART   requests of one kernel at random times that need this part of the GPU; each waits for the earlier
 */
#include "busy.h"

#include <stdbool.h>
#include <string.h>

enum { THREADS = 128, IN_FLIGHT = 2, MAX_STREAMS = 16, COPY_BYTES = 256 << 10, DEVICE_COPY_BYTES = 32 << 20 };
enum { MAX_TENTHS = 6000, MAX_REQUESTS = 65536 };

static CUfunction function;
static CUstream streams[MAX_STREAMS];
static unsigned blocks;

static void launch(CUstream stream, uint64_t nanoseconds, uint64_t iterations) {
    void *parameters[] = {&nanoseconds, &iterations};
    busy_launch(function, blocks, THREADS, stream, parameters);
}

/* Seconds from the launch of one kernel to its end. */
static double time_kernel(uint64_t nanoseconds, uint64_t iterations) {
    double start = driver_now();
    launch(streams[0], nanoseconds, iterations);
    MUST(CALL(cuStreamSynchronize, CUstream)(streams[0]));
    return driver_now() - start;
}

/* Iterations per microsecond, from the time difference of a long and a short kernel: this excludes the launch itself.
   The kernels of the first second only bring the GPU's clocks up. */
static double calibrate(void) {
    const uint64_t few = 1 << 16, many = 1 << 22;
    double best = 0;
    for (double start = driver_now(); driver_now() - start < 1;) {
        time_kernel(1000000, many);
    }
    for (int i = 0; i < 9; i++) {
        double taken = time_kernel(1000000, many) - time_kernel(1000000, few);
        if (best == 0 || (taken > 0 && taken < best)) {
            best = taken;
        }
    }
    return best > 0 ? (double)(many - few) / (best * 1e6) : 1;
}

enum shape { KERNELS, WAIT, GRAPH, COPIES, DEVICE_COPIES, STREAMS, BURST, THINK, POISSON, SHAPES };
static const char *const shape_names[SHAPES] = {"kernels",  "wait",   "graph",  "copies",  "device-copies",
                                                "streams=", "burst=", "think=", "poisson="};

static struct {
    enum shape shape;
    bool waits;       /* for each kernel */
    double parameter; /* of the shape: what follows its name */
    uint64_t nanoseconds, iterations;
    int batch; /* kernels, or copies within the GPU, that are submitted together */
    CUgraphExec graph;
    void *host;
    CUdeviceptr source, target;
} work;

static void submit(CUstream stream) {
    if (work.shape == GRAPH) {
        MUST(CALL(cuGraphLaunch, CUgraphExec, CUstream)(work.graph, stream));
        return;
    }
    for (int i = 0; i < work.batch; i++) {
        if (work.shape == DEVICE_COPIES) {
            MUST(CALL(cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr, size_t, CUstream)(work.target, work.source,
                                                                                        DEVICE_COPY_BYTES, stream));
            continue;
        }
        launch(stream, work.nanoseconds, work.iterations);
        if (work.shape == COPIES) {
            MUST(CALL(cuMemcpyHtoDAsync_v2, CUdeviceptr, const void *, size_t, CUstream)(work.target, work.host,
                                                                                         COPY_BYTES, stream));
        }
    }
}

/* Batches take about 4 ms on all streams together, so that each is counted soon after it ends. */
static void prepare(enum shape shape, double rate, double nanoseconds, int stream_count) {
    work.nanoseconds = (uint64_t)nanoseconds;
    work.iterations = (uint64_t)(rate * nanoseconds / 1000) + 1;
    work.waits = shape == WAIT || shape == THINK || shape == POISSON;
    work.batch = work.waits ? 1 : (int)(4e6 / nanoseconds / stream_count);
    work.batch = shape == DEVICE_COPIES ? 32 : work.batch < 1 ? 1 : work.batch;
    if (shape == COPIES || shape == DEVICE_COPIES) {
        MUST(CALL(cuMemAlloc_v2, CUdeviceptr *, size_t)(&work.source, DEVICE_COPY_BYTES));
        MUST(CALL(cuMemAlloc_v2, CUdeviceptr *, size_t)(&work.target, DEVICE_COPY_BYTES));
        MUST(CALL(cuMemHostAlloc, void **, size_t, unsigned)(&work.host, COPY_BYTES, 0));
    }
    if (shape == GRAPH) {
        CUgraph graph;
        MUST(CALL(cuStreamBeginCapture_v2, CUstream, int)(streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
        submit(streams[0]);
        MUST(CALL(cuStreamEndCapture, CUstream, CUgraph *)(streams[0], &graph));
        MUST(CALL(cuGraphInstantiateWithFlags, CUgraphExec *, CUgraph, unsigned long long)(&work.graph, graph, 0));
    }
    work.shape = shape;
}

static double tenths[MAX_TENTHS], request_ms[MAX_REQUESTS];

/* Waits for the next request, where the work comes in requests, and returns when it arrives. The last one ended at
   `last`. */
static double next_arrival(double arrival, double last) {
    if (work.shape == THINK) {
        arrival = last + work.parameter;
    } else if (work.shape == POISSON) {
        do { /* a geometric distribution with small steps: exp and log of libm need a newer glibc */
            arrival += (double)work.nanoseconds / 1e9 / work.parameter / 100;
        } while (rand() % 100 != 0);
    }
    driver_sleep(arrival - driver_now());
    return arrival;
}

/* Keeps two batches in flight on each stream, so that the GPU never idles; a program that waits keeps one kernel. */
static void run(double warm_up, double seconds, int stream_count) {
    int slots = work.waits ? 1 : IN_FLIGHT * stream_count;
    CUevent events[IN_FLIGHT * MAX_STREAMS];
    for (int i = 0; i < slots; i++) {
        MUST(CALL(cuEventCreate, CUevent *, unsigned)(&events[i], CU_EVENT_DISABLE_TIMING));
    }
    double unit = work.shape == DEVICE_COPIES ? 1 : (double)work.nanoseconds / 1e9;
    double start = driver_now(), first = 0, last = start, arrival = start;
    double rest_at = work.shape == BURST ? start + warm_up + work.parameter : start + 1e9;
    long counted = 0, requests = 0;
    for (int i = 0; last < start + warm_up + seconds; i++) {
        CUevent event = events[i % slots];
        CUstream stream = streams[i % stream_count];
        if (i >= slots) {
            MUST(CALL(cuEventSynchronize, CUevent)(event));
            last = driver_now();
            if (first == 0 && last >= start + warm_up) {
                first = last;
                printf("{}\n");
                fflush(stdout);
            } else if (first != 0) {
                counted++;
                tenths[(long)((last - first) * 10) % MAX_TENTHS] += work.batch * unit;
                request_ms[requests++ % MAX_REQUESTS] = (last - arrival) * 1e3;
            }
        }
        if (last > rest_at) {
            MUST(CALL(cuCtxSynchronize, void)());
            driver_sleep(rest_at + work.parameter - driver_now());
            rest_at += 2 * work.parameter;
        }
        arrival = next_arrival(arrival, last);
        submit(stream);
        MUST(CALL(cuEventRecord, CUevent, CUstream)(event, stream));
    }
    printf("{\"work\": %.6f, \"start\": %.6f, \"tenths\": [",
           last > first ? (double)counted * work.batch * unit / (last - first) : 0, first);
    for (long i = 0; i < (long)((last - first) * 10) && i < MAX_TENTHS; i++) {
        printf("%s%.6f", i == 0 ? "" : ", ", tenths[i]);
    }
    printf("], \"request_ms\": [");
    for (long i = 0; (work.shape == THINK || work.shape == POISSON) && i < requests && i < MAX_REQUESTS; i++) {
        printf("%s%.3f", i == 0 ? "" : ", ", request_ms[i]);
    }
    printf("]}\n");
}

/* A name that ends with = has a parameter behind it. */
static bool is_shape(const char *argument, const char *name) {
    return strchr(name, '=') == NULL ? strcmp(argument, name) == 0 : strncmp(argument, name, strlen(name)) == 0;
}

int main(int count, char **arguments) {
    enum shape shape = KERNELS;
    while (count == 6 && shape < SHAPES && !is_shape(arguments[5], shape_names[shape])) {
        shape++;
    }
    if ((count < 5 || count > 6 || shape == SHAPES) && (count != 2 || strcmp(arguments[1], "calibrate") != 0)) {
        fprintf(stderr, "usage: busy calibrate | busy RATE NANOSECONDS WARM_UP SECONDS "
                        "[kernels|wait|graph|copies|device-copies|streams=N|burst=S|think=S|poisson=PART]\n");
        return 2;
    }
    work.parameter = count == 6 && shape >= STREAMS ? atof(strchr(arguments[5], '=') + 1) : 0;
    int stream_count = shape == STREAMS ? (int)work.parameter : 1;
    if (stream_count < 1 || stream_count > MAX_STREAMS) {
        fprintf(stderr, "busy: expected 1 to %d streams, found %s\n", MAX_STREAMS, arguments[5]);
        return 2;
    }
    driver_start();
    blocks = busy_blocks();
    function = busy_function("aliquot_busy");
    for (int i = 0; i < stream_count; i++) {
        MUST(CALL(cuStreamCreate, CUstream *, unsigned)(&streams[i], CU_STREAM_NON_BLOCKING));
    }
    if (count == 2) {
        printf("{\"rate\": %.3f}\n", calibrate());
        return EXIT_SUCCESS;
    }
    prepare(shape, atof(arguments[1]), atof(arguments[2]), stream_count);
    run(atof(arguments[3]), atof(arguments[4]), stream_count);
    return EXIT_SUCCESS;
}
