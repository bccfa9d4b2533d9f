// Shared code of the programs: each program checks its results and reports the location of a failed check.
#ifndef ALIQUOT_FAKE_PROGRAM_H
#define ALIQUOT_FAKE_PROGRAM_H

#include "../check.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>
#include <time.h>

#define MUST(call) ANSWERS(cudaSuccess, call)
#define ANSWERS(expected, call)                                                                                        \
    do {                                                                                                               \
        int got_ = (call);                                                                                             \
        if (got_ != (expected)) {                                                                                      \
            fprintf(stderr, "%s:%d: %s is %d, expected %d\n", __FILE__, __LINE__, #call, got_, (int)(expected));       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static const size_t MIB = (size_t)1 << 20;

// The driver's function that the runtime returns for a name and version.
template <typename Function> static Function driver_function(const char *name, unsigned version) {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult state;
    MUST(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &state));
    CHECK(state == cudaDriverEntryPointSuccess);
    return (Function)found;
}
#define DRIVER(name, version) driver_function<decltype(&name)>(#name, version)

static inline double seconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

#endif
