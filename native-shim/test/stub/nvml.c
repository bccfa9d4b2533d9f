/*
 * A stub of NVML for tests of MIG devices, which the fake driver does not have: the stub driver's first GPU with two
 * MIG devices, one with a UUID of the current form and one of the form before driver 470. Each handle has figures of
 * its own.
 */
#include "driver/abi.h"

#include <stdbool.h>
#include <string.h>

#define GIB (1ull << 30)

static struct nvmlDevice_st {
    const char *uuid;
    unsigned long long total, used;
    unsigned int pid; /* of the only process */
    bool is_mig;
} devices[] = {
    {"GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001", 80 * GIB, 7 * GIB, 1001, false},
    {"MIG-5f2c1d3e-0002-4a5b-9c3d-000000000002", 10 * GIB, 3 * GIB, 1002, true},
    {"MIG-GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001/7/0", 20 * GIB, 4 * GIB, 1003, true},
};

enum { DEVICES = sizeof devices / sizeof devices[0] };

#define EXPORT(name, ...)                                                                                              \
    nvmlReturn_t name(__VA_ARGS__);                                                                                    \
    nvmlReturn_t name(__VA_ARGS__)

EXPORT(nvmlInit_v2, void) {
    return NVML_SUCCESS;
}

EXPORT(nvmlDeviceGetHandleByIndex_v2, unsigned int index, nvmlDevice_t *device) {
    *device = &devices[0];
    return index == 0 ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT(nvmlDeviceGetHandleByUUID, const char *uuid, nvmlDevice_t *device) {
    for (int i = 0; i < DEVICES; i++) {
        if (strcmp(uuid, devices[i].uuid) == 0) {
            *device = &devices[i];
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT(nvmlDeviceGetMigDeviceHandleByIndex, nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig) {
    if (device->is_mig || index >= DEVICES - 1) {
        return NVML_ERROR_NOT_FOUND;
    }
    *mig = &devices[index + 1];
    return NVML_SUCCESS;
}

EXPORT(nvmlDeviceGetUUID, nvmlDevice_t device, char *uuid, unsigned int length) {
    if (strlen(device->uuid) >= length) {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    strcpy(uuid, device->uuid);
    return NVML_SUCCESS;
}

EXPORT(nvmlDeviceGetMemoryInfo, nvmlDevice_t device, nvmlMemory_t *memory) {
    *memory = (nvmlMemory_t){.total = device->total, .free = device->total - device->used, .used = device->used};
    return NVML_SUCCESS;
}

EXPORT(nvmlDeviceGetMemoryInfo_v2, nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    *memory = (nvmlMemory_v2_t){.version = memory->version,
                                .total = device->total,
                                .reserved = GIB,
                                .free = device->total - device->used - GIB,
                                .used = device->used};
    return NVML_SUCCESS;
}

EXPORT(nvmlDeviceGetComputeRunningProcesses_v3, nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *infos) {
    *count = 1;
    infos[0] = (nvmlProcessInfo_v2_t){.pid = device->pid, .usedGpuMemory = device->used};
    return NVML_SUCCESS;
}

/* NVML has no rates of MIG devices. */
EXPORT(nvmlDeviceGetUtilizationRates, nvmlDevice_t device, nvmlUtilization_t *rates) {
    *rates = (nvmlUtilization_t){50, 50};
    return device->is_mig ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}
