/* The fixture of the shim's tests: a limit file, a region and an agent's file for each test, and the driver's functions
   by dlsym. */
#ifndef ALIQUOT_SANDBOX_H
#define ALIQUOT_SANDBOX_H

#include "aliquot/agent.h"
#include "aliquot/region.h"
#include "check.h"
#include "driver/abi.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#define MIB ((size_t)1 << 20)
#define CUDA_ERROR_INVALID_CONTEXT 201

/* Calls a driver function, found by dlsym in libcuda.so.1: CALL(cuInit, unsigned)(0). */
#define CALL(symbol, ...) ((CUresult(*)(__VA_ARGS__))sandbox_function(#symbol))

static char sandbox_folder[] = "/tmp/aliquot-test-XXXXXX";
static char sandbox_limits[64];
static char sandbox_region[64];
static char sandbox_agent[64];

static void *sandbox_function(const char *symbol) {
    static void *driver;
    if (driver == NULL) {
        driver = dlopen("libcuda.so.1", RTLD_LAZY);
        CHECK(driver != NULL, "%s", dlerror());
    }
    void *function = dlsym(driver, symbol);
    CHECK(function != NULL, "%s", symbol);
    return function;
}

/* The C library's dlsym, which knows nothing of the shim. */
__attribute__((unused)) static void *real_dlsym(void *handle, const char *symbol) {
    void *real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    real = real == NULL ? dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17") : real; /* arm64 */
    return ((void *(*)(void *, const char *))real)(handle, symbol);
}

static void sandbox_remove(void) {
    static pid_t owner;
    if (owner == 0) {
        owner = getpid();
        atexit(sandbox_remove);
    } else if (owner == getpid()) {
        unlink(sandbox_limits);
        unlink(sandbox_region);
        unlink(sandbox_agent);
        rmdir(sandbox_folder);
    }
}

static void write_file(const char *path, const void *content, size_t length) {
    char temporary[128];
    snprintf(temporary, sizeof temporary, "%s.new", path);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    CHECK(fd >= 0 && write(fd, content, length) == (ssize_t)length && close(fd) == 0, "%s", temporary);
    CHECK(rename(temporary, path) == 0, "%s", path);
}

/* The GPU's UUID. A child without limits asks for it, because the question initializes the driver. */
static const CUuuid *uuid_of(int device) {
    static CUuuid uuids[2];
    static bool known;
    int result[2];
    if (known) {
        return &uuids[device];
    }
    CHECK(pipe(result) == 0, "pipe");
    pid_t child = fork();
    if (child == 0) {
        unsetenv("ALIQUOT_CONFIG");
        unsetenv("ALIQUOT_REGION");
        CHECK_EQUAL(CALL(cuInit, unsigned)(0), CUDA_SUCCESS);
        for (int i = 0; i < 2; i++) {
            CHECK_EQUAL(CALL(cuDeviceGetUuid_v2, CUuuid *, CUdevice)(&uuids[i], i), CUDA_SUCCESS);
        }
        CHECK(write(result[1], uuids, sizeof uuids) == sizeof uuids, "pipe");
        _exit(EXIT_SUCCESS);
    }
    close(result[1]);
    known = read(result[0], uuids, sizeof uuids) == sizeof uuids;
    CHECK(known, "the driver's UUIDs");
    close(result[0]);
    waitpid(child, NULL, 0);
    return &uuids[device];
}

/* Of both GPUs in the limit file. */
__attribute__((unused)) static const char *sandbox_cores = "cores=30";

/* context= in the limit file: MiB that the contexts of a process use. */
__attribute__((unused)) static size_t sandbox_context;

/* How many of the GPUs, from the first, the limit file calls exclusive: the container has them whole. */
__attribute__((unused)) static int sandbox_whole;

/* Writes a limit file with these bytes on GPU 0 and GPU 1; 0: the GPU is not in the file. It replaces the file by a
   rename, as the kubelet does. */
static void write_limits(size_t first, size_t second) {
    char text[512];
    const size_t bytes[] = {first, second, 0};
    size_t length = 0;
    for (int device = 0; bytes[device] != 0; device++) {
        length += (size_t)snprintf(text + length, sizeof text - length, "GPU-");
        for (size_t i = 0; i < 16; i++) {
            length += (size_t)snprintf(text + length, sizeof text - length, "%s%02x",
                                       i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                                       (unsigned char)uuid_of(device)->bytes[i]);
        }
        length += (size_t)snprintf(text + length, sizeof text - length, " memory=%zuMi %s context=%zuMi%s\n",
                                   bytes[device] / MIB, sandbox_cores, sandbox_context,
                                   device < sandbox_whole ? " exclusive" : "");
    }
    write_file(sandbox_limits, text, length);
}

/* Creates the folder and sets the environment, but writes no files. */
__attribute__((unused)) static void sandbox_empty(void) {
    CHECK(mkdtemp(sandbox_folder) != NULL, "mkdtemp");
    snprintf(sandbox_limits, sizeof sandbox_limits, "%s/vgpu", sandbox_folder);
    snprintf(sandbox_region, sizeof sandbox_region, "%s/region", sandbox_folder);
    snprintf(sandbox_agent, sizeof sandbox_agent, "%s/agent", sandbox_folder);
    setenv("ALIQUOT_CONFIG", sandbox_limits, 1);
    setenv("ALIQUOT_REGION", sandbox_region, 1);
    setenv("ALIQUOT_AGENT", sandbox_agent, 1);
    sandbox_remove();
}

__attribute__((unused)) static void sandbox(size_t first, size_t second) {
    struct aliquot_agent agent = {.header = ALIQUOT_AGENT_HEADER};
    bool shares = sandbox_whole < 1 + (second != 0);
    agent.header.holds = shares ? ALIQUOT_AGENT_HOLDS_SHARES : ALIQUOT_AGENT_HOLDS_WHOLE_CARDS;
    sandbox_empty();
    write_limits(first, second);
    write_file(sandbox_region, "", 0);
    write_file(sandbox_agent, &agent, sizeof agent);
}

/* Maps the agent's file for writing, as only the node agent can, with GPU 0 in its first entry, just updated. */
__attribute__((unused)) static struct aliquot_agent_device *map_agent(void) {
    int fd = open(sandbox_agent, O_RDWR | O_CLOEXEC);
    struct aliquot_agent *agent = mmap(NULL, ALIQUOT_AGENT_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(fd >= 0 && agent != MAP_FAILED, "%s", sandbox_agent);
    close(fd);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    agent->device[0].updated_ms = (uint64_t)now.tv_sec * 1000;
    memcpy(agent->device[0].uuid, uuid_of(0), sizeof agent->device[0].uuid);
    return &agent->device[0];
}

__attribute__((unused)) static struct aliquot_region *map_region(void) {
    int fd = open(sandbox_region, O_RDWR | O_CLOEXEC);
    void *region = mmap(NULL, ALIQUOT_REGION_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(fd >= 0 && region != MAP_FAILED, "%s", sandbox_region);
    close(fd);
    return region;
}

/* Bytes that the region charges the container on a device of the limit file. */
__attribute__((unused)) static unsigned long long used_on(int device) {
    struct aliquot_region *region = map_region();
    unsigned long long sum = 0;
    for (int i = 0; i < ALIQUOT_REGION_PROCESSES; i++) {
        sum += __atomic_load_n(&region->charge[device][i].word, __ATOMIC_SEQ_CST) & ALIQUOT_CHARGE_BYTES;
    }
    munmap(region, ALIQUOT_REGION_SIZE);
    return sum;
}

__attribute__((unused)) static unsigned long long used_in_region(void) {
    return used_on(0);
}

__attribute__((unused)) static void use_device(int device) {
    CUcontext context = NULL;
    CHECK_EQUAL(CALL(cuInit, unsigned)(0), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuDevicePrimaryCtxRetain, CUcontext *, CUdevice)(&context, device), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuCtxSetCurrent, CUcontext)(context), CUDA_SUCCESS);
}

__attribute__((unused)) static CUresult allocate(CUdeviceptr *address, size_t bytes) {
    return CALL(cuMemAlloc_v2, CUdeviceptr *, size_t)(address, bytes);
}

__attribute__((unused)) static CUresult deallocate(CUdeviceptr address) {
    return CALL(cuMemFree_v2, CUdeviceptr)(address);
}

__attribute__((unused)) static size_t free_memory(void) {
    size_t available = 0;
    CHECK_EQUAL(CALL(cuMemGetInfo_v2, size_t *, size_t *)(&available, NULL), CUDA_SUCCESS);
    return available;
}

/* CLOCK_MONOTONIC. */
__attribute__((unused)) static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Runs statements in a child process and waits for its end. */
#define IN_CHILD(...)                                                                                                  \
    do {                                                                                                               \
        pid_t in_child = fork();                                                                                       \
        if (in_child == 0) {                                                                                           \
            __VA_ARGS__;                                                                                               \
            exit(EXIT_SUCCESS);                                                                                        \
        }                                                                                                              \
        int in_child_status = 0;                                                                                       \
        CHECK(waitpid(in_child, &in_child_status, 0) == in_child, "waitpid");                                          \
        CHECK_EQUAL(in_child_status, 0);                                                                               \
    } while (0)

/* Makes a HELPER use the limits and the region of the test that started it. Started without a test, it ends at once. */
__attribute__((unused)) static void join_sandbox(void) {
    const char *region = getenv("ALIQUOT_REGION");
    if (region == NULL) {
        exit(EXIT_SUCCESS);
    }
    snprintf(sandbox_region, sizeof sandbox_region, "%s", region);
    use_device(0);
}

#endif
