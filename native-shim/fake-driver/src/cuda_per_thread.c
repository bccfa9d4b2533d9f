/*
 * The per-thread-default-stream flavours of functions to which it matters which stream NULL means: there it is the
 * calling thread's own. _ptsz are those with a stream, _ptds those that work on the default stream and wait for it.
 */
#include "cuda_work.h"

#define OWN(stream) ((stream) == NULL ? PER_THREAD_STREAM : (stream))

#define PTSZ(plain, parameters, arguments)                                                                             \
    CUresult plain parameters;                                                                                         \
    API CUresult plain##_ptsz parameters {                                                                             \
        return plain arguments;                                                                                        \
    }

PTSZ(cuStreamQuery, (CUstream stream), (OWN(stream)))
PTSZ(cuStreamSynchronize, (CUstream stream), (OWN(stream)))
PTSZ(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *status), (OWN(stream), status))
PTSZ(cuStreamGetId, (CUstream stream, unsigned long long *id), (OWN(stream), id))
PTSZ(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags), (OWN(stream), event, flags))
PTSZ(cuStreamAttachMemAsync, (CUstream stream, CUdeviceptr pointer, size_t length, unsigned int flags),
     (OWN(stream), pointer, length, flags))
PTSZ(cuStreamAddCallback, (CUstream stream, CUstreamCallback callback, void *data, unsigned int flags),
     (OWN(stream), callback, data, flags))
PTSZ(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data), (OWN(stream), function, data))
PTSZ(cuEventRecord, (CUevent event, CUstream stream), (event, OWN(stream)))
PTSZ(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned int flags), (event, OWN(stream), flags))

PTSZ(cuLaunchKernel,
     (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
      unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **parameters,
      void **extra),
     (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, OWN(stream), parameters, extra))
PTSZ(cuLaunchCooperativeKernel,
     (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
      unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **parameters),
     (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, OWN(stream), parameters))

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra);
API CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra) {
    if (config == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUlaunchConfig own = *config;
    own.hStream = OWN(config->hStream);
    return cuLaunchKernelEx(&own, function, parameters, extra);
}

PTSZ(cuStreamBeginCapture, (CUstream stream), (OWN(stream)))
PTSZ(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), (OWN(stream), mode))
PTSZ(cuStreamBeginCaptureToGraph,
     (CUstream stream, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *data, size_t count,
      CUstreamCaptureMode mode),
     (OWN(stream), graph, dependencies, data, count, mode))
PTSZ(cuStreamEndCapture, (CUstream stream, CUgraph *graph), (OWN(stream), graph))
PTSZ(cuStreamGetCaptureInfo, (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id),
     (OWN(stream), status, id))
PTSZ(cuStreamGetCaptureInfo_v2,
     (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **dependencies,
      size_t *count),
     (OWN(stream), status, id, graph, dependencies, count))
PTSZ(cuStreamGetCaptureInfo_v3,
     (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **dependencies,
      const CUgraphEdgeData **data, size_t *count),
     (OWN(stream), status, id, graph, dependencies, data, count))
PTSZ(cuStreamUpdateCaptureDependencies, (CUstream stream, CUgraphNode *dependencies, size_t count, unsigned int flags),
     (OWN(stream), dependencies, count, flags))
PTSZ(cuStreamUpdateCaptureDependencies_v2,
     (CUstream stream, CUgraphNode *dependencies, const CUgraphEdgeData *data, size_t count, unsigned int flags),
     (OWN(stream), dependencies, data, count, flags))
PTSZ(cuGraphLaunch, (CUgraphExec exec, CUstream stream), (exec, OWN(stream)))
PTSZ(cuGraphUpload, (CUgraphExec exec, CUstream stream), (exec, OWN(stream)))

CUresult cuGraphInstantiateWithParams(CUgraphExec *made, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params);
API CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *made, CUgraph graph,
                                               CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
    if (params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    params->hUploadStream = OWN(params->hUploadStream);
    return cuGraphInstantiateWithParams(made, graph, params);
}

PTSZ(cuMemAllocAsync, (CUdeviceptr * pointer, size_t bytes, CUstream stream), (pointer, bytes, OWN(stream)))
PTSZ(cuMemAllocFromPoolAsync, (CUdeviceptr * pointer, size_t bytes, CUmemoryPool pool, CUstream stream),
     (pointer, bytes, pool, OWN(stream)))
PTSZ(cuMemFreeAsync, (CUdeviceptr pointer, CUstream stream), (pointer, OWN(stream)))

#define PAIR(symbol, asynchronous, to_type, from_type)                                                                 \
    PTSZ(asynchronous, (to_type to, from_type from, size_t bytes, CUstream stream), (to, from, bytes, OWN(stream)))    \
    API CUresult symbol##_ptds(to_type to, from_type from, size_t bytes) {                                             \
        return finished(asynchronous(to, from, bytes, PER_THREAD_STREAM));                                             \
    }
#define SHAPE(symbol, asynchronous, type)                                                                              \
    PTSZ(asynchronous, (const type *shape, CUstream stream), (shape, OWN(stream)))                                     \
    API CUresult symbol##_ptds(const type *shape) {                                                                    \
        return finished(asynchronous(shape, PER_THREAD_STREAM));                                                       \
    }
#define FILL(bits, type)                                                                                               \
    PTSZ(cuMemsetD##bits##Async, (CUdeviceptr to, type value, size_t count, CUstream stream),                          \
         (to, value, count, OWN(stream)))                                                                              \
    API CUresult cuMemsetD##bits##_v2_ptds(CUdeviceptr to, type value, size_t count) {                                 \
        return cuMemsetD##bits##Async(to, value, count, PER_THREAD_STREAM);                                            \
    }                                                                                                                  \
    PTSZ(cuMemsetD2D##bits##Async,                                                                                     \
         (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, CUstream stream),                     \
         (to, pitch, value, width, height, OWN(stream)))                                                               \
    API CUresult cuMemsetD2D##bits##_v2_ptds(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height) {  \
        return cuMemsetD2D##bits##Async(to, pitch, value, width, height, PER_THREAD_STREAM);                           \
    }

static CUresult finished(CUresult result) {
    return result == CUDA_SUCCESS ? cuStreamSynchronize(PER_THREAD_STREAM) : result;
}

PAIR(cuMemcpy, cuMemcpyAsync, CUdeviceptr, CUdeviceptr)
PAIR(cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, CUdeviceptr, const void *)
PAIR(cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, void *, CUdeviceptr)
PAIR(cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr)
SHAPE(cuMemcpy2D_v2, cuMemcpy2DAsync_v2, CUDA_MEMCPY2D)
SHAPE(cuMemcpy3D_v2, cuMemcpy3DAsync_v2, CUDA_MEMCPY3D)
FILL(8, unsigned char)
FILL(16, unsigned short)
FILL(32, unsigned int)

API CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D *shape) {
    return cuMemcpy2D_v2_ptds(shape);
}

PTSZ(cuMemcpyPeerAsync,
     (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes, CUstream stream),
     (to, to_context, from, from_context, bytes, OWN(stream)))
API CUresult cuMemcpyPeer_ptds(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                               size_t bytes) {
    return finished(cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, PER_THREAD_STREAM));
}
