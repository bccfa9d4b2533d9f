#include "tenant.h"

#include "aliquot/agent.h"
#include "driver/abi.h"
#include "limits/limits.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_DURATIONS = 16, MAX_STREAMS = 16, MAX_FUNCTIONS = 64, BLOCKS = 108, GRAPH_KERNELS = 20 };

struct work {
    uint64_t durations[MAX_DURATIONS];
    int count;
    bool same_grid; /* all durations have one grid size, so that the shim cannot tell the kernels apart */
    CUgraphExec graph;
    bool synchronizes;
    int streams, functions;
    size_t copied;     /* bytes from the host after each kernel */
    double busy, idle; /* seconds of a burst and of the pause after it; idle 0: no pauses */
    double think;      /* ms of computing on the CPU after each kernel that it has waited for */
    double poisson;    /* percent of the GPU that requests at random times need */
    int kernels;       /* of a request */
};

/* ---- the container ---- */

void container_write(const char *path, const void *content, size_t length) {
    FILE *file = fopen(path, "we");
    if (file == NULL || fwrite(content, 1, length, file) != length || fclose(file) != 0) {
        fprintf(stderr, "duty: %s: %s\n", path, strerror(errno));
        exit(2);
    }
}

void container_create(const char *folder, const char *name, const char *limits) {
    struct aliquot_agent agent = {.header = ALIQUOT_AGENT_HEADER};
    char path[512];
    int count = 0;
    for (const char *line = limits; *line != 0; line = strchr(line, '\n') + 1) { /* GPU-... */
        aliquot_uuid_parse(line + 4, 36, agent.device[count++].uuid);
    }
    snprintf(path, sizeof path, "%.400s/regions", folder);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%.400s/agents", folder);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%.400s/vgpu-%.40s", folder, name);
    container_write(path, limits, strlen(limits));
    snprintf(path, sizeof path, "%.400s/regions/%.40s", folder, name);
    container_write(path, "", 0);
    snprintf(path, sizeof path, "%.400s/agents/%.40s", folder, name);
    container_write(path, &agent, sizeof agent);
}

void container_enter(const char *folder, const char *name) {
    static const char *const files[][2] = {
        {"ALIQUOT_CONFIG", "vgpu-"}, {"ALIQUOT_REGION", "regions/"}, {"ALIQUOT_AGENT", "agents/"}};
    char path[512];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%.400s/%s%.40s", folder, files[i][1], name);
        setenv(files[i][0], path, 1);
    }
}

_Noreturn void container_become_arbiter(const char *build, const char *folder, const char *floor, int input) {
    char program[512], regions[512], agents[512];
    snprintf(program, sizeof program, "%.400s/arbiter/aliquot-arbiter", build);
    snprintf(regions, sizeof regions, "%.400s/regions", folder);
    snprintf(agents, sizeof agents, "%.400s/agents", folder);
    dup2(input, STDIN_FILENO);
    execl(program, program, regions, agents, floor, (char *)NULL);
    fprintf(stderr, "duty: %s: %s\n", program, strerror(errno));
    _exit(2);
}

/* ---- its program ---- */

static void *find(const char *symbol) {
    static void *driver;
    if (driver == NULL) {
        driver = dlopen("libcuda.so.1", RTLD_NOW);
    }
    void *function = driver == NULL ? NULL : dlsym(driver, symbol);
    if (function == NULL) {
        fprintf(stderr, "duty: the driver does not export %s: %s\n", symbol, dlerror());
        _exit(2);
    }
    return function;
}

#define MUST(symbol, ...)                                                                                              \
    do {                                                                                                               \
        CUresult must_result = symbol(__VA_ARGS__);                                                                    \
        if (must_result != CUDA_SUCCESS) {                                                                             \
            fprintf(stderr, "duty: %s failed with error %d\n", #symbol, (int)must_result);                             \
            _exit(2);                                                                                                  \
        }                                                                                                              \
    } while (0)

/* Pointers to the driver's functions. */
#define DRIVER(symbol, ...) static CUresult (*symbol)(__VA_ARGS__)
DRIVER(init, unsigned);
DRIVER(retain, CUcontext *, CUdevice);
DRIVER(set_current, CUcontext);
DRIVER(load, void **, const void *);
DRIVER(get_function, CUfunction *, void *, const char *);
DRIVER(create_stream, CUstream *, unsigned);
DRIVER(synchronize, CUstream);
DRIVER(launch, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **,
       void **);
DRIVER(allocate, unsigned long long *, size_t);
DRIVER(copy, unsigned long long, const void *, size_t, CUstream);
DRIVER(begin_capture, CUstream, int);
DRIVER(end_capture, CUstream, CUgraph *);
DRIVER(instantiate, CUgraphExec *, CUgraph, unsigned long long);
DRIVER(launch_graph, CUgraphExec, CUstream);

#define FIND(function, symbol) function = (__typeof__(function))find(symbol)

void tenant_sleep_until(uint64_t time) {
    struct timespec until = {.tv_sec = (time_t)(time / 1000000000), .tv_nsec = (long)(time % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) {
    }
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static _Noreturn void fail_usage(const char *option, const char *text) {
    fprintf(stderr, "duty: invalid %s: %s\n", option, text);
    _exit(2);
}

/* Parses a duration like 50us, 3.5ms or 1s; returns the rest of the text. */
static const char *parse_duration(const char *text, uint64_t *duration) {
    char *end;
    double value = strtod(text, &end);
    double unit = strncmp(end, "us", 2) == 0 ? 1e3 : strncmp(end, "ms", 2) == 0 ? 1e6 : *end == 's' ? 1e9 : 0;
    if (end == text || unit == 0 || value * unit < 1 || value * unit > 1e11) {
        fail_usage("shape", text);
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
            fail_usage("shape", shape);
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
            fail_usage("pattern", pattern);
        }
    } else if (sscanf(pattern, "streams=%d", &work->streams) != 1 || work->streams < 1 || work->streams > MAX_STREAMS) {
        fail_usage("pattern", pattern);
    }
}

static void capture(struct work *work, CUfunction function, CUstream stream) {
    uint64_t duration = 50000;
    void *parameters[] = {&duration};
    CUgraph graph;
    FIND(begin_capture, "cuStreamBeginCapture_v2");
    FIND(end_capture, "cuStreamEndCapture");
    FIND(instantiate, "cuGraphInstantiateWithFlags");
    FIND(launch_graph, "cuGraphLaunch");
    MUST(begin_capture, stream, 0);
    for (int i = 0; i < GRAPH_KERNELS; i++) {
        MUST(launch, function, BLOCKS, 1, 1, 256, 1, 1, 0, stream, parameters, NULL);
    }
    MUST(end_capture, stream, &graph);
    MUST(instantiate, &work->graph, graph, 0);
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
    FIND(load, "cuModuleLoadData");
    FIND(get_function, "cuModuleGetFunction");
    MUST(load, &module, ptx);
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "aliquot_busy_%d", i);
        MUST(get_function, &functions[i], module, name);
    }
}

/* Where the tenant reports how long its work took, for `duty`. NULL: nowhere. */
static struct tenant_latencies *map_latencies(void) {
    const char *path = getenv("ALIQUOT_DUTY_LATENCIES");
    int file = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    void *mapped = file < 0 ? MAP_FAILED
                            : mmap(NULL, sizeof(struct tenant_latencies), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return mapped == MAP_FAILED ? NULL : mapped;
}

static void report_latency(struct tenant_latencies *latencies, uint64_t begun, uint64_t arrival) {
    if (latencies != NULL && latencies->count < TENANT_LATENCIES) {
        latencies->of[latencies->count].at = (float)((double)(now() - begun) / 1e9);
        latencies->of[latencies->count].ms = (float)((double)(now() - arrival) / 1e6);
        latencies->count++;
    }
}

_Noreturn void tenant_run(const char *shape, const char *pattern, unsigned long seed) {
    struct work work = {.streams = 1, .functions = 1, .kernels = 1};
    CUcontext context;
    CUfunction functions[MAX_FUNCTIONS];
    CUstream streams[MAX_STREAMS];
    bool graph = strcmp(shape, "graph") == 0;
    parse_pattern(&work, pattern);
    if (!graph) {
        parse_shape(&work, shape);
    }
    FIND(init, "cuInit");
    FIND(retain, "cuDevicePrimaryCtxRetain");
    FIND(set_current, "cuCtxSetCurrent");
    FIND(create_stream, "cuStreamCreate");
    FIND(synchronize, "cuStreamSynchronize");
    FIND(launch, "cuLaunchKernel");
    MUST(init, 0);
    MUST(retain, &context, 0);
    MUST(set_current, context);
    load_functions(functions, work.functions);
    for (int i = 0; i < work.streams; i++) {
        MUST(create_stream, &streams[i], 1);
    }
    unsigned long long target = 0;
    void *source = NULL;
    if (work.copied > 0) {
        FIND(allocate, "cuMemAlloc_v2");
        FIND(copy, "cuMemcpyHtoDAsync_v2");
        MUST(allocate, &target, work.copied);
        source = calloc(1, work.copied);
    }
    if (graph) {
        capture(&work, functions[0], streams[0]);
    }
    unsigned random = (unsigned)seed;
    struct tenant_latencies *latencies = work.synchronizes ? map_latencies() : NULL;
    uint64_t start = now(), begun = start, arrival = start;
    for (unsigned i = 0;; i++) {
        CUstream stream = streams[i % (unsigned)work.streams];
        bool ends = (i + 1) % (unsigned)work.kernels == 0;
        if (work.poisson > 0 && i % (unsigned)work.kernels == 0) { /* a request waits for the earlier ones */
            double random_part = (rand_r(&random) + 1.0) / (RAND_MAX + 2.0);
            arrival += (uint64_t)(-log(random_part) * (double)work.durations[0] * work.kernels * 100 / work.poisson);
            if (arrival > now()) {
                tenant_sleep_until(arrival);
            }
        } else if (work.poisson <= 0) {
            arrival = now();
        }
        if (graph) {
            MUST(launch_graph, work.graph, stream);
        } else {
            int which = work.count > 1 ? rand_r(&random) % work.count : 0;
            void *parameters[] = {&work.durations[which]};
            unsigned blocks = BLOCKS << (work.same_grid ? 0 : which);
            CUfunction function = functions[i % (unsigned)work.functions];
            MUST(launch, function, blocks, 1, 1, 256, 1, 1, 0, stream, parameters, NULL);
        }
        if (work.copied > 0) {
            MUST(copy, target, source, work.copied, stream);
        }
        if (work.synchronizes && ends) {
            MUST(synchronize, stream);
            report_latency(latencies, begun, arrival);
        }
        if (work.think > 0) {
            tenant_sleep_until(now() + (uint64_t)(work.think * 1e6));
        }
        if (work.idle > 0 && (double)(now() - start) >= work.busy * 1e9) {
            MUST(synchronize, stream);
            tenant_sleep_until(now() + (uint64_t)(work.idle * 1e9));
            start = now();
        }
    }
}
