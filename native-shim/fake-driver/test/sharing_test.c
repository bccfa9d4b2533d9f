/* Many processes on one GPU: no over-commit and no leak, however the processes die. */
#define _GNU_SOURCE
#include "testing.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <time.h>

enum { GPU_MIB = 20000 };

static uint64_t sum_used_bytes(gpu_file *gpu) {
    static struct gpu_process processes[GPU_SLOTS];
    uint64_t sum = 0;
    size_t count = gpu_processes(gpu, processes, GPU_SLOTS);
    for (size_t i = 0; i < count; i++) {
        sum += processes[i].used_bytes;
    }
    return sum;
}

/*
 * The sum while no process can reserve; otherwise memory that moves between processes would count twice. The lock is
 * that of struct gpu_layout in gpu_file.c.
 */
static uint64_t sum_used_bytes_locked(gpu_file *gpu) {
    char path[256];
    test_path(path, 0);
    int file = open(path, O_RDWR | O_CLOEXEC);
    struct flock reservation = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2056, .l_len = 1};
    CHECK(file >= 0 && fcntl(file, F_OFD_SETLKW, &reservation) == 0);
    uint64_t sum = sum_used_bytes(gpu);
    close(file);
    return sum;
}

static void sleep_ms(long ms) {
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* Waits for a kill, at most a minute, so that a failed test leaves no process behind. */
static void wait_until_killed(void) {
    alarm(60);
    for (;;) {
        pause();
    }
}

static void the_whole_memory_can_be_allocated(void) {
    CUdeviceptr all;
    size_t free_bytes, total;
    CUcontext context = start_context(0);
    EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&all, GPU_MIB * MIB));
    EQUAL(CUDA_SUCCESS, cuMemGetInfo_v2(&free_bytes, &total));
    EQUAL(0, free_bytes);
    EQUAL(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&all, 1));
    EQUAL(CUDA_SUCCESS, cuCtxDestroy_v2(context));
}

static void two_hundred_killed_processes_leak_nothing(void) {
    enum { PROCESSES = 200, EACH_MIB = 100 };
    pid_t children[PROCESSES];
    int ready[2];
    gpu_file *gpu = open_gpu(0);
    CHECK(pipe(ready) == 0);
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0) {
            CUdeviceptr pointer;
            start_context(0);
            EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, EACH_MIB * MIB));
            CHECK(write(ready[1], "", 1) == 1);
            wait_until_killed();
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        char byte;
        CHECK(read(ready[0], &byte, 1) == 1);
    }
    EQUAL(PROCESSES * EACH_MIB * MIB, gpu_used(gpu));
    for (int i = 0; i < PROCESSES; i++) {
        kill(children[i], SIGKILL);
    }
    for (int i = 0; i < PROCESSES; i++) {
        waitpid(children[i], NULL, 0);
    }
    EQUAL(0, gpu_used(gpu));
    gpu_close(gpu);
    the_whole_memory_can_be_allocated();
}

static void processes_killed_at_any_instruction_leak_nothing(void) {
    enum { ROUNDS = 12, PROCESSES = 8 };
    unsigned seed = (unsigned)time(NULL);
    gpu_file *gpu = open_gpu(0);
    printf("seed %u\n", seed);
    srand(seed);
    for (int round = 0; round < ROUNDS; round++) {
        pid_t children[PROCESSES];
        for (int i = 0; i < PROCESSES; i++) {
            unsigned own = (unsigned)rand();
            children[i] = fork();
            if (children[i] == 0) {
                srand(own);
                EQUAL(CUDA_SUCCESS, cuInit(0));
                for (;;) {
                    CUcontext context;
                    CUdeviceptr pointers[4];
                    EQUAL(CUDA_SUCCESS, cuCtxCreate_v2(&context, 0, 0));
                    for (int n = 0; n < 4; n++) {
                        (void)cuMemAlloc_v2(&pointers[n], (size_t)(1 + rand() % 8000) * MIB);
                    }
                    EQUAL(CUDA_SUCCESS, cuCtxDestroy_v2(context));
                }
            }
        }
        sleep_ms(5 + rand() % 30);
        CHECK(sum_used_bytes_locked(gpu) <= GPU_MIB * MIB);
        for (int i = 0; i < PROCESSES; i++) {
            kill(children[i], SIGKILL);
        }
        for (int i = 0; i < PROCESSES; i++) {
            waitpid(children[i], NULL, 0);
        }
        EQUAL(0, gpu_used(gpu));
    }
    gpu_close(gpu);
    the_whole_memory_can_be_allocated();
}

/* Each child allocates and frees at random, and finally allocates until an allocation is refused. */
static void eight_racing_processes_get_all_the_memory_and_no_more(void) {
    enum { PROCESSES = 8, CHUNK_MIB = 30, MOST = GPU_MIB / CHUNK_MIB };
    pid_t children[PROCESSES];
    int results[2], done[2];
    gpu_file *gpu = open_gpu(0);
    CHECK(pipe(results) == 0 && pipe(done) == 0);
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            static CUdeviceptr pointers[MOST + 1];
            int count = 0;
            srand((unsigned)i);
            start_context(0);
            for (int step = 0; step < 3000; step++) {
                if (count < MOST && rand() % 5 < 3) {
                    count += cuMemAlloc_v2(&pointers[count], CHUNK_MIB * MIB) == CUDA_SUCCESS;
                } else if (count > 0) {
                    EQUAL(CUDA_SUCCESS, cuMemFree_v2(pointers[--count]));
                }
            }
            CUresult result;
            while ((result = cuMemAlloc_v2(&pointers[count], CHUNK_MIB * MIB)) == CUDA_SUCCESS) {
                count++;
            }
            EQUAL(CUDA_ERROR_OUT_OF_MEMORY, result);
            CHECK(write(results[1], &count, sizeof count) == (ssize_t)sizeof count);
            char byte;
            CHECK(read(done[0], &byte, 1) == 1); /* hold the memory until all children were refused */
            _exit(0);
        }
    }
    int total = 0, reports = 0;
    while (reports < PROCESSES) {
        struct pollfd report = {.fd = results[0], .events = POLLIN};
        int count;
        CHECK(sum_used_bytes_locked(gpu) <= GPU_MIB * MIB);
        if (poll(&report, 1, 1) == 1) {
            CHECK(read(results[0], &count, sizeof count) == (ssize_t)sizeof count);
            total += count;
            reports++;
        }
    }
    /* An allocation is refused only if less than a chunk is free, so less than a chunk remains. */
    EQUAL(GPU_MIB / CHUNK_MIB, total);
    EQUAL((uint64_t)total * CHUNK_MIB * MIB, gpu_used(gpu));
    CHECK(write(done[1], "12345678", PROCESSES) == PROCESSES);
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        waitpid(children[i], &status, 0);
        EQUAL(0, status);
    }
    EQUAL(0, gpu_used(gpu));
    gpu_close(gpu);
}

static void a_forked_child_has_no_driver_and_does_not_hold_its_parents_memory(void) {
    gpu_file *gpu = open_gpu(0);
    int pids[2];
    CHECK(pipe(pids) == 0);
    pid_t parent = fork();
    if (parent == 0) {
        CUdeviceptr pointer;
        start_context(0);
        EQUAL(CUDA_SUCCESS, cuMemAlloc_v2(&pointer, 500 * MIB));
        pid_t child = fork();
        if (child == 0) {
            EQUAL(CUDA_ERROR_NOT_INITIALIZED, cuInit(0));
            EQUAL(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc_v2(&pointer, 1));
            child = getpid();
            CHECK(write(pids[1], &child, sizeof child) == (ssize_t)sizeof child);
            wait_until_killed();
        }
        wait_until_killed();
    }
    pid_t child;
    CHECK(read(pids[0], &child, sizeof child) == (ssize_t)sizeof child);
    EQUAL(500 * MIB, gpu_used(gpu));
    kill(parent, SIGKILL);
    waitpid(parent, NULL, 0);
    EQUAL(0, gpu_used(gpu));
    kill(child, SIGKILL);
    gpu_close(gpu);
}

static void a_gpu_has_1024_slots_and_refuses_further_processes(void) {
    gpu_file *gpu = open_gpu(0);
    gpu_file *users[GPU_SLOTS];
    for (int i = 0; i < GPU_SLOTS; i++) { /* each opens the file separately, as a process does */
        users[i] = open_gpu(0);
        CHECK(gpu_attach(users[i]));
    }
    CHECK(!gpu_attach(gpu));
    gpu_close(users[GPU_SLOTS / 2]);
    CHECK(gpu_attach(gpu));
    users[GPU_SLOTS / 2] = gpu;
    for (int i = 0; i < GPU_SLOTS; i++) {
        gpu_close(users[i]);
    }
}

static void overwrite_byte(long offset, unsigned char value) {
    char path[256];
    test_path(path, 1);
    FILE *file = fopen(path, "r+b");
    CHECK(file != NULL && fseek(file, offset, SEEK_SET) == 0 && fputc(value, file) == value && fclose(file) == 0);
}

static void an_invalid_gpu_file_is_ignored_and_the_installer_repairs_it(void) {
    gpu_file *gpus[GPU_MAX_PER_NODE];
    char path[256], error[GPU_ERROR_LENGTH];
    test_path(path, 1);
    gpu_file *second = open_gpu(1);
    struct gpu_identity identity = *gpu_identity(second);
    gpu_close(second);
    const long offsets[] = {0, 8, 20, 70, 150, 170};
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        EQUAL(2, gpu_open_all(test_folder, gpus, GPU_MAX_PER_NODE, NULL));
        overwrite_byte(offsets[i], 0xee);
        EQUAL(1, gpu_open_all(test_folder, gpus, GPU_MAX_PER_NODE, NULL));
        EQUAL(GPU_CHANGED, gpu_create(test_folder, &identity, error));
    }
    CHECK(truncate(path, 5000) == 0);
    CHECK(gpu_open(path, error) == NULL);
    CHECK(strstr(error, "size") != NULL);
    EQUAL(GPU_CHANGED, gpu_create(test_folder, &identity, error));
    EQUAL(2, gpu_open_all(test_folder, gpus, GPU_MAX_PER_NODE, NULL));
}

static void the_identity_of_a_gpu_in_use_does_not_change(void) {
    char error[GPU_ERROR_LENGTH];
    gpu_file *user = open_gpu(1), *late = open_gpu(1);
    struct gpu_identity smaller = *gpu_identity(user);
    smaller.memory_bytes = 100 * MIB;
    CHECK(gpu_attach(user));
    EQUAL(GPU_BUSY, gpu_create(test_folder, &smaller, error));
    CHECK(strstr(error, "in use") != NULL);
    gpu_detach(user);
    EQUAL(GPU_CHANGED, gpu_create(test_folder, &smaller, error));
    CHECK(!gpu_attach(late)); /* it opened the file with the larger size */
    gpu_close(user);
    gpu_close(late);
}

int main(int count, char **arguments) {
    static const struct test tests[] = {
        TEST(the_whole_memory_can_be_allocated),
        TEST(two_hundred_killed_processes_leak_nothing),
        TEST(processes_killed_at_any_instruction_leak_nothing),
        TEST(eight_racing_processes_get_all_the_memory_and_no_more),
        TEST(a_forked_child_has_no_driver_and_does_not_hold_its_parents_memory),
        TEST(a_gpu_has_1024_slots_and_refuses_further_processes),
        TEST(an_invalid_gpu_file_is_ignored_and_the_installer_repairs_it),
        TEST(the_identity_of_a_gpu_in_use_does_not_change),
    };
    return run_tests(tests, sizeof tests / sizeof tests[0], count, arguments, 2, GPU_MIB);
}
