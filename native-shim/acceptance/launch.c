/*
 * `launch ROUNDS` prints the nanoseconds that the program spends in a launch of an empty kernel: the median of rounds
 * of 500 launches. The launches come in bursts of ten with a pause after each, as from an eager loop that also does
 * other work. Launches without a pause would keep the GPU busy, and the compute limit would hold them back: the program
 * would measure the limit instead of the cost of enforcing it.
 */
#include "busy.h"

enum { LAUNCHES = 500, BURST = 10, MAX_ROUNDS = 10000 };

static const double period = 100e-6; /* seconds between the starts of bursts */

int main(int count, char **arguments) {
    static double times[MAX_ROUNDS];
    int rounds = count == 2 ? atoi(arguments[1]) : 0;
    if (rounds < 1 || rounds > MAX_ROUNDS) {
        fprintf(stderr, "usage: launch ROUNDS\n");
        return 2;
    }
    driver_start();
    CUfunction function = busy_function("nothing");
    busy_launcher *launch = (busy_launcher *)driver_function("cuLaunchKernel");
    for (int round = -10; round < rounds; round++) {
        int failed = CUDA_SUCCESS;
        double spent = 0;
        for (int burst = 0; burst < LAUNCHES / BURST; burst++) {
            double start = driver_now();
            for (int i = 0; i < BURST; i++) {
                failed |= launch(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
            }
            spent += driver_now() - start;
            while (driver_now() < start + period) {
            }
        }
        if (round >= 0) {
            times[round] = spent / LAUNCHES * 1e9;
        }
        driver_must(failed, "cuLaunchKernel");
        MUST(CALL(cuCtxSynchronize, void)());
    }
    qsort(times, (size_t)rounds, sizeof times[0], driver_ascending);
    printf("{\"launch\": %.2f}\n", times[rounds / 2]);
    return EXIT_SUCCESS;
}
