/*
 * Measures a program whose kernels wait for each other on several simulated GPUs, as NCCL's collectives do, under a
 * compute limit: its speed relative to its speed without one, the share of each GPU that it gets, and how long ranks
 * wait for each other.
 *
 * `ranks OPTIONS` creates the GPUs and starts itself again as the program, once without and once with the limit, and as
 * the meter, in virtual time. Each step of a rank is a number of kernels and a group of collectives. The ranks are
 * driven by one thread, which launches a group's collectives on one GPU after the other (ncclGroupEnd in a process with
 * several GPUs), by a thread each, or by a process each.
 */
#include "gpu_time.h"
#include "tenant.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_RANKS = 4, MAX_RIVALS = 2, BLOCKS = 108, COLLECTIVE_BLOCKS = 16, POLL_NS = 2000000 };

static const char help[] =
    "usage: ranks [OPTIONS]\n"
    "Measures the speed of a program with collectives under a compute limit, relative to its speed without.\n"
    "\n"
    "  --limit P          compute limit of each GPU in percent (default 30)\n"
    "  --ranks N          number of ranks, each on a GPU of its own, 1 to 4 (default 2)\n"
    "  --by WHAT          thread: one thread drives all ranks (default); threads: a thread each; processes: one each\n"
    "  --kernels N        kernels of a step (default 8)\n"
    "  --kernel US        duration of a kernel (default 500)\n"
    "  --collectives N    collectives of a step (default 1)\n"
    "  --collective US    duration of a collective once all ranks have started it (default 300)\n"
    "  --uneven P         each rank's kernels are this many percent longer than those of the one before (default 0)\n"
    "  --sync             waits for the end of each step\n"
    "  --attribute        collectives have the attribute of NCCL's since compute capability 9, and an unknown name\n"
    "  --disguised        they have neither\n"
    "  --beside           a second thread of each rank launches kernels of the same length without end\n"
    "  --rival P          another container has this limit on each GPU, and keeps it busy\n"
    "  --rivals N         so many of them, 1 or 2 on each GPU (default 1)\n"
    "  --seconds S        duration of each measurement (default 10)\n"
    "  --warm-up S        time before it (default 2)\n"
    "  --least R          smallest relative speed (default 0)\n"
    "  --most P           largest share of a GPU in percent (default 100)\n"
    "  --waited MS        longest time for which a rank may wait on its GPU for another one (default: any)\n"
    "  --seed N           of the kernels' jitter (default 1)\n"
    "\n"
    "exit status: 0 if all figures are within their bounds, 1 if one is not, 2 if the measurement failed\n";

static struct options {
    int limit, rival, rivals, ranks, kernels, collectives, uneven, seed;
    double kernel, collective, seconds, warm_up, least, most, waited;
    bool threads, processes, sync, attribute, disguised, beside;
} options = {.limit = 30,
             .rivals = 1,
             .ranks = 2,
             .kernels = 8,
             .kernel = 500,
             .collectives = 1,
             .collective = 300,
             .seconds = 10,
             .warm_up = 2,
             .most = 100,
             .waited = 1e9,
             .seed = 1};

/* What ranks and meter tell each other, in shared memory. */
static struct figures {
    pid_t rivals[MAX_RANKS][MAX_RIVALS]; /* 0: none */
    double waited; /* longest time, in ms, for which a rank's kernel waited on its GPU for another rank's */
    struct {
        _Atomic uint64_t steps;
        double speed, share; /* steps per second, percent of the GPU */
    } rank[MAX_RANKS];
} * figures;

/* ---- a rank ---- */

struct rank {
    int number;
    CUcontext context;
    CUstream stream;
    CUfunction kernel, collective;
    uint64_t collectives;
};

static void begin(struct rank *rank, int number) {
    const char *name =
        options.attribute || options.disguised ? "aliquot_collective" : "ncclDevKernel_aliquot_collective";
    char image[512];
    void *module;
    rank->number = number;
    MUST(CALL(cuDevicePrimaryCtxRetain, CUcontext *, CUdevice)(&rank->context, number));
    MUST(CALL(cuCtxSetCurrent, CUcontext)(rank->context));
    snprintf(image, sizeof image,
             ".version 7.0\n.target sm_80\n.address_size 64\n"
             ".visible .entry aliquot_busy(.param .u64 ns)\n{\n    ret;\n}\n"
             ".visible .entry %s(.param .u64 ns, .param .u64 number, .param .u64 ranks)\n{\n    ret;\n}\n",
             name);
    MUST(CALL(cuModuleLoadData, void **, const void *)(&module, image));
    MUST(CALL(cuModuleGetFunction, CUfunction *, void *, const char *)(&rank->kernel, module, "aliquot_busy"));
    MUST(CALL(cuModuleGetFunction, CUfunction *, void *, const char *)(&rank->collective, module, name));
    MUST(CALL(cuStreamCreate, CUstream *, unsigned)(&rank->stream, 1));
}

static void launch(const CUlaunchConfig *config, CUfunction function, void **parameters) {
    MUST(CALL(cuLaunchKernelEx, const CUlaunchConfig *, CUfunction, void **, void **)(config, function, parameters,
                                                                                      NULL));
}

static void launch_kernels(struct rank *rank) {
    CUlaunchConfig config = {BLOCKS, 1, 1, 256, 1, 1, 0, rank->stream, NULL, 0};
    uint64_t ns = (uint64_t)(options.kernel * 1e3 * (1 + options.uneven * rank->number / 100.0));
    void *parameters[] = {&ns};
    for (int i = 0; i < options.kernels; i++) {
        launch(&config, rank->kernel, parameters);
    }
}

static void launch_collective(struct rank *rank) {
    CUlaunchAttribute remote = {.id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
                                .value.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE};
    CUlaunchConfig config = {.gridDimX = COLLECTIVE_BLOCKS,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 256,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = rank->stream};
    if (options.attribute) {
        config.attrs = &remote;
        config.numAttrs = 1;
    }
    uint64_t ns = (uint64_t)(options.collective * 1e3), number = ++rank->collectives;
    uint64_t ranks = (uint64_t)options.ranks;
    void *parameters[] = {&ns, &number, &ranks};
    launch(&config, rank->collective, parameters);
}

static void start_thread(void *(*run)(void *), int number) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, (void *)(intptr_t)number) != 0) {
        setup_fail("cannot start a thread");
    }
}

static void *launch_beside(void *number) {
    struct rank rank = {0};
    begin(&rank, (int)(intptr_t)number);
    for (;;) {
        launch_kernels(&rank);
    }
    return NULL;
}

/* Drives count ranks in an endless loop. */
static void drive(int first, int count) {
    struct rank ranks[MAX_RANKS] = {0};
    for (int i = 0; i < count; i++) {
        begin(&ranks[i], first + i);
        if (options.beside) {
            start_thread(launch_beside, first + i);
        }
    }
    for (;;) {
        for (int i = 0; i < count; i++) {
            MUST(CALL(cuCtxSetCurrent, CUcontext)(ranks[i].context));
            launch_kernels(&ranks[i]);
        }
        for (int n = 0; n < options.collectives; n++) {
            for (int i = 0; i < count; i++) {
                MUST(CALL(cuCtxSetCurrent, CUcontext)(ranks[i].context));
                launch_collective(&ranks[i]);
            }
        }
        for (int i = 0; i < count; i++) {
            if (options.sync) {
                MUST(CALL(cuStreamSynchronize, CUstream)(ranks[i].stream));
            }
            atomic_fetch_add(&figures->rank[first + i].steps, 1);
        }
    }
}

static void *drive_one(void *number) {
    drive((int)(intptr_t)number, 1);
    return NULL;
}

static void run_ranks(int first) {
    MUST(CALL(cuInit, unsigned)(0));
    for (int i = 1; i < options.ranks && options.threads; i++) {
        start_thread(drive_one, i);
    }
    drive(first, options.processes || options.threads ? 1 : options.ranks);
}

/* ---- the meter ---- */

/* Steps that all ranks have launched. */
static uint64_t steps_of_all(void) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < options.ranks; i++) {
        uint64_t steps = atomic_load(&figures->rank[i].steps);
        least = steps < least ? steps : least;
    }
    return least;
}

/* The time between the first and the last rank's start of a collective; false if they are not known. */
static bool spread_of(gpu_file *const gpus[MAX_RANKS], uint64_t number, uint64_t *spread) {
    uint64_t first = UINT64_MAX, last = 0;
    unsigned ranks = (unsigned)options.ranks;
    for (unsigned i = 0; i < ranks; i++) {
        uint64_t start = gpu_collective_start(gpus[i], gpu_collective(number, ranks));
        first = start < first ? start : first;
        last = start > last ? start : last;
    }
    *spread = last - first;
    return first != 0;
}

/* Time in which the program kept a GPU busy. */
static uint64_t busy_ns(gpu_file *gpu, const pid_t rivals[MAX_RIVALS]) {
    uint64_t busy = gpu_busy_ns(gpu, -1);
    for (int i = 0; i < MAX_RIVALS; i++) {
        int slot = rivals[i] != 0 ? setup_slot_of(gpu, rivals[i]) : -1;
        busy -= slot < 0 ? 0 : gpu_busy_ns(gpu, slot);
    }
    return busy;
}

static void measure(void) {
    gpu_file *gpus[MAX_RANKS];
    if (gpu_open_all(gpu_directory(), gpus, MAX_RANKS, NULL) != (size_t)options.ranks) {
        setup_fail("cannot open the GPUs");
    }
    uint64_t start = gpu_now() + (uint64_t)(options.warm_up * 1e9), end = start + (uint64_t)(options.seconds * 1e9);
    uint64_t steps[MAX_RANKS], busy[MAX_RANKS];
    gpu_sleep_until(start);
    for (int i = 0; i < options.ranks; i++) {
        steps[i] = atomic_load(&figures->rank[i].steps);
        busy[i] = busy_ns(gpus[i], figures->rivals[i]);
    }
    uint64_t number = steps_of_all() * (uint64_t)options.collectives, spread, longest = 0;
    while (number > 1 && !spread_of(gpus, number, &spread)) {
        number--; /* launched, and not started yet */
    }
    while (gpu_now() < end) {
        gpu_sleep_until(gpu_now() + POLL_NS);
        for (; spread_of(gpus, number, &spread); number++) {
            longest = spread > longest ? spread : longest;
        }
    }
    figures->waited = (double)longest / 1e6;
    double seconds = options.seconds;
    for (int i = 0; i < options.ranks; i++) {
        figures->rank[i].speed = (double)(atomic_load(&figures->rank[i].steps) - steps[i]) / seconds;
        figures->rank[i].share = 100 * (double)(busy_ns(gpus[i], figures->rivals[i]) - busy[i]) / seconds / 1e9;
    }
}

/* ---- starting the processes ---- */

/* Creates a container with `count` GPUs, and adds its lines to the arbiter's list. */
static void create_container(const char *folder, const char *name, int first, int count, int cores, char *list,
                             size_t size) {
    char limits[MAX_RANKS * 128] = "";
    for (int i = first; i < first + count; i++) {
        size_t length = strlen(limits), listed = strlen(list);
        snprintf(limits + length, sizeof limits - length, "%s memory=1000Mi cores=%d\n", setup_uuid(i), cores);
        snprintf(list + listed, size - listed, "%s %s %d fixed normal -\n", name, setup_uuid(i), cores);
    }
    setup_container(folder, name, limits);
}

/* Runs the program with a limit; 0: none. The figures stay. */
static const struct figures *run(int limit) {
    char folder[PATH_LENGTH], role[] = "rank-0", rival[] = "rival-0-0", gpu[] = "0";
    char list[(1 + MAX_RIVALS) * MAX_RANKS * 128] = "";
    int processes = options.processes ? options.ranks : 1, ends[2];
    int rivals = options.rival > 0 ? options.ranks * options.rivals : 0;
    setup_create(folder, options.ranks, 2 + processes + rivals, options.seed);
    figures = setup_share(folder, sizeof *figures);
    create_container(folder, "ranks", 0, options.ranks, limit, list, sizeof list);
    setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3", 1);
    pid_t pids[MAX_RANKS];
    for (int i = 0; i < processes; i++) {
        role[5] = (char)('0' + i);
        pids[i] = setup_start(folder, role, "ranks");
    }
    for (int i = 0; i < rivals; i++) {
        int of_gpu = i % options.ranks, number = i / options.ranks;
        rival[6] = gpu[0] = (char)('0' + of_gpu);
        rival[8] = (char)('0' + number);
        create_container(folder, rival, of_gpu, 1, options.rival, list, sizeof list);
        setenv("CUDA_VISIBLE_DEVICES", gpu, 1);
        figures->rivals[of_gpu][number] = setup_start(folder, rival, rival);
    }
    int status = 1;
    if (pipe2(ends, O_CLOEXEC) != 0 || dprintf(ends[1], "%s.\n", list) < 0) { /* the list stays */
        setup_fail("cannot write to a pipe");
    }
    pid_t arbiter = setup_start_arbiter(folder, NULL, ends[0]);
    waitpid(setup_start(folder, "meter", NULL), &status, 0);
    setup_stop(arbiter);
    close(ends[0]);
    close(ends[1]);
    for (int i = 0; i < processes; i++) {
        setup_stop(pids[i]);
    }
    for (int i = 0; i < rivals; i++) {
        setup_stop(figures->rivals[i % options.ranks][i / options.ranks]);
    }
    setup_remove(folder);
    if (status != 0) {
        setup_fail("the measurement failed");
    }
    return figures;
}

/* Runs what `run` has started this program as. */
static void run_role(const char *role, const char *folder) {
    figures = setup_share(folder, sizeof *figures);
    if (strcmp(role, "meter") == 0) {
        measure();
    } else if (strncmp(role, "rival", 5) == 0) {
        tenant_run("1ms", "busy", 1, NULL);
    } else {
        run_ranks(role[5] - '0');
    }
}

static void parse(char **arguments) {
    const char *by = "thread";
    const struct setup_option names[] = {{"limit", .integer = &options.limit, .max = 100},
                                         {"ranks", .integer = &options.ranks, .min = 1, .max = MAX_RANKS},
                                         {"by", .text = &by},
                                         {"kernels", .integer = &options.kernels, .max = 1e6},
                                         {"kernel", .number = &options.kernel, .max = 1e9},
                                         {"collectives", .integer = &options.collectives, .max = 1e6},
                                         {"collective", .number = &options.collective, .max = 1e9},
                                         {"uneven", .integer = &options.uneven, .max = 1e6},
                                         {"rival", .integer = &options.rival, .max = 100},
                                         {"rivals", .integer = &options.rivals, .min = 1, .max = MAX_RIVALS},
                                         {"sync", .flag = &options.sync},
                                         {"attribute", .flag = &options.attribute},
                                         {"disguised", .flag = &options.disguised},
                                         {"beside", .flag = &options.beside},
                                         {"seconds", .number = &options.seconds, .max = 3600},
                                         {"warm-up", .number = &options.warm_up, .max = 3600},
                                         {"least", .number = &options.least, .max = 1},
                                         {"most", .number = &options.most, .max = 100},
                                         {"waited", .number = &options.waited, .max = 1e9},
                                         {"seed", .integer = &options.seed, .max = 1e6},
                                         {NULL}};
    setup_parse(names, help, arguments);
    options.threads = strcmp(by, "threads") == 0;
    options.processes = strcmp(by, "processes") == 0;
}

int main(int count, char **arguments) {
    bool has_role = count > 2 && arguments[1][0] != '-'; /* ROLE FOLDER OPTION... */
    parse(arguments + (has_role ? 3 : 1));
    if (has_role) {
        run_role(arguments[1], arguments[2]);
        return EXIT_SUCCESS;
    }
    const struct figures *alone = run(0), *limited = run(options.limit);
    bool good = true;
    for (int i = 0; i < options.ranks; i++) {
        double ratio = limited->rank[i].speed / alone->rank[i].speed, share = limited->rank[i].share;
        printf("rank %d: %.1f steps/s alone, %.1f with a limit of %d %%: %.3f; %.1f %% of its GPU\n", i,
               alone->rank[i].speed, limited->rank[i].speed, options.limit, ratio, share);
        good &= ratio >= options.least && share <= options.most;
    }
    printf("a rank waited for another one up to %.1f ms, without a limit up to %.1f ms\n", limited->waited,
           alone->waited);
    good &= limited->waited <= options.waited;
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
