/* Shared code of the C tests of the simulated driver: checks that report their location, and a directory of GPUs. */
#ifndef ALIQUOT_FAKE_TESTING_H
#define ALIQUOT_FAKE_TESTING_H

#include "check.h"
#include "cuda_client.h"
#include "driver_state.h"
#include "gpu_file.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

#define EQUAL(expected, actual)                                                                                        \
    do {                                                                                                               \
        long long expected_value = (long long)(expected), actual_value = (long long)(actual);                          \
        if (expected_value != actual_value) {                                                                          \
            fprintf(stderr, "%s:%d: %s is %lld, expected %lld\n", __FILE__, __LINE__, #actual, actual_value,           \
                    expected_value);                                                                                   \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static char test_folder[] = "/tmp/aliquot-fake-driver-test-XXXXXX";

static const char *test_uuid(unsigned index) {
    static char uuid[48];
    snprintf(uuid, sizeof uuid, "GPU-%08x-1111-8222-8333-444444444444", index * 0x11111111u);
    return uuid;
}

static inline void test_path(char path[256], unsigned index) {
    snprintf(path, 256, "%s/%s", test_folder, test_uuid(index));
}

/* Fills in the identity of a test GPU. */
static inline void identify(struct gpu_identity *gpu, unsigned index, uint64_t mib, uint64_t context_mib) {
    memset(gpu, 0, sizeof *gpu);
    snprintf(gpu->uuid, sizeof gpu->uuid, "%s", test_uuid(index));
    snprintf(gpu->name, sizeof gpu->name, "Test GPU %u", index);
    snprintf(gpu->serial, sizeof gpu->serial, "%013u", index);
    gpu->memory_bytes = mib * MIB;
    gpu->context_bytes = context_mib * MIB;
    gpu->index = index;
    gpu->multiprocessors = 108;
    gpu->compute_major = 8;
}

static inline void make_gpus(unsigned count, uint64_t mib) {
    char error[GPU_ERROR_LENGTH];
    CHECK(mkdtemp(test_folder) != NULL);
    CHECK(chmod(test_folder, 0755) == 0);
    for (unsigned i = 0; i < count; i++) {
        struct gpu_identity gpu;
        identify(&gpu, i, mib, 0);
        EQUAL(GPU_CREATED, gpu_create(test_folder, &gpu, error));
    }
    setenv("ALIQUOT_FAKE_GPUS", test_folder, 1);
}

static inline gpu_file *open_gpu(unsigned index) {
    char path[256], error[GPU_ERROR_LENGTH];
    test_path(path, index);
    gpu_file *gpu = gpu_open(path, error);
    if (gpu == NULL) {
        fprintf(stderr, "%s\n", error);
    }
    CHECK(gpu != NULL);
    return gpu;
}

static inline void remove_gpus(unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        char path[256];
        test_path(path, i);
        unlink(path);
    }
    char driver[256];
    snprintf(driver, sizeof driver, "%s/" GPU_DRIVER_FILE, test_folder);
    unlink(driver);
    rmdir(test_folder);
}

struct test {
    const char *name;
    void (*run)(void);
};
#define TEST(name)                                                                                                     \
    { #name, name }

/*
 * Runs the tests that the arguments name, or all, each with new GPUs and in its own process, because a process
 * initializes the driver only once.
 */
static inline int run_tests(const struct test *tests, size_t test_count, int count, char **arguments, unsigned gpus,
                            uint64_t mib) {
    int failures = 0, ran = 0;
    for (size_t i = 0; i < test_count; i++) {
        bool wanted = count < 2;
        for (int n = 1; n < count; n++) {
            wanted |= strcmp(arguments[n], tests[i].name) == 0;
        }
        if (!wanted) {
            continue;
        }
        ran++;
        snprintf(test_folder, sizeof test_folder, "/tmp/aliquot-fake-driver-test-XXXXXX");
        make_gpus(gpus, mib);
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            setpgid(0, 0);
            tests[i].run();
            exit(0);
        }
        int status = 1;
        CHECK(waitpid(child, &status, 0) == child);
        (void)kill(-child, SIGKILL); /* children that a failed test left; they would keep the output open */
        printf("%s: %s\n", status == 0 ? "ok" : "FAILED", tests[i].name);
        failures += status != 0;
        remove_gpus(gpus);
    }
    return failures != 0 || ran == 0;
}

static inline CUcontext start_context(int ordinal) {
    CUcontext context;
    EQUAL(CUDA_SUCCESS, cuInit(0));
    EQUAL(CUDA_SUCCESS, cuCtxCreate_v2(&context, 0, ordinal));
    return context;
}

/* Sends and receives a file descriptor over a socket. */
static inline void send_descriptor(int socket, int descriptor) {
    char byte = 0;
    union {
        struct cmsghdr header;
        char buffer[CMSG_SPACE(sizeof(int))];
    } control = {.buffer = {0}};
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control.buffer, .msg_controllen = sizeof control.buffer};
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.header), &descriptor, sizeof descriptor);
    CHECK(sendmsg(socket, &message, 0) == 1);
}

static inline int receive_descriptor(int socket) {
    char byte;
    int descriptor;
    union {
        struct cmsghdr header;
        char buffer[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control.buffer, .msg_controllen = sizeof control.buffer};
    CHECK(recvmsg(socket, &message, 0) == 1);
    CHECK(control.header.cmsg_type == SCM_RIGHTS);
    memcpy(&descriptor, CMSG_DATA(&control.header), sizeof descriptor);
    return descriptor;
}

#endif
