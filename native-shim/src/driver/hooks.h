/*
 * The complete list of hooked functions. Calls of any other function of the two libraries reach them directly.
 *
 *     HOOK(library, result, symbol, name, version, flags, parameters)
 *
 * symbol is the exported name of one ABI. name, version and flags are the arguments of cuGetProcAddress that select
 * this ABI (version: the CUDA version that introduced it, as in cudaTypedefs.h). NVML has no such function.
 *
 *     ALIQUOT_BOTH(HOOK, symbol, suffix, name, version, version_per_thread, parameters)
 *
 * is two ABIs of one function: for the legacy default stream, and for per-thread default streams, whose symbol has the
 * suffix _ptsz, or _ptds if it takes no stream.
 *
 *     CALLED(library, result, symbol, parameters)
 *
 * is a function that the shim calls and does not hook. transfers.h lists the hooks of copies, fills and waits.
 *
 * The exported symbol is a jump (exports.S), which leads to the hook unless the container has whole cards. In C the
 * name of a function is its hook, whose own symbol has the prefix aliquot_hook_. ALIQUOT_HOOKS_ONLY leaves out all C.
 */
#ifndef ALIQUOT_HOOKS_H
#define ALIQUOT_HOOKS_H

#ifndef ALIQUOT_HOOKS_ONLY
#include "driver/abi.h"
#endif
#include "driver/transfers.h"

/* clang-format off */
#define ALIQUOT_BOTH(HOOK, symbol, suffix, name, version, version_per_thread, parameters) \
    HOOK(CUDA, CUresult, symbol, name, version, 0, parameters) \
    HOOK(CUDA, CUresult, symbol##suffix, name, version_per_thread, 2, parameters)

#define ALIQUOT_TRANSFER_HOOK(HOOK, symbol, name, version, flags, parameters, arguments, stream, bytes) \
    HOOK(CUDA, CUresult, symbol, name, version, flags, parameters)

#define ALIQUOT_NVML(HOOK, symbol, parameters) HOOK(NVML, nvmlReturn_t, symbol, NULL, 0, 0, parameters)

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
         (CUdeviceptr_v1 *address, unsigned int *pitch, unsigned int width, unsigned int height, \
          unsigned int element)) \
    HOOK(CUDA, CUresult, cuMemAllocPitch_v2, "cuMemAllocPitch", 3020, 0, \
         (CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned int element)) \
    HOOK(CUDA, CUresult, cuMemAllocManaged, "cuMemAllocManaged", 6000, 0, \
         (CUdeviceptr *address, size_t bytes, unsigned int flags)) \
    HOOK(CUDA, CUresult, cuMemFree, "cuMemFree", 2000, 0, (CUdeviceptr_v1 address)) \
    HOOK(CUDA, CUresult, cuMemFree_v2, "cuMemFree", 3020, 0, (CUdeviceptr address)) \
    ALIQUOT_BOTH(HOOK, cuMemFreeAsync, _ptsz, "cuMemFreeAsync", 11020, 11020, (CUdeviceptr address, CUstream stream)) \
    HOOK(CUDA, CUresult, cuCtxDestroy, "cuCtxDestroy", 2000, 0, (CUcontext context)) \
    HOOK(CUDA, CUresult, cuCtxDestroy_v2, "cuCtxDestroy", 4000, 0, (CUcontext context)) \
    HOOK(CUDA, CUresult, cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", 7000, 0, (CUdevice device)) \
    HOOK(CUDA, CUresult, cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, 0, (CUdevice device)) \
    HOOK(CUDA, CUresult, cuDevicePrimaryCtxReset, "cuDevicePrimaryCtxReset", 7000, 0, (CUdevice device)) \
    HOOK(CUDA, CUresult, cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, 0, (CUdevice device)) \
    ALIQUOT_BOTH(HOOK, cuLaunchKernel, _ptsz, "cuLaunchKernel", 4000, 7000, \
                 (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, \
                  unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, \
                  CUstream stream, void **parameters, void **extra)) \
    ALIQUOT_BOTH(HOOK, cuLaunchKernelEx, _ptsz, "cuLaunchKernelEx", 11060, 11060, \
                 (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)) \
    ALIQUOT_BOTH(HOOK, cuLaunchCooperativeKernel, _ptsz, "cuLaunchCooperativeKernel", 9000, 9000, \
                 (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, \
                  unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, \
                  CUstream stream, void **parameters)) \
    ALIQUOT_BOTH(HOOK, cuGraphLaunch, _ptsz, "cuGraphLaunch", 10000, 10000, (CUgraphExec graph, CUstream stream)) \
    ALIQUOT_BOTH(HOOK, cuStreamBeginCapture, _ptsz, "cuStreamBeginCapture", 10000, 10000, (CUstream stream)) \
    ALIQUOT_BOTH(HOOK, cuStreamBeginCapture_v2, _ptsz, "cuStreamBeginCapture", 10010, 10010, \
                 (CUstream stream, CUstreamCaptureMode mode)) \
    ALIQUOT_BOTH(HOOK, cuStreamBeginCaptureToGraph, _ptsz, "cuStreamBeginCaptureToGraph", 12030, 12030, \
                 (CUstream stream, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges, \
                  size_t count, CUstreamCaptureMode mode)) \
    ALIQUOT_BOTH(HOOK, cuStreamBeginRecaptureToGraph, _ptsz, "cuStreamBeginRecaptureToGraph", 13030, 13030, \
                 (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback callback, \
                  void *data)) \
    ALIQUOT_BOTH(HOOK, cuStreamBeginCaptureToCig, _ptsz, "cuStreamBeginCaptureToCig", 13010, 13010, \
                 (CUstream stream, CUstreamCigCaptureParams *parameters)) \
    ALIQUOT_BOTH(HOOK, cuStreamEndCaptureToCig, _ptsz, "cuStreamEndCaptureToCig", 13010, 13010, (CUstream stream)) \
    ALIQUOT_BOTH(HOOK, cuStreamEndCapture, _ptsz, "cuStreamEndCapture", 10000, 10000, \
                 (CUstream stream, CUgraph *graph)) \
    ALIQUOT_TRANSFERS(ALIQUOT_TRANSFER_HOOK, HOOK) \
    HOOK(CUDA, CUresult, cuStreamDestroy, "cuStreamDestroy", 2000, 0, (CUstream stream)) \
    HOOK(CUDA, CUresult, cuStreamDestroy_v2, "cuStreamDestroy", 4000, 0, (CUstream stream)) \
    HOOK(CUDA, CUresult, cuLaunchCooperativeKernelMultiDevice, "cuLaunchCooperativeKernelMultiDevice", 9000, 0, \
         (CUDA_LAUNCH_PARAMS *launches, unsigned int count, unsigned int flags)) \
    HOOK(CUDA, CUresult, cuLaunch, "cuLaunch", 2000, 0, (CUfunction function)) \
    HOOK(CUDA, CUresult, cuLaunchGrid, "cuLaunchGrid", 2000, 0, (CUfunction function, int width, int height)) \
    HOOK(CUDA, CUresult, cuLaunchGridAsync, "cuLaunchGridAsync", 2000, 0, \
         (CUfunction function, int width, int height, CUstream stream)) \
    /* contexts */ \
    HOOK(CUDA, CUresult, cuCtxCreate, "cuCtxCreate", 2000, 0, \
         (CUcontext *context, unsigned int flags, CUdevice device)) \
    HOOK(CUDA, CUresult, cuCtxCreate_v2, "cuCtxCreate", 3020, 0, \
         (CUcontext *context, unsigned int flags, CUdevice device)) \
    HOOK(CUDA, CUresult, cuCtxCreate_v3, "cuCtxCreate", 11040, 0, \
         (CUcontext *context, CUexecAffinityParam *affinity, int count, unsigned int flags, CUdevice device)) \
    HOOK(CUDA, CUresult, cuCtxCreate_v4, "cuCtxCreate", 12050, 0, \
         (CUcontext *context, CUctxCreateParams *parameters, unsigned int flags, CUdevice device)) \
    HOOK(CUDA, CUresult, cuCtxDetach, "cuCtxDetach", 2000, 0, (CUcontext context)) \
    HOOK(CUDA, CUresult, cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, 0, \
         (CUcontext *context, CUdevice device)) \
    HOOK(CUDA, CUresult, cuGreenCtxCreate, "cuGreenCtxCreate", 12040, 0, \
         (CUgreenCtx *green, CUdevResourceDesc resources, CUdevice device, unsigned int flags)) \
    HOOK(CUDA, CUresult, cuGreenCtxDestroy, "cuGreenCtxDestroy", 12040, 0, (CUgreenCtx green)) \
    HOOK(CUDA, CUresult, cuCtxSetLimit, "cuCtxSetLimit", 3010, 0, (CUlimit limit, size_t value)) \
    /* pools, and what lets them shrink */ \
    ALIQUOT_BOTH(HOOK, cuMemAllocAsync, _ptsz, "cuMemAllocAsync", 11020, 11020, \
                 (CUdeviceptr *address, size_t bytes, CUstream stream)) \
    ALIQUOT_BOTH(HOOK, cuMemAllocFromPoolAsync, _ptsz, "cuMemAllocFromPoolAsync", 11020, 11020, \
                 (CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemPoolCreate, "cuMemPoolCreate", 11020, 0, \
         (CUmemoryPool *pool, const CUmemPoolProps *properties)) \
    HOOK(CUDA, CUresult, cuMemPoolDestroy, "cuMemPoolDestroy", 11020, 0, (CUmemoryPool pool)) \
    HOOK(CUDA, CUresult, cuMemPoolTrimTo, "cuMemPoolTrimTo", 11020, 0, (CUmemoryPool pool, size_t keep)) \
    HOOK(CUDA, CUresult, cuMemPoolImportFromShareableHandle, "cuMemPoolImportFromShareableHandle", 11020, 0, \
         (CUmemoryPool *pool, void *handle, CUmemAllocationHandleType type, unsigned long long flags)) \
    HOOK(CUDA, CUresult, cuMemGetDefaultMemPool, "cuMemGetDefaultMemPool", 13000, 0, \
         (CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)) \
    HOOK(CUDA, CUresult, cuMemGetMemPool, "cuMemGetMemPool", 13000, 0, \
         (CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)) \
    ALIQUOT_BOTH(HOOK, cuStreamSynchronize, _ptsz, "cuStreamSynchronize", 2000, 7000, (CUstream stream)) \
    ALIQUOT_BOTH(HOOK, cuEventRecord, _ptsz, "cuEventRecord", 2000, 7000, (CUevent event, CUstream stream)) \
    ALIQUOT_BOTH(HOOK, cuEventRecordWithFlags, _ptsz, "cuEventRecordWithFlags", 11010, 11010, \
                 (CUevent event, CUstream stream, unsigned int flags)) \
    HOOK(CUDA, CUresult, cuEventSynchronize, "cuEventSynchronize", 2000, 0, (CUevent event)) \
    HOOK(CUDA, CUresult, cuCtxSynchronize, "cuCtxSynchronize", 2000, 0, (void)) \
    HOOK(CUDA, CUresult, cuCtxSynchronize_v2, "cuCtxSynchronize", 13000, 0, (CUcontext context)) \
    /* graphs' memory */ \
    HOOK(CUDA, CUresult, cuGraphInstantiate, "cuGraphInstantiate", 10000, 0, \
         (CUgraphExec *created, CUgraph graph, CUgraphNode *node, char *log, size_t size)) \
    HOOK(CUDA, CUresult, cuGraphInstantiate_v2, "cuGraphInstantiate", 11000, 0, \
         (CUgraphExec *created, CUgraph graph, CUgraphNode *node, char *log, size_t size)) \
    HOOK(CUDA, CUresult, cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", 11040, 0, \
         (CUgraphExec *created, CUgraph graph, unsigned long long flags)) \
    ALIQUOT_BOTH(HOOK, cuGraphInstantiateWithParams, _ptsz, "cuGraphInstantiateWithParams", 12000, 12000, \
                 (CUgraphExec *created, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)) \
    ALIQUOT_BOTH(HOOK, cuGraphUpload, _ptsz, "cuGraphUpload", 11010, 11010, (CUgraphExec graph, CUstream stream)) \
    HOOK(CUDA, CUresult, cuGraphExecDestroy, "cuGraphExecDestroy", 10000, 0, (CUgraphExec graph)) \
    HOOK(CUDA, CUresult, cuDeviceGraphMemTrim, "cuDeviceGraphMemTrim", 11040, 0, (CUdevice device)) \
    /* virtual memory */ \
    HOOK(CUDA, CUresult, cuMemCreate, "cuMemCreate", 10020, 0, \
         (CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *properties, \
          unsigned long long flags)) \
    HOOK(CUDA, CUresult, cuMemRelease, "cuMemRelease", 10020, 0, (CUmemGenericAllocationHandle handle)) \
    HOOK(CUDA, CUresult, cuMemMap, "cuMemMap", 10020, 0, \
         (CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle, \
          unsigned long long flags)) \
    HOOK(CUDA, CUresult, cuMemUnmap, "cuMemUnmap", 10020, 0, (CUdeviceptr address, size_t size)) \
    HOOK(CUDA, CUresult, cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", 11000, 0, \
         (CUmemGenericAllocationHandle *handle, void *address)) \
    HOOK(CUDA, CUresult, cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle", 10020, 0, \
         (CUmemGenericAllocationHandle *handle, void *shared, CUmemAllocationHandleType type)) \
    ALIQUOT_BOTH(HOOK, cuMemMapArrayAsync, _ptsz, "cuMemMapArrayAsync", 11010, 11010, \
                 (CUarrayMapInfo *list, unsigned int count, CUstream stream)) \
    /* arrays */ \
    HOOK(CUDA, CUresult, cuArrayCreate, "cuArrayCreate", 2000, 0, \
         (CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *descriptor)) \
    HOOK(CUDA, CUresult, cuArrayCreate_v2, "cuArrayCreate", 3020, 0, \
         (CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v2 *descriptor)) \
    HOOK(CUDA, CUresult, cuArray3DCreate, "cuArray3DCreate", 2000, 0, \
         (CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *descriptor)) \
    HOOK(CUDA, CUresult, cuArray3DCreate_v2, "cuArray3DCreate", 3020, 0, \
         (CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v2 *descriptor)) \
    HOOK(CUDA, CUresult, cuArrayDestroy, "cuArrayDestroy", 2000, 0, (CUarray array)) \
    HOOK(CUDA, CUresult, cuMipmappedArrayCreate, "cuMipmappedArrayCreate", 5000, 0, \
         (CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR_v2 *descriptor, unsigned int levels)) \
    HOOK(CUDA, CUresult, cuMipmappedArrayDestroy, "cuMipmappedArrayDestroy", 5000, 0, (CUmipmappedArray array)) \
    /* memory of other APIs */ \
    HOOK(CUDA, CUresult, cuImportExternalMemory, "cuImportExternalMemory", 10000, 0, \
         (CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description)) \
    HOOK(CUDA, CUresult, cuDestroyExternalMemory, "cuDestroyExternalMemory", 10000, 0, (CUexternalMemory memory)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceGetMemoryInfo, (nvmlDevice_t device, nvmlMemory_t *memory)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceGetMemoryInfo_v2, (nvmlDevice_t device, nvmlMemory_v2_t *memory)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceGetComputeRunningProcesses, \
                 (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *infos)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceGetComputeRunningProcesses_v2, \
                 (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *infos)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceGetComputeRunningProcesses_v3, \
                 (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *infos)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceGetGraphicsRunningProcesses, \
                 (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *infos)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceGetGraphicsRunningProcesses_v2, \
                 (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *infos)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceGetGraphicsRunningProcesses_v3, \
                 (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *infos)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceGetMPSComputeRunningProcesses, \
                 (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *infos)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceGetMPSComputeRunningProcesses_v2, \
                 (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *infos)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceGetMPSComputeRunningProcesses_v3, \
                 (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *infos)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceGetRunningProcessDetailList, (nvmlDevice_t device, nvmlProcessDetailList_t *list)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceGetUtilizationRates, (nvmlDevice_t device, nvmlUtilization_t *utilization)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceGetProcessUtilization, \
                 (nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples, unsigned int *count, \
                  unsigned long long since)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceGetProcessesUtilizationInfo, \
                 (nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *info)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceGetSamples, \
                 (nvmlDevice_t device, nvmlSamplingType_t type, unsigned long long since, nvmlValueType_t *value_type, \
                  unsigned int *count, nvmlSample_t *samples)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceGetEncoderUtilization, \
                 (nvmlDevice_t device, unsigned int *utilization, unsigned int *period)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceGetDecoderUtilization, \
                 (nvmlDevice_t device, unsigned int *utilization, unsigned int *period)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceGetJpgUtilization, \
                 (nvmlDevice_t device, unsigned int *utilization, unsigned int *period)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceGetOfaUtilization, \
                 (nvmlDevice_t device, unsigned int *utilization, unsigned int *period)) \
    ALIQUOT_NVML(HOOK, nvmlGpmQueryDeviceSupport, (nvmlDevice_t device, nvmlGpmSupport_t *support)) \
    ALIQUOT_NVML(HOOK, nvmlGpmSampleGet, (nvmlDevice_t device, nvmlGpmSample_t sample)) \
    ALIQUOT_NVML(HOOK, nvmlGpmMigSampleGet, (nvmlDevice_t device, unsigned int instance, nvmlGpmSample_t sample)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceGetMemoryLimits_v1, (nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceSetMemoryLimits_v1, (nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceGetAccountingMode, (nvmlDevice_t device, nvmlEnableState_t *mode)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceGetAccountingStats, \
                 (nvmlDevice_t device, unsigned int pid, nvmlAccountingStats_t *stats)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceGetAccountingStats_v2, (nvmlDevice_t device, nvmlAccountingStats_v2_t *stats)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceGetAccountingPids, (nvmlDevice_t device, unsigned int *count, unsigned int *pids)) \
    ALIQUOT_NVML(HOOK, nvmlDeviceGetAccountingBufferSize, (nvmlDevice_t device, unsigned int *size))

#define ALIQUOT_CALLED(CALLED) \
    CALLED(CUDA, CUresult, cuCtxGetCurrent, (CUcontext *context)) \
    CALLED(CUDA, CUresult, cuCtxGetDevice, (CUdevice *device)) \
    CALLED(CUDA, CUresult, cuCtxGetLimit, (size_t *value, CUlimit limit)) \
    CALLED(CUDA, CUresult, cuCtxFromGreenCtx, (CUcontext *context, CUgreenCtx green)) \
    CALLED(CUDA, CUresult, cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device)) \
    CALLED(CUDA, CUresult, cuPointerGetAttributes, \
         (unsigned int count, CUpointer_attribute *attributes, void **values, CUdeviceptr address)) \
    CALLED(CUDA, CUresult, cuDeviceGetUuid, (CUuuid *uuid, CUdevice device)) \
    CALLED(CUDA, CUresult, cuDeviceGetUuid_v2, (CUuuid *uuid, CUdevice device)) \
    CALLED(CUDA, CUresult, cuDevicePrimaryCtxGetState, (CUdevice device, unsigned int *flags, int *active)) \
    CALLED(CUDA, CUresult, cuStreamCreateWithPriority, (CUstream *stream, unsigned int flags, int priority)) \
    CALLED(CUDA, CUresult, cuCtxSetCurrent, (CUcontext context)) \
    CALLED(CUDA, CUresult, cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *status)) \
    CALLED(CUDA, CUresult, cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *mode)) \
    CALLED(CUDA, CUresult, cuFuncGetName, (const char **name, CUfunction function)) \
    CALLED(CUDA, CUresult, cuEventCreate, (CUevent *event, unsigned int flags)) \
    CALLED(CUDA, CUresult, cuEventDestroy_v2, (CUevent event)) \
    CALLED(CUDA, CUresult, cuEventQuery, (CUevent event)) \
    CALLED(CUDA, CUresult, cuEventElapsedTime, (float *milliseconds, CUevent start, CUevent end)) \
    CALLED(CUDA, CUresult, cuCtxPushCurrent_v2, (CUcontext context)) \
    CALLED(CUDA, CUresult, cuCtxPopCurrent_v2, (CUcontext *context)) \
    CALLED(CUDA, CUresult, cuDeviceGetMemPool, (CUmemoryPool *pool, CUdevice device)) \
    CALLED(CUDA, CUresult, cuMemPoolGetAttribute, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value)) \
    CALLED(CUDA, CUresult, cuStreamGetCtx, (CUstream stream, CUcontext *context)) \
    CALLED(CUDA, CUresult, cuDeviceGetGraphMemAttribute, \
         (CUdevice device, CUgraphMem_attribute attribute, void *value)) \
    CALLED(CUDA, CUresult, cuGraphGetNodes, (CUgraph graph, CUgraphNode *nodes, size_t *count)) \
    CALLED(CUDA, CUresult, cuGraphNodeGetType, (CUgraphNode node, CUgraphNodeType *type)) \
    CALLED(CUDA, CUresult, cuGraphChildGraphNodeGetGraph, (CUgraphNode node, CUgraph *graph)) \
    CALLED(CUDA, CUresult, cuGraphMemAllocNodeGetParams, (CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *parameters)) \
    CALLED(CUDA, CUresult, cuArrayGetMemoryRequirements, \
         (CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements, CUarray array, CUdevice device)) \
    CALLED(CUDA, CUresult, cuMipmappedArrayGetMemoryRequirements, \
         (CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements, CUmipmappedArray array, CUdevice device)) \
    CALLED(NVML, nvmlReturn_t, nvmlDeviceGetUUID, (nvmlDevice_t device, char *uuid, unsigned int length))
/* clang-format on */

#if !defined(ALIQUOT_CUDA_H_INCLUDED) && !defined(ALIQUOT_HOOKS_ONLY)
#define ALIQUOT_DECLARE(library, result, symbol, name, version, flags, parameters)                                     \
    result symbol parameters __asm__("aliquot_hook_" #symbol);
ALIQUOT_HOOKS(ALIQUOT_DECLARE)
#undef ALIQUOT_DECLARE
#endif

#endif
