/* Tests of NVML's MIG devices under the shim, on stubs of both libraries. */
#include "nvml_call.h"
#include "sandbox.h"

#include <string.h>

/* Compares each answer of a hook with the driver's own. */
static void check_is_the_drivers(nvmlDevice_t device) {
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
#define BOTH(symbol, answer, driver_answer, ...)                                                                       \
    do {                                                                                                               \
        nvmlReturn_t (*hook)(__VA_ARGS__) = (nvmlReturn_t(*)(__VA_ARGS__))nvml_function(#symbol);                      \
        nvmlReturn_t (*own)(__VA_ARGS__) = (nvmlReturn_t(*)(__VA_ARGS__))real_dlsym(nvml, #symbol);                    \
        CHECK((void *)hook != (void *)own, #symbol " is hooked");                                                      \
        CHECK_EQUAL(hook(device, answer), own(device, driver_answer));                                                 \
        CHECK(memcmp(answer, driver_answer, sizeof *(answer)) == 0, #symbol);                                          \
    } while (0)
    nvmlMemory_t memory = {0}, own_memory = {0};
    nvmlMemory_v2_t second = {.version = sizeof second | 2 << 24}, own_second = second;
    nvmlUtilization_t rates = {0}, own_rates = {0};
    BOTH(nvmlDeviceGetMemoryInfo, &memory, &own_memory, nvmlDevice_t, nvmlMemory_t *);
    BOTH(nvmlDeviceGetMemoryInfo_v2, &second, &own_second, nvmlDevice_t, nvmlMemory_v2_t *);
    BOTH(nvmlDeviceGetUtilizationRates, &rates, &own_rates, nvmlDevice_t, nvmlUtilization_t *);
    CHECK(memory.total > 0 && second.reserved > 0, "%llu bytes", memory.total);
    nvmlProcessInfo_v2_t process = {0};
    unsigned count = 1;
    CHECK_EQUAL(NVML(nvmlDeviceGetComputeRunningProcesses_v3, nvmlDevice_t, unsigned *,
                     nvmlProcessInfo_v2_t *)(device, &count, &process),
                NVML_SUCCESS);
    CHECK_EQUAL(count, 1);
    CHECK(process.pid > 1001 && process.usedGpuMemory == memory.used, "process %u", process.pid);
}

TEST(MIG_devices_by_index_are_shown_as_the_driver_shows_them) {
    nvmlDevice_t mig = NULL;
    sandbox(3000 * MIB, 0);
    for (unsigned index = 0; index < 2; index++) {
        CHECK_EQUAL(NVML(nvmlDeviceGetMigDeviceHandleByIndex, nvmlDevice_t, unsigned, nvmlDevice_t *)(nvml_device(0),
                                                                                                      index, &mig),
                    NVML_SUCCESS);
        check_is_the_drivers(mig);
    }
    CHECK_EQUAL(nvml_memory(nvml_device(0)).total, 3000 * MIB); /* the GPU itself is limited */
}

TEST(MIG_devices_by_UUID_are_shown_as_the_driver_shows_them) {
    static const char *const uuids[] = {"MIG-5f2c1d3e-0002-4a5b-9c3d-000000000002",
                                        "MIG-GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001/7/0"};
    sandbox(3000 * MIB, 0);
    CHECK_EQUAL(NVML(nvmlInit_v2, void)(), NVML_SUCCESS);
    for (int i = 0; i < 2; i++) {
        nvmlDevice_t mig = NULL;
        char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "";
        CHECK_EQUAL(NVML(nvmlDeviceGetHandleByUUID, const char *, nvmlDevice_t *)(uuids[i], &mig), NVML_SUCCESS);
        check_is_the_drivers(mig);
        CHECK_EQUAL(NVML(nvmlDeviceGetUUID, nvmlDevice_t, char *, unsigned)(mig, uuid, sizeof uuid), NVML_SUCCESS);
        CHECK(strcmp(uuid, uuids[i]) == 0, "%s", uuid);
    }
}

TEST(a_MIG_device_that_the_limit_file_names_is_shown_as_the_share) {
    static const char limits[] = "MIG-5f2c1d3e-0002-4a5b-9c3d-000000000002 memory=3000Mi cores=30\n";
    nvmlDevice_t mig = NULL;
    sandbox(1 * MIB, 0);
    write_file(sandbox_limits, limits, sizeof limits - 1);
    CHECK_EQUAL(NVML(nvmlInit_v2, void)(), NVML_SUCCESS);
    for (unsigned index = 0; index < 2; index++) { /* the second has a UUID of the old form, which no file names */
        CHECK_EQUAL(NVML(nvmlDeviceGetMigDeviceHandleByIndex, nvmlDevice_t, unsigned, nvmlDevice_t *)(nvml_device(0),
                                                                                                      index, &mig),
                    NVML_SUCCESS);
        CHECK_EQUAL(nvml_memory(mig).total, index == 0 ? 3000 * MIB : (size_t)20 << 30);
    }
}
