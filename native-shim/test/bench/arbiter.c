/*
 * Measures what the arbiter costs and how late it is: bench-arbiter ARBITER [SECONDS]. arbiter_busy.sh runs it on a
 * busy node.
 *
 * 8 GPUs with 10 containers each, which all keep work queued and so take turns; in the second and third scenario one of
 * them per GPU is of high and one of low priority. Prints the arbiter's CPU time and memory, and how late it wakes up
 * (late_sleep.c): in the first scenario every 20 ms, in the others about every millisecond.
 */
#include "aliquot/agent.h"
#include "aliquot/region.h"
#include "late_sleep.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { GPUS = 8, PER_GPU = 10, CONTAINERS = GPUS * PER_GPU };
enum scenario { NO_HIGH, IDLE_HIGH, WORKING_HIGH, SCENARIOS };
#define MS UINT64_C(1000000)

static char folder[] = "/tmp/bench-arbiter-XXXXXX";
static struct aliquot_device *regions[CONTAINERS];
static struct aliquot_agent_device *agents[CONTAINERS];
static uint32_t *late_us; /* their number, then each, from the preloaded late_sleep.c */
static int late_file;

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void *map_file(const char *kind, int slot, size_t size) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s/%d", folder, kind, slot);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    void *mapped = MAP_FAILED;
    if (file >= 0 && ftruncate(file, (off_t)size) == 0) {
        mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    if (mapped == MAP_FAILED) {
        perror(path);
        exit(2);
    }
    close(file);
    return mapped;
}

static void create_containers(void) {
    static const struct aliquot_agent_header header = ALIQUOT_AGENT_HEADER;
    for (int i = 0; i < CONTAINERS; i++) {
        struct aliquot_region *region = map_file("regions", i, ALIQUOT_REGION_SIZE);
        struct aliquot_agent *agent = map_file("agents", i, ALIQUOT_AGENT_SIZE);
        agent->header = header;
        regions[i] = &region->device[0];
        agents[i] = &agent->device[0];
        memset(regions[i]->uuid, 0x11 * (i / PER_GPU + 1), 16);
        memset(agents[i]->uuid, 0x11 * (i / PER_GPU + 1), 16);
    }
}

static void tell(int arbiter, enum scenario scenario) {
    static char text[CONTAINERS * 128];
    int length = 0;
    for (int i = 0; i < CONTAINERS; i++) {
        char digits[33] = "";
        memset(digits, '1' + i / PER_GPU, 32);
        const char *priority = scenario == NO_HIGH || i % PER_GPU > 1 ? "normal" : i % PER_GPU == 0 ? "high" : "low";
        length +=
            snprintf(text + length, sizeof text - (size_t)length, "%d GPU-%.8s-%.4s-%.4s-%.4s-%.12s 10 elastic %s 30\n",
                     i, digits, digits, digits, digits, digits, priority);
    }
    length += snprintf(text + length, sizeof text - (size_t)length, ".\n");
    if (write(arbiter, text, (size_t)length) != length) {
        perror("the arbiter");
        exit(2);
    }
}

static void work(enum scenario scenario, uint64_t time) {
    static uint64_t next[GPUS];
    for (int i = 0; i < CONTAINERS; i++) {
        int gpu = i / PER_GPU;
        bool high = scenario != NO_HIGH && i % PER_GPU == 0;
        if (!high) {
            regions[i]->wanted = regions[i]->queued = time;
            regions[i]->throttled = time;
            regions[i]->gpu_time = time / PER_GPU;
        } else if (scenario == WORKING_HIGH && time >= next[gpu]) {
            regions[i]->in_flight = time + 10 * MS;
            next[gpu] = time + 10 * MS + (uint64_t)rand() % (30 * MS);
        }
    }
}

static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void measure(const char *program, enum scenario scenario, double seconds) {
    static const char *const names[] = {"without high priority", "high priority idle", "high priority at work"};
    char paths[2][128];
    int ends[2];
    snprintf(paths[0], sizeof paths[0], "%s/regions", folder);
    snprintf(paths[1], sizeof paths[1], "%s/agents", folder);
    if (pipe(ends) != 0) {
        perror("pipe");
        exit(2);
    }
    pid_t arbiter = fork();
    if (arbiter == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(ends[0], STDIN_FILENO);
        close(ends[1]);
        setenv("LD_PRELOAD", LATE_SLEEP, 1);
        dup2(late_file, LATE_SLEEP_FILE);
        execl(program, program, paths[0], paths[1], NULL);
        _exit(127);
    }
    close(ends[0]);
    late_us[0] = 0;
    uint64_t start = now(), told = 0;
    while (now() < start + (uint64_t)(seconds * 1e9)) {
        uint64_t time = now();
        if (time - told > 1000 * MS) {
            tell(ends[1], scenario);
            told = time;
        }
        work(scenario, time);
        usleep(2000);
    }
    double elapsed = (double)(now() - start) / 1e9;
    close(ends[1]);
    struct rusage usage;
    int status;
    wait4(arbiter, &status, 0, &usage);
    double cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                 (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    uint32_t samples = late_us[0], *of = late_us + 1;
    qsort(of, samples, sizeof of[0], compare);
    printf("%-22s %.1f %% of a core, %.1f MB; wakes up %u times, late by %.2f ms, p90 %.2f, p99 %.2f, at most %.2f\n",
           names[scenario], 100 * cpu / elapsed, (double)usage.ru_maxrss / 1024, samples, of[samples / 2] / 1e3,
           of[samples * 9ull / 10] / 1e3, of[samples * 99ull / 100] / 1e3, of[samples - (samples > 0)] / 1e3);
}

int main(int count, char **arguments) {
    double seconds = count > 2 ? atof(arguments[2]) : 10;
    char path[128];
    if (count < 2 || mkdtemp(folder) == NULL) {
        fprintf(stderr, "usage: bench-arbiter ARBITER [SECONDS]\n");
        return 2;
    }
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, i == 0 ? "regions" : "agents");
        mkdir(path, 0777);
    }
    create_containers();
    late_file = memfd_create("late", 0);
    late_us = ftruncate(late_file, LATE_SLEEP_SIZE) != 0
                  ? MAP_FAILED
                  : mmap(NULL, LATE_SLEEP_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, late_file, 0);
    if (late_us == MAP_FAILED) {
        perror("memfd_create");
        return 2;
    }
    for (int scenario = 0; scenario < SCENARIOS; scenario++) {
        measure(arguments[1], (enum scenario)scenario, seconds);
    }
    snprintf(path, sizeof path, "rm -rf %s", folder);
    return system(path) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
