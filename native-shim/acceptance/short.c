/*
 * `short NUMBER` is a short process. The number selects how many kernels it launches (0 to 49) and how it ends while
 * they are unfinished: it returns from main, calls _exit, returns after a wait for the kernels, or releases its context
 * first.
 */
#include "busy.h"

#include <unistd.h>

int main(int count, char **arguments) {
    int number = count == 2 ? atoi(arguments[1]) : -1;
    if (number < 0) {
        fprintf(stderr, "usage: short NUMBER\n");
        return 2;
    }
    driver_start();
    CUfunction function = busy_function("nothing");
    for (int i = 0; i < number % 50; i++) {
        busy_launch(function, 1, 32, NULL, NULL);
    }
    printf("{}\n");
    fflush(stdout);
    switch (number % 4) {
    case 0:
        return EXIT_SUCCESS;
    case 1:
        _exit(EXIT_SUCCESS);
    case 2:
        MUST(CALL(cuCtxSynchronize, void)());
        return EXIT_SUCCESS;
    default:
        MUST(CALL(cuDevicePrimaryCtxRelease_v2, int)(0));
        return EXIT_SUCCESS;
    }
}
