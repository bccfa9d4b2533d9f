/*
 * A tenant that keeps the GPU busy.
 *
 * `busy calibrate` prints the number of kernel iterations that take a microsecond on the idle GPU.
 * `busy RATE NANOSECONDS WARM_UP SECONDS` launches kernels of NANOSECONDS each (at RATE iterations per microsecond) as
 * fast as the GPU accepts them. After WARM_UP seconds it measures for SECONDS, and prints the work done per second, in
 * seconds of GPU time.
 */
#include "busy.h"

#include <string.h>

enum { THREADS = 128, BATCHES_IN_FLIGHT = 2 };

static CUfunction function;
static CUstream stream;
static unsigned blocks;

static void launch(uint64_t nanoseconds, uint64_t iterations) {
    void *parameters[] = {&nanoseconds, &iterations};
    busy_launch(function, blocks, THREADS, stream, parameters);
}

/* Seconds from the launch of one kernel to its end. */
static double time_kernel(uint64_t nanoseconds, uint64_t iterations) {
    double start = driver_now();
    launch(nanoseconds, iterations);
    MUST(CALL(cuStreamSynchronize, CUstream)(stream));
    return driver_now() - start;
}

/* Iterations per microsecond, from the time difference of a long and a short kernel: this excludes the launch itself.
   The kernels of the first second only bring the GPU's clocks up. */
static double calibrate(void) {
    const uint64_t few = 1 << 16, many = 1 << 22;
    double best = 0;
    for (double start = driver_now(); driver_now() - start < 1;) {
        time_kernel(1000000, many);
    }
    for (int i = 0; i < 9; i++) {
        double taken = time_kernel(1000000, many) - time_kernel(1000000, few);
        if (best == 0 || (taken > 0 && taken < best)) {
            best = taken;
        }
    }
    return best > 0 ? (double)(many - few) / (best * 1e6) : 1;
}

/* Launches batches of about 4 ms and keeps two in flight: the GPU never idles, and each batch is counted soon after it
   ends. */
static double run(double rate, double nanoseconds, double warm_up, double seconds) {
    uint64_t iterations = (uint64_t)(rate * nanoseconds / 1000) + 1;
    int batch = nanoseconds >= 4e6 ? 1 : (int)(4e6 / nanoseconds);
    CUevent events[BATCHES_IN_FLIGHT];
    for (int i = 0; i < BATCHES_IN_FLIGHT; i++) {
        MUST(CALL(cuEventCreate, CUevent *, unsigned)(&events[i], CU_EVENT_DISABLE_TIMING));
    }
    double start = driver_now(), first = 0, last = 0;
    long counted = 0;
    for (int i = 0; last < start + warm_up + seconds; i++) {
        CUevent event = events[i % BATCHES_IN_FLIGHT];
        if (i >= BATCHES_IN_FLIGHT) {
            MUST(CALL(cuEventSynchronize, CUevent)(event));
            last = driver_now();
            if (first == 0 && last >= start + warm_up) {
                first = last;
            } else if (first != 0) {
                counted++;
            }
        }
        for (int j = 0; j < batch; j++) {
            launch((uint64_t)nanoseconds, iterations);
        }
        MUST(CALL(cuEventRecord, CUevent, CUstream)(event, stream));
    }
    return last > first ? (double)counted * batch * nanoseconds / 1e9 / (last - first) : 0;
}

int main(int count, char **arguments) {
    if (count != 5 && (count != 2 || strcmp(arguments[1], "calibrate") != 0)) {
        fprintf(stderr, "usage: busy calibrate | busy RATE NANOSECONDS WARM_UP SECONDS\n");
        return 2;
    }
    int processors = 1;
    driver_start();
    CALL(cuDeviceGetAttribute, int *, int, int)(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
    blocks = (unsigned)processors;
    function = busy_function("aliquot_busy");
    MUST(CALL(cuStreamCreate, CUstream *, unsigned)(&stream, 1));
    if (count == 2) {
        printf("{\"rate\": %.3f}\n", calibrate());
    } else {
        printf("{\"work\": %.6f}\n",
               run(atof(arguments[1]), atof(arguments[2]), atof(arguments[3]), atof(arguments[4])));
    }
    return EXIT_SUCCESS;
}
