/*
 * The complete list of hooked functions. Calls of any other function of the two libraries reach them directly.
 *
 *     HOOK(library, result, symbol, name, version, flags, parameters)
 *
 * symbol is the exported name of one ABI. name, version and flags are the arguments of cuGetProcAddress that select
 * this ABI (version: the CUDA version that introduced it, as in cudaTypedefs.h). NVML has no such function.
 *
 *     CALLED(library, result, symbol, parameters)
 *
 * is a function that the shim calls and does not hook.
 *
 * The exported symbol is a jump (exports.S), which leads to the hook unless the container has whole cards. In C the
 * name of a function is its hook, whose own symbol has the prefix aliquot_hook_. ALIQUOT_HOOKS_ONLY leaves out all C.
 */
#ifndef ALIQUOT_HOOKS_H
#define ALIQUOT_HOOKS_H

#ifndef ALIQUOT_HOOKS_ONLY
#include "driver/abi.h"
#endif

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
         (CUdeviceptr_v1 *address, unsigned int *pitch, unsigned int width, unsigned int height, \
          unsigned int element)) \
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
    HOOK(CUDA, CUresult, cuStreamBeginRecaptureToGraph, "cuStreamBeginRecaptureToGraph", 13030, 0, \
         (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback callback, void *data)) \
    HOOK(CUDA, CUresult, cuStreamBeginCaptureToCig, "cuStreamBeginCaptureToCig", 13010, 0, \
         (CUstream stream, CUstreamCigCaptureParams *parameters)) \
    HOOK(CUDA, CUresult, cuStreamEndCaptureToCig, "cuStreamEndCaptureToCig", 13010, 0, (CUstream stream)) \
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
    HOOK(CUDA, CUresult, cuStreamBeginRecaptureToGraph_ptsz, "cuStreamBeginRecaptureToGraph", 13030, 2, \
         (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback callback, void *data)) \
    HOOK(CUDA, CUresult, cuStreamBeginCaptureToCig_ptsz, "cuStreamBeginCaptureToCig", 13010, 2, \
         (CUstream stream, CUstreamCigCaptureParams *parameters)) \
    HOOK(CUDA, CUresult, cuStreamEndCaptureToCig_ptsz, "cuStreamEndCaptureToCig", 13010, 2, (CUstream stream)) \
    HOOK(CUDA, CUresult, cuStreamEndCapture_ptsz, "cuStreamEndCapture", 10000, 2, \
         (CUstream stream, CUgraph *graph)) \
    /* copies within the GPU, and from and to the host */ \
    HOOK(CUDA, CUresult, cuMemcpy, "cuMemcpy", 4000, 0, (CUdeviceptr destination, CUdeviceptr source, size_t bytes)) \
    HOOK(CUDA, CUresult, cuMemcpy_ptds, "cuMemcpy", 7000, 2, \
         (CUdeviceptr destination, CUdeviceptr source, size_t bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyAsync, "cuMemcpyAsync", 4000, 0, \
         (CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpyAsync_ptsz, "cuMemcpyAsync", 7000, 2, \
         (CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpyPeer, "cuMemcpyPeer", 4000, 0, \
         (CUdeviceptr destination, CUcontext there, CUdeviceptr source, CUcontext here, size_t bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyPeer_ptds, "cuMemcpyPeer", 7000, 2, \
         (CUdeviceptr destination, CUcontext there, CUdeviceptr source, CUcontext here, size_t bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyPeerAsync, "cuMemcpyPeerAsync", 4000, 0, \
         (CUdeviceptr destination, CUcontext there, CUdeviceptr source, CUcontext here, size_t bytes, \
          CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpyPeerAsync_ptsz, "cuMemcpyPeerAsync", 7000, 2, \
         (CUdeviceptr destination, CUcontext there, CUdeviceptr source, CUcontext here, size_t bytes, \
          CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpyHtoD, "cuMemcpyHtoD", 2000, 0, \
         (CUdeviceptr_v1 destination, const void *source, unsigned int bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyHtoD_v2, "cuMemcpyHtoD", 3020, 0, \
         (CUdeviceptr destination, const void *source, size_t bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyHtoD_v2_ptds, "cuMemcpyHtoD", 7000, 2, \
         (CUdeviceptr destination, const void *source, size_t bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyDtoH, "cuMemcpyDtoH", 2000, 0, \
         (void *destination, CUdeviceptr_v1 source, unsigned int bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyDtoH_v2, "cuMemcpyDtoH", 3020, 0, \
         (void *destination, CUdeviceptr source, size_t bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyDtoH_v2_ptds, "cuMemcpyDtoH", 7000, 2, \
         (void *destination, CUdeviceptr source, size_t bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyDtoD, "cuMemcpyDtoD", 2000, 0, \
         (CUdeviceptr_v1 destination, CUdeviceptr_v1 source, unsigned int bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyDtoD_v2, "cuMemcpyDtoD", 3020, 0, \
         (CUdeviceptr destination, CUdeviceptr source, size_t bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyDtoD_v2_ptds, "cuMemcpyDtoD", 7000, 2, \
         (CUdeviceptr destination, CUdeviceptr source, size_t bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync", 2000, 0, \
         (CUdeviceptr_v1 destination, const void *source, unsigned int bytes, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync", 3020, 0, \
         (CUdeviceptr destination, const void *source, size_t bytes, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpyHtoDAsync_v2_ptsz, "cuMemcpyHtoDAsync", 7000, 2, \
         (CUdeviceptr destination, const void *source, size_t bytes, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync", 2000, 0, \
         (void *destination, CUdeviceptr_v1 source, unsigned int bytes, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync", 3020, 0, \
         (void *destination, CUdeviceptr source, size_t bytes, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpyDtoHAsync_v2_ptsz, "cuMemcpyDtoHAsync", 7000, 2, \
         (void *destination, CUdeviceptr source, size_t bytes, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync", 3000, 0, \
         (CUdeviceptr_v1 destination, CUdeviceptr_v1 source, unsigned int bytes, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpyDtoDAsync_v2, "cuMemcpyDtoDAsync", 3020, 0, \
         (CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpyDtoDAsync_v2_ptsz, "cuMemcpyDtoDAsync", 7000, 2, \
         (CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpyDtoA, "cuMemcpyDtoA", 2000, 0, \
         (CUarray destination, unsigned int offset, CUdeviceptr_v1 source, unsigned int bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyDtoA_v2, "cuMemcpyDtoA", 3020, 0, \
         (CUarray destination, size_t offset, CUdeviceptr source, size_t bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyDtoA_v2_ptds, "cuMemcpyDtoA", 7000, 2, \
         (CUarray destination, size_t offset, CUdeviceptr source, size_t bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyAtoD, "cuMemcpyAtoD", 2000, 0, \
         (CUdeviceptr_v1 destination, CUarray source, unsigned int offset, unsigned int bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyAtoD_v2, "cuMemcpyAtoD", 3020, 0, \
         (CUdeviceptr destination, CUarray source, size_t offset, size_t bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyAtoD_v2_ptds, "cuMemcpyAtoD", 7000, 2, \
         (CUdeviceptr destination, CUarray source, size_t offset, size_t bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyAtoA, "cuMemcpyAtoA", 2000, 0, \
         (CUarray destination, unsigned int there, CUarray source, unsigned int here, unsigned int bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyAtoA_v2, "cuMemcpyAtoA", 3020, 0, \
         (CUarray destination, size_t there, CUarray source, size_t here, size_t bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyAtoA_v2_ptds, "cuMemcpyAtoA", 7000, 2, \
         (CUarray destination, size_t there, CUarray source, size_t here, size_t bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyHtoA, "cuMemcpyHtoA", 2000, 0, \
         (CUarray destination, unsigned int offset, const void *source, unsigned int bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyHtoA_v2, "cuMemcpyHtoA", 3020, 0, \
         (CUarray destination, size_t offset, const void *source, size_t bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyHtoA_v2_ptds, "cuMemcpyHtoA", 7000, 2, \
         (CUarray destination, size_t offset, const void *source, size_t bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyAtoH, "cuMemcpyAtoH", 2000, 0, \
         (void *destination, CUarray source, unsigned int offset, unsigned int bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyAtoH_v2, "cuMemcpyAtoH", 3020, 0, \
         (void *destination, CUarray source, size_t offset, size_t bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyAtoH_v2_ptds, "cuMemcpyAtoH", 7000, 2, \
         (void *destination, CUarray source, size_t offset, size_t bytes)) \
    HOOK(CUDA, CUresult, cuMemcpyHtoAAsync, "cuMemcpyHtoAAsync", 2000, 0, \
         (CUarray destination, unsigned int offset, const void *source, unsigned int bytes, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpyHtoAAsync_v2, "cuMemcpyHtoAAsync", 3020, 0, \
         (CUarray destination, size_t offset, const void *source, size_t bytes, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpyHtoAAsync_v2_ptsz, "cuMemcpyHtoAAsync", 7000, 2, \
         (CUarray destination, size_t offset, const void *source, size_t bytes, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpyAtoHAsync, "cuMemcpyAtoHAsync", 2000, 0, \
         (void *destination, CUarray source, unsigned int offset, unsigned int bytes, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpyAtoHAsync_v2, "cuMemcpyAtoHAsync", 3020, 0, \
         (void *destination, CUarray source, size_t offset, size_t bytes, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpyAtoHAsync_v2_ptsz, "cuMemcpyAtoHAsync", 7000, 2, \
         (void *destination, CUarray source, size_t offset, size_t bytes, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpy2D, "cuMemcpy2D", 2000, 0, (const CUDA_MEMCPY2D_v1 *copy)) \
    HOOK(CUDA, CUresult, cuMemcpy2D_v2, "cuMemcpy2D", 3020, 0, (const CUDA_MEMCPY2D_v2 *copy)) \
    HOOK(CUDA, CUresult, cuMemcpy2D_v2_ptds, "cuMemcpy2D", 7000, 2, (const CUDA_MEMCPY2D_v2 *copy)) \
    HOOK(CUDA, CUresult, cuMemcpy2DUnaligned, "cuMemcpy2DUnaligned", 2000, 0, (const CUDA_MEMCPY2D_v1 *copy)) \
    HOOK(CUDA, CUresult, cuMemcpy2DUnaligned_v2, "cuMemcpy2DUnaligned", 3020, 0, (const CUDA_MEMCPY2D_v2 *copy)) \
    HOOK(CUDA, CUresult, cuMemcpy2DUnaligned_v2_ptds, "cuMemcpy2DUnaligned", 7000, 2, (const CUDA_MEMCPY2D_v2 *copy)) \
    HOOK(CUDA, CUresult, cuMemcpy3D, "cuMemcpy3D", 2000, 0, (const CUDA_MEMCPY3D_v1 *copy)) \
    HOOK(CUDA, CUresult, cuMemcpy3D_v2, "cuMemcpy3D", 3020, 0, (const CUDA_MEMCPY3D_v2 *copy)) \
    HOOK(CUDA, CUresult, cuMemcpy3D_v2_ptds, "cuMemcpy3D", 7000, 2, (const CUDA_MEMCPY3D_v2 *copy)) \
    HOOK(CUDA, CUresult, cuMemcpy2DAsync, "cuMemcpy2DAsync", 2000, 0, (const CUDA_MEMCPY2D_v1 *copy, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpy2DAsync_v2, "cuMemcpy2DAsync", 3020, 0, \
         (const CUDA_MEMCPY2D_v2 *copy, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpy2DAsync_v2_ptsz, "cuMemcpy2DAsync", 7000, 2, \
         (const CUDA_MEMCPY2D_v2 *copy, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpy3DAsync, "cuMemcpy3DAsync", 2000, 0, (const CUDA_MEMCPY3D_v1 *copy, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpy3DAsync_v2, "cuMemcpy3DAsync", 3020, 0, \
         (const CUDA_MEMCPY3D_v2 *copy, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpy3DAsync_v2_ptsz, "cuMemcpy3DAsync", 7000, 2, \
         (const CUDA_MEMCPY3D_v2 *copy, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpy3DPeer, "cuMemcpy3DPeer", 4000, 0, (const CUDA_MEMCPY3D_PEER *copy)) \
    HOOK(CUDA, CUresult, cuMemcpy3DPeer_ptds, "cuMemcpy3DPeer", 7000, 2, (const CUDA_MEMCPY3D_PEER *copy)) \
    HOOK(CUDA, CUresult, cuMemcpy3DPeerAsync, "cuMemcpy3DPeerAsync", 4000, 0, \
         (const CUDA_MEMCPY3D_PEER *copy, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpy3DPeerAsync_ptsz, "cuMemcpy3DPeerAsync", 7000, 2, \
         (const CUDA_MEMCPY3D_PEER *copy, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpyBatchAsync, "cuMemcpyBatchAsync", 12080, 0, \
         (CUdeviceptr *destinations, CUdeviceptr *sources, size_t *bytes, size_t count, \
          CUmemcpyAttributes *attributes, size_t *first, size_t kinds, size_t *failed, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpyBatchAsync_ptsz, "cuMemcpyBatchAsync", 12080, 2, \
         (CUdeviceptr *destinations, CUdeviceptr *sources, size_t *bytes, size_t count, \
          CUmemcpyAttributes *attributes, size_t *first, size_t kinds, size_t *failed, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpyBatchAsync_v2, "cuMemcpyBatchAsync", 13000, 0, \
         (CUdeviceptr *destinations, CUdeviceptr *sources, size_t *bytes, size_t count, \
          CUmemcpyAttributes *attributes, size_t *first, size_t kinds, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpyBatchAsync_v2_ptsz, "cuMemcpyBatchAsync", 13000, 2, \
         (CUdeviceptr *destinations, CUdeviceptr *sources, size_t *bytes, size_t count, \
          CUmemcpyAttributes *attributes, size_t *first, size_t kinds, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpy3DBatchAsync, "cuMemcpy3DBatchAsync", 12080, 0, \
         (size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, size_t *failed, unsigned long long flags, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpy3DBatchAsync_ptsz, "cuMemcpy3DBatchAsync", 12080, 2, \
         (size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, size_t *failed, unsigned long long flags, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpy3DBatchAsync_v2, "cuMemcpy3DBatchAsync", 13000, 0, \
         (size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, unsigned long long flags, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpy3DBatchAsync_v2_ptsz, "cuMemcpy3DBatchAsync", 13000, 2, \
         (size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, unsigned long long flags, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpyWithAttributesAsync, "cuMemcpyWithAttributesAsync", 13020, 0, \
         (CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUmemcpyAttributes *attributes, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpyWithAttributesAsync_ptsz, "cuMemcpyWithAttributesAsync", 13020, 2, \
         (CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUmemcpyAttributes *attributes, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpy3DWithAttributesAsync, "cuMemcpy3DWithAttributesAsync", 13020, 0, \
         (CUDA_MEMCPY3D_BATCH_OP *copy, unsigned long long flags, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemcpy3DWithAttributesAsync_ptsz, "cuMemcpy3DWithAttributesAsync", 13020, 2, \
         (CUDA_MEMCPY3D_BATCH_OP *copy, unsigned long long flags, CUstream stream)) \
    /* fills */ \
    HOOK(CUDA, CUresult, cuMemsetD8, "cuMemsetD8", 2000, 0, \
         (CUdeviceptr_v1 destination, unsigned char value, unsigned int count)) \
    HOOK(CUDA, CUresult, cuMemsetD8_v2, "cuMemsetD8", 3020, 0, \
         (CUdeviceptr destination, unsigned char value, size_t count)) \
    HOOK(CUDA, CUresult, cuMemsetD8_v2_ptds, "cuMemsetD8", 7000, 2, \
         (CUdeviceptr destination, unsigned char value, size_t count)) \
    HOOK(CUDA, CUresult, cuMemsetD16, "cuMemsetD16", 2000, 0, \
         (CUdeviceptr_v1 destination, unsigned short value, unsigned int count)) \
    HOOK(CUDA, CUresult, cuMemsetD16_v2, "cuMemsetD16", 3020, 0, \
         (CUdeviceptr destination, unsigned short value, size_t count)) \
    HOOK(CUDA, CUresult, cuMemsetD16_v2_ptds, "cuMemsetD16", 7000, 2, \
         (CUdeviceptr destination, unsigned short value, size_t count)) \
    HOOK(CUDA, CUresult, cuMemsetD32, "cuMemsetD32", 2000, 0, \
         (CUdeviceptr_v1 destination, unsigned int value, unsigned int count)) \
    HOOK(CUDA, CUresult, cuMemsetD32_v2, "cuMemsetD32", 3020, 0, \
         (CUdeviceptr destination, unsigned int value, size_t count)) \
    HOOK(CUDA, CUresult, cuMemsetD32_v2_ptds, "cuMemsetD32", 7000, 2, \
         (CUdeviceptr destination, unsigned int value, size_t count)) \
    HOOK(CUDA, CUresult, cuMemsetD8Async, "cuMemsetD8Async", 3020, 0, \
         (CUdeviceptr destination, unsigned char value, size_t count, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemsetD8Async_ptsz, "cuMemsetD8Async", 7000, 2, \
         (CUdeviceptr destination, unsigned char value, size_t count, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemsetD16Async, "cuMemsetD16Async", 3020, 0, \
         (CUdeviceptr destination, unsigned short value, size_t count, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemsetD16Async_ptsz, "cuMemsetD16Async", 7000, 2, \
         (CUdeviceptr destination, unsigned short value, size_t count, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemsetD32Async, "cuMemsetD32Async", 3020, 0, \
         (CUdeviceptr destination, unsigned int value, size_t count, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemsetD32Async_ptsz, "cuMemsetD32Async", 7000, 2, \
         (CUdeviceptr destination, unsigned int value, size_t count, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemsetD2D8, "cuMemsetD2D8", 2000, 0, \
         (CUdeviceptr_v1 destination, unsigned int pitch, unsigned char value, unsigned int width, \
          unsigned int height)) \
    HOOK(CUDA, CUresult, cuMemsetD2D8_v2, "cuMemsetD2D8", 3020, 0, \
         (CUdeviceptr destination, size_t pitch, unsigned char value, size_t width, size_t height)) \
    HOOK(CUDA, CUresult, cuMemsetD2D8_v2_ptds, "cuMemsetD2D8", 7000, 2, \
         (CUdeviceptr destination, size_t pitch, unsigned char value, size_t width, size_t height)) \
    HOOK(CUDA, CUresult, cuMemsetD2D16, "cuMemsetD2D16", 2000, 0, \
         (CUdeviceptr_v1 destination, unsigned int pitch, unsigned short value, unsigned int width, \
          unsigned int height)) \
    HOOK(CUDA, CUresult, cuMemsetD2D16_v2, "cuMemsetD2D16", 3020, 0, \
         (CUdeviceptr destination, size_t pitch, unsigned short value, size_t width, size_t height)) \
    HOOK(CUDA, CUresult, cuMemsetD2D16_v2_ptds, "cuMemsetD2D16", 7000, 2, \
         (CUdeviceptr destination, size_t pitch, unsigned short value, size_t width, size_t height)) \
    HOOK(CUDA, CUresult, cuMemsetD2D32, "cuMemsetD2D32", 2000, 0, \
         (CUdeviceptr_v1 destination, unsigned int pitch, unsigned int value, unsigned int width, \
          unsigned int height)) \
    HOOK(CUDA, CUresult, cuMemsetD2D32_v2, "cuMemsetD2D32", 3020, 0, \
         (CUdeviceptr destination, size_t pitch, unsigned int value, size_t width, size_t height)) \
    HOOK(CUDA, CUresult, cuMemsetD2D32_v2_ptds, "cuMemsetD2D32", 7000, 2, \
         (CUdeviceptr destination, size_t pitch, unsigned int value, size_t width, size_t height)) \
    HOOK(CUDA, CUresult, cuMemsetD2D8Async, "cuMemsetD2D8Async", 3020, 0, \
         (CUdeviceptr destination, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemsetD2D8Async_ptsz, "cuMemsetD2D8Async", 7000, 2, \
         (CUdeviceptr destination, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemsetD2D16Async, "cuMemsetD2D16Async", 3020, 0, \
         (CUdeviceptr destination, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemsetD2D16Async_ptsz, "cuMemsetD2D16Async", 7000, 2, \
         (CUdeviceptr destination, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemsetD2D32Async, "cuMemsetD2D32Async", 3020, 0, \
         (CUdeviceptr destination, size_t pitch, unsigned int value, size_t width, size_t height, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemsetD2D32Async_ptsz, "cuMemsetD2D32Async", 7000, 2, \
         (CUdeviceptr destination, size_t pitch, unsigned int value, size_t width, size_t height, CUstream stream)) \
    /* waits of streams */ \
    HOOK(CUDA, CUresult, cuStreamWaitEvent, "cuStreamWaitEvent", 3020, 0, \
         (CUstream stream, CUevent event, unsigned int flags)) \
    HOOK(CUDA, CUresult, cuStreamWaitEvent_ptsz, "cuStreamWaitEvent", 7000, 2, \
         (CUstream stream, CUevent event, unsigned int flags)) \
    HOOK(CUDA, CUresult, cuStreamWaitValue32, "cuStreamWaitValue32", 8000, 0, \
         (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)) \
    HOOK(CUDA, CUresult, cuStreamWaitValue32_v2, "cuStreamWaitValue32", 11070, 0, \
         (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)) \
    HOOK(CUDA, CUresult, cuStreamWaitValue32_ptsz, "cuStreamWaitValue32", 8000, 2, \
         (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)) \
    HOOK(CUDA, CUresult, cuStreamWaitValue32_v2_ptsz, "cuStreamWaitValue32", 11070, 2, \
         (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)) \
    HOOK(CUDA, CUresult, cuStreamWaitValue64, "cuStreamWaitValue64", 9000, 0, \
         (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)) \
    HOOK(CUDA, CUresult, cuStreamWaitValue64_v2, "cuStreamWaitValue64", 11070, 0, \
         (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)) \
    HOOK(CUDA, CUresult, cuStreamWaitValue64_ptsz, "cuStreamWaitValue64", 9000, 2, \
         (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)) \
    HOOK(CUDA, CUresult, cuStreamWaitValue64_v2_ptsz, "cuStreamWaitValue64", 11070, 2, \
         (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)) \
    HOOK(CUDA, CUresult, cuStreamBatchMemOp, "cuStreamBatchMemOp", 8000, 0, \
         (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations, unsigned int flags)) \
    HOOK(CUDA, CUresult, cuStreamBatchMemOp_v2, "cuStreamBatchMemOp", 11070, 0, \
         (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations, unsigned int flags)) \
    HOOK(CUDA, CUresult, cuStreamBatchMemOp_ptsz, "cuStreamBatchMemOp", 8000, 2, \
         (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations, unsigned int flags)) \
    HOOK(CUDA, CUresult, cuStreamBatchMemOp_v2_ptsz, "cuStreamBatchMemOp", 11070, 2, \
         (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations, unsigned int flags)) \
    HOOK(CUDA, CUresult, cuWaitExternalSemaphoresAsync, "cuWaitExternalSemaphoresAsync", 10000, 0, \
         (const CUexternalSemaphore *semaphores, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *parameters, \
          unsigned int count, CUstream stream)) \
    HOOK(CUDA, CUresult, cuWaitExternalSemaphoresAsync_ptsz, "cuWaitExternalSemaphoresAsync", 10000, 2, \
         (const CUexternalSemaphore *semaphores, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *parameters, \
          unsigned int count, CUstream stream)) \
    /* host functions, streams, old launches */ \
    HOOK(CUDA, CUresult, cuLaunchHostFunc, "cuLaunchHostFunc", 10000, 0, \
         (CUstream stream, CUhostFn function, void *data)) \
    HOOK(CUDA, CUresult, cuLaunchHostFunc_ptsz, "cuLaunchHostFunc", 10000, 2, \
         (CUstream stream, CUhostFn function, void *data)) \
    HOOK(CUDA, CUresult, cuStreamAddCallback, "cuStreamAddCallback", 5000, 0, \
         (CUstream stream, CUstreamCallback function, void *data, unsigned int flags)) \
    HOOK(CUDA, CUresult, cuStreamAddCallback_ptsz, "cuStreamAddCallback", 7000, 2, \
         (CUstream stream, CUstreamCallback function, void *data, unsigned int flags)) \
    HOOK(CUDA, CUresult, cuStreamDestroy, "cuStreamDestroy", 2000, 0, (CUstream stream)) \
    HOOK(CUDA, CUresult, cuStreamDestroy_v2, "cuStreamDestroy", 4000, 0, (CUstream stream)) \
    HOOK(CUDA, CUresult, cuLaunchCooperativeKernelMultiDevice, "cuLaunchCooperativeKernelMultiDevice", 9000, 0, \
         (CUDA_LAUNCH_PARAMS *launches, unsigned int count, unsigned int flags)) \
    HOOK(CUDA, CUresult, cuLaunch, "cuLaunch", 2000, 0, \
         (CUfunction function)) \
    HOOK(CUDA, CUresult, cuLaunchGrid, "cuLaunchGrid", 2000, 0, \
         (CUfunction function, int width, int height)) \
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
    HOOK(CUDA, CUresult, cuMemAllocAsync, "cuMemAllocAsync", 11020, 0, \
         (CUdeviceptr *address, size_t bytes, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemAllocAsync_ptsz, "cuMemAllocAsync", 11020, 2, \
         (CUdeviceptr *address, size_t bytes, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020, 0, \
         (CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemAllocFromPoolAsync_ptsz, "cuMemAllocFromPoolAsync", 11020, 2, \
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
    HOOK(CUDA, CUresult, cuStreamSynchronize, "cuStreamSynchronize", 2000, 0, (CUstream stream)) \
    HOOK(CUDA, CUresult, cuStreamSynchronize_ptsz, "cuStreamSynchronize", 7000, 2, (CUstream stream)) \
    HOOK(CUDA, CUresult, cuEventRecord, "cuEventRecord", 2000, 0, (CUevent event, CUstream stream)) \
    HOOK(CUDA, CUresult, cuEventRecord_ptsz, "cuEventRecord", 7000, 2, (CUevent event, CUstream stream)) \
    HOOK(CUDA, CUresult, cuEventRecordWithFlags, "cuEventRecordWithFlags", 11010, 0, \
         (CUevent event, CUstream stream, unsigned int flags)) \
    HOOK(CUDA, CUresult, cuEventRecordWithFlags_ptsz, "cuEventRecordWithFlags", 11010, 2, \
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
    HOOK(CUDA, CUresult, cuGraphInstantiateWithParams, "cuGraphInstantiateWithParams", 12000, 0, \
         (CUgraphExec *created, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)) \
    HOOK(CUDA, CUresult, cuGraphInstantiateWithParams_ptsz, "cuGraphInstantiateWithParams", 12000, 2, \
         (CUgraphExec *created, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)) \
    HOOK(CUDA, CUresult, cuGraphUpload, "cuGraphUpload", 11010, 0, (CUgraphExec graph, CUstream stream)) \
    HOOK(CUDA, CUresult, cuGraphUpload_ptsz, "cuGraphUpload", 11010, 2, (CUgraphExec graph, CUstream stream)) \
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
    HOOK(CUDA, CUresult, cuMemMapArrayAsync, "cuMemMapArrayAsync", 11010, 0, \
         (CUarrayMapInfo *list, unsigned int count, CUstream stream)) \
    HOOK(CUDA, CUresult, cuMemMapArrayAsync_ptsz, "cuMemMapArrayAsync", 11010, 2, \
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
         (nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples, unsigned int *count, \
          unsigned long long since)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetProcessesUtilizationInfo, NULL, 0, 0, \
         (nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *info)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetSamples, NULL, 0, 0, \
         (nvmlDevice_t device, nvmlSamplingType_t type, unsigned long long since, nvmlValueType_t *value_type, \
          unsigned int *count, nvmlSample_t *samples)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetEncoderUtilization, NULL, 0, 0, \
         (nvmlDevice_t device, unsigned int *utilization, unsigned int *period)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetDecoderUtilization, NULL, 0, 0, \
         (nvmlDevice_t device, unsigned int *utilization, unsigned int *period)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetJpgUtilization, NULL, 0, 0, \
         (nvmlDevice_t device, unsigned int *utilization, unsigned int *period)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetOfaUtilization, NULL, 0, 0, \
         (nvmlDevice_t device, unsigned int *utilization, unsigned int *period)) \
    HOOK(NVML, nvmlReturn_t, nvmlGpmQueryDeviceSupport, NULL, 0, 0, \
         (nvmlDevice_t device, nvmlGpmSupport_t *support)) \
    HOOK(NVML, nvmlReturn_t, nvmlGpmSampleGet, NULL, 0, 0, (nvmlDevice_t device, nvmlGpmSample_t sample)) \
    HOOK(NVML, nvmlReturn_t, nvmlGpmMigSampleGet, NULL, 0, 0, \
         (nvmlDevice_t device, unsigned int instance, nvmlGpmSample_t sample)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceGetMemoryLimits_v1, NULL, 0, 0, \
         (nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits)) \
    HOOK(NVML, nvmlReturn_t, nvmlDeviceSetMemoryLimits_v1, NULL, 0, 0, \
         (nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits)) \
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
    CALLED(CUDA, CUresult, cuStreamCreate, (CUstream *stream, unsigned int flags)) \
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
    CALLED(CUDA, CUresult, cuDeviceGetDefaultMemPool, (CUmemoryPool *pool, CUdevice device)) \
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
