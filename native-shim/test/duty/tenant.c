#include "tenant.h"

#include "gpu_time.h"

#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DURATIONS = 16, MAX_STREAMS = 16, MAX_IN_FLIGHT = 256, MAX_FUNCTIONS = 64 };
enum { BLOCKS = 108, THREADS = 128, GRAPH_KERNELS = 20 };

struct work {
    uint64_t durations[MAX_DURATIONS];
    int count;
    bool same_grid; /* all durations have one grid size, so that the shim cannot tell the kernels apart */
    CUgraphExec graph;
    bool synchronizes;
    int streams, functions;
    int in_flight;     /* launches, at most; 0: any number */
    size_t copied;     /* bytes from the host after each kernel */
    double busy, idle; /* seconds of a burst and of the pause after it; idle 0: no pauses */
    double think;      /* ms of computing on the CPU after each kernel that it has waited for */
    double poisson;    /* percent of the GPU that requests at random times need */
    int kernels;       /* of a request */
};

void *tenant_find(const char *symbol) {
    static void *driver;
    if (driver == NULL) {
        driver = dlopen("libcuda.so.1", RTLD_NOW);
    }
    void *function = driver == NULL ? NULL : dlsym(driver, symbol);
    if (function == NULL) {
        setup_fail("the driver does not export %s: %s", symbol, dlerror());
    }
    return function;
}

/* Parses a duration like 50us, 3.5ms or 1s; returns the rest of the text. */
static const char *parse_duration(const char *text, uint64_t *duration) {
    char *end;
    double value = strtod(text, &end);
    double unit = strncmp(end, "us", 2) == 0 ? 1e3 : strncmp(end, "ms", 2) == 0 ? 1e6 : *end == 's' ? 1e9 : 0;
    if (end == text || unit == 0 || value * unit < 1 || value * unit > 1e11) {
        setup_fail("invalid shape: %s", text);
    }
    *duration = (uint64_t)(value * unit);
    return end + (*end == 's' ? 1 : 2);
}

static void parse_shape(struct work *work, const char *shape) {
    if (strcmp(shape, "mixed") == 0 || strcmp(shape, "varied") == 0) {
        work->same_grid = shape[0] == 'v';
        shape = "50us+200us+1ms+20ms";
    }
    for (const char *rest = shape;; rest++) {
        rest = parse_duration(rest, &work->durations[work->count++]);
        if (strcmp(rest, "!") == 0) {
            work->same_grid = true;
            rest++;
        }
        if (*rest == 0) {
            return;
        }
        if (*rest != '+' || work->count == MAX_DURATIONS) {
            setup_fail("invalid shape: %s", shape);
        }
    }
}

static void parse_pattern(struct work *work, const char *pattern) {
    double busy = 200, idle = 300;
    if (strcmp(pattern, "busy") == 0) {
        return;
    }
    if (strcmp(pattern, "sync") == 0) {
        work->synchronizes = true;
    } else if (strcmp(pattern, "burst") == 0 || sscanf(pattern, "burst=%lf/%lf", &busy, &idle) == 2) {
        work->busy = busy / 1e3;
        work->idle = idle / 1e3;
    } else if (sscanf(pattern, "think=%lf", &work->think) == 1 ||
               sscanf(pattern, "poisson=%lf/%d", &work->poisson, &work->kernels) >= 1) {
        work->synchronizes = true;
    } else if (sscanf(pattern, "copies=%zu", &work->copied) == 1) {
        work->copied *= 1024;
    } else if (sscanf(pattern, "functions=%d", &work->functions) == 1) {
        if (work->functions < 1 || work->functions > MAX_FUNCTIONS) {
            setup_fail("invalid pattern: %s", pattern);
        }
    } else if (sscanf(pattern, "streams=%d/%d", &work->streams, &work->in_flight) < 1 || work->streams < 1 ||
               work->streams > MAX_STREAMS || work->in_flight > MAX_IN_FLIGHT) {
        setup_fail("invalid pattern: %s", pattern);
    }
}

static void launch(CUfunction function, unsigned blocks, CUstream stream, uint64_t *nanoseconds) {
    void *parameters[] = {nanoseconds};
    MUST(CALL(cuLaunchKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
              CUstream, void **, void **)(function, blocks, 1, 1, THREADS, 1, 1, 0, stream, parameters, NULL));
}

static void wait_for(CUstream stream) {
    MUST(CALL(cuStreamSynchronize, CUstream)(stream));
}

static void capture(struct work *work, CUfunction function, CUstream stream) {
    uint64_t duration = 50000;
    CUgraph graph;
    MUST(CALL(cuStreamBeginCapture_v2, CUstream, int)(stream, 0));
    for (int i = 0; i < GRAPH_KERNELS; i++) {
        launch(function, BLOCKS, stream, &duration);
    }
    MUST(CALL(cuStreamEndCapture, CUstream, CUgraph *)(stream, &graph));
    MUST(CALL(cuGraphInstantiateWithFlags, CUgraphExec *, CUgraph, unsigned long long)(&work->graph, graph, 0));
}

/* Loads kernels that on the fake GPU run for the nanoseconds in their first parameter: their name says so. */
static void load_functions(CUfunction functions[MAX_FUNCTIONS], int count) {
    static char ptx[MAX_FUNCTIONS * 128];
    void *module;
    char name[32];
    int length = snprintf(ptx, sizeof ptx, ".version 7.0\n.target sm_80\n.address_size 64\n");
    for (int i = 0; i < count; i++) {
        length += snprintf(ptx + length, sizeof ptx - (size_t)length,
                           ".visible .entry aliquot_busy_%d(.param .u64 nanoseconds)\n{\n    ret;\n}\n", i);
    }
    MUST(CALL(cuModuleLoadData, void **, const void *)(&module, ptx));
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "aliquot_busy_%d", i);
        MUST(CALL(cuModuleGetFunction, CUfunction *, void *, const char *)(&functions[i], module, name));
    }
}

static void report_latency(struct tenant_latencies *latencies, uint64_t begun, uint64_t arrival) {
    if (latencies != NULL && latencies->count < TENANT_LATENCIES) {
        latencies->of[latencies->count].at = (float)((double)(gpu_now() - begun) / 1e9);
        latencies->of[latencies->count].ms = (float)((double)(gpu_now() - arrival) / 1e6);
        latencies->count++;
    }
}

_Noreturn void tenant_run(const char *shape, const char *pattern, unsigned seed, struct tenant_latencies *latencies) {
    struct work work = {.streams = 1, .functions = 1, .kernels = 1};
    CUcontext context;
    CUfunction functions[MAX_FUNCTIONS];
    CUstream streams[MAX_STREAMS];
    bool graph = strcmp(shape, "graph") == 0;
    parse_pattern(&work, pattern);
    if (!graph) {
        parse_shape(&work, shape);
    }
    MUST(CALL(cuInit, unsigned)(0));
    MUST(CALL(cuDevicePrimaryCtxRetain, CUcontext *, CUdevice)(&context, 0));
    MUST(CALL(cuCtxSetCurrent, CUcontext)(context));
    load_functions(functions, work.functions);
    for (int i = 0; i < work.streams; i++) {
        MUST(CALL(cuStreamCreate, CUstream *, unsigned)(&streams[i], 1));
    }
    CUdeviceptr target = 0;
    void *source = NULL;
    if (work.copied > 0) {
        MUST(CALL(cuMemAlloc_v2, CUdeviceptr *, size_t)(&target, work.copied));
        source = calloc(1, work.copied);
    }
    if (graph) {
        capture(&work, functions[0], streams[0]);
    }
    unsigned random = seed;
    uint64_t start = gpu_now(), begun = start, arrival = start;
    CUevent events[MAX_IN_FLIGHT];
    for (int i = 0; i < work.in_flight; i++) {
        MUST(CALL(cuEventCreate, CUevent *, unsigned)(&events[i], 2)); /* CU_EVENT_DISABLE_TIMING */
    }
    for (unsigned i = 0;; i++) {
        CUstream stream = streams[i % (unsigned)work.streams];
        bool ends = (i + 1) % (unsigned)work.kernels == 0;
        if (work.poisson > 0 && i % (unsigned)work.kernels == 0) { /* a request waits for the earlier ones */
            double random_part = (rand_r(&random) + 1.0) / (RAND_MAX + 2.0);
            arrival += (uint64_t)(-log(random_part) * (double)work.durations[0] * work.kernels * 100 / work.poisson);
            if (arrival > gpu_now()) {
                gpu_sleep_until(arrival);
            }
        } else if (work.poisson <= 0) {
            arrival = gpu_now();
        }
        if (graph) {
            MUST(CALL(cuGraphLaunch, CUgraphExec, CUstream)(work.graph, stream));
        } else {
            int which = work.count > 1 ? rand_r(&random) % work.count : 0;
            unsigned blocks = BLOCKS << (work.same_grid ? 0 : which);
            launch(functions[i % (unsigned)work.functions], blocks, stream, &work.durations[which]);
        }
        if (work.in_flight > 0) {
            unsigned next = (i + 1) % (unsigned)work.in_flight;
            MUST(CALL(cuEventRecord, CUevent, CUstream)(events[i % (unsigned)work.in_flight], stream));
            MUST(CALL(cuEventSynchronize, CUevent)(events[next]));
        }
        if (work.copied > 0) {
            MUST(CALL(cuMemcpyHtoDAsync_v2, CUdeviceptr, const void *, size_t, CUstream)(target, source, work.copied,
                                                                                         stream));
        }
        if (work.synchronizes && ends) {
            wait_for(stream);
            report_latency(latencies, begun, arrival);
        }
        if (work.think > 0) {
            gpu_sleep_until(gpu_now() + (uint64_t)(work.think * 1e6));
        }
        if (work.idle > 0 && (double)(gpu_now() - start) >= work.busy * 1e9) {
            wait_for(stream);
            gpu_sleep_until(gpu_now() + (uint64_t)(work.idle * 1e9));
            start = gpu_now();
        }
    }
}
