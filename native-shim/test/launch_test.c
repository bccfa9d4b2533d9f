/* Threads of one process that launch under a limit of compute, on the fake driver: also for the sanitizers to watch. */
#include "sandbox.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 4, LAUNCHES = 250 };
static const uint64_t kernel_time = 100000; /* ns; all of it together is 100 ms, of which the burst is a part */

static const char image[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                            ".visible .entry aliquot_busy(.param .u64 nanoseconds)\n{\n    ret;\n}\n";

static void *function;
static CUcontext context;

static void *launch_on_a_stream(void *unused) {
    void *stream = NULL;
    uint64_t nanoseconds = kernel_time;
    void *parameters[] = {&nanoseconds};
    CHECK_EQUAL(CALL(cuCtxSetCurrent, CUcontext)(context), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuStreamCreate, void **, unsigned)(&stream, 1), CUDA_SUCCESS);
    CUresult (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                       void **) = CALL(cuLaunchKernel, void *, unsigned, unsigned, unsigned, unsigned, unsigned,
                                       unsigned, unsigned, void *, void **, void **);
    for (int i = 0; i < LAUNCHES; i++) {
        CHECK_EQUAL(launch(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL), CUDA_SUCCESS);
    }
    CHECK_EQUAL(CALL(cuStreamSynchronize, void *)(stream), CUDA_SUCCESS);
    return unused;
}

static int threads_of_this_process(void) {
    int count = -2; /* . and .. */
    DIR *tasks = opendir("/proc/self/task");
    while (readdir(tasks) != NULL) {
        count++;
    }
    closedir(tasks);
    return count;
}

TEST(threads_that_launch_share_the_limit_and_leave_no_helper_behind) {
    pthread_t threads[THREADS];
    void *module = NULL;
    sandbox(100 * MIB, 0);
    int before = threads_of_this_process();
    CHECK_EQUAL(CALL(cuInit, unsigned)(0), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuDevicePrimaryCtxRetain, CUcontext *, CUdevice)(&context, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuCtxSetCurrent, CUcontext)(context), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuModuleLoadData, void **, const void *)(&module, image), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuModuleGetFunction, void **, void *, const char *)(&function, module, "aliquot_busy"),
                CUDA_SUCCESS);
    for (size_t i = 0; i < THREADS; i++) {
        CHECK_EQUAL(pthread_create(&threads[i], NULL, launch_on_a_stream, NULL), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    struct aliquot_region *region = map_region();
    uint64_t charged = region->device[0].gpu_time;
    printf("charged %.1f ms, held back for %.1f ms\n", (double)charged / 1e6,
           (double)region->device[0].throttled / 1e6);
    CHECK(charged > 0 && region->charge[0][0].gpu_time > 0, "%llu ns", (unsigned long long)charged);
#ifndef __SANITIZE_THREAD__ /* whose runtime has a thread, too */
    for (int tries = 0; threads_of_this_process() > before && tries < 500; tries++) {
        usleep(10000); /* the one that measures ends when there is nothing to measure */
    }
    CHECK_EQUAL(threads_of_this_process(), before);
#else
    (void)before;
#endif
}
