/* Compiles against NVIDIA's cuda.h only if every prototype and constant of the shim is equal to NVIDIA's. */
#define __CUDA_API_VERSION_INTERNAL /* makes cuda.h declare the old ABIs, too */
#include <cuda.h>
#define ALIQUOT_CUDA_H_INCLUDED
#include "driver/hooks.h"

#include <assert.h>

#if CUDA_VERSION < 13000 /* older headers do not declare these */
CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type);
CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type);
CUresult cuCtxSynchronize_v2(CUcontext context);
#else
_Static_assert(CU_MEM_ALLOCATION_TYPE_MANAGED == 2, "cuda.h");
#endif

#if CUDA_VERSION < 13000
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *destinations, CUdeviceptr *sources, size_t *bytes, size_t count,
                               CUmemcpyAttributes *attributes, size_t *first, size_t kinds, CUstream stream);
CUresult cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr *destinations, CUdeviceptr *sources, size_t *bytes, size_t count,
                                    CUmemcpyAttributes *attributes, size_t *first, size_t kinds, CUstream stream);
CUresult cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, unsigned long long flags,
                                 CUstream stream);
CUresult cuMemcpy3DBatchAsync_v2_ptsz(size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, unsigned long long flags,
                                      CUstream stream);
#endif
#if CUDA_VERSION < 13020
CUresult cuMemcpyWithAttributesAsync(CUdeviceptr destination, CUdeviceptr source, size_t bytes,
                                     CUmemcpyAttributes *attributes, CUstream stream);
CUresult cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr destination, CUdeviceptr source, size_t bytes,
                                          CUmemcpyAttributes *attributes, CUstream stream);
CUresult cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP *copy, unsigned long long flags, CUstream stream);
CUresult cuMemcpy3DWithAttributesAsync_ptsz(CUDA_MEMCPY3D_BATCH_OP *copy, unsigned long long flags, CUstream stream);
typedef struct CUstreamCigCaptureParams_st CUstreamCigCaptureParams;
CUresult cuStreamBeginCaptureToCig(CUstream stream, CUstreamCigCaptureParams *parameters);
CUresult cuStreamBeginCaptureToCig_ptsz(CUstream stream, CUstreamCigCaptureParams *parameters);
CUresult cuStreamEndCaptureToCig(CUstream stream);
CUresult cuStreamEndCaptureToCig_ptsz(CUstream stream);
#endif
#if CUDA_VERSION < 13030
typedef void *CUgraphRecaptureCallback;
CUresult cuStreamBeginRecaptureToGraph(CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
                                       CUgraphRecaptureCallback callback, void *data);
CUresult cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
                                            CUgraphRecaptureCallback callback, void *data);
#endif

/* A redeclaration with another type is an error. The use before it fails if cuda.h does not declare the function. */
#define CUDA(result, symbol, parameters)                                                                               \
    _Static_assert(sizeof &symbol != 0, #symbol);                                                                      \
    result symbol parameters;
#define NVML(result, symbol, parameters)
#define CHECK_HOOK(library, result, symbol, name, version, flags, parameters) library(result, symbol, parameters)
#define CHECK_CALLED(library, result, symbol, parameters) library(result, symbol, parameters)
ALIQUOT_HOOKS(CHECK_HOOK)
ALIQUOT_CALLED(CHECK_CALLED)
ALIQUOT_LAYOUTS(ALIQUOT_CHECK_LAYOUT)

static_assert(CUDA_SUCCESS == 0 && CUDA_ERROR_INVALID_VALUE == 1 && CUDA_ERROR_OUT_OF_MEMORY == 2, "cuda.h");
static_assert(CUDA_ERROR_NO_DEVICE == 100 && CUDA_ERROR_NOT_PERMITTED == 800 && CUDA_ERROR_NOT_SUPPORTED == 801,
              "cuda.h");
static_assert(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE == 36 && CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH == 37,
              "cuda.h");
static_assert(CU_POINTER_ATTRIBUTE_MEMORY_TYPE == 2 && CU_MEMORYTYPE_HOST == 1 && CU_MEMORYTYPE_DEVICE == 2 &&
                  CU_MEMORYTYPE_ARRAY == 3 && CU_MEMORYTYPE_UNIFIED == 4 && CU_MEMCPY_OPERAND_TYPE_ARRAY == 2,
              "cuda.h");
static_assert(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM == 2, "cuda.h");
static_assert(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT == 5 && CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT == 2, "cuda.h");
static_assert(CU_MEM_LOCATION_TYPE_DEVICE == 1 && CU_MEM_ALLOCATION_TYPE_PINNED == 1, "cuda.h");
static_assert(CU_GRAPH_NODE_TYPE_GRAPH == 4 && CU_GRAPH_NODE_TYPE_MEM_ALLOC == 10, "cuda.h");
static_assert(CU_STREAM_CAPTURE_STATUS_NONE == 0 && CU_STREAM_CAPTURE_MODE_RELAXED == 2, "cuda.h");
static_assert(CU_MEM_OPERATION_TYPE_MAP == 1 && CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL == 1, "cuda.h");
static_assert(CUDA_ARRAY3D_LAYERED == 1 && CUDA_ARRAY3D_CUBEMAP == 4 && CUDA_ARRAY3D_SPARSE == 64 &&
                  CUDA_ARRAY3D_DEFERRED_MAPPING == 128,
              "cuda.h");
static_assert(CU_STREAM_PER_THREAD == (CUstream)2, "cuda.h");
static_assert(sizeof(CUresult) == 4 && sizeof(CUdevice) == 4 && sizeof(CUdeviceptr) == 8 && sizeof(CUuuid) == 16,
              "cuda.h");
