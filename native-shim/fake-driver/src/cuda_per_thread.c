/*
 * The per-thread-default-stream variants of functions for which a NULL stream matters: in them it is the calling
 * thread's own stream. Names in _ptsz have a stream parameter; names in _ptds run synchronously in the default stream.
 */
#include "cuda_work.h"

#define OR_PER_THREAD(stream) ((stream) == NULL ? PER_THREAD_STREAM : (stream))

#define PTSZ(plain, parameters, arguments)                                                                             \
    CUresult plain parameters;                                                                                         \
    API CUresult plain##_ptsz parameters {                                                                             \
        return plain arguments;                                                                                        \
    }

PTSZ(cuStreamQuery, (CUstream stream), (OR_PER_THREAD(stream)))
PTSZ(cuStreamSynchronize, (CUstream stream), (OR_PER_THREAD(stream)))
PTSZ(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *status), (OR_PER_THREAD(stream), status))
PTSZ(cuStreamGetId, (CUstream stream, unsigned long long *id), (OR_PER_THREAD(stream), id))
PTSZ(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags), (OR_PER_THREAD(stream), event, flags))
PTSZ(cuStreamAddCallback, (CUstream stream, CUstreamCallback callback, void *data, unsigned int flags),
     (OR_PER_THREAD(stream), callback, data, flags))
PTSZ(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data), (OR_PER_THREAD(stream), function, data))
PTSZ(cuEventRecord, (CUevent event, CUstream stream), (event, OR_PER_THREAD(stream)))
PTSZ(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned int flags),
     (event, OR_PER_THREAD(stream), flags))

PTSZ(cuLaunchKernel,
     (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
      unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **parameters,
      void **extra),
     (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, OR_PER_THREAD(stream), parameters,
      extra))
PTSZ(cuLaunchCooperativeKernel,
     (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
      unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **parameters),
     (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, OR_PER_THREAD(stream), parameters))

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra);
API CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra) {
    if (config == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUlaunchConfig exec_config = *config;
    exec_config.hStream = OR_PER_THREAD(config->hStream);
    return cuLaunchKernelEx(&exec_config, function, parameters, extra);
}

PTSZ(cuStreamBeginCapture, (CUstream stream), (OR_PER_THREAD(stream)))
PTSZ(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), (OR_PER_THREAD(stream), mode))
PTSZ(cuStreamBeginCaptureToGraph,
     (CUstream stream, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *data, size_t count,
      CUstreamCaptureMode mode),
     (OR_PER_THREAD(stream), graph, dependencies, data, count, mode))
PTSZ(cuStreamEndCapture, (CUstream stream, CUgraph *graph), (OR_PER_THREAD(stream), graph))
PTSZ(cuStreamGetCaptureInfo, (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id),
     (OR_PER_THREAD(stream), status, id))
PTSZ(cuStreamGetCaptureInfo_v2,
     (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **dependencies,
      size_t *count),
     (OR_PER_THREAD(stream), status, id, graph, dependencies, count))
PTSZ(cuStreamGetCaptureInfo_v3,
     (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **dependencies,
      const CUgraphEdgeData **data, size_t *count),
     (OR_PER_THREAD(stream), status, id, graph, dependencies, data, count))
PTSZ(cuStreamUpdateCaptureDependencies, (CUstream stream, CUgraphNode *dependencies, size_t count, unsigned int flags),
     (OR_PER_THREAD(stream), dependencies, count, flags))
PTSZ(cuStreamUpdateCaptureDependencies_v2,
     (CUstream stream, CUgraphNode *dependencies, const CUgraphEdgeData *data, size_t count, unsigned int flags),
     (OR_PER_THREAD(stream), dependencies, data, count, flags))
PTSZ(cuGraphLaunch, (CUgraphExec exec, CUstream stream), (exec, OR_PER_THREAD(stream)))
PTSZ(cuGraphUpload, (CUgraphExec exec, CUstream stream), (exec, OR_PER_THREAD(stream)))

CUresult cuGraphInstantiateWithParams(CUgraphExec *made, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params);
API CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *made, CUgraph graph,
                                               CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
    if (params == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    params->hUploadStream = OR_PER_THREAD(params->hUploadStream);
    return cuGraphInstantiateWithParams(made, graph, params);
}

PTSZ(cuMemAllocAsync, (CUdeviceptr * pointer, size_t bytes, CUstream stream), (pointer, bytes, OR_PER_THREAD(stream)))
PTSZ(cuMemAllocFromPoolAsync, (CUdeviceptr * pointer, size_t bytes, CUmemoryPool pool, CUstream stream),
     (pointer, bytes, pool, OR_PER_THREAD(stream)))
PTSZ(cuMemFreeAsync, (CUdeviceptr pointer, CUstream stream), (pointer, OR_PER_THREAD(stream)))

PTSZ(cuMemPrefetchAsync, (CUdeviceptr pointer, size_t bytes, CUdevice to, CUstream stream),
     (pointer, bytes, to, OR_PER_THREAD(stream)))
PTSZ(cuMemPrefetchAsync_v2, (CUdeviceptr pointer, size_t bytes, CUmemLocation to, unsigned int flags, CUstream stream),
     (pointer, bytes, to, flags, OR_PER_THREAD(stream)))

#define COPY(symbol, asynchronous, to_type, from_type)                                                                 \
    PTSZ(asynchronous, (to_type to, from_type from, size_t bytes, CUstream stream),                                    \
         (to, from, bytes, OR_PER_THREAD(stream)))                                                                     \
    API CUresult symbol##_ptds(to_type to, from_type from, size_t bytes) {                                             \
        return synchronized(asynchronous(to, from, bytes, PER_THREAD_STREAM));                                         \
    }
#define COPY_SHAPE(symbol, asynchronous, type)                                                                         \
    PTSZ(asynchronous, (const type *shape, CUstream stream), (shape, OR_PER_THREAD(stream)))                           \
    API CUresult symbol##_ptds(const type *shape) {                                                                    \
        return synchronized(asynchronous(shape, PER_THREAD_STREAM));                                                   \
    }
#define MEMSET(bits, type)                                                                                             \
    PTSZ(cuMemsetD##bits##Async, (CUdeviceptr to, type value, size_t count, CUstream stream),                          \
         (to, value, count, OR_PER_THREAD(stream)))                                                                    \
    API CUresult cuMemsetD##bits##_v2_ptds(CUdeviceptr to, type value, size_t count) {                                 \
        return cuMemsetD##bits##Async(to, value, count, PER_THREAD_STREAM);                                            \
    }                                                                                                                  \
    PTSZ(cuMemsetD2D##bits##Async,                                                                                     \
         (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, CUstream stream),                     \
         (to, pitch, value, width, height, OR_PER_THREAD(stream)))                                                     \
    API CUresult cuMemsetD2D##bits##_v2_ptds(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height) {  \
        return cuMemsetD2D##bits##Async(to, pitch, value, width, height, PER_THREAD_STREAM);                           \
    }

static CUresult synchronized(CUresult result) {
    return result == CUDA_SUCCESS ? cuStreamSynchronize(PER_THREAD_STREAM) : result;
}

COPY(cuMemcpy, cuMemcpyAsync, CUdeviceptr, CUdeviceptr)
COPY(cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, CUdeviceptr, const void *)
COPY(cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, void *, CUdeviceptr)
COPY(cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr)
COPY_SHAPE(cuMemcpy2D_v2, cuMemcpy2DAsync_v2, CUDA_MEMCPY2D)
COPY_SHAPE(cuMemcpy3D_v2, cuMemcpy3DAsync_v2, CUDA_MEMCPY3D)
MEMSET(8, unsigned char)
MEMSET(16, unsigned short)
MEMSET(32, unsigned int)

API CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D *shape) {
    return cuMemcpy2D_v2_ptds(shape);
}

PTSZ(cuMemcpyPeerAsync,
     (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes, CUstream stream),
     (to, to_context, from, from_context, bytes, OR_PER_THREAD(stream)))
API CUresult cuMemcpyPeer_ptds(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                               size_t bytes) {
    return synchronized(cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, PER_THREAD_STREAM));
}
