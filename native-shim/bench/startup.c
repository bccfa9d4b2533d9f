/*
 * Measures what the shim adds to the start of a program that uses no GPU: `startup SHIM EMPTY PROGRAM [ARGUMENT...]`.
 *
 * In each of many rounds it starts the program without a preload, with the shim, and with the empty library EMPTY. It
 * prints medians in microseconds: of the start without a preload, and of the differences within a round, which other
 * load on the machine affects less than the times themselves. Most of the difference is the time in which the dynamic
 * loader opens and maps any library.
 */
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 1001
#define TARGET 100 /* us */

extern char **environ;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static double run(const posix_spawn_file_actions_t *discard_output, char **arguments) {
    pid_t child;
    int status = 0;
    double start = now();
    if (posix_spawnp(&child, arguments[0], discard_output, NULL, arguments, environ) != 0 ||
        waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "bench-startup: %s failed\n", arguments[0]);
        exit(EXIT_FAILURE);
    }
    return now() - start;
}

static int ascending(const void *a, const void *b) {
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

static double run_with(const char *library, const posix_spawn_file_actions_t *discard_output, char **arguments) {
    setenv("LD_PRELOAD", library, 1);
    double took = run(discard_output, arguments);
    unsetenv("LD_PRELOAD");
    return took;
}

static double median(double values[ROUNDS]) {
    qsort(values, ROUNDS, sizeof values[0], ascending);
    return values[ROUNDS / 2];
}

int main(int argc, char **argv) {
    static double bare[ROUNDS], shim[ROUNDS], empty[ROUNDS];
    posix_spawn_file_actions_t discard_output;
    if (argc < 4) {
        fprintf(stderr, "usage: bench-startup SHIM EMPTY PROGRAM [ARGUMENT...]\n");
        return EXIT_FAILURE;
    }
    posix_spawn_file_actions_init(&discard_output);
    posix_spawn_file_actions_addopen(&discard_output, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&discard_output, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    unsetenv("LD_PRELOAD");
    for (int i = 0; i < ROUNDS; i++) {
        bare[i] = run(&discard_output, argv + 3);
        shim[i] = run_with(argv[1], &discard_output, argv + 3) - bare[i];
        empty[i] = run_with(argv[2], &discard_output, argv + 3) - bare[i];
    }
    printf("start of %s: bare %.0f us, the shim adds %.0f us (target: at most %d), an empty library %.0f us\n", argv[3],
           median(bare), median(shim), TARGET, median(empty));
    return EXIT_SUCCESS;
}
