/*
 * Access to the CUDA driver for the acceptance programs: dlopen by name and dlsym, as most clients do it. The types and
 * constants are copied from NVIDIA's cuda.h 13.0 and not shared with the shim's headers, so that the kit finds mistakes
 * in those.
 */
#ifndef ACCEPTANCE_DRIVER_H
#define ACCEPTANCE_DRIVER_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#if defined(__x86_64__)
/* The names as they were before glibc 2.34, when they were in libdl.so.2: see CMakeLists.txt. */
__asm__(".symver dlopen, dlopen@GLIBC_2.2.5\n.symver dlsym, dlsym@GLIBC_2.2.5\n.symver dlerror, dlerror@GLIBC_2.2.5\n"
        ".symver dladdr, dladdr@GLIBC_2.2.5");
#endif

#define MIB ((size_t)1 << 20)

typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUevent_st *CUevent;
typedef struct CUarray_st *CUarray;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef unsigned long long CUdeviceptr;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_READY = 600,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_EVENT_DISABLE_TIMING = 2,
    CU_STREAM_NON_BLOCKING = 1,
    CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
};

/* CALL(cuMemAlloc_v2, CUdeviceptr *, size_t)(&address, bytes) returns a CUresult. It ends the program if the driver
   does not export the function. */
#define CALL(symbol, ...) ((int (*)(__VA_ARGS__))driver_function(#symbol))

static inline void *driver_find(const char *symbol) {
    static void *driver;
    if (driver == NULL && (driver = dlopen("libcuda.so.1", RTLD_NOW)) == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(EXIT_FAILURE);
    }
    return dlsym(driver, symbol);
}

static inline void *driver_function(const char *symbol) {
    void *function = driver_find(symbol);
    if (function == NULL) {
        fprintf(stderr, "the driver does not export %s\n", symbol);
        exit(EXIT_FAILURE);
    }
    return function;
}

static inline const char *driver_error(int result) {
    const char *name = NULL;
    CALL(cuGetErrorName, int, const char **)(result, &name);
    return name == NULL ? "an unknown CUresult" : name;
}

static inline void driver_must(int result, const char *call) {
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "%s: %s\n", call, driver_error(result));
        exit(EXIT_FAILURE);
    }
}
#define MUST(call) driver_must(call, #call)

/* Makes the primary context of the first visible device current. */
static inline void driver_start(void) {
    CUcontext context;
    int device;
    MUST(CALL(cuInit, unsigned)(0));
    MUST(CALL(cuDeviceGet, int *, int)(&device, 0));
    MUST(CALL(cuDevicePrimaryCtxRetain, CUcontext *, int)(&context, device));
    MUST(CALL(cuCtxSetCurrent, CUcontext)(context));
}

static inline void driver_memory(size_t *free_bytes, size_t *total) {
    MUST(CALL(cuMemGetInfo_v2, size_t *, size_t *)(free_bytes, total));
}

static const struct allocation_properties {
    int type, handle_types;
    struct location {
        int type, id;
    } location;
    void *metadata;
    unsigned char flags[8];
} driver_device_memory = {.type = 1 /* pinned */, .location = {1 /* device */, 0}};

static inline size_t driver_granularity(const struct allocation_properties *properties) {
    size_t bytes = 0;
    MUST(CALL(cuMemGetAllocationGranularity, size_t *, const struct allocation_properties *, int)(&bytes, properties,
                                                                                                  0));
    return bytes;
}

static inline double driver_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static inline void driver_sleep(double seconds) {
    long whole = (long)seconds;
    if (seconds > 0) {
        nanosleep(&(struct timespec){.tv_sec = whole, .tv_nsec = (long)((seconds - (double)whole) * 1e9)}, NULL);
    }
}

static inline int driver_ascending(const void *a, const void *b) {
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

/* Sends the output to the script and waits until the script closes the input. The script reads NVML in between. */
static inline void driver_wait_for_script(void) {
    fflush(stdout);
    while (getchar() != EOF) {
    }
}

#endif
