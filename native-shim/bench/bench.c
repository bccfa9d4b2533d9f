/*
 * What the shim adds to a call: `bench SHIM DRIVER_FOLDER [PEERS]` runs itself twice, with and without the shim, in
 * front of a driver whose calls cost nothing, and prints medians in nanoseconds; the ratio to bare calls comes last.
 * PEERS other processes, 0 by default, hold memory under the same limit meanwhile.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 401 /* short ones: few of them meet a busy machine's scheduler */
#define CALLS 2000
#define LIVE 10000
#define THREADS 4
#define FIGURES 5

typedef int alloc_function(unsigned long long *, size_t);
typedef int free_function(unsigned long long);
typedef int info_function(size_t *, size_t *);
typedef int launch_function(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                            void **, void **);

static alloc_function *alloc;
static free_function *dealloc;
static info_function *info;
static launch_function *launch;

static const char *const names[FIGURES] = {"alloc+free, 0 live", "alloc+free, 10000 live",
                                           "alloc+free, 4 threads, per pair", "cuMemGetInfo", "cuLaunchKernel"};

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

static void *pairs(void *unused) {
    for (int i = 0; i < CALLS; i++) {
        unsigned long long address = 0;
        if (alloc(&address, 4096) != 0 || dealloc(address) != 0) {
            fprintf(stderr, "bench: a call failed\n");
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
    for (int i = 0; i < CALLS; i++) {
        launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    }
    return unused;
}

/* Wall time per call, over all threads. */
static double median(void *(*body)(void *), int threads) {
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
    qsort(times, ROUNDS, sizeof times[0], ascending);
    return times[ROUNDS / 2];
}

static void find_driver(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL) {
        fprintf(stderr, "bench: %s\n", dlerror());
        exit(EXIT_FAILURE);
    }
    alloc = (alloc_function *)dlsym(driver, "cuMemAlloc_v2");
    dealloc = (free_function *)dlsym(driver, "cuMemFree_v2");
    info = (info_function *)dlsym(driver, "cuMemGetInfo_v2");
    launch = (launch_function *)dlsym(driver, "cuLaunchKernel");
    ((int (*)(unsigned))dlsym(driver, "cuInit"))(0);
}

static void start_peers(int peers) {
    for (int i = 0; i < peers; i++) {
        if (fork() == 0) {
            unsigned long long address;
            find_driver();
            alloc(&address, 4096);
            pause();
        }
    }
}

static void measure(int peers) {
    signal(SIGTERM, SIG_IGN);
    start_peers(peers);
    sleep(peers > 0);
    find_driver();
    printf("%f\n", median(pairs, 1));
    for (int i = 0; i < LIVE; i++) {
        unsigned long long address;
        alloc(&address, 4096);
    }
    printf("%f\n%f\n%f\n", median(pairs, 1), median(pairs, THREADS), median(infos, 1));
    printf("%f\n", median(launches, 1));
    fflush(stdout);
    kill(0, SIGKILL); /* the peers and this process: they are a group of their own */
}

/* Runs this program again, as a process group of its own, and reads its figures. */
static void run(const char *self, const char *shim, const char *driver, const char *peers, double figures[FIGURES]) {
    int ends[2];
    if (pipe(ends) != 0) {
        perror("bench");
        exit(EXIT_FAILURE);
    }
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        dup2(ends[1], STDOUT_FILENO);
        setenv("LD_LIBRARY_PATH", driver, 1);
        if (shim != NULL) {
            setenv("LD_PRELOAD", shim, 1);
        }
        execl(self, self, "measure", peers, NULL);
        _exit(EXIT_FAILURE);
    }
    close(ends[1]);
    FILE *output = fdopen(ends[0], "r");
    for (int i = 0; i < FIGURES; i++) {
        if (fscanf(output, "%lf", &figures[i]) != 1) {
            fprintf(stderr, "bench: the measured program failed\n");
            exit(EXIT_FAILURE);
        }
    }
    fclose(output);
    waitpid(child, NULL, 0);
}

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0) {
        perror(path);
        exit(EXIT_FAILURE);
    }
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "measure") == 0) {
        measure(atoi(argv[2]));
    }
    if (argc < 3) {
        fprintf(stderr, "usage: bench SHIM DRIVER_FOLDER [PEERS]\n");
        return EXIT_FAILURE;
    }
    char folder[] = "/tmp/aliquot-bench-XXXXXX", limits[64], region[64];
    if (mkdtemp(folder) == NULL) {
        perror("bench");
        return EXIT_FAILURE;
    }
    snprintf(limits, sizeof limits, "%s/vgpu", folder);
    snprintf(region, sizeof region, "%s/region", folder);
    write_file(limits, "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f memory=40960Mi cores=50\n");
    write_file(region, "");
    setenv("ALIQUOT_CONFIG", limits, 1);
    setenv("ALIQUOT_REGION", region, 1);
    const char *peers = argc > 3 ? argv[3] : "0";
    double bare[FIGURES], shimmed[FIGURES];
    run(argv[0], NULL, argv[2], "0", bare);
    run(argv[0], argv[1], argv[2], peers, shimmed);
    unlink(limits);
    unlink(region);
    rmdir(folder);
    printf("%-32s %8s %8s %8s   (ns, medians; %s peers)\n", "", "bare", "shim", "added", peers);
    for (int i = 0; i < FIGURES; i++) {
        printf("%-32s %8.1f %8.1f %8.1f\n", names[i], bare[i], shimmed[i], shimmed[i] - bare[i]);
    }
    printf("ratio of alloc+free to bare calls: %.1f\n", shimmed[0] / bare[0]);
    return EXIT_SUCCESS;
}
