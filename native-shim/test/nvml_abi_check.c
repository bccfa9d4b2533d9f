/*
 * Compares the shim's NVML declarations with NVIDIA's nvml.h. It is compiled twice: with NVIDIA's declarations
 * (-DNVIDIA), which fails unless every prototype of the shim is equal to NVIDIA's, and with the shim's. Each program
 * prints the layouts and constants that it was compiled with; the outputs must be equal.
 */
#define ALIQUOT_CUDA_H_INCLUDED /* the CUDA declarations are not needed */
#ifdef NVIDIA
#define NVML_NO_UNVERSIONED_FUNC_DEFS /* makes nvml.h declare the old versions, too */
#include <nvml.h>
#define ALIQUOT_NVML_H_INCLUDED
#endif
#if defined(NVIDIA) && !defined(NVML_DEVICE_MEMORY_LIMIT_MAX) /* older headers do not declare these */
typedef struct nvmlSetMemoryLimits nvmlSetMemoryLimits_v1_t;
typedef struct nvmlGetMemoryLimits nvmlGetMemoryLimits_v1_t;
nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits);
nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits);
#endif
#include "driver/hooks.h"

#include <stdio.h>

#ifdef NVIDIA
/* A redeclaration with another type is an error. The use before it fails if nvml.h does not declare the function. */
#define CUDA(result, symbol, parameters)
#define NVML(result, symbol, parameters)                                                                               \
    _Static_assert(sizeof &symbol != 0, #symbol);                                                                      \
    result symbol parameters;
#define CHECK_HOOK(library, result, symbol, name, version, flags, parameters) library(result, symbol, parameters)
#define CHECK_CALLED(library, result, symbol, parameters) library(result, symbol, parameters)
ALIQUOT_HOOKS(CHECK_HOOK)
ALIQUOT_CALLED(CHECK_CALLED)
#endif

#define SIZE(type) printf("sizeof " #type " %zu\n", sizeof(type));
#define FIELD(type, field)                                                                                             \
    printf(#type "." #field " at %zu, %zu bytes\n", offsetof(type, field), sizeof(((type *)0)->field));
#define VALUE(constant) printf(#constant " %lld\n", (long long)(constant));

int main(void) {
    SIZE(nvmlReturn_t)
    SIZE(nvmlEnableState_t)
    SIZE(nvmlMemory_t)
    FIELD(nvmlMemory_t, total)
    FIELD(nvmlMemory_t, free)
    FIELD(nvmlMemory_t, used)
    SIZE(nvmlMemory_v2_t)
    FIELD(nvmlMemory_v2_t, total)
    FIELD(nvmlMemory_v2_t, reserved)
    FIELD(nvmlMemory_v2_t, free)
    FIELD(nvmlMemory_v2_t, used)
    SIZE(nvmlProcessInfo_v1_t)
    FIELD(nvmlProcessInfo_v1_t, pid)
    FIELD(nvmlProcessInfo_v1_t, usedGpuMemory)
    SIZE(nvmlProcessInfo_v2_t)
    FIELD(nvmlProcessInfo_v2_t, pid)
    FIELD(nvmlProcessInfo_v2_t, usedGpuMemory)
    FIELD(nvmlProcessInfo_v2_t, gpuInstanceId)
    FIELD(nvmlProcessInfo_v2_t, computeInstanceId)
    SIZE(nvmlProcessDetail_v1_t)
    FIELD(nvmlProcessDetail_v1_t, pid)
    FIELD(nvmlProcessDetail_v1_t, usedGpuMemory)
    FIELD(nvmlProcessDetail_v1_t, gpuInstanceId)
    FIELD(nvmlProcessDetail_v1_t, computeInstanceId)
    FIELD(nvmlProcessDetail_v1_t, usedGpuCcProtectedMemory)
    SIZE(nvmlProcessDetailList_t)
    FIELD(nvmlProcessDetailList_t, version)
    FIELD(nvmlProcessDetailList_t, mode)
    FIELD(nvmlProcessDetailList_t, numProcArrayEntries)
    FIELD(nvmlProcessDetailList_t, procArray)
    SIZE(nvmlSample_t)
    FIELD(nvmlSample_t, timeStamp)
    FIELD(nvmlSample_t, sampleValue)
    SIZE(nvmlGpmSupport_t)
    FIELD(nvmlGpmSupport_t, isSupportedDevice)
    VALUE(NVML_GPU_UTILIZATION_SAMPLES)
    VALUE(NVML_MEMORY_UTILIZATION_SAMPLES)
    VALUE(NVML_ENC_UTILIZATION_SAMPLES)
    VALUE(NVML_DEC_UTILIZATION_SAMPLES)
    VALUE(NVML_JPG_UTILIZATION_SAMPLES)
    VALUE(NVML_OFA_UTILIZATION_SAMPLES)
    VALUE(NVML_VALUE_TYPE_UNSIGNED_INT)
    SIZE(nvmlUtilization_t)
    FIELD(nvmlUtilization_t, gpu)
    FIELD(nvmlUtilization_t, memory)
    SIZE(nvmlProcessUtilizationSample_t)
    FIELD(nvmlProcessUtilizationSample_t, pid)
    FIELD(nvmlProcessUtilizationSample_t, timeStamp)
    FIELD(nvmlProcessUtilizationSample_t, smUtil)
    FIELD(nvmlProcessUtilizationSample_t, memUtil)
    FIELD(nvmlProcessUtilizationSample_t, encUtil)
    FIELD(nvmlProcessUtilizationSample_t, decUtil)
    SIZE(nvmlProcessUtilizationInfo_v1_t)
    FIELD(nvmlProcessUtilizationInfo_v1_t, timeStamp)
    FIELD(nvmlProcessUtilizationInfo_v1_t, pid)
    FIELD(nvmlProcessUtilizationInfo_v1_t, smUtil)
    FIELD(nvmlProcessUtilizationInfo_v1_t, memUtil)
    FIELD(nvmlProcessUtilizationInfo_v1_t, encUtil)
    FIELD(nvmlProcessUtilizationInfo_v1_t, decUtil)
    FIELD(nvmlProcessUtilizationInfo_v1_t, jpgUtil)
    FIELD(nvmlProcessUtilizationInfo_v1_t, ofaUtil)
    SIZE(nvmlProcessesUtilizationInfo_t)
    FIELD(nvmlProcessesUtilizationInfo_t, version)
    FIELD(nvmlProcessesUtilizationInfo_t, processSamplesCount)
    FIELD(nvmlProcessesUtilizationInfo_t, lastSeenTimeStamp)
    FIELD(nvmlProcessesUtilizationInfo_t, procUtilArray)
    SIZE(nvmlAccountingStats_t)
    FIELD(nvmlAccountingStats_t, gpuUtilization)
    FIELD(nvmlAccountingStats_t, memoryUtilization)
    FIELD(nvmlAccountingStats_t, maxMemoryUsage)
    FIELD(nvmlAccountingStats_t, time)
    FIELD(nvmlAccountingStats_t, startTime)
    FIELD(nvmlAccountingStats_t, isRunning)
    FIELD(nvmlAccountingStats_t, reserved)
    SIZE(nvmlAccountingStats_v2_t)
    FIELD(nvmlAccountingStats_v2_t, pid)
    FIELD(nvmlAccountingStats_v2_t, isRunning)
    FIELD(nvmlAccountingStats_v2_t, gpuUtilization)
    FIELD(nvmlAccountingStats_v2_t, memoryUtilization)
    FIELD(nvmlAccountingStats_v2_t, maxMemoryUsage)
    FIELD(nvmlAccountingStats_v2_t, sampleCount)
    FIELD(nvmlAccountingStats_v2_t, sumGpuUtil)
    FIELD(nvmlAccountingStats_v2_t, sumFbUtil)
    FIELD(nvmlAccountingStats_v2_t, time)
    FIELD(nvmlAccountingStats_v2_t, startTime)
    VALUE(NVML_SUCCESS)
    VALUE(NVML_ERROR_INVALID_ARGUMENT)
    VALUE(NVML_ERROR_NOT_SUPPORTED)
    VALUE(NVML_ERROR_NO_PERMISSION)
    VALUE(NVML_ERROR_NOT_FOUND)
    VALUE(NVML_ERROR_INSUFFICIENT_SIZE)
    VALUE(NVML_ERROR_LIBRARY_NOT_FOUND)
    VALUE(NVML_ERROR_FUNCTION_NOT_FOUND)
    VALUE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
    VALUE(NVML_FEATURE_DISABLED)
    VALUE(NVML_FEATURE_ENABLED)
    VALUE(NVML_VALUE_NOT_AVAILABLE)
    VALUE(NVML_PROCESS_MODE_COMPUTE)
    VALUE(NVML_PROCESS_MODE_GRAPHICS)
    VALUE(NVML_PROCESS_MODE_MPS)
    VALUE(NVML_PROCESS_MODE_ALL)
    VALUE(nvmlProcessDetailList_v1)
    VALUE(nvmlProcessesUtilizationInfo_v1)
    return 0;
}
