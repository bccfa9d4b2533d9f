/* What NVML shows of a container's memory, in front of the fake driver. */
#include "sandbox.h"

static void *nvml_function(const char *symbol) {
    static void *nvml;
    if (nvml == NULL) {
        nvml = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
        CHECK(nvml != NULL, "%s", dlerror());
    }
    void *function = dlsym(nvml, symbol);
    CHECK(function != NULL, "%s", symbol);
    return function;
}

#define NVML(symbol, ...) ((nvmlReturn_t(*)(__VA_ARGS__))nvml_function(#symbol))

static nvmlDevice_t nvml_device(unsigned index) {
    nvmlDevice_t device = NULL;
    CHECK_EQUAL(NVML(nvmlInit_v2, void)(), NVML_SUCCESS);
    CHECK_EQUAL(NVML(nvmlDeviceGetHandleByIndex_v2, unsigned, nvmlDevice_t *)(index, &device), NVML_SUCCESS);
    return device;
}

TEST(NVML_shows_the_limit_and_what_all_processes_of_the_container_use) {
    CUdeviceptr address = 0;
    nvmlMemory_t memory = {0};
    nvmlMemory_v2_t second = {.version = sizeof second | 2 << 24};
    sandbox(3000 * MIB, 0);
    int done[2];
    char byte = 0;
    CHECK(pipe(done) == 0, "a pipe");
    pid_t peer = fork();
    if (peer == 0) {
        use_device(0);
        CHECK_EQUAL(allocate(&address, 1000 * MIB), CUDA_SUCCESS);
        CHECK(write(done[1], "", 1) == 1, "a pipe");
        pause();
    }
    CHECK(read(done[0], &byte, 1) == 1, "a pipe");
    nvmlDevice_t device = nvml_device(0);
    CHECK_EQUAL(NVML(nvmlDeviceGetMemoryInfo, nvmlDevice_t, nvmlMemory_t *)(device, &memory), NVML_SUCCESS);
    CHECK_EQUAL(memory.total, 3000 * MIB);
    CHECK_EQUAL(memory.used, 1000 * MIB);
    CHECK_EQUAL(memory.free, 2000 * MIB);
    CHECK_EQUAL(NVML(nvmlDeviceGetMemoryInfo_v2, nvmlDevice_t, nvmlMemory_v2_t *)(device, &second), NVML_SUCCESS);
    CHECK_EQUAL(second.total, 3000 * MIB);
    CHECK_EQUAL(second.used, 1000 * MIB);
    CHECK_EQUAL(second.free, 2000 * MIB);
    kill(peer, SIGKILL);
    waitpid(peer, NULL, 0);
    CHECK_EQUAL(NVML(nvmlDeviceGetMemoryInfo, nvmlDevice_t, nvmlMemory_t *)(device, &memory), NVML_SUCCESS);
    CHECK_EQUAL(memory.used, 0);
}

TEST(free_is_never_more_than_the_GPU_has_free) {
    nvmlMemory_t memory = {0};
    size_t available = 0;
    sandbox((size_t)1 << 40, 0);
    use_device(0);
    CHECK_EQUAL(NVML(nvmlDeviceGetMemoryInfo, nvmlDevice_t, nvmlMemory_t *)(nvml_device(0), &memory), NVML_SUCCESS);
    CHECK_EQUAL(memory.total, 1ull << 40);
    CHECK(memory.free <= (81920ull << 20), "%llu", memory.free);
    CHECK_EQUAL(CALL(cuMemGetInfo_v2, size_t *, size_t *)(&available, NULL), CUDA_SUCCESS);
    CHECK(available <= (81920ull << 20), "%zu", available);
}

TEST(NVML_is_matched_by_UUID_and_shows_nothing_of_a_GPU_that_is_not_granted) {
    nvmlMemory_t memory = {1, 1, 1};
    sandbox(3000 * MIB, 0);
    CHECK_EQUAL(NVML(nvmlDeviceGetMemoryInfo, nvmlDevice_t, nvmlMemory_t *)(nvml_device(1), &memory), NVML_SUCCESS);
    CHECK_EQUAL(memory.total + memory.free + memory.used, 0);
}

TEST(NVML_is_closed_too_when_the_limit_file_is_bad) {
    nvmlMemory_t memory = {0};
    sandbox_empty();
    write_file(sandbox_limits, "nonsense", 8);
    CHECK_EQUAL(NVML(nvmlDeviceGetMemoryInfo, nvmlDevice_t, nvmlMemory_t *)(nvml_device(0), &memory),
                NVML_ERROR_NO_PERMISSION);
}

TEST(NVML_passes_untouched_without_limits) {
    nvmlMemory_t memory = {0};
    sandbox_empty();
    CHECK_EQUAL(NVML(nvmlDeviceGetMemoryInfo, nvmlDevice_t, nvmlMemory_t *)(nvml_device(0), &memory), NVML_SUCCESS);
    CHECK_EQUAL(memory.total, 81920ull << 20);
}

TEST(a_process_that_used_NVML_may_fork_children_that_use_CUDA) {
    CUdeviceptr address = 0;
    nvmlMemory_t memory = {0};
    sandbox(100 * MIB, 0);
    nvmlDevice_t device = nvml_device(0);
    CHECK_EQUAL(NVML(nvmlDeviceGetMemoryInfo, nvmlDevice_t, nvmlMemory_t *)(device, &memory), NVML_SUCCESS);
    for (int child = 0; child < 3; child++) {
        IN_CHILD({
            use_device(0);
            CHECK_EQUAL(allocate(&address, 100 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
            CHECK_EQUAL(allocate(&address, 100 * MIB), CUDA_SUCCESS);
        });
    }
}
