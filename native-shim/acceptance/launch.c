/* launch ROUNDS: nanoseconds that a launch of an empty kernel takes the program, the median of rounds of 500. */
#include "busy.h"

enum { LAUNCHES = 500, MOST_ROUNDS = 10000 };

static int ascending(const void *a, const void *b) {
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

int main(int count, char **arguments) {
    static double times[MOST_ROUNDS];
    int rounds = count == 2 ? atoi(arguments[1]) : 0;
    if (rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: launch ROUNDS\n");
        return 2;
    }
    driver_start();
    CUfunction function = busy_function("nothing");
    busy_launcher *launch = (busy_launcher *)driver_function("cuLaunchKernel");
    for (int round = -10; round < rounds; round++) {
        int failed = CUDA_SUCCESS;
        double start = driver_now();
        for (int i = 0; i < LAUNCHES; i++) {
            failed |= launch(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
        }
        if (round >= 0) {
            times[round] = (driver_now() - start) / LAUNCHES * 1e9;
        }
        driver_must(failed, "cuLaunchKernel");
        MUST(CALL(cuCtxSynchronize, void)());
    }
    qsort(times, (size_t)rounds, sizeof times[0], ascending);
    printf("{\"launch\": %.2f}\n", times[rounds / 2]);
    return EXIT_SUCCESS;
}
