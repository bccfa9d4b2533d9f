/*
 * Measures the nanoseconds that the shim adds to a call and prints them beside the design targets.
 *
 * It runs the same calls with and without the shim, in front of a driver whose calls cost almost nothing (null_cuda.c).
 * A run's figure is the median of short rounds. Of REPEATS alternating runs the minimum counts, because a disturbance
 * only adds time: on a virtual machine a busy loop may take twice as long for seconds at a time, as if another guest
 * used the core's other hardware thread, while a call that costs nothing hardly takes longer. Of runs with several
 * threads or processes the median counts, because on a single core they disturb each other least.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 201 /* short, so that the scheduler interrupts few of them */
#define CALLS 2000
#define THREADS 4
#define PEERS 63 /* beside the measured process */
#define REPEATS 9
#define COLD_BURST 10   /* launches in a burst with cold caches */
#define EVICT (1 << 20) /* bytes to read before a burst: more than the caches of a core hold */

typedef int alloc_function(unsigned long long *, size_t);
typedef int free_function(unsigned long long);
typedef int async_alloc_function(unsigned long long *, size_t, void *);
typedef int async_free_function(unsigned long long, void *);
typedef int info_function(size_t *, size_t *);
typedef int copy_function(unsigned long long, unsigned long long, size_t, void *);
typedef int launch_function(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                            void **, void **);

static alloc_function *alloc;
static free_function *dealloc;
static async_alloc_function *async_alloc;
static async_free_function *async_free;
static info_function *info;
static launch_function *launch;
static copy_function *copy;

/* As in a program that is linked to the driver; NULL without the shim. */
__attribute__((weak)) alloc_function cuMemAlloc_v2;
__attribute__((weak)) free_function cuMemFree_v2;
__attribute__((weak)) launch_function cuLaunchKernel;

static const char usage[] =
    "usage: bench-shim SHIM DRIVER_FOLDER\n"
    "\n"
    "Measures what SHIM (libaliquot.so) adds to calls into the libcuda.so.1 in DRIVER_FOLDER, a driver whose calls "
    "cost\n"
    "almost nothing, and prints it beside the targets. `cmake --build BUILD --target bench` runs it in half a minute.\n"
    "\n"
    "  bare    nanoseconds of the call without the shim: the minimum of nine runs; with several threads or processes\n"
    "          the median\n"
    "  shim    the same with the shim\n"
    "  added   shim - bare; the targets are for this figure\n"
    "  ratio   added / target; above 1 the target is missed\n"
    "  worst   added in the slowest run\n"
    "\n"
    "On a busy machine only ratios within one run are meaningful. The exit status does not depend on the figures.\n";

static void die(const char *what) {
    perror(what);
    exit(EXIT_FAILURE);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

static double median(double *values, size_t count) {
    qsort(values, count, sizeof values[0], ascending);
    return values[count / 2];
}

/* ---- the measured program ---- */

static void *pairs(void *unused) {
    for (int i = 0; i < CALLS; i++) {
        unsigned long long address = 0;
        if (alloc(&address, 4096) != 0 || dealloc(address) != 0) {
            fprintf(stderr, "bench-shim: a call failed\n");
            exit(EXIT_FAILURE);
        }
    }
    return unused;
}

static void *async_pairs(void *unused) {
    for (int i = 0; i < CALLS; i++) {
        unsigned long long address = 0;
        if (async_alloc(&address, 4096, NULL) != 0 || async_free(address, NULL) != 0) {
            fprintf(stderr, "bench-shim: a call failed\n");
            exit(EXIT_FAILURE);
        }
    }
    return unused;
}

static void *infos(void *unused) {
    size_t free_bytes, total_bytes;
    for (int i = 0; i < CALLS; i++) {
        info(&free_bytes, &total_bytes);
    }
    return unused;
}

static void *launches(void *unused) {
    static char function; /* a handle that the driver does not use */
    for (int i = 0; i < CALLS; i++) {
        launch(&function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    }
    return unused;
}

static void *small_copies(void *unused) {
    for (int i = 0; i < CALLS; i++) {
        copy(4096, 8192, 4096, NULL);
    }
    return unused;
}

static void *large_copies(void *unused) {
    for (int i = 0; i < CALLS; i++) {
        copy(4096, 8192, 1 << 20, NULL);
    }
    return unused;
}

/* Median time per launch in bursts, each after the program has evicted the shim's data from the caches. */
static double time_per_cold_launch(void) {
    static volatile char memory[EVICT], function;
    double times[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < sizeof memory; i += 64) {
            memory[i]++;
        }
        double start = now();
        for (int i = 0; i < COLD_BURST; i++) {
            launch((void *)&function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        }
        times[round] = (now() - start) / COLD_BURST;
    }
    return median(times, ROUNDS);
}

/* Median wall time per call; the calls of all threads count. */
static double time_per_call(void *(*body)(void *), int threads) {
    double times[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread[THREADS];
        double start = now();
        for (int i = 1; i < threads; i++) {
            pthread_create(&thread[i], NULL, body, NULL);
        }
        body(NULL);
        for (int i = 1; i < threads; i++) {
            pthread_join(thread[i], NULL);
        }
        times[round] = (now() - start) / CALLS / threads;
    }
    return median(times, ROUNDS);
}

static void find_driver(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL) {
        fprintf(stderr, "bench-shim: %s\n", dlerror());
        exit(EXIT_FAILURE);
    }
    alloc = (alloc_function *)dlsym(driver, "cuMemAlloc_v2");
    dealloc = (free_function *)dlsym(driver, "cuMemFree_v2");
    async_alloc = (async_alloc_function *)dlsym(driver, "cuMemAllocAsync");
    async_free = (async_free_function *)dlsym(driver, "cuMemFreeAsync");
    info = (info_function *)dlsym(driver, "cuMemGetInfo_v2");
    launch = (launch_function *)dlsym(driver, "cuLaunchKernel");
    copy = (copy_function *)dlsym(driver, "cuMemcpyAsync");
    ((int (*)(unsigned))dlsym(driver, "cuInit"))(0);
}

static void link_to_driver(void) {
    find_driver();
    if (cuLaunchKernel != NULL && cuMemAlloc_v2 != NULL && cuMemFree_v2 != NULL) {
        launch = cuLaunchKernel;
        alloc = cuMemAlloc_v2;
        dealloc = cuMemFree_v2;
    }
}

static void allocate_and_keep(int allocations) {
    for (int i = 0; i < allocations; i++) {
        unsigned long long address;
        alloc(&address, 4096);
    }
}

/* Starts processes that keep one allocation each; active ones also allocate and free all the time. Returns when all of
   them have started. */
static void start_peers(int peers, bool active) {
    int ends[2];
    char started;
    if (pipe(ends) != 0) {
        die("pipe");
    }
    for (int i = 0; i < peers; i++) {
        if (fork() == 0) {
            find_driver();
            allocate_and_keep(1);
            if (write(ends[1], "", 1) != 1) {
                _exit(EXIT_FAILURE);
            }
            while (active) {
                pairs(NULL);
            }
            pause();
        }
    }
    for (int i = 0; i < peers; i++) {
        if (read(ends[0], &started, 1) != 1) {
            die("peers");
        }
    }
}

enum figure {
    LAUNCH,
    COLD,
    PAIRS,
    PAIRS_10000,
    PAIRS_100000,
    PAIRS_THREADS,
    ASYNC,
    ASYNC_THREADS,
    INFO,
    COPY,
    LARGE_COPY,
    CALL_FIGURES
};
enum linked_figure { FOUND_LAUNCH, FOUND_PAIRS, LINKED_LAUNCH, LINKED_PAIRS, LINKED_FIGURES };

/* `bench-shim measure calls`, `bench-shim measure linked` or `bench-shim measure PEERS idle|active`: prints the
   figures, then kills itself and its peers. */
static void measure(char **arguments) {
    if (strcmp(arguments[0], "calls") == 0) {
        double found[CALL_FIGURES];
        find_driver();
        found[LAUNCH] = time_per_call(launches, 1);
        found[COLD] = time_per_cold_launch();
        found[COPY] = time_per_call(small_copies, 1);
        found[LARGE_COPY] = time_per_call(large_copies, 1);
        found[PAIRS] = time_per_call(pairs, 1);
        found[INFO] = time_per_call(infos, 1);
        found[ASYNC] = time_per_call(async_pairs, 1);
        found[ASYNC_THREADS] = time_per_call(async_pairs, THREADS);
        allocate_and_keep(10000);
        found[PAIRS_10000] = time_per_call(pairs, 1);
        found[PAIRS_THREADS] = time_per_call(pairs, THREADS);
        allocate_and_keep(90000);
        found[PAIRS_100000] = time_per_call(pairs, 1);
        for (int i = 0; i < CALL_FIGURES; i++) {
            printf("%f\n", found[i]);
        }
    } else if (strcmp(arguments[0], "linked") == 0) {
        find_driver();
        printf("%f\n", time_per_call(launches, 1));
        printf("%f\n", time_per_call(pairs, 1));
        link_to_driver();
        printf("%f\n", time_per_call(launches, 1));
        printf("%f\n", time_per_call(pairs, 1));
    } else {
        start_peers(atoi(arguments[0]), strcmp(arguments[1], "active") == 0);
        find_driver();
        printf("%f\n", time_per_call(pairs, 1));
    }
    fflush(stdout);
    kill(0, SIGKILL); /* the process group: the peers and this process */
}

/* ---- the program that runs it ---- */

struct side {
    const char *shim;     /* NULL: bare calls */
    const char *settings; /* in the limit file */
};

static const char *self, *driver_folder;
static char folder[] = "/tmp/aliquot-bench-XXXXXX", limits[64], region[64];

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0) {
        die(path);
    }
}

static void new_container(const char *settings) {
    char line[128];
    snprintf(line, sizeof line, "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f memory=40960Mi %s\n", settings);
    write_file(limits, line);
    write_file(region, "");
}

/* Runs this program's measure mode in a process group of its own and reads its figures. */
static void run(struct side side, char *const *arguments, double *figures, int count) {
    int ends[2];
    if (pipe(ends) != 0) {
        die("pipe");
    }
    new_container(side.settings);
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        dup2(ends[1], STDOUT_FILENO);
        setenv("LD_LIBRARY_PATH", driver_folder, 1);
        if (side.shim != NULL) {
            setenv("LD_PRELOAD", side.shim, 1);
        }
        execv(self, arguments);
        _exit(EXIT_FAILURE);
    }
    close(ends[1]);
    FILE *output = fdopen(ends[0], "r");
    for (int i = 0; i < count; i++) {
        if (fscanf(output, "%lf", &figures[i]) != 1) {
            fprintf(stderr, "bench-shim: the measured program failed\n");
            exit(EXIT_FAILURE);
        }
    }
    fclose(output);
    waitpid(child, NULL, 0);
}

enum { MIN = 0, MEDIAN = REPEATS / 2, MAX = REPEATS - 1 }; /* indexes of sorted runs */

/* Prints a row; returns the nanoseconds that the shim adds. */
static double row(const char *name, double bare[REPEATS], double shim[REPEATS], int which, double target,
                  const char *others) {
    qsort(bare, REPEATS, sizeof bare[0], ascending);
    qsort(shim, REPEATS, sizeof shim[0], ascending);
    double added = shim[which] - bare[which];
    printf("%-38s %7.1f %7.1f %7.1f", name, bare[which], shim[which], added);
    if (target > 0) {
        printf(" %7.0f %7.2f", target, added / target);
    } else {
        printf(" %7s %7s", "-", "-");
    }
    printf(" %7.1f   %s\n", shim[MAX] - bare[which], others);
    return added;
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "measure") == 0) {
        measure(argv + 2);
    }
    if (argc != 3) {
        bool help = argc == 2 && strcmp(argv[1], "--help") == 0;
        fputs(usage, help ? stdout : stderr);
        return help ? EXIT_SUCCESS : 2;
    }
    if (mkdtemp(folder) == NULL) {
        die("bench-shim");
    }
    self = argv[0];
    driver_folder = argv[2];
    snprintf(limits, sizeof limits, "%s/vgpu", folder);
    snprintf(region, sizeof region, "%s/region", folder);
    setenv("ALIQUOT_CONFIG", limits, 1);
    setenv("ALIQUOT_REGION", region, 1);
    unsetenv("LD_PRELOAD");

    enum { BARE, SHIM, LIMITED, SIDES };
    enum { WHOLE = 1, WHOLE_SIDES };
    enum { ONE, IDLE, ACTIVE, PROCESS_FIGURES };
    const struct side sides[SIDES] = {{NULL, "cores=0"}, {argv[1], "cores=0"}, {argv[1], "cores=50 policy=fixed"}};
    const struct side whole_sides[WHOLE_SIDES] = {{NULL, "cores=100 exclusive"}, {argv[1], "cores=100 exclusive"}};
    char peers[16];
    snprintf(peers, sizeof peers, "%d", PEERS);
    char *calls[] = {argv[0], "measure", "calls", NULL};
    char *linked[] = {argv[0], "measure", "linked", NULL};
    char *process_arguments[PROCESS_FIGURES][5] = {{argv[0], "measure", "0", "idle", NULL},
                                                   {argv[0], "measure", peers, "idle", NULL},
                                                   {argv[0], "measure", peers, "active", NULL}};
    static double found[SIDES][CALL_FIGURES][REPEATS], process_times[2][PROCESS_FIGURES][REPEATS];
    static double whole[WHOLE_SIDES][LINKED_FIGURES][REPEATS];
    double figures[CALL_FIGURES];
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        for (int side = 0; side < SIDES; side++) {
            run(sides[side], calls, figures, CALL_FIGURES);
            for (int i = 0; i < CALL_FIGURES; i++) {
                found[side][i][repeat] = figures[i];
            }
        }
        for (int side = 0; side < WHOLE_SIDES; side++) {
            run(whole_sides[side], linked, figures, LINKED_FIGURES);
            for (int i = 0; i < LINKED_FIGURES; i++) {
                whole[side][i][repeat] = figures[i];
            }
        }
        for (int i = 0; i < PROCESS_FIGURES; i++) {
            run(sides[BARE], process_arguments[i], &process_times[BARE][i][repeat], 1);
            run(sides[SHIM], process_arguments[i], &process_times[SHIM][i][repeat], 1);
        }
    }
    unlink(limits);
    unlink(region);
    rmdir(folder);

    printf("%-38s %7s %7s %7s %7s %7s %7s   %s\n", "nanoseconds", "bare", "shim", "added", "target", "ratio", "worst",
           "HAMi-core");
#define ROW(name, figure, side, target, others) row(name, found[BARE][figure], found[side][figure], MIN, target, others)
    ROW("launch, no compute limit", LAUNCH, SHIM, 10, "21-39");
    ROW("launch, compute limit 50 %", LAUNCH, LIMITED, 25, "21-39");
    ROW("launch, cold caches, no compute limit", COLD, SHIM, 0, "");
    ROW("launch, cold caches, limit 50 %", COLD, LIMITED, 0, "");
    ROW("copy of 4 KiB, no compute limit", COPY, SHIM, 0, "");
    ROW("copy of 4 KiB, compute limit 50 %", COPY, LIMITED, 0, "");
    ROW("copy of 1 MiB, compute limit 50 %", LARGE_COPY, LIMITED, 0, "");
#define WHOLE_ROW(name, figure, target) row(name, whole[BARE][figure], whole[WHOLE][figure], MIN, target, "")
    WHOLE_ROW("launch, whole card", FOUND_LAUNCH, 0);
    WHOLE_ROW("launch, whole card, linked program", LINKED_LAUNCH, 2);
    WHOLE_ROW("alloc+free, whole card", FOUND_PAIRS, 0);
    WHOLE_ROW("alloc+free, whole card, linked program", LINKED_PAIRS, 4);
    ROW("alloc+free, 0 live", PAIRS, SHIM, 60, "634-810");
    ROW("alloc+free, 10,000 live", PAIRS_10000, SHIM, 80, "20,700");
    ROW("alloc+free, 100,000 live", PAIRS_100000, SHIM, 0, "");
    row("alloc+free, 4 threads, per pair", found[BARE][PAIRS_THREADS], found[SHIM][PAIRS_THREADS], MEDIAN, 200,
        "4,800");
    ROW("alloc+free, stream order", ASYNC, SHIM, 300, "");
    row("the same, 4 threads, per pair", found[BARE][ASYNC_THREADS], found[SHIM][ASYNC_THREADS], MEDIAN, 300, "");
    ROW("cuMemGetInfo", INFO, SHIM, 30, "926-1,174");
    double one = row("alloc+free, one process", process_times[BARE][ONE], process_times[SHIM][ONE], MIN, 0, "");
    row("alloc+free, 64 processes, 63 idle", process_times[BARE][IDLE], process_times[SHIM][IDLE], MIN, 2 * one, "");
    row("alloc+free, 64 processes, all active", process_times[BARE][ACTIVE], process_times[SHIM][ACTIVE], MEDIAN,
        2 * one, "");
    return EXIT_SUCCESS;
}
