/*
 * Hooks of NVML. nvidia-smi, pynvml and other monitors see the container's share as the GPU, and on it the container's
 * own processes with their PIDs in the container. NVIDIA's nvml.h describes the functions.
 *
 * The driver is called first, and its errors are returned: a GPU may be lost, a handle invalid. For a GPU that the
 * limit file does not name, processes and utilization are the driver's.
 */
#include "charge/pool.h"
#include "driver/lookup.h"
#include "limits/account.h"
#include "limits/config.h"
#include "os/os.h"
#include "os/shared.h"
#include "os/usage.h"

#include <stdbool.h>
#include <string.h>

enum { NOT_LIMITED = -2, NOT_GRANTED = -1 };

/*
 * Device number of an NVML device, or NOT_GRANTED. What the driver shows of a MIG device that the limit file does not
 * name is part of a GPU already.
 */
static int find_device(nvmlDevice_t handle) {
    static const char prefix[] = "GPU-", mig_prefix[] = "MIG-";
    char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "";
    uint8_t uuid[16];
    const size_t start = sizeof prefix - 1;
    if (aliquot_real.nvmlDeviceGetUUID == NULL ||
        aliquot_real.nvmlDeviceGetUUID(handle, text, sizeof text) != NVML_SUCCESS) {
        return NOT_GRANTED;
    }
    bool is_mig = strncmp(text, mig_prefix, start) == 0;
    if ((!is_mig && strncmp(text, prefix, start) != 0) ||
        !aliquot_uuid_parse(text + start, strlen(text + start), uuid)) {
        return is_mig ? NOT_LIMITED : NOT_GRANTED; /* MIG-GPU-<UUID>/<ID>/<ID> before driver 470 */
    }
    int device = aliquot_account_device(uuid);
    return device < 0 && is_mig ? NOT_LIMITED : device;
}

static nvmlReturn_t resolve_device(nvmlDevice_t handle, int *device) {
    enum aliquot_mode mode = aliquot_config_mode();
    *device = mode == ALIQUOT_MODE_ENFORCE ? find_device(handle) : NOT_LIMITED;
    return mode == ALIQUOT_MODE_REFUSE ? NVML_ERROR_NO_PERMISSION : NVML_SUCCESS;
}

/* Start of every NVML hook: checks that the driver has the function, and sets device. */
#define NVML_HOOK_BEGIN(function, handle)                                                                              \
    int device = NOT_LIMITED;                                                                                          \
    if (!aliquot_lookup_nvml()) {                                                                                      \
        return NVML_ERROR_LIBRARY_NOT_FOUND;                                                                           \
    }                                                                                                                  \
    if (aliquot_real.function == NULL) {                                                                               \
        return NVML_ERROR_FUNCTION_NOT_FOUND;                                                                          \
    }                                                                                                                  \
    nvmlReturn_t result = resolve_device(handle, &device);                                                             \
    if (result != NVML_SUCCESS) {                                                                                      \
        return result;                                                                                                 \
    }

/* ---- memory ---- */

struct memory {
    unsigned long long total, free, used; /* bytes */
};

static struct memory limited_memory(int device, unsigned long long device_free) {
    if (device == NOT_GRANTED) {
        return (struct memory){0, 0, 0};
    }
    aliquot_shared_reap(); /* a monitor expects current figures */
    aliquot_pool_update_charges();
    struct memory memory = {.total = aliquot_account_limit(device), .used = aliquot_account_used(device)};
    unsigned long long remaining = memory.used < memory.total ? memory.total - memory.used : 0;
    memory.free = remaining < device_free ? remaining : device_free;
    return memory;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t *memory) {
    NVML_HOOK_BEGIN(nvmlDeviceGetMemoryInfo, handle)
    result = aliquot_real.nvmlDeviceGetMemoryInfo(handle, memory);
    if (result == NVML_SUCCESS && device != NOT_LIMITED) {
        struct memory shown = limited_memory(device, memory->free);
        *memory = (nvmlMemory_t){.total = shown.total, .free = shown.free, .used = shown.used};
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t *memory) {
    NVML_HOOK_BEGIN(nvmlDeviceGetMemoryInfo_v2, handle)
    result = aliquot_real.nvmlDeviceGetMemoryInfo_v2(handle, memory);
    if (result == NVML_SUCCESS && device != NOT_LIMITED) {
        struct memory shown = limited_memory(device, memory->free);
        memory->total = shown.total;
        memory->reserved = 0; /* the driver's own reservation, on the whole GPU */
        memory->free = shown.free;
        memory->used = shown.used;
    }
    return result;
}

/* The limit of the container as that of its cgroup, whichever the caller names. */
nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t handle, nvmlGetMemoryLimits_v1_t *limits) {
    NVML_HOOK_BEGIN(nvmlDeviceGetMemoryLimits_v1, handle)
    result = aliquot_real.nvmlDeviceGetMemoryLimits_v1(handle, limits);
    bool is_unset =
        result == NVML_ERROR_NOT_FOUND || result == NVML_ERROR_NOT_SUPPORTED || result == NVML_ERROR_NO_PERMISSION;
    if (device == NOT_LIMITED || limits == NULL || (result != NVML_SUCCESS && !is_unset)) {
        return result;
    }
    struct memory shown = limited_memory(device, 0);
    limits->softLimit = limits->hardLimit = shown.total;
    limits->currentUsed = shown.used;
    return NVML_SUCCESS;
}

/* A container does not change its limit. */
nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t handle, nvmlSetMemoryLimits_v1_t *limits) {
    NVML_HOOK_BEGIN(nvmlDeviceSetMemoryLimits_v1, handle)
    return device == NOT_LIMITED ? aliquot_real.nvmlDeviceSetMemoryLimits_v1(handle, limits) : NVML_ERROR_NO_PERMISSION;
}

/* ---- processes ---- */

static uint64_t load_counter(const uint64_t *field) {
    return __atomic_load_n(field, __ATOMIC_RELAXED);
}

static uint64_t bytes_of(const struct aliquot_charge *charge) {
    return load_counter(&charge->word) & ALIQUOT_CHARGE_BYTES;
}

static unsigned int pid_of(uint16_t slot) {
    return __atomic_load_n(&aliquot_shared_region()->process[slot].pid, __ATOMIC_RELAXED);
}

/* Finds the slots of the container's live processes that use a device. Returns their number. */
static unsigned int find_users(int device, uint16_t slots[ALIQUOT_REGION_PROCESSES]) {
    const struct aliquot_charge *charges = aliquot_account_share(device).charges;
    size_t living = aliquot_shared_live_slots(slots);
    unsigned int users = 0;
    for (size_t i = 0; i < living; i++) {
        const struct aliquot_charge *charge = &charges[slots[i]];
        /* A process that held memory before still has a context, of unknown cost. */
        bool uses = bytes_of(charge) != 0 || load_counter(&charge->peak) != 0 || load_counter(&charge->gpu_time) != 0;
        if (uses && pid_of(slots[i]) != 0) {
            slots[users++] = slots[i];
        }
    }
    return users;
}

_Static_assert(offsetof(nvmlProcessDetail_v1_t, usedGpuMemory) == offsetof(nvmlProcessInfo_v1_t, usedGpuMemory) &&
                   offsetof(nvmlProcessDetail_v1_t, computeInstanceId) ==
                       offsetof(nvmlProcessInfo_v2_t, computeInstanceId) &&
                   sizeof(((nvmlProcessDetail_v1_t *)0)->pid) == sizeof(unsigned int),
               "each form of a process begins with the shorter ones");

/* Writes the device's processes as NVML does, size bytes each. *count is the capacity, then the number of processes;
   if the capacity is too small, nothing is written. */
static nvmlReturn_t list_processes(int device, unsigned int *count, void *infos, size_t size) {
    uint16_t slots[ALIQUOT_REGION_PROCESSES];
    if (count == NULL || (infos == NULL && *count != 0)) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    unsigned int capacity = *count;
    *count = find_users(device, slots);
    if (*count > capacity) {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    for (unsigned int i = 0; i < *count; i++) {
        const struct aliquot_charge *charge = &aliquot_account_share(device).charges[slots[i]];
        nvmlProcessDetail_v1_t info = {.pid = pid_of(slots[i]),
                                       .usedGpuMemory = bytes_of(charge),
                                       .gpuInstanceId = UINT32_MAX, /* not a MIG device */
                                       .computeInstanceId = UINT32_MAX};
        memcpy((char *)infos + i * size, &info, size);
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t list_none(unsigned int *count) {
    if (count == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *count = 0;
    return NVML_SUCCESS;
}

/* Whether the driver's result is one of those expected from a query of the number of entries. */
static bool is_expected_result(nvmlReturn_t result) {
    return result == NVML_SUCCESS || result == NVML_ERROR_INSUFFICIENT_SIZE || result == NVML_ERROR_NOT_FOUND;
}

#define RUNNING_PROCESSES(function, info, visible_processes)                                                           \
    nvmlReturn_t function(nvmlDevice_t handle, unsigned int *count, info *infos) {                                     \
        NVML_HOOK_BEGIN(function, handle)                                                                              \
        if (device < 0) {                                                                                              \
            return aliquot_real.function(handle, count, infos);                                                        \
        }                                                                                                              \
        unsigned int none = 0;                                                                                         \
        result = aliquot_real.function(handle, &none, NULL);                                                           \
        return is_expected_result(result) ? visible_processes : result;                                                \
    }

/* A process with memory on the GPU is listed as a compute process. Graphics and MPS clients are not shown. */
#define COMPUTE_PROCESSES(function, info)                                                                              \
    RUNNING_PROCESSES(function, info, list_processes(device, count, infos, sizeof *infos))
#define NO_PROCESSES(function, info) RUNNING_PROCESSES(function, info, list_none(count))

COMPUTE_PROCESSES(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t)
COMPUTE_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
COMPUTE_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_v2_t)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_v2_t)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_v2_t)

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t handle, nvmlProcessDetailList_t *details) {
    NVML_HOOK_BEGIN(nvmlDeviceGetRunningProcessDetailList, handle)
    if (device < 0 || details == NULL) {
        return aliquot_real.nvmlDeviceGetRunningProcessDetailList(handle, details);
    }
    if (details->version != nvmlProcessDetailList_v1) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH; /* even if the driver knows newer versions */
    }
    nvmlProcessDetailList_t size = {.version = details->version, .mode = details->mode};
    result = aliquot_real.nvmlDeviceGetRunningProcessDetailList(handle, &size);
    if (!is_expected_result(result)) {
        return result;
    }
    bool computes = details->mode == NVML_PROCESS_MODE_COMPUTE || details->mode == NVML_PROCESS_MODE_ALL;
    return computes
               ? list_processes(device, &details->numProcArrayEntries, details->procArray, sizeof *details->procArray)
               : list_none(&details->numProcArrayEntries);
}

/* ---- utilization of the share ---- */

/* GPU time is counted if it is limited. */
static bool is_counted(const struct aliquot_share *share) {
    return share->cores > 0;
}

/* Used GPU time in percent of what the share gives; at most 100, even if more was granted for a while. */
static unsigned int percent_of_share(uint64_t used, uint64_t elapsed, const struct aliquot_share *share) {
    double part = elapsed == 0 ? 0 : 100.0 * (double)used / ((double)elapsed * share->cores / 100);
    return part >= 100 ? 100 : part > 0 && part < 1 ? 1 : (unsigned int)(part + 0.5);
}

/* Utilization of the share in the last second. False: the driver's figures are shown. */
static bool utilization_of_share(int device, unsigned int *percent) {
    struct aliquot_share share = device < 0 ? (struct aliquot_share){0} : aliquot_account_share(device);
    if (device < 0 || !is_counted(&share)) {
        return false;
    }
    struct aliquot_usage usage =
        aliquot_usage_since(&share.region->gpu_time, share.region->history, 0, aliquot_os_clock());
    *percent = percent_of_share(usage.used, usage.elapsed, &share);
    return true;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, nvmlUtilization_t *utilization) {
    NVML_HOOK_BEGIN(nvmlDeviceGetUtilizationRates, handle)
    result = aliquot_real.nvmlDeviceGetUtilizationRates(handle, utilization);
    if (result == NVML_SUCCESS && utilization_of_share(device, &utilization->gpu)) {
        /* The driver does not attribute memory utilization: show no more than the container's GPU utilization. */
        utilization->memory = utilization->memory < utilization->gpu ? utilization->memory : utilization->gpu;
    }
    return result;
}

/* One sample, of the last second. Other kinds of utilization are not attributed to containers. */
nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t handle, nvmlSamplingType_t type, unsigned long long since,
                                  nvmlValueType_t *value_type, unsigned int *count, nvmlSample_t *samples) {
    NVML_HOOK_BEGIN(nvmlDeviceGetSamples, handle)
    unsigned int percent = 0, capacity = samples != NULL && count != NULL ? *count : 0;
    bool is_utilization = type == NVML_GPU_UTILIZATION_SAMPLES || type == NVML_MEMORY_UTILIZATION_SAMPLES ||
                          type == NVML_ENC_UTILIZATION_SAMPLES || type == NVML_DEC_UTILIZATION_SAMPLES ||
                          type == NVML_JPG_UTILIZATION_SAMPLES || type == NVML_OFA_UTILIZATION_SAMPLES;
    if (!is_utilization || count == NULL || value_type == NULL || !utilization_of_share(device, &percent)) {
        return aliquot_real.nvmlDeviceGetSamples(handle, type, since, value_type, count, samples);
    }
    unsigned int none = 0;
    result = aliquot_real.nvmlDeviceGetSamples(handle, NVML_GPU_UTILIZATION_SAMPLES, since, value_type, &none, NULL);
    if (!is_expected_result(result) || type != NVML_GPU_UTILIZATION_SAMPLES) {
        return is_expected_result(result) ? NVML_ERROR_NOT_SUPPORTED : result;
    }
    uint64_t now = aliquot_os_time();
    *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    *count = 1;
    if (since >= now) {
        *count = 0;
        return NVML_ERROR_NOT_FOUND;
    }
    if (capacity > 0) {
        samples[0] = (nvmlSample_t){.timeStamp = now};
        samples[0].sampleValue.uiVal = percent;
    }
    return NVML_SUCCESS;
}

/* What the driver measures on the whole GPU only is absent where GPU time is shared. */
#define NOT_OF_A_SHARE(function, parameters, arguments)                                                                \
    nvmlReturn_t function parameters {                                                                                 \
        NVML_HOOK_BEGIN(function, handle)                                                                              \
        unsigned int percent = 0;                                                                                      \
        result = aliquot_real.function arguments;                                                                      \
        return result == NVML_SUCCESS && utilization_of_share(device, &percent) ? NVML_ERROR_NOT_SUPPORTED : result;   \
    }

#define ENGINE_UTILIZATION(function)                                                                                   \
    NOT_OF_A_SHARE(function, (nvmlDevice_t handle, unsigned int *utilization, unsigned int *period),                   \
                   (handle, utilization, period))

ENGINE_UTILIZATION(nvmlDeviceGetEncoderUtilization)
ENGINE_UTILIZATION(nvmlDeviceGetDecoderUtilization)
ENGINE_UTILIZATION(nvmlDeviceGetJpgUtilization)
ENGINE_UTILIZATION(nvmlDeviceGetOfaUtilization)
NOT_OF_A_SHARE(nvmlGpmSampleGet, (nvmlDevice_t handle, nvmlGpmSample_t sample), (handle, sample))
NOT_OF_A_SHARE(nvmlGpmMigSampleGet, (nvmlDevice_t handle, unsigned int instance, nvmlGpmSample_t sample),
               (handle, instance, sample))

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t handle, nvmlGpmSupport_t *support) {
    NVML_HOOK_BEGIN(nvmlGpmQueryDeviceSupport, handle)
    unsigned int percent = 0;
    result = aliquot_real.nvmlGpmQueryDeviceSupport(handle, support);
    if (result == NVML_SUCCESS && utilization_of_share(device, &percent)) {
        support->isSupportedDevice = 0;
    }
    return result;
}

struct sample {
    unsigned int pid;
    unsigned int percent;
};

/* Samples the processes that used the device since a time (microseconds since 1970; 0: in the last second). *count is
   the capacity of infos, then the number of samples. */
static nvmlReturn_t sample_processes(int device, uint64_t since, uint64_t now, struct sample samples[],
                                     const void *infos, unsigned int *count) {
    uint16_t slots[ALIQUOT_REGION_PROCESSES];
    struct aliquot_share share = aliquot_account_share(device);
    int64_t clock = aliquot_os_clock();
    int64_t since_clock = since >= now ? clock + 1 : clock - (int64_t)(now - since) * 1000;
    unsigned int users = is_counted(&share) ? find_users(device, slots) : 0, busy = 0;
    for (unsigned int i = 0; i < users; i++) {
        const struct aliquot_charge *charge = &share.charges[slots[i]];
        struct aliquot_usage usage =
            aliquot_usage_since(&charge->gpu_time, charge->history, since == 0 ? 0 : since_clock, clock);
        if (usage.used > 0) {
            samples[busy++] = (struct sample){pid_of(slots[i]), percent_of_share(usage.used, usage.elapsed, &share)};
        }
    }
    unsigned int capacity = infos == NULL ? 0 : *count;
    *count = busy;
    return busy == 0 ? NVML_ERROR_NOT_FOUND : busy > capacity ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t handle, nvmlProcessUtilizationSample_t *infos,
                                             unsigned int *count, unsigned long long since) {
    NVML_HOOK_BEGIN(nvmlDeviceGetProcessUtilization, handle)
    if (device < 0 || count == NULL) {
        return aliquot_real.nvmlDeviceGetProcessUtilization(handle, infos, count, since);
    }
    unsigned int none = 0;
    result = aliquot_real.nvmlDeviceGetProcessUtilization(handle, NULL, &none, since);
    if (!is_expected_result(result)) {
        return result;
    }
    struct sample samples[ALIQUOT_REGION_PROCESSES];
    uint64_t now = aliquot_os_time();
    result = sample_processes(device, since, now, samples, infos, count);
    for (unsigned int i = 0; i < *count && result == NVML_SUCCESS; i++) {
        infos[i] =
            (nvmlProcessUtilizationSample_t){.pid = samples[i].pid, .timeStamp = now, .smUtil = samples[i].percent};
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t handle, nvmlProcessesUtilizationInfo_t *info) {
    NVML_HOOK_BEGIN(nvmlDeviceGetProcessesUtilizationInfo, handle)
    if (device < 0 || info == NULL) {
        return aliquot_real.nvmlDeviceGetProcessesUtilizationInfo(handle, info);
    }
    if (info->version != nvmlProcessesUtilizationInfo_v1) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    nvmlProcessesUtilizationInfo_t size = {.version = info->version, .lastSeenTimeStamp = info->lastSeenTimeStamp};
    result = aliquot_real.nvmlDeviceGetProcessesUtilizationInfo(handle, &size);
    if (!is_expected_result(result)) {
        return result;
    }
    struct sample samples[ALIQUOT_REGION_PROCESSES];
    uint64_t now = aliquot_os_time();
    result = sample_processes(device, info->lastSeenTimeStamp, now, samples, info->procUtilArray,
                              &info->processSamplesCount);
    for (unsigned int i = 0; i < info->processSamplesCount && result == NVML_SUCCESS; i++) {
        info->procUtilArray[i] =
            (nvmlProcessUtilizationInfo_v1_t){.pid = samples[i].pid, .timeStamp = now, .smUtil = samples[i].percent};
    }
    return result;
}

/* ---- accounting of live processes, always enabled ---- */

nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t handle, nvmlEnableState_t *mode) {
    NVML_HOOK_BEGIN(nvmlDeviceGetAccountingMode, handle)
    result = aliquot_real.nvmlDeviceGetAccountingMode(handle, mode);
    if (device >= 0 && mode != NULL && (result == NVML_SUCCESS || result == NVML_ERROR_NOT_SUPPORTED)) {
        *mode = NVML_FEATURE_ENABLED;
        result = NVML_SUCCESS;
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t handle, unsigned int *size) {
    NVML_HOOK_BEGIN(nvmlDeviceGetAccountingBufferSize, handle)
    if (device < 0 || size == NULL) {
        return aliquot_real.nvmlDeviceGetAccountingBufferSize(handle, size);
    }
    *size = ALIQUOT_REGION_PROCESSES;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t handle, unsigned int *count, unsigned int *pids) {
    NVML_HOOK_BEGIN(nvmlDeviceGetAccountingPids, handle)
    return device < 0 ? aliquot_real.nvmlDeviceGetAccountingPids(handle, count, pids)
                      : list_processes(device, count, pids, sizeof *pids);
}

static nvmlReturn_t accounting_of(int device, unsigned int pid, nvmlAccountingStats_t *stats) {
    uint16_t slots[ALIQUOT_REGION_PROCESSES];
    struct aliquot_share share = aliquot_account_share(device);
    unsigned int users = find_users(device, slots), i = 0;
    while (i < users && pid_of(slots[i]) != pid) {
        i++;
    }
    if (i == users) {
        return NVML_ERROR_NOT_FOUND;
    }
    const struct aliquot_charge *charge = &share.charges[slots[i]];
    uint64_t started = load_counter(&aliquot_shared_region()->process[slots[i]].started), now = aliquot_os_time();
    uint64_t bytes = bytes_of(charge), peak = load_counter(&charge->peak);
    *stats = (nvmlAccountingStats_t){
        .gpuUtilization = is_counted(&share) ? percent_of_share(load_counter(&charge->gpu_time) / 1000,
                                                                now > started ? now - started : 0, &share)
                                             : (unsigned int)NVML_VALUE_NOT_AVAILABLE,
        .memoryUtilization = (unsigned int)NVML_VALUE_NOT_AVAILABLE,
        .maxMemoryUsage = peak > bytes ? peak : bytes,
        .startTime = started,
        .isRunning = 1,
    };
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t handle, unsigned int pid, nvmlAccountingStats_t *stats) {
    NVML_HOOK_BEGIN(nvmlDeviceGetAccountingStats, handle)
    return device < 0 || stats == NULL ? aliquot_real.nvmlDeviceGetAccountingStats(handle, pid, stats)
                                       : accounting_of(device, pid, stats);
}

nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t handle, nvmlAccountingStats_v2_t *stats) {
    NVML_HOOK_BEGIN(nvmlDeviceGetAccountingStats_v2, handle)
    nvmlAccountingStats_t first;
    if (device < 0 || stats == NULL) {
        return aliquot_real.nvmlDeviceGetAccountingStats_v2(handle, stats);
    }
    result = accounting_of(device, stats->pid, &first);
    if (result == NVML_SUCCESS) {
        *stats = (nvmlAccountingStats_v2_t){
            .pid = stats->pid,
            .isRunning = first.isRunning,
            .gpuUtilization = first.gpuUtilization,
            .memoryUtilization = first.memoryUtilization,
            .maxMemoryUsage = first.maxMemoryUsage,
            .startTime = first.startTime,
        };
    }
    return result;
}
