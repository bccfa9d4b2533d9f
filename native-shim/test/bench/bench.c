/*
 * Measures the nanoseconds that the shim adds to a call, and the microseconds that it adds to the start of a program
 * that uses no GPU, and prints them beside the design targets.
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
#include <spawn.h>
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
#define COLD_BURST 10 /* launches in a burst with cold caches */
#define STARTS 1001
#define START_TARGET 100 /* us */
#define EVICT (1 << 20)  /* bytes to read before a burst: more than the caches of a core hold */

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
    "usage: bench-shim SHIM DRIVER_FOLDER EMPTY\n"
    "\n"
    "Measures what SHIM (libaliquot.so) adds to calls into the libcuda.so.1 in DRIVER_FOLDER, a driver whose calls "
    "cost\n"
    "almost nothing, and what it and the library EMPTY add to the start of a program. Prints it beside the targets.\n"
    "`cmake --build BUILD --target bench` runs it in half a minute.\n"
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

/* `bench-shim measure calls|linked|one|idle|active`: prints the figures, then kills itself and its peers. */
static void measure(const char *what) {
    if (strcmp(what, "calls") == 0) {
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
    } else if (strcmp(what, "linked") == 0) {
        find_driver();
        printf("%f\n", time_per_call(launches, 1));
        printf("%f\n", time_per_call(pairs, 1));
        link_to_driver();
        printf("%f\n", time_per_call(launches, 1));
        printf("%f\n", time_per_call(pairs, 1));
    } else {
        start_peers(strcmp(what, "one") == 0 ? 0 : PEERS, strcmp(what, "active") == 0);
        find_driver();
        printf("%f\n", time_per_call(pairs, 1));
    }
    fflush(stdout);
    kill(0, SIGKILL); /* the process group: the peers and this process */
}

/* ---- the program that runs it ---- */

struct run {
    bool shim;
    const char *settings; /* in the limit file */
    const char *what;     /* to measure */
    int figures;
};

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
static void run(const struct run *run, char *self, const char *shim, const char *driver_folder, double *figures) {
    int ends[2];
    if (pipe(ends) != 0) {
        die("pipe");
    }
    new_container(run->settings);
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        dup2(ends[1], STDOUT_FILENO);
        setenv("LD_LIBRARY_PATH", driver_folder, 1);
        if (run->shim) {
            setenv("LD_PRELOAD", shim, 1);
        }
        execl(self, self, "measure", run->what, NULL);
        _exit(EXIT_FAILURE);
    }
    close(ends[1]);
    FILE *output = fdopen(ends[0], "r");
    for (int i = 0; i < run->figures; i++) {
        if (fscanf(output, "%lf", &figures[i]) != 1) {
            fprintf(stderr, "bench-shim: the measured program failed\n");
            exit(EXIT_FAILURE);
        }
    }
    fclose(output);
    waitpid(child, NULL, 0);
}

/* ---- the start of a program that uses no GPU ---- */

/* Microseconds from the start of `true`, with a library preloaded unless that is NULL, to its end. */
static double time_start(const char *library) {
    char *arguments[] = {(char *)"true", NULL};
    pid_t child;
    int status = 0;
    if (library != NULL) {
        setenv("LD_PRELOAD", library, 1);
    }
    double start = now();
    if (posix_spawnp(&child, "true", NULL, NULL, arguments, environ) != 0 || waitpid(child, &status, 0) != child ||
        status != 0) {
        die("true");
    }
    double took = (now() - start) / 1e3;
    unsetenv("LD_PRELOAD");
    return took;
}

/* Prints medians: of the start without a preload, and of the differences within a round, which other load on the
   machine affects less than the times themselves. Most of the difference is the time in which the dynamic loader opens
   and maps any library, as the time with an empty library shows. */
static void measure_startup(const char *shim, const char *empty) {
    static double bare[STARTS], with_shim[STARTS], with_empty[STARTS];
    for (int i = 0; i < STARTS; i++) {
        bare[i] = time_start(NULL);
        with_shim[i] = time_start(shim) - bare[i];
        with_empty[i] = time_start(empty) - bare[i];
    }
    printf("start of true: bare %.0f us, the shim adds %.0f us (target: at most %d), an empty library %.0f us\n",
           median(bare, STARTS), median(with_shim, STARTS), START_TARGET, median(with_empty, STARTS));
}

/* ---- the table ---- */

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
        measure(argv[2]);
    }
    if (argc != 4) {
        bool help = argc == 2 && strcmp(argv[1], "--help") == 0;
        fputs(usage, help ? stdout : stderr);
        return help ? EXIT_SUCCESS : 2;
    }
    if (mkdtemp(folder) == NULL) {
        die("bench-shim");
    }
    snprintf(limits, sizeof limits, "%s/vgpu", folder);
    snprintf(region, sizeof region, "%s/region", folder);
    setenv("ALIQUOT_CONFIG", limits, 1);
    setenv("ALIQUOT_REGION", region, 1);
    unsetenv("LD_PRELOAD");

    /* Each repeat runs these in turn. */
    enum { BARE, SHIM, LIMITED, BARE_WHOLE, WHOLE, BARE_ONE, ONE, BARE_IDLE, IDLE, BARE_ACTIVE, ACTIVE, RUNS };
    static const char whole[] = "cores=100 exclusive", no_limit[] = "cores=0";
    const struct run runs[RUNS] = {{false, no_limit, "calls", CALL_FIGURES},
                                   {true, no_limit, "calls", CALL_FIGURES},
                                   {true, "cores=50 policy=fixed", "calls", CALL_FIGURES},
                                   {false, whole, "linked", LINKED_FIGURES},
                                   {true, whole, "linked", LINKED_FIGURES},
                                   {false, no_limit, "one", 1},
                                   {true, no_limit, "one", 1},
                                   {false, no_limit, "idle", 1},
                                   {true, no_limit, "idle", 1},
                                   {false, no_limit, "active", 1},
                                   {true, no_limit, "active", 1}};
    static double found[RUNS][CALL_FIGURES][REPEATS];
    double figures[CALL_FIGURES];
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        for (int i = 0; i < RUNS; i++) {
            run(&runs[i], argv[0], argv[1], argv[2], figures);
            for (int figure = 0; figure < runs[i].figures; figure++) {
                found[i][figure][repeat] = figures[figure];
            }
        }
    }
    unlink(limits);
    unlink(region);
    rmdir(folder);

    printf("%-38s %7s %7s %7s %7s %7s %7s   %s\n", "nanoseconds", "bare", "shim", "added", "target", "ratio", "worst",
           "HAMi-core");
#define ROW(name, bare, shim, figure, which, target, others)                                                           \
    row(name, found[bare][figure], found[shim][figure], which, target, others)
    ROW("launch, no compute limit", BARE, SHIM, LAUNCH, MIN, 10, "21-39");
    ROW("launch, compute limit 50 %", BARE, LIMITED, LAUNCH, MIN, 25, "21-39");
    ROW("launch, cold caches, no compute limit", BARE, SHIM, COLD, MIN, 0, "");
    ROW("launch, cold caches, limit 50 %", BARE, LIMITED, COLD, MIN, 0, "");
    ROW("copy of 4 KiB, no compute limit", BARE, SHIM, COPY, MIN, 0, "");
    ROW("copy of 4 KiB, compute limit 50 %", BARE, LIMITED, COPY, MIN, 0, "");
    ROW("copy of 1 MiB, compute limit 50 %", BARE, LIMITED, LARGE_COPY, MIN, 0, "");
    ROW("launch, whole card", BARE_WHOLE, WHOLE, FOUND_LAUNCH, MIN, 0, "");
    ROW("launch, whole card, linked program", BARE_WHOLE, WHOLE, LINKED_LAUNCH, MIN, 2, "");
    ROW("alloc+free, whole card", BARE_WHOLE, WHOLE, FOUND_PAIRS, MIN, 0, "");
    ROW("alloc+free, whole card, linked program", BARE_WHOLE, WHOLE, LINKED_PAIRS, MIN, 4, "");
    ROW("alloc+free, 0 live", BARE, SHIM, PAIRS, MIN, 60, "634-810");
    ROW("alloc+free, 10,000 live", BARE, SHIM, PAIRS_10000, MIN, 80, "20,700");
    ROW("alloc+free, 100,000 live", BARE, SHIM, PAIRS_100000, MIN, 0, "");
    ROW("alloc+free, 4 threads, per pair", BARE, SHIM, PAIRS_THREADS, MEDIAN, 200, "4,800");
    ROW("alloc+free, stream order", BARE, SHIM, ASYNC, MIN, 300, "");
    ROW("the same, 4 threads, per pair", BARE, SHIM, ASYNC_THREADS, MEDIAN, 300, "");
    ROW("cuMemGetInfo", BARE, SHIM, INFO, MIN, 30, "926-1,174");
    double one = ROW("alloc+free, one process", BARE_ONE, ONE, 0, MIN, 0, "");
    ROW("alloc+free, 64 processes, 63 idle", BARE_IDLE, IDLE, 0, MIN, 2 * one, "");
    ROW("alloc+free, 64 processes, all active", BARE_ACTIVE, ACTIVE, 0, MEDIAN, 2 * one, "");
    measure_startup(argv[1], argv[3]);
    return EXIT_SUCCESS;
}
