/*
 * A small CUDA program that demonstrates a share of a GPU. It executes the steps on its command line and prints the
 * result of each. It uses only the CUDA driver API, does not depend on Aliquot, and runs on any NVIDIA GPU.
 */
#include "cuda_client.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_ALLOCATIONS = 65536 };

static const char usage[] =
    "usage: vgpu-sample STEP...\n"
    "\n"
    "Executes the steps in order on the first visible GPU and prints the result of each; continues after an error.\n"
    "\n"
    "  alloc MIB      allocate MIB MiB of device memory\n"
    "  free           free the latest allocation\n"
    "  info           show free and total device memory\n"
    "  launch N       launch an empty kernel N times\n"
    "  busy SECONDS   keep the GPU busy with kernels of 1 ms, and print every second how many completed\n"
    "  sleep SECONDS  wait\n"
    "  hold           wait until SIGTERM or SIGINT\n"
    "\n"
    "Example: vgpu-sample alloc 2900 alloc 200 free alloc 200 info hold\n"
    "Exit status: 0, also after a refused allocation; 1 without a driver or a GPU; 2 for an invalid step.\n";

/* A simulated GPU runs no code: a kernel named aliquot_busy takes the nanoseconds of its first parameter. */
static const char kernels_ptx[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry nothing()\n{\n\tret;\n}\n"
    ".visible .entry aliquot_busy(.param .u64 ns)\n{\n"
    "\t.reg .pred %p1;\n\t.reg .b64 %end, %now;\n"
    "\tld.param.u64 %end, [ns];\n\tmov.u64 %now, %globaltimer;\n\tadd.u64 %end, %end, %now;\n"
    "again:\n\tmov.u64 %now, %globaltimer;\n\tsetp.lt.u64 %p1, %now, %end;\n\t@%p1 bra again;\n"
    "\tret;\n}\n";

static CUdeviceptr live_allocations[MAX_ALLOCATIONS];
static size_t allocation_count;

static const char *error_name(CUresult result) {
    const char *name = NULL;
    return cuGetErrorName(result, &name) == CUDA_SUCCESS && name != NULL ? name : "an unknown CUresult";
}

static void exit_on_error(CUresult result, const char *call) {
    if (result == CUDA_SUCCESS) {
        return;
    }
    fprintf(stderr, "vgpu-sample: %s: %s\n", call, error_name(result));
    exit(1);
}

/* The whole number from 1 to max that text consists of; 0 otherwise. */
static unsigned long positive_number(const char *text, unsigned long max) {
    char *end;
    errno = 0;
    if (text == NULL || text[0] < '0' || text[0] > '9') {
        return 0;
    }
    unsigned long value = strtoul(text, &end, 10);
    return errno == 0 && *end == '\0' && value <= max ? value : 0;
}

static void alloc_step(unsigned long mib) {
    CUdeviceptr pointer;
    CUresult result = cuMemAlloc_v2(&pointer, (size_t)mib << 20);
    printf("alloc %lu MiB: %s\n", mib, error_name(result));
    if (result == CUDA_SUCCESS) {
        live_allocations[allocation_count++] = pointer;
    }
}

static void free_step(void) {
    if (allocation_count == 0) {
        printf("free: nothing is allocated\n");
    } else {
        printf("free: %s\n", error_name(cuMemFree_v2(live_allocations[--allocation_count])));
    }
}

static void info_step(void) {
    size_t free_bytes = 0, total = 0;
    CUresult result = cuMemGetInfo_v2(&free_bytes, &total);
    if (result == CUDA_SUCCESS) {
        printf("info: %zu MiB free of %zu MiB\n", free_bytes >> 20, total >> 20);
    } else {
        printf("info: %s\n", error_name(result));
    }
}

static CUresult find_function(CUfunction *function, const char *name) {
    static CUmodule module;
    CUresult result = module == NULL ? cuModuleLoadData(&module, kernels_ptx) : CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? cuModuleGetFunction(function, module, name) : result;
}

static void launch_step(unsigned long times) {
    CUfunction function;
    CUresult result = find_function(&function, "nothing");
    for (unsigned long i = 0; i < times && result == CUDA_SUCCESS; i++) {
        result = cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
    }
    if (result == CUDA_SUCCESS) {
        result = cuCtxSynchronize();
    }
    printf("launch %lu: %s\n", times, error_name(result));
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Keeps two batches of kernels in flight, so that the GPU never waits for this program. */
static void busy_step(unsigned long seconds) {
    enum { BATCH = 4 };
    CUfunction function;
    CUevent done[2] = {NULL, NULL};
    uint64_t ns = 1000000;
    void *parameters[] = {&ns};
    int processors = 1;
    CUresult result = find_function(&function, "aliquot_busy");
    (void)cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
    for (int i = 0; i < 2 && result == CUDA_SUCCESS; i++) {
        result = cuEventCreate(&done[i], CU_EVENT_DISABLE_TIMING);
    }
    double start = now(), last_report = start;
    unsigned long kernels = 0, batch = 0;
    for (; result == CUDA_SUCCESS && last_report < start + (double)seconds; batch++) {
        CUevent event = done[batch % 2];
        if (batch >= 2) {
            result = cuEventSynchronize(event);
            kernels += BATCH;
        }
        if (now() >= last_report + 1) {
            printf("busy: %.0f kernels of 1 ms per second\n", (double)kernels / (now() - last_report));
            fflush(stdout);
            last_report = now();
            kernels = 0;
        }
        for (int i = 0; i < BATCH && result == CUDA_SUCCESS; i++) {
            result = cuLaunchKernel(function, (unsigned)processors, 1, 1, 128, 1, 1, 0, NULL, parameters, NULL);
        }
        if (result == CUDA_SUCCESS) {
            result = cuEventRecord(event, NULL);
        }
    }
    if (result == CUDA_SUCCESS) {
        result = cuCtxSynchronize();
    }
    printf("busy %lu: %lu kernels of 1 ms\n", seconds, batch * BATCH);
    printf("busy %lu: %s\n", seconds, error_name(result));
}

static void hold_step(void) {
    sigset_t ends;
    int ended;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    printf("hold: until SIGTERM\n");
    fflush(stdout);
    sigwait(&ends, &ended);
    printf("hold: ended by %s\n", ended == SIGTERM ? "SIGTERM" : "SIGINT");
}

enum step { ALLOC, FREE, INFO, LAUNCH, BUSY, SLEEP, HOLD, STEPS };

static const struct {
    const char *name;
    unsigned long max; /* of its argument; 0: the step takes no argument */
} steps[STEPS] = {
    [ALLOC] = {"alloc", 16ul << 20},
    [FREE] = {"free", 0},
    [INFO] = {"info", 0},
    [LAUNCH] = {"launch", 1000000000ul},
    [BUSY] = {"busy", 86400ul * 365},
    [SLEEP] = {"sleep", 86400ul * 365},
    [HOLD] = {"hold", 0},
};

/* Parses the step at argument i, sets value to its argument and advances i. Exits if the step is invalid. */
static enum step parse_step(char **arguments, int *i, unsigned long *value) {
    const char *word = arguments[(*i)++];
    for (int step = 0; step < STEPS; step++) {
        if (strcmp(word, steps[step].name) != 0) {
            continue;
        }
        if (steps[step].max == 0) {
            return (enum step)step;
        }
        *value = positive_number(arguments[*i], steps[step].max);
        if (*value != 0) {
            (*i)++;
            return (enum step)step;
        }
        fprintf(stderr, "vgpu-sample: %s needs a whole number from 1 to %lu, not \"%s\"\n", word, steps[step].max,
                arguments[*i] != NULL ? arguments[*i] : "");
        exit(2);
    }
    fprintf(stderr,
            "vgpu-sample: unknown step \"%s\"; valid are alloc MIB, free, info, launch N, busy SECONDS,"
            " sleep SECONDS, hold\n",
            word);
    exit(2);
}

int main(int count, char **arguments) {
    unsigned long value = 0;
    if (count < 2 || strcmp(arguments[1], "--help") == 0 || strcmp(arguments[1], "-h") == 0) {
        fputs(usage, count < 2 ? stderr : stdout);
        return count < 2 ? 2 : 0;
    }
    size_t allocs = 0;
    for (int i = 1; i < count;) { /* checks all steps before the first one is executed */
        allocs += parse_step(arguments, &i, &value) == ALLOC;
    }
    if (allocs > MAX_ALLOCATIONS) {
        fprintf(stderr, "vgpu-sample: at most %d alloc steps\n", MAX_ALLOCATIONS);
        return 2;
    }
    CUcontext context;
    CUdevice device;
    exit_on_error(cuInit(0), "cuInit");
    exit_on_error(cuDeviceGet(&device, 0), "cuDeviceGet");
    exit_on_error(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    exit_on_error(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    for (int i = 1; i < count;) {
        switch (parse_step(arguments, &i, &value)) {
        case ALLOC:
            alloc_step(value);
            break;
        case FREE:
            free_step();
            break;
        case INFO:
            info_step();
            break;
        case LAUNCH:
            launch_step(value);
            break;
        case BUSY:
            busy_step(value);
            break;
        case SLEEP: {
            struct timespec left = {.tv_sec = (time_t)value};
            printf("sleep %lu\n", value);
            fflush(stdout);
            while (nanosleep(&left, &left) != 0 && errno == EINTR) {
            }
            break;
        }
        case HOLD:
            hold_step();
            break;
        case STEPS:
            break;
        }
        fflush(stdout);
    }
    return 0;
}
