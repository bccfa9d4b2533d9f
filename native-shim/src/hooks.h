/*
 * The one list of what the shim stands in front of. Everything else of the two libraries reaches them untouched.
 *
 *   HOOK(library, result, symbol, name, version, flags, parameters)
 *
 * symbol is what the library exports, for one ABI; name, version and flags are what cuGetProcAddress must be asked for
 * that very ABI (version: the CUDA version that introduced it, as in cudaTypedefs.h). NVML has no such call.
 *
 *   BARE(library, result, symbol, parameters)
 *
 * is called by the shim and not hooked.
 */
#ifndef ALIQUOT_HOOKS_H
#define ALIQUOT_HOOKS_H

#include "abi.h"

/* clang-format off */
#define ALIQUOT_HOOKS(HOOK) \
    HOOK(CUDA, CUresult, cuInit, "cuInit", 2000, 0, (unsigned int flags)) \
    HOOK(CUDA, CUresult, cuGetProcAddress, "cuGetProcAddress", 11030, 0, \
         (const char *symbol, void **function, int version, cuuint64_t flags)) \
    HOOK(CUDA, CUresult, cuGetProcAddress_v2, "cuGetProcAddress", 12000, 0, \
         (const char *symbol, void **function, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)) \
    HOOK(CUDA, CUresult, cuDeviceTotalMem, "cuDeviceTotalMem", 2000, 0, (unsigned int *bytes, CUdevice device)) \
    HOOK(CUDA, CUresult, cuDeviceTotalMem_v2, "cuDeviceTotalMem", 3020, 0, (size_t *bytes, CUdevice device)) \
    HOOK(CUDA, CUresult, cuMemGetInfo, "cuMemGetInfo", 2000, 0, (unsigned int *free, unsigned int *total)) \
    HOOK(CUDA, CUresult, cuMemGetInfo_v2, "cuMemGetInfo", 3020, 0, (size_t *free, size_t *total)) \
    HOOK(CUDA, CUresult, cuMemAlloc, "cuMemAlloc", 2000, 0, (CUdeviceptr_v1 *address, unsigned int bytes)) \
    HOOK(CUDA, CUresult, cuMemAlloc_v2, "cuMemAlloc", 3020, 0, (CUdeviceptr *address, size_t bytes)) \
    HOOK(CUDA, CUresult, cuMemAllocPitch, "cuMemAllocPitch", 2000, 0, \
         (CUdeviceptr_v1 *address, unsigned int *pitch, unsigned int width, unsigned int height, unsigned int element)) \
    HOOK(CUDA, CUresult, cuMemAllocPitch_v2, "cuMemAllocPitch", 3020, 0, \
         (CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned int element)) \
    HOOK(CUDA, CUresult, cuMemAllocManaged, "cuMemAllocManaged", 6000, 0, \
         (CUdeviceptr *address, size_t bytes, unsigned int flags)) \
    HOOK(CUDA, CUresult, cuMemFree, "cuMemFree", 2000, 0, (CUdeviceptr_v1 address)) \
    HOOK(CUDA, CUresult, cuMemFree_v2, "cuMemFree", 3020, 0, (CUdeviceptr address)) \
    HOOK(CUDA, CUresult, cuMemFreeAsync, "cuMemFreeAsync", 11020, 0, (CUdeviceptr address, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemFreeAsync_ptsz, "cuMemFreeAsync", 11020, 2, (CUdeviceptr address, CUstream stream)) \
    HOOK(CUDA, CUresult, cuCtxDestroy, "cuCtxDestroy", 2000, 0, (CUcontext context)) \
    HOOK(CUDA, CUresult, cuCtxDestroy_v2, "cuCtxDestroy", 4000, 0, (CUcontext context)) \
    HOOK(CUDA, CUresult, cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", 7000, 0, (CUdevice device)) \
    HOOK(CUDA, CUresult, cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, 0, (CUdevice device)) \
    HOOK(CUDA, CUresult, cuDevicePrimaryCtxReset, "cuDevicePrimaryCtxReset", 7000, 0, (CUdevice device)) \
    HOOK(CUDA, CUresult, cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, 0, (CUdevice device)) \
    HOOK(CUDA, CUresult, cuLaunchKernel, "cuLaunchKernel", 4000, 0, \
         (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, \
          unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **parameters, \
          void **extra)) \
    HOOK(CUDA, CUresult, cuLaunchKernelEx, "cuLaunchKernelEx", 11060, 0, \
         (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)) \
    HOOK(CUDA, CUresult, cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel", 9000, 0, \
         (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, \
          unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **parameters)) \
    HOOK(CUDA, CUresult, cuGraphLaunch, "cuGraphLaunch", 10000, 0, \
         (CUgraphExec graph, CUstream stream)) \
    HOOK(CUDA, CUresult, cuStreamBeginCapture, "cuStreamBeginCapture", 10000, 0, \
         (CUstream stream)) \
    HOOK(CUDA, CUresult, cuStreamBeginCapture_v2, "cuStreamBeginCapture", 10010, 0, \
         (CUstream stream, CUstreamCaptureMode mode)) \
    HOOK(CUDA, CUresult, cuStreamBeginCaptureToGraph, "cuStreamBeginCaptureToGraph", 12030, 0, \
         (CUstream stream, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges, size_t count, \
          CUstreamCaptureMode mode)) \
    HOOK(CUDA, CUresult, cuStreamEndCapture, "cuStreamEndCapture", 10000, 0, \
         (CUstream stream, CUgraph *graph)) \
    HOOK(CUDA, CUresult, cuLaunchKernel_ptsz, "cuLaunchKernel", 7000, 2, \
         (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, \
          unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **parameters, \
          void **extra)) \
    HOOK(CUDA, CUresult, cuLaunchKernelEx_ptsz, "cuLaunchKernelEx", 11060, 2, \
         (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)) \
    HOOK(CUDA, CUresult, cuLaunchCooperativeKernel_ptsz, "cuLaunchCooperativeKernel", 9000, 2, \
         (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, \
          unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **parameters)) \
    HOOK(CUDA, CUresult, cuGraphLaunch_ptsz, "cuGraphLaunch", 10000, 2, \
         (CUgraphExec graph, CUstream stream)) \
    HOOK(CUDA, CUresult, cuStreamBeginCapture_ptsz, "cuStreamBeginCapture", 10000, 2, \
         (CUstream stream)) \
    HOOK(CUDA, CUresult, cuStreamBeginCapture_v2_ptsz, "cuStreamBeginCapture", 10010, 2, \
         (CUstream stream, CUstreamCaptureMode mode)) \
    HOOK(CUDA, CUresult, cuStreamBeginCaptureToGraph_ptsz, "cuStreamBeginCaptureToGraph", 12030, 2, \
         (CUstream stream, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges, size_t count, \
          CUstreamCaptureMode mode)) \
    HOOK(CUDA, CUresult, cuStreamEndCapture_ptsz, "cuStreamEndCapture", 10000, 2, \
         (CUstream stream, CUgraph *graph)) \
    HOOK(CUDA, CUresult, cuLaunchCooperativeKernelMultiDevice, "cuLaunchCooperativeKernelMultiDevice", 9000, 0, \
         (CUDA_LAUNCH_PARAMS *launches, unsigned int count, unsigned int flags)) \
    HOOK(CUDA, CUresult, cuLaunch, "cuLaunch", 2000, 0, \
         (CUfunction function)) \
    HOOK(CUDA, CUresult, cuLaunchGrid, "cuLaunchGrid", 2000, 0, \
         (CUfunction function, int width, int height)) \
    HOOK(CUDA, CUresult, cuLaunchGridAsync, "cuLaunchGridAsync", 2000, 0, \
         (CUfunction function, int width, int height, CUstream stream)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetMemoryInfo, NULL, 0, 0, (nvmlDevice_t device, nvmlMemory_t *memory)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetMemoryInfo_v2, NULL, 0, 0, (nvmlDevice_t device, nvmlMemory_v2_t *memory)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetComputeRunningProcesses, NULL, 0, 0, \
         (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *infos)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetComputeRunningProcesses_v2, NULL, 0, 0, \
         (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *infos)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetComputeRunningProcesses_v3, NULL, 0, 0, \
         (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *infos)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetGraphicsRunningProcesses, NULL, 0, 0, \
         (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *infos)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetGraphicsRunningProcesses_v2, NULL, 0, 0, \
         (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *infos)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetGraphicsRunningProcesses_v3, NULL, 0, 0, \
         (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *infos)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetMPSComputeRunningProcesses, NULL, 0, 0, \
         (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *infos)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetMPSComputeRunningProcesses_v2, NULL, 0, 0, \
         (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *infos)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetMPSComputeRunningProcesses_v3, NULL, 0, 0, \
         (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *infos)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetRunningProcessDetailList, NULL, 0, 0, \
         (nvmlDevice_t device, nvmlProcessDetailList_t *list)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetUtilizationRates, NULL, 0, 0, \
         (nvmlDevice_t device, nvmlUtilization_t *utilization)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetProcessUtilization, NULL, 0, 0, \
         (nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples, unsigned int *count, unsigned long long since)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetProcessesUtilizationInfo, NULL, 0, 0, \
         (nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *info)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetAccountingMode, NULL, 0, 0, \
         (nvmlDevice_t device, nvmlEnableState_t *mode)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetAccountingStats, NULL, 0, 0, \
         (nvmlDevice_t device, unsigned int pid, nvmlAccountingStats_t *stats)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetAccountingStats_v2, NULL, 0, 0, \
         (nvmlDevice_t device, nvmlAccountingStats_v2_t *stats)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetAccountingPids, NULL, 0, 0, \
         (nvmlDevice_t device, unsigned int *count, unsigned int *pids)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetAccountingBufferSize, NULL, 0, 0, \
         (nvmlDevice_t device, unsigned int *size))

#define ALIQUOT_BARE(BARE) \
    BARE(CUDA, CUresult, cuCtxGetCurrent, (CUcontext *context)) \
    BARE(CUDA, CUresult, cuCtxGetDevice, (CUdevice *device)) \
    BARE(CUDA, CUresult, cuDeviceGetUuid, (CUuuid *uuid, CUdevice device)) \
    BARE(CUDA, CUresult, cuDeviceGetUuid_v2, (CUuuid *uuid, CUdevice device)) \
    BARE(CUDA, CUresult, cuDevicePrimaryCtxGetState, (CUdevice device, unsigned int *flags, int *active)) \
    BARE(CUDA, CUresult, cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice device)) \
    BARE(CUDA, CUresult, cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *status)) \
    BARE(CUDA, CUresult, cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *mode)) \
    BARE(CUDA, CUresult, cuEventCreate, (CUevent *event, unsigned int flags)) \
    BARE(CUDA, CUresult, cuEventDestroy_v2, (CUevent event)) \
    BARE(CUDA, CUresult, cuEventRecord, (CUevent event, CUstream stream)) \
    BARE(CUDA, CUresult, cuEventQuery, (CUevent event)) \
    BARE(CUDA, CUresult, cuEventElapsedTime, (float *milliseconds, CUevent start, CUevent end)) \
    BARE(NVML, nvmlReturn_t, nvmlDeviceGetUUID, (nvmlDevice_t device, char *uuid, unsigned int length))
/* clang-format on */

#ifndef ALIQUOT_CUDA_H_INCLUDED
#pragma GCC visibility push(default)
#define ALIQUOT_DECLARE(library, result, symbol, name, version, flags, parameters) result symbol parameters;
ALIQUOT_HOOKS(ALIQUOT_DECLARE)
#undef ALIQUOT_DECLARE
#pragma GCC visibility pop
#endif

#endif
