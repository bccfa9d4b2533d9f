/*
 * launch ROUNDS: nanoseconds that a launch of an empty kernel takes the program, the median of rounds of 500. They come
 * ten at a time with a pause after them, as from an eager loop that has other things to do, too: a GPU that is kept
 * busy by launches alone would show a limit of compute at work, not its cost.
 */
#include "busy.h"

enum { LAUNCHES = 500, AT_ONCE = 10, MOST_ROUNDS = 10000 };

static const double period = 100e-6; /* seconds from one ten to the next */

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
        double taken = 0;
        for (int ten = 0; ten < LAUNCHES / AT_ONCE; ten++) {
            double start = driver_now();
            for (int i = 0; i < AT_ONCE; i++) {
                failed |= launch(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
            }
            taken += driver_now() - start;
            while (driver_now() < start + period) {
            }
        }
        if (round >= 0) {
            times[round] = taken / LAUNCHES * 1e9;
        }
        driver_must(failed, "cuLaunchKernel");
        MUST(CALL(cuCtxSynchronize, void)());
    }
    qsort(times, (size_t)rounds, sizeof times[0], ascending);
    printf("{\"launch\": %.2f}\n", times[rounds / 2]);
    return EXIT_SUCCESS;
}
