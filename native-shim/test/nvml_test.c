/* Tests of NVML's view of a container: memory, processes, utilization and accounting, on the fake driver. */
#include "driver/hooks.h"
#include "nvml_call.h"
#include "os/usage.h"
#include "sandbox.h"

#include <sys/prctl.h>
#include <time.h>

struct peer {
    pid_t pid;
    int commands, replies; /* pipes */
};

/* Starts a process of the container that allocates these bytes. It keeps them until free_in_peer, kill_peer or the end
   of the test. */
static struct peer start_peer(size_t bytes) {
    CUdeviceptr address = 0;
    int commands[2], replies[2];
    char byte = 0;
    CHECK(pipe(commands) == 0 && pipe(replies) == 0, "pipe");
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(commands[1]);
        use_device(0);
        CHECK_EQUAL(allocate(&address, bytes), CUDA_SUCCESS);
        CHECK(write(replies[1], "", 1) == 1, "pipe");
        if (read(commands[0], &byte, 1) == 1) { /* the only command: free the memory */
            CHECK_EQUAL(deallocate(address), CUDA_SUCCESS);
            CHECK(write(replies[1], "", 1) == 1 && read(commands[0], &byte, 1) == 0, "pipe");
        }
        exit(EXIT_SUCCESS);
    }
    close(commands[0]);
    close(replies[1]);
    CHECK(read(replies[0], &byte, 1) == 1, "a peer that holds %zu bytes", bytes);
    return (struct peer){pid, commands[1], replies[0]};
}

static void free_in_peer(struct peer peer) {
    char byte = 0;
    CHECK(write(peer.commands, "", 1) == 1 && read(peer.replies, &byte, 1) == 1, "pipe");
}

static void kill_peer(struct peer peer) {
    kill(peer.pid, SIGKILL);
    waitpid(peer.pid, NULL, 0);
    close(peer.commands);
    close(peer.replies);
}

TEST(with_a_whole_card_NVML_is_the_drivers) {
    static const char *const functions[] = {
#define ROW(library, result, symbol, name, version, flags, parameters) library##_ROW(#symbol)
#define CUDA_ROW(symbol)
#define NVML_ROW(symbol) symbol,
        ALIQUOT_HOOKS(ROW)};
    nvmlProcessInfo_v2_t processes[8];
    unsigned int count = 8;
    sandbox_whole = 1;
    sandbox(3000 * MIB, 0);
    struct peer peer = start_peer(4000 * MIB);
    void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *found = dlsym(library, functions[i]);
        CHECK(found != NULL && found == real_dlsym(library, functions[i]), "%s", functions[i]);
    }
    nvmlDevice_t device = nvml_device(0);
    nvmlMemory_t memory = nvml_memory(device);
    CHECK_EQUAL(memory.total, 81920 * MIB);
    CHECK_EQUAL(memory.used, 4000 * MIB); /* more than the limit file gives */
    CHECK_EQUAL(NVML(nvmlDeviceGetComputeRunningProcesses_v3, nvmlDevice_t, unsigned *,
                     nvmlProcessInfo_v2_t *)(device, &count, processes),
                NVML_SUCCESS);
    CHECK_EQUAL(count, 1);
    CHECK_EQUAL(processes[0].pid, peer.pid);
    CHECK_EQUAL(processes[0].usedGpuMemory, 4000 * MIB);
}

TEST(NVML_shows_the_limit_and_what_all_processes_of_the_container_use) {
    nvmlMemory_v2_t second = {.version = sizeof second | 2 << 24};
    sandbox(3000 * MIB, 0);
    struct peer peer = start_peer(1000 * MIB);
    nvmlDevice_t device = nvml_device(0);
    nvmlMemory_t memory = nvml_memory(device);
    CHECK_EQUAL(memory.total, 3000 * MIB);
    CHECK_EQUAL(memory.used, 1000 * MIB);
    CHECK_EQUAL(memory.free, 2000 * MIB);
    CHECK_EQUAL(NVML(nvmlDeviceGetMemoryInfo_v2, nvmlDevice_t, nvmlMemory_v2_t *)(device, &second), NVML_SUCCESS);
    CHECK_EQUAL(second.total, 3000 * MIB);
    CHECK_EQUAL(second.used, 1000 * MIB);
    CHECK_EQUAL(second.free, 2000 * MIB);
    kill_peer(peer);
    CHECK_EQUAL(nvml_memory(device).used, 0);
}

TEST(NVML_never_shows_more_free_memory_than_the_GPU_has) {
    size_t available = 0;
    sandbox((size_t)1 << 40, 0);
    use_device(0);
    nvmlMemory_t memory = nvml_memory(nvml_device(0));
    CHECK_EQUAL(memory.total, 1ull << 40);
    CHECK(memory.free <= (81920ull << 20), "%llu", memory.free);
    CHECK_EQUAL(CALL(cuMemGetInfo_v2, size_t *, size_t *)(&available, NULL), CUDA_SUCCESS);
    CHECK(available <= (81920ull << 20), "%zu", available);
}

TEST(NVML_shows_no_memory_of_a_GPU_that_is_not_in_the_limit_file) {
    sandbox(3000 * MIB, 0);
    nvmlMemory_t memory = nvml_memory(nvml_device(1));
    CHECK_EQUAL(memory.total + memory.free + memory.used, 0);
}

TEST(NVML_fails_closed_when_the_limit_file_is_invalid) {
    nvmlMemory_t memory = {0};
    sandbox_empty();
    write_file(sandbox_limits, "nonsense", 8);
    CHECK_EQUAL(NVML(nvmlDeviceGetMemoryInfo, nvmlDevice_t, nvmlMemory_t *)(nvml_device(0), &memory),
                NVML_ERROR_NO_PERMISSION);
}

TEST(without_limits_NVML_calls_pass_through_unchanged) {
    sandbox_empty();
    CHECK_EQUAL(nvml_memory(nvml_device(0)).total, 81920ull << 20);
}

TEST(a_process_that_used_NVML_may_fork_children_that_use_CUDA) {
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 0);
    nvml_memory(nvml_device(0));
    for (int child = 0; child < 3; child++) {
        IN_CHILD({
            use_device(0);
            CHECK_EQUAL(allocate(&address, 100 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
            CHECK_EQUAL(allocate(&address, 100 * MIB), CUDA_SUCCESS);
        });
    }
}

/* ---- processes ---- */

static const char *const compute_lists[] = {
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetComputeRunningProcesses_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3",
};
static const char *const other_lists[] = {
    "nvmlDeviceGetGraphicsRunningProcesses",      "nvmlDeviceGetGraphicsRunningProcesses_v2",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",   "nvmlDeviceGetMPSComputeRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses_v2", "nvmlDeviceGetMPSComputeRunningProcesses_v3",
};

#define MAX_INFOS 8

/* Calls a version of a process list and returns the widest form. Checks that the other fields are those of a GPU
   without MIG. */
static nvmlReturn_t list_processes(const char *function, unsigned *count, nvmlProcessInfo_v2_t infos[MAX_INFOS]) {
    nvmlDevice_t device = nvml_device(0);
    nvmlReturn_t (*list)(nvmlDevice_t, unsigned *, void *) =
        (nvmlReturn_t(*)(nvmlDevice_t, unsigned *, void *))nvml_function(function);
    bool first = strstr(function, "_v") == NULL;
    nvmlProcessInfo_v1_t narrow[MAX_INFOS + 1];
    nvmlProcessInfo_v2_t wide[MAX_INFOS + 1];
    memset(narrow, 0x5a, sizeof narrow);
    memset(wide, 0x5a, sizeof wide);
    nvmlReturn_t result = list(device, count, first ? (void *)narrow : (void *)wide);
    for (unsigned i = 0; i < MAX_INFOS; i++) {
        bool written = result == NVML_SUCCESS && i < *count;
        infos[i] = first ? (nvmlProcessInfo_v2_t){narrow[i].pid, narrow[i].usedGpuMemory, ~0u, ~0u} : wide[i];
        CHECK_EQUAL(infos[i].pid != 0x5a5a5a5a, written);
        CHECK(!written || infos[i].gpuInstanceId + infos[i].computeInstanceId == ~0u - 1, "no MIG");
    }
    return result;
}

TEST(each_version_lists_the_containers_processes_with_their_own_PIDs_and_bytes) {
    nvmlProcessInfo_v2_t infos[MAX_INFOS];
    sandbox(3000 * MIB, 0);
    struct peer first = start_peer(1000 * MIB), second = start_peer(1 * MIB);
    for (size_t version = 0; version < 3; version++) {
        unsigned count = MAX_INFOS;
        CHECK_EQUAL(list_processes(compute_lists[version], &count, infos), NVML_SUCCESS);
        CHECK_EQUAL(count, 2);
        CHECK_EQUAL(infos[0].pid, first.pid);
        CHECK_EQUAL(infos[0].usedGpuMemory, 1000 * MIB);
        CHECK_EQUAL(infos[1].pid, second.pid);
        CHECK_EQUAL(infos[1].usedGpuMemory, 1 * MIB);
    }
    kill_peer(first);
    unsigned count = MAX_INFOS;
    CHECK_EQUAL(list_processes(compute_lists[2], &count, infos), NVML_SUCCESS);
    CHECK_EQUAL(count, 1);
    CHECK_EQUAL(infos[0].pid, second.pid);
    use_device(0);
    CUdeviceptr address = 0;
    CHECK_EQUAL(allocate(&address, 5 * MIB), CUDA_SUCCESS); /* the calling process is listed, too */
    count = MAX_INFOS;
    CHECK_EQUAL(list_processes(compute_lists[2], &count, infos), NVML_SUCCESS);
    CHECK_EQUAL(count, 2);
    CHECK_EQUAL(infos[0].pid, getpid());
    CHECK_EQUAL(infos[0].usedGpuMemory, 5 * MIB);
}

TEST(a_process_list_returns_the_number_of_entries_that_it_needs) {
    nvmlProcessInfo_v2_t infos[MAX_INFOS];
    sandbox(3000 * MIB, 0);
    nvmlReturn_t (*list)(nvmlDevice_t, unsigned *, void *) =
        NVML(nvmlDeviceGetComputeRunningProcesses_v3, nvmlDevice_t, unsigned *, void *);
    unsigned count = 0;
    CHECK_EQUAL(list(nvml_device(0), &count, NULL), NVML_SUCCESS); /* the list is empty */
    CHECK_EQUAL(count, 0);
    start_peer(1 * MIB);
    start_peer(1 * MIB);
    CHECK_EQUAL(list(nvml_device(0), &count, NULL), NVML_ERROR_INSUFFICIENT_SIZE);
    CHECK_EQUAL(count, 2);
    count = 1;
    CHECK_EQUAL(list_processes(compute_lists[2], &count, infos), NVML_ERROR_INSUFFICIENT_SIZE);
    CHECK_EQUAL(count, 2);
    CHECK_EQUAL(list_processes(compute_lists[2], &count, infos), NVML_SUCCESS);
    CHECK_EQUAL(list(nvml_device(0), &count, NULL), NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(list(nvml_device(0), NULL, infos), NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(list(NULL, &count, infos), NVML_ERROR_INVALID_ARGUMENT);
}

TEST(the_graphics_and_MPS_process_lists_are_empty) {
    nvmlProcessInfo_v2_t infos[MAX_INFOS];
    sandbox(3000 * MIB, 0);
    start_peer(1 * MIB);
    for (size_t i = 0; i < sizeof other_lists / sizeof other_lists[0]; i++) {
        unsigned count = MAX_INFOS;
        CHECK_EQUAL(list_processes(other_lists[i], &count, infos), NVML_SUCCESS);
        CHECK_EQUAL(count, 0);
    }
}

TEST(processes_of_other_containers_are_shown_only_for_a_GPU_that_is_not_in_the_limit_file) {
    CUdeviceptr address = 0;
    unsigned count = MAX_INFOS;
    nvmlProcessInfo_v2_t infos[MAX_INFOS];
    int done[2];
    char byte = 0;
    sandbox(3000 * MIB, 0);
    CHECK(pipe(done) == 0, "pipe");
    pid_t outsider = fork();
    if (outsider == 0) { /* a process outside the container, without limits */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        unsetenv("ALIQUOT_CONFIG");
        unsetenv("ALIQUOT_REGION");
        for (int device = 0; device < 2; device++) {
            use_device(device);
            CHECK_EQUAL(allocate(&address, 7 * MIB), CUDA_SUCCESS);
        }
        CHECK(write(done[1], "", 1) == 1, "pipe");
        pause();
    }
    CHECK(read(done[0], &byte, 1) == 1, "pipe");
    CHECK_EQUAL(list_processes(compute_lists[2], &count, infos), NVML_SUCCESS);
    CHECK_EQUAL(count, 0);
    count = MAX_INFOS;
    CHECK_EQUAL(NVML(nvmlDeviceGetComputeRunningProcesses_v3, nvmlDevice_t, unsigned *,
                     nvmlProcessInfo_v2_t *)(nvml_device(1), &count, infos),
                NVML_SUCCESS);
    CHECK_EQUAL(count, 1);
    CHECK_EQUAL(infos[0].pid, outsider);
    kill(outsider, SIGKILL);
    waitpid(outsider, NULL, 0);
}

TEST(process_details_are_listed_by_mode) {
    nvmlProcessDetail_v1_t details[MAX_INFOS];
    sandbox(3000 * MIB, 0);
    struct peer peer = start_peer(9 * MIB);
    nvmlReturn_t (*list)(nvmlDevice_t, nvmlProcessDetailList_t *) =
        NVML(nvmlDeviceGetRunningProcessDetailList, nvmlDevice_t, nvmlProcessDetailList_t *);
    for (unsigned mode = NVML_PROCESS_MODE_COMPUTE; mode <= NVML_PROCESS_MODE_ALL; mode++) {
        bool computes = mode == NVML_PROCESS_MODE_COMPUTE || mode == NVML_PROCESS_MODE_ALL;
        nvmlProcessDetailList_t all = {.version = nvmlProcessDetailList_v1, .mode = mode};
        CHECK_EQUAL(list(nvml_device(0), &all), computes ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
        CHECK_EQUAL(all.numProcArrayEntries, computes);
        all.numProcArrayEntries = MAX_INFOS;
        all.procArray = details;
        CHECK_EQUAL(list(nvml_device(0), &all), NVML_SUCCESS);
        CHECK_EQUAL(all.numProcArrayEntries, computes);
        CHECK(!computes || (details[0].pid == (unsigned)peer.pid && details[0].usedGpuMemory == 9 * MIB &&
                            details[0].usedGpuCcProtectedMemory == 0),
              "%u holds %llu", details[0].pid, details[0].usedGpuMemory);
    }
    nvmlProcessDetailList_t wrong = {.version = nvmlProcessDetailList_v1, .mode = NVML_PROCESS_MODE_ALL + 1};
    CHECK_EQUAL(list(nvml_device(0), &wrong), NVML_ERROR_INVALID_ARGUMENT);
    wrong.version++;
    CHECK_EQUAL(list(nvml_device(0), &wrong), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    CHECK_EQUAL(list(nvml_device(0), NULL), NVML_ERROR_INVALID_ARGUMENT);
}

/* ---- utilization ---- */

static int64_t monotonic(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static uint64_t wall_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static struct aliquot_charge *charge_of(struct aliquot_region *region, struct peer peer) {
    size_t slot = 0;
    while (slot < ALIQUOT_REGION_PROCESSES && region->process[slot].pid != (unsigned)peer.pid) {
        slot++;
    }
    CHECK(slot < ALIQUOT_REGION_PROCESSES, "the peer's slot");
    return &region->charge[0][slot];
}

static int64_t busy_until;

/* Whether so much time has passed since keep_busy that the idle time would affect the utilization. */
static bool was_late(void) {
    return monotonic() - busy_until > 20000000;
}

/* Charges two processes of the container as if they had used these percentages of the GPU for the last two seconds. */
static void keep_busy(struct peer first, unsigned first_percent, struct peer second, unsigned second_percent) {
    struct aliquot_region *region = map_region();
    struct aliquot_charge *one = charge_of(region, first), *other = charge_of(region, second);
    memset(region->device[0].history, 0, sizeof one->history);
    memset(one->history, 0, sizeof one->history);
    memset(other->history, 0, sizeof other->history);
    busy_until = monotonic();
    for (int64_t now = busy_until - 2000000000; now < busy_until; now += 1000000) {
        aliquot_usage_charge(&region->device[0], one, first_percent * 10000, now);
        aliquot_usage_charge(&region->device[0], other, second_percent * 10000, now);
    }
    munmap(region, ALIQUOT_REGION_SIZE);
}

static nvmlUtilization_t utilization(void) {
    nvmlUtilization_t rates = {.gpu = 200, .memory = 200};
    CHECK_EQUAL(NVML(nvmlDeviceGetUtilizationRates, nvmlDevice_t, nvmlUtilization_t *)(nvml_device(0), &rates),
                NVML_SUCCESS);
    return rates;
}

static unsigned utilization_of(struct peer first, unsigned first_percent, struct peer second, unsigned second_percent) {
    unsigned shown = 0;
    do {
        keep_busy(first, first_percent, second, second_percent);
        shown = utilization().gpu;
    } while (was_late());
    return shown;
}

/* Utilization is relative to the sandbox's limit of 30 % of the GPU. */
#define CHECK_PERCENT(found, expected)                                                                                 \
    CHECK((found) >= (expected)-3 && (found) <= (expected) + 3, "found %u, expected %d", (found), expected)

TEST(utilization_is_relative_to_the_share) {
    sandbox(3000 * MIB, 0);
    CHECK_EQUAL(utilization().gpu, 0);
    struct peer first = start_peer(MIB), second = start_peer(MIB);
    CHECK_PERCENT(utilization_of(first, 15, second, 0), 50);
    CHECK_PERCENT(utilization_of(first, 15, second, 6), 70);
    CHECK_EQUAL(utilization_of(first, 15, second, 30), 100); /* a grant allows more than the share */
    CHECK(utilization().memory <= 100, "%u", utilization().memory);
}

TEST(without_a_compute_limit_NVML_shows_the_drivers_utilization) {
    sandbox_cores = "cores=0";
    sandbox(3000 * MIB, 0);
    struct peer peer = start_peer(MIB);
    keep_busy(peer, 15, peer, 0);
    for (int tries = 0; utilization().gpu != 0; tries++) { /* no kernel runs, unless another test uses the GPU */
        CHECK(tries < 100, "%u %%", utilization().gpu);
        usleep(100000);
        keep_busy(peer, 15, peer, 0);
    }
}

TEST(NVML_reports_the_limit_as_that_of_the_cgroup_and_does_not_change_it) {
    nvmlGetMemoryLimits_v1_t limits = {.nameSpace = "/sys/fs/cgroup"};
    nvmlSetMemoryLimits_v1_t wanted = {.nameSpace = "/sys/fs/cgroup", .hardLimit = UINT64_MAX};
    sandbox(3000 * MIB, 0);
    start_peer(1000 * MIB);
    CHECK_EQUAL(NVML(nvmlDeviceGetMemoryLimits_v1, nvmlDevice_t, nvmlGetMemoryLimits_v1_t *)(nvml_device(0), &limits),
                NVML_SUCCESS);
    CHECK_EQUAL(limits.softLimit, 3000 * MIB);
    CHECK_EQUAL(limits.hardLimit, 3000 * MIB);
    CHECK_EQUAL(limits.currentUsed, 1000 * MIB);
    CHECK_EQUAL(NVML(nvmlDeviceSetMemoryLimits_v1, nvmlDevice_t, nvmlSetMemoryLimits_v1_t *)(nvml_device(0), &wanted),
                NVML_ERROR_NO_PERMISSION);
    CHECK_EQUAL(NVML(nvmlDeviceGetMemoryLimits_v1, nvmlDevice_t, nvmlGetMemoryLimits_v1_t *)(nvml_device(1), &limits),
                NVML_SUCCESS);
    CHECK_EQUAL(limits.hardLimit, 0); /* not in the limit file */
}

static nvmlReturn_t query_samples(int type, unsigned long long since, unsigned *count, nvmlSample_t *samples) {
    nvmlValueType_t value_type = 0;
    nvmlReturn_t result =
        NVML(nvmlDeviceGetSamples, nvmlDevice_t, nvmlSamplingType_t, unsigned long long, nvmlValueType_t *, unsigned *,
             nvmlSample_t *)(nvml_device(0), type, since, &value_type, count, samples);
    CHECK(result != NVML_SUCCESS || value_type == NVML_VALUE_TYPE_UNSIGNED_INT, "%d", value_type);
    return result;
}

TEST(samples_are_of_the_share_and_other_engines_and_GPM_are_absent) {
    static const char *const engines[] = {"nvmlDeviceGetEncoderUtilization", "nvmlDeviceGetDecoderUtilization",
                                          "nvmlDeviceGetJpgUtilization", "nvmlDeviceGetOfaUtilization"};
    nvmlSample_t samples[100];
    nvmlGpmSupport_t support = {.version = 1};
    unsigned count = 0, percent = 0, period = 0;
    sandbox(3000 * MIB, 0);
    struct peer peer = start_peer(MIB);
    do {
        keep_busy(peer, 15, peer, 0);
        count = 0;
        CHECK_EQUAL(query_samples(NVML_GPU_UTILIZATION_SAMPLES, 0, &count, NULL), NVML_SUCCESS);
        CHECK(count >= 1 && count <= 100, "%u", count);
        CHECK_EQUAL(query_samples(NVML_GPU_UTILIZATION_SAMPLES, 0, &count, samples), NVML_SUCCESS);
    } while (was_late());
    CHECK_EQUAL(count, 1);
    CHECK_PERCENT(samples[0].sampleValue.uiVal, 50);
    CHECK_EQUAL(query_samples(NVML_GPU_UTILIZATION_SAMPLES, wall_us() + 1000000, &count, samples),
                NVML_ERROR_NOT_FOUND);
    CHECK_EQUAL(query_samples(NVML_MEMORY_UTILIZATION_SAMPLES, 0, &count, samples), NVML_ERROR_NOT_SUPPORTED);
    CHECK_EQUAL(query_samples(NVML_ENC_UTILIZATION_SAMPLES, 0, &count, samples), NVML_ERROR_NOT_SUPPORTED);
    for (int i = 0; i < 4; i++) {
        nvmlReturn_t (*query)(nvmlDevice_t, unsigned *, unsigned *) = nvml_function(engines[i]);
        CHECK_EQUAL(query(nvml_device(0), &percent, &period), NVML_ERROR_NOT_SUPPORTED);
        CHECK_EQUAL(query(nvml_device(1), &percent, &period), NVML_SUCCESS); /* not in the limit file */
    }
    CHECK_EQUAL(NVML(nvmlGpmQueryDeviceSupport, nvmlDevice_t, nvmlGpmSupport_t *)(nvml_device(0), &support),
                NVML_SUCCESS);
    CHECK_EQUAL(support.isSupportedDevice, 0);
    CHECK_EQUAL(NVML(nvmlGpmSampleGet, nvmlDevice_t, void *)(nvml_device(0), samples), NVML_ERROR_NOT_SUPPORTED);
    CHECK_EQUAL(NVML(nvmlGpmSampleGet, nvmlDevice_t, void *)(nvml_device(1), samples), NVML_SUCCESS);
}

TEST(each_process_has_its_utilization_since_the_last_query) {
    nvmlProcessUtilizationSample_t samples[MAX_INFOS];
    sandbox(3000 * MIB, 0);
    nvmlReturn_t (*query)(nvmlDevice_t, nvmlProcessUtilizationSample_t *, unsigned *, unsigned long long) =
        NVML(nvmlDeviceGetProcessUtilization, nvmlDevice_t, nvmlProcessUtilizationSample_t *, unsigned *,
             unsigned long long);
    struct peer first = start_peer(MIB), second = start_peer(MIB);
    start_peer(MIB); /* idle */
    unsigned count = MAX_INFOS;
    CHECK_EQUAL(query(nvml_device(0), samples, &count, 0), NVML_ERROR_NOT_FOUND);
    keep_busy(first, 15, second, 3);
    count = 0;
    CHECK_EQUAL(query(nvml_device(0), NULL, &count, 0), NVML_ERROR_INSUFFICIENT_SIZE);
    CHECK_EQUAL(count, 2);
    count = 1;
    CHECK_EQUAL(query(nvml_device(0), samples, &count, 0), NVML_ERROR_INSUFFICIENT_SIZE);
    do {
        keep_busy(first, 15, second, 3);
        count = MAX_INFOS;
        CHECK_EQUAL(query(nvml_device(0), samples, &count, 0), NVML_SUCCESS);
    } while (was_late());
    CHECK_EQUAL(count, 2);
    CHECK_EQUAL(samples[0].pid, first.pid);
    CHECK_PERCENT(samples[0].smUtil, 50);
    CHECK_EQUAL(samples[1].pid, second.pid);
    CHECK_PERCENT(samples[1].smUtil, 10);
    CHECK_EQUAL(samples[0].memUtil + samples[0].encUtil + samples[0].decUtil, 0);
    long long age = (long long)time(NULL) * 1000000 - (long long)samples[0].timeStamp;
    CHECK(age > -2000000 && age < 60000000, "%lld us", age);
    count = MAX_INFOS;
    CHECK_EQUAL(query(nvml_device(0), samples, &count, samples[0].timeStamp), NVML_ERROR_NOT_FOUND);
    CHECK_EQUAL(query(nvml_device(0), samples, NULL, 0), NVML_ERROR_INVALID_ARGUMENT);
}

TEST(nvmlDeviceGetProcessesUtilizationInfo_returns_the_same_utilization) {
    nvmlProcessUtilizationInfo_v1_t samples[MAX_INFOS];
    sandbox(3000 * MIB, 0);
    nvmlReturn_t (*query)(nvmlDevice_t, nvmlProcessesUtilizationInfo_t *) =
        NVML(nvmlDeviceGetProcessesUtilizationInfo, nvmlDevice_t, nvmlProcessesUtilizationInfo_t *);
    struct peer peer = start_peer(MIB);
    nvmlProcessesUtilizationInfo_t info = {.version = nvmlProcessesUtilizationInfo_v1};
    CHECK_EQUAL(query(nvml_device(0), &info), NVML_ERROR_NOT_FOUND);
    keep_busy(peer, 15, peer, 0);
    CHECK_EQUAL(query(nvml_device(0), &info), NVML_ERROR_INSUFFICIENT_SIZE);
    CHECK_EQUAL(info.processSamplesCount, 1);
    info.procUtilArray = samples;
    do {
        keep_busy(peer, 15, peer, 0);
        info.processSamplesCount = MAX_INFOS;
        CHECK_EQUAL(query(nvml_device(0), &info), NVML_SUCCESS);
    } while (was_late());
    CHECK_EQUAL(info.processSamplesCount, 1);
    CHECK_EQUAL(samples[0].pid, peer.pid);
    CHECK_PERCENT(samples[0].smUtil, 50);
    CHECK_EQUAL(samples[0].memUtil + samples[0].jpgUtil + samples[0].ofaUtil, 0);
    info.lastSeenTimeStamp = samples[0].timeStamp;
    CHECK_EQUAL(query(nvml_device(0), &info), NVML_ERROR_NOT_FOUND);
    info.version++;
    CHECK_EQUAL(query(nvml_device(0), &info), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
}

/* ---- accounting ---- */

TEST(accounting_lists_the_containers_running_processes) {
    nvmlEnableState_t mode = NVML_FEATURE_DISABLED;
    unsigned size = 0, count = 0, pids[MAX_INFOS] = {0};
    nvmlAccountingStats_t stats = {0};
    nvmlAccountingStats_v2_t second = {0};
    sandbox(3000 * MIB, 0);
    struct peer peer = start_peer(100 * MIB);
    struct aliquot_region *region = map_region();
    region->charge[0][0].peak = 100 * MIB; /* sets the peak directly */
    nvmlDevice_t device = nvml_device(0);
    CHECK_EQUAL(NVML(nvmlDeviceGetAccountingMode, nvmlDevice_t, nvmlEnableState_t *)(device, &mode), NVML_SUCCESS);
    CHECK_EQUAL(mode, NVML_FEATURE_ENABLED);
    CHECK_EQUAL(NVML(nvmlDeviceGetAccountingBufferSize, nvmlDevice_t, unsigned *)(device, &size), NVML_SUCCESS);
    CHECK(size >= 256, "%u", size);
    nvmlReturn_t (*list)(nvmlDevice_t, unsigned *, unsigned *) =
        NVML(nvmlDeviceGetAccountingPids, nvmlDevice_t, unsigned *, unsigned *);
    CHECK_EQUAL(list(device, &count, NULL), NVML_ERROR_INSUFFICIENT_SIZE);
    CHECK_EQUAL(count, 1);
    CHECK_EQUAL(list(device, &count, pids), NVML_SUCCESS);
    CHECK_EQUAL(pids[0], peer.pid);
    free_in_peer(peer);
    usleep(100000);
    uint64_t age = wall_us() - region->process[0].started;
    region->charge[0][0].gpu_time = age * 150; /* half of the share now, and less at the time of the query */
    nvmlReturn_t (*query)(nvmlDevice_t, unsigned, nvmlAccountingStats_t *) =
        NVML(nvmlDeviceGetAccountingStats, nvmlDevice_t, unsigned, nvmlAccountingStats_t *);
    CHECK_EQUAL(query(device, (unsigned)peer.pid, &stats), NVML_SUCCESS);
    CHECK_EQUAL(stats.maxMemoryUsage, 100 * MIB);
    CHECK_EQUAL(stats.isRunning, 1);
    CHECK_EQUAL(stats.time, 0);
    CHECK(stats.gpuUtilization >= 1 && stats.gpuUtilization <= 50, "%u", stats.gpuUtilization);
    CHECK_EQUAL(stats.startTime, region->process[0].started);
    second.pid = (unsigned)peer.pid;
    CHECK_EQUAL(NVML(nvmlDeviceGetAccountingStats_v2, nvmlDevice_t, nvmlAccountingStats_v2_t *)(device, &second),
                NVML_SUCCESS);
    CHECK_EQUAL(second.maxMemoryUsage, 100 * MIB);
    CHECK_EQUAL(second.startTime, stats.startTime);
    CHECK_EQUAL(query(device, (unsigned)getpid(), &stats), NVML_ERROR_NOT_FOUND);
    kill_peer(peer);
    CHECK_EQUAL(query(device, (unsigned)peer.pid, &stats), NVML_ERROR_NOT_FOUND);
    CHECK_EQUAL(list(device, &count, pids), NVML_SUCCESS);
    CHECK_EQUAL(count, 0);
}

TEST(accounting_of_a_GPU_that_is_not_in_the_limit_file_is_the_drivers) {
    nvmlEnableState_t mode = NVML_FEATURE_ENABLED;
    unsigned count = 0;
    sandbox(3000 * MIB, 0);
    CHECK_EQUAL(NVML(nvmlDeviceGetAccountingMode, nvmlDevice_t, nvmlEnableState_t *)(nvml_device(1), &mode),
                NVML_SUCCESS);
    CHECK_EQUAL(mode, NVML_FEATURE_DISABLED);
    CHECK_EQUAL(NVML(nvmlDeviceGetAccountingPids, nvmlDevice_t, unsigned *, unsigned *)(nvml_device(1), &count, NULL),
                NVML_ERROR_NOT_SUPPORTED);
}
