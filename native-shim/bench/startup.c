/*
 * What the shim adds to the start of a program that never touches a GPU: `startup SHIM PROGRAM [ARGUMENT...]` starts
 * the program again and again, with and without the shim in turn, and prints the medians and the difference in
 * microseconds. A library with nothing in it would cost about as much: it is the loader's opening and mapping.
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

static double run(const posix_spawn_file_actions_t *silent, char **arguments) {
    pid_t child;
    int status = 0;
    double start = now();
    if (posix_spawnp(&child, arguments[0], silent, NULL, arguments, environ) != 0 ||
        waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "startup: %s failed\n", arguments[0]);
        exit(EXIT_FAILURE);
    }
    return now() - start;
}

static int ascending(const void *a, const void *b) {
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

int main(int argc, char **argv) {
    static double bare[ROUNDS], shimmed[ROUNDS];
    posix_spawn_file_actions_t silent;
    if (argc < 3) {
        fprintf(stderr, "usage: startup SHIM PROGRAM [ARGUMENT...]\n");
        return EXIT_FAILURE;
    }
    posix_spawn_file_actions_init(&silent);
    posix_spawn_file_actions_addopen(&silent, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&silent, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    for (int i = 0; i < ROUNDS; i++) {
        unsetenv("LD_PRELOAD");
        bare[i] = run(&silent, argv + 2);
        setenv("LD_PRELOAD", argv[1], 1);
        shimmed[i] = run(&silent, argv + 2);
    }
    qsort(bare, ROUNDS, sizeof bare[0], ascending);
    qsort(shimmed, ROUNDS, sizeof shimmed[0], ascending);
    double added = shimmed[ROUNDS / 2] - bare[ROUNDS / 2];
    printf("start of %s: bare %.0f us, with the shim %.0f us, added %.0f us (target: at most %d)\n", argv[2],
           bare[ROUNDS / 2], shimmed[ROUNDS / 2], added, TARGET);
    return EXIT_SUCCESS;
}
