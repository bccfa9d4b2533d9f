/* The hooks of NVML: nvidia-smi and pynvml see the container's memory. */
#include "account.h"
#include "config.h"
#include "lookup.h"
#include "shared.h"

#include <stdbool.h>
#include <string.h>

/* The account's number of an NVML device, or -1: nothing was granted on it. */
static int find_device(nvmlDevice_t handle) {
    static const char prefix[] = "GPU-";
    char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "";
    uint8_t uuid[16];
    const size_t start = sizeof prefix - 1;
    if (aliquot_bare.nvmlDeviceGetUUID == NULL ||
        aliquot_bare.nvmlDeviceGetUUID(handle, text, sizeof text) != NVML_SUCCESS ||
        strncmp(text, prefix, start) != 0 || !aliquot_uuid_parse(text + start, strlen(text + start), uuid)) {
        return -1;
    }
    return aliquot_account_device(uuid);
}

struct memory {
    unsigned long long total, free, used; /* bytes */
};

static struct memory seen(nvmlDevice_t handle, unsigned long long really_free) {
    int device = find_device(handle);
    if (device < 0) {
        return (struct memory){0, 0, 0};
    }
    aliquot_shared_reap(); /* who looks here wants to know now */
    struct memory memory = {.total = aliquot_account_limit(device), .used = aliquot_account_used(device)};
    unsigned long long room = memory.used < memory.total ? memory.total - memory.used : 0;
    memory.free = room < really_free ? room : really_free;
    return memory;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    if (!aliquot_lookup_nvml()) {
        return NVML_ERROR_LIBRARY_NOT_FOUND;
    }
    if (aliquot_bare.nvmlDeviceGetMemoryInfo == NULL) {
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    }
    enum aliquot_mode mode = aliquot_config_mode();
    if (mode == ALIQUOT_MODE_CLOSED) {
        return NVML_ERROR_NO_PERMISSION;
    }
    nvmlReturn_t result = aliquot_bare.nvmlDeviceGetMemoryInfo(device, memory);
    if (result == NVML_SUCCESS && mode == ALIQUOT_MODE_ENFORCE) {
        struct memory shown = seen(device, memory->free);
        *memory = (nvmlMemory_t){.total = shown.total, .free = shown.free, .used = shown.used};
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    if (!aliquot_lookup_nvml()) {
        return NVML_ERROR_LIBRARY_NOT_FOUND;
    }
    if (aliquot_bare.nvmlDeviceGetMemoryInfo_v2 == NULL) {
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    }
    enum aliquot_mode mode = aliquot_config_mode();
    if (mode == ALIQUOT_MODE_CLOSED) {
        return NVML_ERROR_NO_PERMISSION;
    }
    nvmlReturn_t result = aliquot_bare.nvmlDeviceGetMemoryInfo_v2(device, memory);
    if (result == NVML_SUCCESS && mode == ALIQUOT_MODE_ENFORCE) {
        struct memory shown = seen(device, memory->free);
        memory->total = shown.total;
        memory->reserved = 0; /* the driver's own, of the whole card */
        memory->free = shown.free;
        memory->used = shown.used;
    }
    return result;
}
