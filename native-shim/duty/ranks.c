/*
 * Measures a program whose kernels wait for each other on several simulated GPUs, as NCCL's collectives do, under a
 * compute limit: its speed relative to its speed without one, the share of each GPU that it gets, and how long its
 * launches are held back.
 *
 * `ranks OPTIONS` creates the GPUs and starts itself again as the program, once without and once with the limit, and as
 * the meter, in virtual time. Each step of a rank is a number of kernels and a group of collectives. The ranks are
 * driven by one thread, which launches a group's collectives on one GPU after the other (ncclGroupEnd in a process with
 * several GPUs), by a thread each, or by a process each.
 */
#include "driver/abi.h"
#include "gpu_file.h"
#include "gpu_time.h"
#include "tenant.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_RANKS = 4, PATH_LENGTH = 512, BLOCKS = 108, COLLECTIVE_BLOCKS = 16, POLL_NS = 2000000 };

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
    "  --seconds S        duration of each measurement (default 10)\n"
    "  --warm-up S        time before it (default 2)\n"
    "  --least R          smallest relative speed (default 0)\n"
    "  --most P           largest share of a GPU in percent (default 100)\n"
    "  --waited MS        longest time for which a rank may wait on its GPU for another one (default: any)\n"
    "  --seed N           of the kernels' jitter (default 1)\n"
    "\n"
    "exit status: 0 if all figures are within their bounds, 1 if one is not, 2 if the measurement failed\n";

struct options {
    int limit, rival, ranks, kernels, collectives, uneven;
    double kernel, collective, seconds, warm_up, least, most, waited;
    bool threads, processes, sync, attribute, disguised, beside;
    unsigned long seed;
};

/* What ranks and meter tell each other, in a shared file. */
struct figures {
    struct options options;
    _Atomic int measuring;
    pid_t rivals[MAX_RANKS]; /* 0: none */
    double waited;           /* longest time, in ms, for which a rank's kernel waited on its GPU for another rank's */
    struct {
        _Atomic uint64_t steps, collective_held, kernel_held; /* the longest times of a launch, in ns */
        double speed, share;                                  /* steps per second, percent of the GPU */
    } rank[MAX_RANKS];
};

static void fail(const char *what) {
    fprintf(stderr, "ranks: %s\n", what);
    exit(2);
}

static const char *uuid_of(int rank) {
    static char uuid[48];
    snprintf(uuid, sizeof uuid, "GPU-00000000-0000-4000-8000-00000000da%02x", rank);
    return uuid;
}

static struct figures *map_figures(const char *folder) {
    char path[PATH_LENGTH];
    snprintf(path, sizeof path, "%.400s/figures", folder);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, sizeof(struct figures)) != 0) {
        fail("cannot create the figures");
    }
    void *figures = mmap(NULL, sizeof(struct figures), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (figures == MAP_FAILED) {
        fail("cannot map the figures");
    }
    return figures;
}

/* ---- a rank ---- */

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) != CUDA_SUCCESS) {                                                                                  \
            fprintf(stderr, "ranks: failed: %s\n", #call);                                                             \
            _exit(2);                                                                                                  \
        }                                                                                                              \
    } while (0)

static struct {
    CUresult (*init)(unsigned);
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*set_current)(CUcontext);
    CUresult (*load)(void **, const void *);
    CUresult (*get_function)(CUfunction *, void *, const char *);
    CUresult (*create_stream)(CUstream *, unsigned);
    CUresult (*synchronize)(CUstream);
    CUresult (*launch)(const CUlaunchConfig *, CUfunction, void **, void **);
} cuda;

static struct figures *figures;

struct rank {
    int number;
    CUcontext context;
    CUstream stream;
    CUfunction kernel, collective;
    uint64_t collectives;
};

static void find_driver(void) {
    static const char *const names[] = {
        "cuInit",         "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuModuleLoadData", "cuModuleGetFunction",
        "cuStreamCreate", "cuStreamSynchronize",      "cuLaunchKernelEx"};
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *function = driver == NULL ? NULL : dlsym(driver, names[i]);
        if (function == NULL) {
            fail("the driver lacks a function");
        }
        memcpy((char *)&cuda + i * sizeof function, &function, sizeof function);
    }
}

static void begin(struct rank *rank, int number) {
    const struct options *options = &figures->options;
    const char *name =
        options->attribute || options->disguised ? "aliquot_collective" : "ncclDevKernel_aliquot_collective";
    char image[512];
    void *module;
    rank->number = number;
    MUST(cuda.retain(&rank->context, number));
    MUST(cuda.set_current(rank->context));
    snprintf(image, sizeof image,
             ".version 7.0\n.target sm_80\n.address_size 64\n"
             ".visible .entry aliquot_busy(.param .u64 ns)\n{\n    ret;\n}\n"
             ".visible .entry %s(.param .u64 ns, .param .u64 number, .param .u64 ranks)\n{\n    ret;\n}\n",
             name);
    MUST(cuda.load(&module, image));
    MUST(cuda.get_function(&rank->kernel, module, "aliquot_busy"));
    MUST(cuda.get_function(&rank->collective, module, name));
    MUST(cuda.create_stream(&rank->stream, 1));
}

static void launch(CUlaunchConfig *config, CUfunction function, void **parameters, _Atomic uint64_t *longest) {
    uint64_t before = gpu_now();
    MUST(cuda.launch(config, function, parameters, NULL));
    uint64_t took = gpu_now() - before;
    if (atomic_load(&figures->measuring) && took > atomic_load(longest)) {
        atomic_store(longest, took);
    }
}

static void launch_kernels(struct rank *rank) {
    const struct options *options = &figures->options;
    CUlaunchConfig config = {BLOCKS, 1, 1, 256, 1, 1, 0, rank->stream, NULL, 0};
    uint64_t ns = (uint64_t)(options->kernel * 1e3 * (1 + options->uneven * rank->number / 100.0));
    void *parameters[] = {&ns};
    for (int i = 0; i < options->kernels; i++) {
        launch(&config, rank->kernel, parameters, &figures->rank[rank->number].kernel_held);
    }
}

static void launch_collective(struct rank *rank) {
    const struct options *options = &figures->options;
    CUlaunchAttribute remote = {.id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
                                .value.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE};
    CUlaunchConfig config = {.gridDimX = COLLECTIVE_BLOCKS,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 256,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = rank->stream};
    if (options->attribute) {
        config.attrs = &remote;
        config.numAttrs = 1;
    }
    uint64_t ns = (uint64_t)(options->collective * 1e3), number = ++rank->collectives;
    uint64_t ranks = (uint64_t)options->ranks;
    void *parameters[] = {&ns, &number, &ranks};
    launch(&config, rank->collective, parameters, &figures->rank[rank->number].collective_held);
}

static void start_thread(void *(*run)(void *), int number) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, (void *)(intptr_t)number) != 0) {
        fail("cannot start a thread");
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
    const struct options *options = &figures->options;
    struct rank ranks[MAX_RANKS] = {0};
    for (int i = 0; i < count; i++) {
        begin(&ranks[i], first + i);
        if (options->beside) {
            start_thread(launch_beside, first + i);
        }
    }
    for (;;) {
        for (int i = 0; i < count; i++) {
            MUST(cuda.set_current(ranks[i].context));
            launch_kernels(&ranks[i]);
        }
        for (int n = 0; n < options->collectives; n++) {
            for (int i = 0; i < count; i++) {
                MUST(cuda.set_current(ranks[i].context));
                launch_collective(&ranks[i]);
            }
        }
        for (int i = 0; i < count; i++) {
            if (options->sync) {
                MUST(cuda.synchronize(ranks[i].stream));
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
    const struct options *options = &figures->options;
    find_driver();
    MUST(cuda.init(0));
    for (int i = 1; i < options->ranks && options->threads; i++) {
        start_thread(drive_one, i);
    }
    drive(first, options->processes || options->threads ? 1 : options->ranks);
}

/* ---- the meter ---- */

/* Steps that all ranks have launched. */
static uint64_t steps_of_all(void) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < figures->options.ranks; i++) {
        uint64_t steps = atomic_load(&figures->rank[i].steps);
        least = steps < least ? steps : least;
    }
    return least;
}

/* The time between the first and the last rank's start of a collective; false if they are not known. */
static bool spread_of(gpu_file *const gpus[MAX_RANKS], uint64_t number, uint64_t *spread) {
    uint64_t first = UINT64_MAX, last = 0;
    unsigned ranks = (unsigned)figures->options.ranks;
    for (unsigned i = 0; i < ranks; i++) {
        uint64_t start = gpu_collective_start(gpus[i], gpu_collective(number, ranks));
        first = start < first ? start : first;
        last = start > last ? start : last;
    }
    *spread = last - first;
    return first != 0;
}

/* Time in which the program kept a GPU busy. */
static uint64_t busy_ns(gpu_file *gpu, pid_t rival) {
    static struct gpu_process processes[GPU_SLOTS];
    uint64_t busy = gpu_busy_ns(gpu, -1);
    size_t count = gpu_processes(gpu, processes, GPU_SLOTS);
    for (size_t i = 0; i < count && i < GPU_SLOTS; i++) {
        busy -= (pid_t)processes[i].pid == rival ? gpu_busy_ns(gpu, processes[i].slot) : 0;
    }
    return busy;
}

static void measure(const char *folder) {
    const struct options *options = &figures->options;
    char path[PATH_LENGTH];
    gpu_file *gpus[MAX_RANKS];
    snprintf(path, sizeof path, "%.400s/gpus", folder);
    if (gpu_open_all(path, gpus, MAX_RANKS, NULL) != (size_t)options->ranks) {
        fail("cannot open the GPUs");
    }
    uint64_t start = gpu_now() + (uint64_t)(options->warm_up * 1e9), end = start + (uint64_t)(options->seconds * 1e9);
    uint64_t steps[MAX_RANKS], busy[MAX_RANKS];
    tenant_sleep_until(start);
    for (int i = 0; i < options->ranks; i++) {
        steps[i] = atomic_load(&figures->rank[i].steps);
        busy[i] = busy_ns(gpus[i], figures->rivals[i]);
    }
    atomic_store(&figures->measuring, 1);
    uint64_t number = steps_of_all() * (uint64_t)options->collectives, spread, longest = 0;
    while (number > 1 && !spread_of(gpus, number, &spread)) {
        number--; /* launched, and not started yet */
    }
    while (gpu_now() < end) {
        tenant_sleep_until(gpu_now() + POLL_NS);
        for (; spread_of(gpus, number, &spread); number++) {
            longest = spread > longest ? spread : longest;
        }
    }
    figures->waited = (double)longest / 1e6;
    double seconds = options->seconds;
    for (int i = 0; i < options->ranks; i++) {
        figures->rank[i].speed = (double)(atomic_load(&figures->rank[i].steps) - steps[i]) / seconds;
        figures->rank[i].share = 100 * (double)(busy_ns(gpus[i], figures->rivals[i]) - busy[i]) / seconds / 1e9;
    }
}

/* ---- starting the processes ---- */

/* Starts this program in a role; the arbiter reads `input`. */
static pid_t start(const char *folder, const char *build, const char *role, int input) {
    pid_t child = fork();
    if (child == 0) {
        char text[2 * PATH_LENGTH + 64], self[PATH_LENGTH];
        ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
        self[length > 0 ? length : 0] = 0;
        snprintf(text, sizeof text, "%.400s/fake-driver", build);
        setenv("LD_LIBRARY_PATH", text, 1);
        snprintf(text, sizeof text, "%.400s/gpus", folder);
        setenv("ALIQUOT_FAKE_GPUS", text, 1);
        snprintf(text, sizeof text, "%lu", figures->options.seed);
        setenv("ALIQUOT_FAKE_SEED", text, 1);
        snprintf(text, sizeof text, "%.400s/clock", folder);
        setenv("ALIQUOT_VIRTUAL_TIME", text, 1);
        int rivals = figures->options.rival > 0 ? figures->options.ranks : 0;
        snprintf(text, sizeof text, "%d", 2 + rivals + (figures->options.processes ? figures->options.ranks : 1));
        setenv("ALIQUOT_VIRTUAL_TIME_PARTICIPANTS", text, 1);
        bool rival = strncmp(role, "rival", 5) == 0;
        container_enter(folder, rival ? role : "ranks");
        setenv("CUDA_VISIBLE_DEVICES", rival ? role + 5 : "0,1,2,3", 1);
        bool arbiter = strcmp(role, "arbiter") == 0, shim = !arbiter && strcmp(role, "meter") != 0;
        snprintf(text, sizeof text, "%.400s/test/virtual_time.so%s%.400s%s", build, shim ? ":" : "", shim ? build : "",
                 shim ? "/libaliquot.so" : "");
        setenv("LD_PRELOAD", text, 1);
        if (arbiter) {
            container_become_arbiter(build, folder, NULL, input);
        }
        execl(self, self, role, folder, (char *)NULL);
        _exit(2);
    }
    return child;
}

/* Creates a container with `count` GPUs, and adds its lines to the arbiter's list. */
static void create_container(const char *folder, const char *name, int first, int count, int cores, char *list,
                             size_t size) {
    char limits[MAX_RANKS * 128] = "";
    for (int i = first; i < first + count; i++) {
        size_t length = strlen(limits), listed = strlen(list);
        snprintf(limits + length, sizeof limits - length, "%s memory=1000Mi cores=%d\n", uuid_of(i), cores);
        snprintf(list + listed, size - listed, "%s %s %d fixed normal -\n", name, uuid_of(i), cores);
    }
    container_create(folder, name, limits);
}

/* Runs the program with a limit; 0: none. */
static struct figures run(const char *build, const struct options *options, int limit) {
    char folder[] = "/tmp/aliquot-ranks-XXXXXX", path[PATH_LENGTH];
    char error[GPU_ERROR_LENGTH];
    if (mkdtemp(folder) == NULL) {
        fail("cannot create a temporary folder");
    }
    snprintf(path, sizeof path, "%s/gpus", folder);
    mkdir(path, 0777);
    for (int i = 0; i < options->ranks; i++) {
        struct gpu_identity gpu = {.name = "NVIDIA A100-SXM4-80GB",
                                   .serial = "1",
                                   .memory_bytes = UINT64_C(80) << 30,
                                   .multiprocessors = BLOCKS,
                                   .compute_major = 8,
                                   .index = (uint32_t)i};
        snprintf(gpu.uuid, sizeof gpu.uuid, "%s", uuid_of(i));
        if (gpu_create(path, &gpu, error) != GPU_CREATED) {
            fail(error);
        }
    }
    char list[2 * MAX_RANKS * 128] = "";
    create_container(folder, "ranks", 0, options->ranks, limit, list, sizeof list);
    figures = map_figures(folder);
    figures->options = *options;
    pid_t pids[MAX_RANKS];
    int processes = options->processes ? options->ranks : 1;
    for (int i = 0; i < processes; i++) {
        char role[] = {(char)('0' + i), 0};
        pids[i] = start(folder, build, role, -1);
    }
    for (int i = 0; i < options->ranks && options->rival > 0; i++) {
        char role[] = {'r', 'i', 'v', 'a', 'l', (char)('0' + i), 0};
        create_container(folder, role, i, 1, options->rival, list, sizeof list);
        figures->rivals[i] = start(folder, build, role, -1);
    }
    int status = 1, ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0 || dprintf(ends[1], "%s.\n", list) < 0) { /* the list stays */
        fail("cannot write to a pipe");
    }
    pid_t arbiter = start(folder, build, "arbiter", ends[0]);
    waitpid(start(folder, build, "meter", -1), &status, 0);
    kill(arbiter, SIGKILL);
    waitpid(arbiter, NULL, 0);
    close(ends[0]);
    close(ends[1]);
    for (int i = 0; i < processes; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
    for (int i = 0; i < options->ranks && options->rival > 0; i++) {
        kill(figures->rivals[i], SIGKILL);
        waitpid(figures->rivals[i], NULL, 0);
    }
    snprintf(path, sizeof path, "rm -r %s", folder);
    if (system(path) != 0 || status != 0) {
        fail("the measurement failed");
    }
    struct figures result;
    memcpy(&result, figures, sizeof result);
    return result;
}

static struct options parse(int count, char **arguments) {
    static const struct option names[] = {
        {"limit", 1, NULL, 'l'},      {"ranks", 1, NULL, 'r'},     {"by", 1, NULL, 'b'},
        {"kernels", 1, NULL, 'k'},    {"kernel", 1, NULL, 'K'},    {"collectives", 1, NULL, 'c'},
        {"collective", 1, NULL, 'C'}, {"uneven", 1, NULL, 'u'},    {"rival", 1, NULL, 'R'},
        {"sync", 0, NULL, 's'},       {"attribute", 0, NULL, 'a'}, {"disguised", 0, NULL, 'd'},
        {"beside", 0, NULL, 'B'},     {"seconds", 1, NULL, 'S'},   {"warm-up", 1, NULL, 'w'},
        {"least", 1, NULL, 'L'},      {"most", 1, NULL, 'M'},      {"waited", 1, NULL, 'H'},
        {"seed", 1, NULL, 'e'},       {"help", 0, NULL, 'h'},      {NULL, 0, NULL, 0}};
    struct options options = {.limit = 30,
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
    for (int option; (option = getopt_long(count, arguments, "h", names, NULL)) != -1;) {
        double value = optarg != NULL ? atof(optarg) : 0;
        switch (option) {
        case 'l':
            options.limit = (int)value;
            break;
        case 'R':
            options.rival = (int)value;
            break;
        case 'r':
            options.ranks = value >= 1 && value <= MAX_RANKS ? (int)value : 2;
            break;
        case 'b':
            options.threads = strcmp(optarg, "threads") == 0;
            options.processes = strcmp(optarg, "processes") == 0;
            break;
        case 'k':
            options.kernels = (int)value;
            break;
        case 'K':
            options.kernel = value;
            break;
        case 'c':
            options.collectives = (int)value;
            break;
        case 'C':
            options.collective = value;
            break;
        case 'u':
            options.uneven = (int)value;
            break;
        case 's':
            options.sync = true;
            break;
        case 'a':
            options.attribute = true;
            break;
        case 'd':
            options.disguised = true;
            break;
        case 'B':
            options.beside = true;
            break;
        case 'S':
            options.seconds = value;
            break;
        case 'w':
            options.warm_up = value;
            break;
        case 'L':
            options.least = value;
            break;
        case 'M':
            options.most = value;
            break;
        case 'H':
            options.waited = value;
            break;
        case 'e':
            options.seed = (unsigned long)value;
            break;
        case 'h':
            fputs(help, stdout);
            exit(EXIT_SUCCESS);
        default:
            fputs(help, stderr);
            exit(2);
        }
    }
    return options;
}

int main(int count, char **arguments) {
    if (count == 3 && strcmp(arguments[1], "meter") == 0) {
        figures = map_figures(arguments[2]);
        measure(arguments[2]);
        return EXIT_SUCCESS;
    }
    if (count == 3 && arguments[1][0] >= '0' && arguments[1][0] < '0' + MAX_RANKS) {
        figures = map_figures(arguments[2]);
        run_ranks(arguments[1][0] - '0');
    }
    if (count == 3 && strncmp(arguments[1], "rival", 5) == 0) {
        tenant_run("1ms", "busy", 1);
    }
    struct options options = parse(count, arguments);
    char build[PATH_LENGTH];
    ssize_t length = readlink("/proc/self/exe", build, sizeof build - 1);
    build[length > 0 ? length : 0] = 0;
    for (int up = 0; up < 2 && strrchr(build, '/') != NULL; up++) { /* BUILD/duty/ranks */
        *strrchr(build, '/') = 0;
    }
    struct figures alone = run(build, &options, 0), limited = run(build, &options, options.limit);
    bool good = true;
    for (int i = 0; i < options.ranks; i++) {
        double ratio = limited.rank[i].speed / alone.rank[i].speed, share = limited.rank[i].share;
        double held = (double)atomic_load(&limited.rank[i].collective_held) / 1e6;
        printf("rank %d: %.1f steps/s alone, %.1f with a limit of %d %%: %.3f; %.1f %% of its GPU; collectives held up "
               "to %.0f ms, kernels up to %.0f ms\n",
               i, alone.rank[i].speed, limited.rank[i].speed, options.limit, ratio, share, held,
               (double)atomic_load(&limited.rank[i].kernel_held) / 1e6);
        good &= ratio >= options.least && share <= options.most;
    }
    printf("a rank waited for another one up to %.1f ms, without a limit up to %.1f ms\n", limited.waited,
           alone.waited);
    good &= limited.waited <= options.waited;
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
