/*
 * The part of CUDA's driver API and of NVML that the shim uses, declared from their public ABI so that the build needs
 * no CUDA toolkit. test/abi_check.c and nvml_abi_check.c compare it with NVIDIA's cuda.h and nvml.h where they are
 * installed. Sources: cuda.h and cudaTypedefs.h of CUDA 12.9 and 13.0; nvml.h of CUDA 13.5 (nvidia-nvml-dev on PyPI).
 */
#ifndef ALIQUOT_ABI_H
#define ALIQUOT_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifndef ALIQUOT_CUDA_H_INCLUDED /* defined by the check, which includes NVIDIA's header */

typedef enum cudaError_enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_NOT_PERMITTED = 800,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_UNKNOWN = 999,
} CUresult;

typedef enum CUdriverProcAddressQueryResult_enum {
    CU_GET_PROC_ADDRESS_SUCCESS = 0,
    CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
    CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2,
} CUdriverProcAddressQueryResult;

typedef int CUdevice;
typedef unsigned int CUdeviceptr_v1;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUuuid_st {
    char bytes[16];
} CUuuid;
typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;

/* Launches, timing events, graphs and stream capture. */
#define CUDA_ERROR_ILLEGAL_STATE ((CUresult)401)
#define CUDA_ERROR_NOT_READY ((CUresult)600)
#define CU_STREAM_PER_THREAD ((CUstream)2)
/* The stream that a _ptsz function means: it interprets stream 0 as the calling thread's default stream. */
static inline CUstream aliquot_per_thread(CUstream stream) {
    return stream == NULL ? CU_STREAM_PER_THREAD : stream;
}
#define CU_STREAM_NON_BLOCKING 1u
typedef struct CUfunc_st *CUfunction;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphEdgeData_st CUgraphEdgeData;
typedef struct CUlaunchAttribute_st {
    int id;
    char padding[4];
    union {
        char size[64];
        int memSyncDomain;
    } value;
} CUlaunchAttribute;
#define CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN 10
#define CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE 1
typedef struct CUlaunchConfig_st {
    unsigned int gridDimX, gridDimY, gridDimZ;
    unsigned int blockDimX, blockDimY, blockDimZ;
    unsigned int sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    unsigned int numAttrs;
} CUlaunchConfig;
typedef struct CUDA_LAUNCH_PARAMS_st {
    CUfunction function;
    unsigned int gridDimX, gridDimY, gridDimZ;
    unsigned int blockDimX, blockDimY, blockDimZ;
    unsigned int sharedMemBytes;
    CUstream hStream;
    void **kernelParams;
} CUDA_LAUNCH_PARAMS;
typedef enum CUstreamCaptureStatus_enum {
    CU_STREAM_CAPTURE_STATUS_NONE = 0,
    CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
    CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2,
} CUstreamCaptureStatus;
typedef enum CUstreamCaptureMode_enum {
    CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
    CU_STREAM_CAPTURE_MODE_RELAXED = 2,
} CUstreamCaptureMode;

/* Memory pools, virtual memory. */
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef unsigned long long CUmemGenericAllocationHandle;

typedef enum CUmemAllocationType_enum {
    CU_MEM_ALLOCATION_TYPE_INVALID = 0,
    CU_MEM_ALLOCATION_TYPE_PINNED = 1,
    CU_MEM_ALLOCATION_TYPE_MANAGED = 2,
} CUmemAllocationType;

typedef enum CUmemAllocationHandleType_enum {
    CU_MEM_HANDLE_TYPE_NONE = 0,
    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1,
} CUmemAllocationHandleType;

typedef enum CUmemLocationType_enum {
    CU_MEM_LOCATION_TYPE_DEVICE = 1,
    CU_MEM_LOCATION_TYPE_HOST = 2,
} CUmemLocationType;

typedef struct CUmemLocation_st {
    CUmemLocationType type;
    int id;
} CUmemLocation;

typedef struct CUmemPoolProps_st {
    CUmemAllocationType allocType;
    CUmemAllocationHandleType handleTypes;
    CUmemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
} CUmemPoolProps;

typedef enum CUdevice_attribute_enum {
    CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,       /* kHz */
    CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37, /* bits */
} CUdevice_attribute;

typedef enum CUpointer_attribute_enum {
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2, /* unsigned int: CUmemorytype; 0: not CUDA's */
} CUpointer_attribute;

typedef void (*CUhostFn)(void *data);
typedef void (*CUstreamCallback)(CUstream stream, CUresult status, void *data);

typedef enum CUmemPool_attribute_enum {
    CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4,
    CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
} CUmemPool_attribute;

typedef struct CUmemAllocationProp_st {
    CUmemAllocationType type;
    CUmemAllocationHandleType requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType;
        unsigned char gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
} CUmemAllocationProp;

/* Arrays. */
/* Memory that another API allocated. */
typedef struct CUextMemory_st *CUexternalMemory;

typedef enum CUexternalMemoryHandleType_enum {
    CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD = 1,
    CU_EXTERNAL_MEMORY_HANDLE_TYPE_NVSCIBUF = 8,
} CUexternalMemoryHandleType;

typedef struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st {
    CUexternalMemoryHandleType type;
    union {
        int fd;
        struct {
            void *handle;
            const void *name;
        } win32;
        const void *nvSciBufObject;
    } handle;
    unsigned long long size;
    unsigned int flags;
    unsigned int reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC;

/* Contexts. */
typedef enum CUlimit_enum {
    CU_LIMIT_STACK_SIZE = 0,
    CU_LIMIT_PRINTF_FIFO_SIZE = 1,
    CU_LIMIT_MALLOC_HEAP_SIZE = 2,
} CUlimit;

/* Parameters of functions that the shim only forwards; for the callback see cuda.h, CUgraphRecaptureCallback. */
typedef struct CUstreamCigCaptureParams_st CUstreamCigCaptureParams;
typedef CUresult (*CUgraphRecaptureCallback)(void *data, CUgraphNode node, const void *original, const void *recaptured,
                                             int status);

typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;

typedef struct CUarray_st *CUarray;
typedef struct CUmipmappedArray_st *CUmipmappedArray;

typedef enum CUarray_format_enum {
    CU_AD_FORMAT_UNSIGNED_INT8 = 0x01,
    CU_AD_FORMAT_UNSIGNED_INT32 = 0x03,
    CU_AD_FORMAT_FLOAT = 0x20,
} CUarray_format;

/* The first ABI of a structure has 32 bits where later ones have 64. */
#define ALIQUOT_ARRAY_DESCRIPTOR(size)                                                                                 \
    {                                                                                                                  \
        size Width, Height;                                                                                            \
        CUarray_format Format;                                                                                         \
        unsigned int NumChannels;                                                                                      \
    }
#define ALIQUOT_ARRAY3D_DESCRIPTOR(size)                                                                               \
    {                                                                                                                  \
        size Width, Height, Depth;                                                                                     \
        CUarray_format Format;                                                                                         \
        unsigned int NumChannels, Flags;                                                                               \
    }
typedef struct CUDA_ARRAY_DESCRIPTOR_v1_st ALIQUOT_ARRAY_DESCRIPTOR(unsigned int) CUDA_ARRAY_DESCRIPTOR_v1;
typedef struct CUDA_ARRAY_DESCRIPTOR_st ALIQUOT_ARRAY_DESCRIPTOR(size_t) CUDA_ARRAY_DESCRIPTOR_v2;
typedef struct CUDA_ARRAY3D_DESCRIPTOR_v1_st ALIQUOT_ARRAY3D_DESCRIPTOR(unsigned int) CUDA_ARRAY3D_DESCRIPTOR_v1;
typedef struct CUDA_ARRAY3D_DESCRIPTOR_st ALIQUOT_ARRAY3D_DESCRIPTOR(size_t) CUDA_ARRAY3D_DESCRIPTOR_v2;

#define CUDA_ARRAY3D_LAYERED 0x01
#define CUDA_ARRAY3D_CUBEMAP 0x04
#define CUDA_ARRAY3D_SPARSE 0x40
#define CUDA_ARRAY3D_DEFERRED_MAPPING 0x80

typedef struct CUDA_ARRAY_MEMORY_REQUIREMENTS_st {
    size_t size;
    size_t alignment;
    unsigned int reserved[4];
} CUDA_ARRAY_MEMORY_REQUIREMENTS;

typedef enum CUresourcetype_enum {
    CU_RESOURCE_TYPE_ARRAY = 0,
    CU_RESOURCE_TYPE_MIPMAPPED_ARRAY = 1,
} CUresourcetype;
typedef enum CUarraySparseSubresourceType_enum {
    CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL = 0,
    CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL = 1,
} CUarraySparseSubresourceType;
typedef enum CUmemOperationType_enum {
    CU_MEM_OPERATION_TYPE_MAP = 1,
    CU_MEM_OPERATION_TYPE_UNMAP = 2,
} CUmemOperationType;
typedef enum CUmemHandleType_enum { CU_MEM_HANDLE_TYPE_GENERIC = 0 } CUmemHandleType;

typedef struct CUarrayMapInfo_st {
    CUresourcetype resourceType;
    union {
        CUmipmappedArray mipmap;
        CUarray array;
    } resource;
    CUarraySparseSubresourceType subresourceType;
    union {
        struct {
            unsigned int level, layer, offsetX, offsetY, offsetZ, extentWidth, extentHeight, extentDepth;
        } sparseLevel;
        struct {
            unsigned int layer;
            unsigned long long offset, size;
        } miptail;
    } subresource;
    CUmemOperationType memOperationType;
    CUmemHandleType memHandleType;
    union {
        CUmemGenericAllocationHandle memHandle;
    } memHandle;
    unsigned long long offset;
    unsigned int deviceBitMask;
    unsigned int flags;
    unsigned int reserved[2];
} CUarrayMapInfo;

/* Copies. */
typedef enum CUmemorytype_enum {
    CU_MEMORYTYPE_HOST = 1,
    CU_MEMORYTYPE_DEVICE = 2,
    CU_MEMORYTYPE_ARRAY = 3,
    CU_MEMORYTYPE_UNIFIED = 4,
} CUmemorytype;

#define ALIQUOT_MEMCPY2D(size, address)                                                                                \
    {                                                                                                                  \
        size srcXInBytes, srcY;                                                                                        \
        CUmemorytype srcMemoryType;                                                                                    \
        const void *srcHost;                                                                                           \
        address srcDevice;                                                                                             \
        CUarray srcArray;                                                                                              \
        size srcPitch;                                                                                                 \
        size dstXInBytes, dstY;                                                                                        \
        CUmemorytype dstMemoryType;                                                                                    \
        void *dstHost;                                                                                                 \
        address dstDevice;                                                                                             \
        CUarray dstArray;                                                                                              \
        size dstPitch;                                                                                                 \
        size WidthInBytes, Height;                                                                                     \
    }
typedef struct CUDA_MEMCPY2D_v1_st ALIQUOT_MEMCPY2D(unsigned int, CUdeviceptr_v1) CUDA_MEMCPY2D_v1;
typedef struct CUDA_MEMCPY2D_st ALIQUOT_MEMCPY2D(size_t, CUdeviceptr) CUDA_MEMCPY2D_v2;

#define ALIQUOT_MEMCPY3D(size, address, source, destination)                                                           \
    {                                                                                                                  \
        size srcXInBytes, srcY, srcZ, srcLOD;                                                                          \
        CUmemorytype srcMemoryType;                                                                                    \
        const void *srcHost;                                                                                           \
        address srcDevice;                                                                                             \
        CUarray srcArray;                                                                                              \
        source;                                                                                                        \
        size srcPitch, srcHeight;                                                                                      \
        size dstXInBytes, dstY, dstZ, dstLOD;                                                                          \
        CUmemorytype dstMemoryType;                                                                                    \
        void *dstHost;                                                                                                 \
        address dstDevice;                                                                                             \
        CUarray dstArray;                                                                                              \
        destination;                                                                                                   \
        size dstPitch, dstHeight;                                                                                      \
        size WidthInBytes, Height, Depth;                                                                              \
    }
typedef struct CUDA_MEMCPY3D_v1_st ALIQUOT_MEMCPY3D(unsigned int, CUdeviceptr_v1, void *reserved0,
                                                    void *reserved1) CUDA_MEMCPY3D_v1;
typedef struct CUDA_MEMCPY3D_st ALIQUOT_MEMCPY3D(size_t, CUdeviceptr, void *reserved0,
                                                 void *reserved1) CUDA_MEMCPY3D_v2;
typedef struct CUDA_MEMCPY3D_PEER_st ALIQUOT_MEMCPY3D(size_t, CUdeviceptr, CUcontext srcContext,
                                                      CUcontext dstContext) CUDA_MEMCPY3D_PEER;

typedef struct CUmemcpyAttributes_st CUmemcpyAttributes;

typedef enum CUmemcpy3DOperandType_enum {
    CU_MEMCPY_OPERAND_TYPE_POINTER = 1,
    CU_MEMCPY_OPERAND_TYPE_ARRAY = 2,
} CUmemcpy3DOperandType;

typedef struct CUmemcpy3DOperand_st {
    CUmemcpy3DOperandType type;
    union {
        struct {
            CUdeviceptr ptr;
            size_t rowLength, layerHeight;
            CUmemLocation locHint;
        } ptr;
        struct {
            CUarray array;
            struct {
                size_t x, y, z;
            } offset;
        } array;
    } op;
} CUmemcpy3DOperand;

typedef struct CUDA_MEMCPY3D_BATCH_OP_st {
    CUmemcpy3DOperand src, dst;
    struct {
        size_t width, height, depth;
    } extent; /* bytes between pointers, otherwise elements of the array */
    int srcAccessOrder;
    unsigned int flags;
} CUDA_MEMCPY3D_BATCH_OP;

/* Waits of streams, which the shim only forwards. */
typedef struct CUextSemaphore_st *CUexternalSemaphore;
typedef struct CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_st CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS;
typedef union CUstreamBatchMemOpParams_union CUstreamBatchMemOpParams;

/* Contexts. */
typedef struct CUexecAffinityParam_st CUexecAffinityParam;
typedef struct CUctxCreateParams_st CUctxCreateParams;

/* Graph memory. */
typedef struct CUDA_GRAPH_INSTANTIATE_PARAMS_st CUDA_GRAPH_INSTANTIATE_PARAMS;
typedef enum CUgraphNodeType_enum {
    CU_GRAPH_NODE_TYPE_KERNEL = 0,
    CU_GRAPH_NODE_TYPE_GRAPH = 4,
    CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10,
} CUgraphNodeType;
typedef struct CUmemAccessDesc_st CUmemAccessDesc;
typedef struct CUDA_MEM_ALLOC_NODE_PARAMS_v1_st {
    CUmemPoolProps poolProps;
    const CUmemAccessDesc *accessDescs;
    size_t accessDescCount;
    size_t bytesize;
    CUdeviceptr dptr;
} CUDA_MEM_ALLOC_NODE_PARAMS;
typedef enum CUgraphMem_attribute_enum {
    CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT = 0,
    CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT = 2,
} CUgraphMem_attribute;

#endif

/* Size of each structure, and the offset of one member. The check compares the same with NVIDIA's headers. */
#define ALIQUOT_LAYOUTS(LAYOUT)                                                                                        \
    LAYOUT(CUmemPoolProps, 88, usage, 32)                                                                              \
    LAYOUT(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, 104, size, 24)                                                            \
    LAYOUT(CUmemAllocationProp, 32, location, 8)                                                                       \
    LAYOUT(CUDA_ARRAY_DESCRIPTOR_v1, 16, Format, 8)                                                                    \
    LAYOUT(CUDA_ARRAY_DESCRIPTOR_v2, 24, Format, 16)                                                                   \
    LAYOUT(CUDA_ARRAY3D_DESCRIPTOR_v1, 24, Flags, 20)                                                                  \
    LAYOUT(CUDA_ARRAY3D_DESCRIPTOR_v2, 40, Flags, 32)                                                                  \
    LAYOUT(CUDA_ARRAY_MEMORY_REQUIREMENTS, 32, size, 0)                                                                \
    LAYOUT(CUDA_MEMCPY2D_v1, 96, Height, 88)                                                                           \
    LAYOUT(CUDA_MEMCPY2D_v2, 128, Height, 120)                                                                         \
    LAYOUT(CUDA_MEMCPY3D_v1, 144, Depth, 136)                                                                          \
    LAYOUT(CUDA_MEMCPY3D_v2, 200, Depth, 192)                                                                          \
    LAYOUT(CUDA_MEMCPY3D_PEER, 200, Depth, 192)                                                                        \
    LAYOUT(CUDA_MEMCPY3D_BATCH_OP, 112, extent, 80)                                                                    \
    LAYOUT(CUarrayMapInfo, 96, memHandle, 64)                                                                          \
    LAYOUT(CUDA_MEM_ALLOC_NODE_PARAMS, 120, bytesize, 104)
#define ALIQUOT_CHECK_LAYOUT(type, bytes, member, offset)                                                              \
    _Static_assert(sizeof(type) == (bytes) && offsetof(type, member) == (offset), #type);
#ifndef ALIQUOT_CUDA_H_INCLUDED
ALIQUOT_LAYOUTS(ALIQUOT_CHECK_LAYOUT)
#endif

#ifndef ALIQUOT_NVML_H_INCLUDED

typedef enum nvmlReturn_enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_LIBRARY_NOT_FOUND = 12,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
} nvmlReturn_t;

typedef enum nvmlEnableState_enum {
    NVML_FEATURE_DISABLED = 0,
    NVML_FEATURE_ENABLED = 1,
} nvmlEnableState_t;

#define NVML_VALUE_NOT_AVAILABLE (-1)
/* Structures carry their size and version. */
#define NVML_STRUCT_VERSION(data, version) (unsigned int)(sizeof(nvml##data##_v##version##_t) | (version << 24U))

typedef struct nvmlDevice_st *nvmlDevice_t;

/* Bytes. */
typedef struct nvmlMemory_st {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
} nvmlMemory_t;

typedef struct nvmlMemory_v2_st {
    unsigned int version;
    unsigned long long total;
    unsigned long long reserved;
    unsigned long long free;
    unsigned long long used;
} nvmlMemory_v2_t;

typedef struct nvmlProcessInfo_v1_st {
    unsigned int pid;
    unsigned long long usedGpuMemory;
} nvmlProcessInfo_v1_t;

typedef struct nvmlProcessInfo_v2_st {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId;
    unsigned int computeInstanceId;
} nvmlProcessInfo_v2_t, nvmlProcessInfo_t;

typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId;
    unsigned int computeInstanceId;
    unsigned long long usedGpuCcProtectedMemory;
} nvmlProcessDetail_v1_t;

typedef enum nvmlProcessMode_enum {
    NVML_PROCESS_MODE_COMPUTE = 0,
    NVML_PROCESS_MODE_GRAPHICS = 1,
    NVML_PROCESS_MODE_MPS = 2,
    NVML_PROCESS_MODE_ALL = 3,
} nvmlProcessMode_t;

typedef struct {
    unsigned int version; /* nvmlProcessDetailList_v1 */
    unsigned int mode;
    unsigned int numProcArrayEntries;
    nvmlProcessDetail_v1_t *procArray;
} nvmlProcessDetailList_v1_t, nvmlProcessDetailList_t;
#define nvmlProcessDetailList_v1 NVML_STRUCT_VERSION(ProcessDetailList, 1)

typedef enum nvmlSamplingType_enum {
    NVML_GPU_UTILIZATION_SAMPLES = 1,
    NVML_MEMORY_UTILIZATION_SAMPLES = 2,
    NVML_ENC_UTILIZATION_SAMPLES = 3,
    NVML_DEC_UTILIZATION_SAMPLES = 4,
    NVML_JPG_UTILIZATION_SAMPLES = 8,
    NVML_OFA_UTILIZATION_SAMPLES = 9,
} nvmlSamplingType_t;

typedef enum nvmlValueType_enum {
    NVML_VALUE_TYPE_UNSIGNED_INT = 1,
} nvmlValueType_t;

typedef union nvmlValue_st {
    double dVal;
    unsigned int uiVal;
    unsigned long long ullVal;
} nvmlValue_t;

typedef struct nvmlSample_st {
    unsigned long long timeStamp; /* us since 1970 */
    nvmlValue_t sampleValue;
} nvmlSample_t;

/* GPU performance monitoring. */
typedef struct nvmlGpmSample_st *nvmlGpmSample_t;

typedef struct {
    unsigned int version;
    unsigned int isSupportedDevice;
} nvmlGpmSupport_t;

/* Percent. */
typedef struct nvmlUtilization_st {
    unsigned int gpu;
    unsigned int memory;
} nvmlUtilization_t;

typedef struct nvmlProcessUtilizationSample_st {
    unsigned int pid;
    unsigned long long timeStamp; /* us since 1970 */
    unsigned int smUtil;
    unsigned int memUtil;
    unsigned int encUtil;
    unsigned int decUtil;
} nvmlProcessUtilizationSample_t;

typedef struct {
    unsigned long long timeStamp;
    unsigned int pid;
    unsigned int smUtil;
    unsigned int memUtil;
    unsigned int encUtil;
    unsigned int decUtil;
    unsigned int jpgUtil;
    unsigned int ofaUtil;
} nvmlProcessUtilizationInfo_v1_t;

typedef struct {
    unsigned int version; /* nvmlProcessesUtilizationInfo_v1 */
    unsigned int processSamplesCount;
    unsigned long long lastSeenTimeStamp;
    nvmlProcessUtilizationInfo_v1_t *procUtilArray;
} nvmlProcessesUtilizationInfo_v1_t, nvmlProcessesUtilizationInfo_t;
#define nvmlProcessesUtilizationInfo_v1 NVML_STRUCT_VERSION(ProcessesUtilizationInfo, 1)

typedef struct nvmlAccountingStats_st {
    unsigned int gpuUtilization;    /* percent */
    unsigned int memoryUtilization; /* percent */
    unsigned long long maxMemoryUsage;
    unsigned long long time;      /* ms, 0 while it runs */
    unsigned long long startTime; /* us since 1970 */
    unsigned int isRunning;
    unsigned int reserved[5];
} nvmlAccountingStats_t;

typedef struct {
    unsigned int pid; /* set by the caller */
    unsigned int isRunning;
    unsigned int gpuUtilization;
    unsigned int memoryUtilization;
    unsigned long long maxMemoryUsage;
    unsigned int sampleCount;
    unsigned long long sumGpuUtil; /* percent times 100 */
    unsigned long long sumFbUtil;
    unsigned long long time;
    unsigned long long startTime;
} nvmlAccountingStats_v2_t;

#endif

/* Memory limits of a cgroup; since r615 (nvml.h 13.4). */
#ifndef NVML_DEVICE_MEMORY_LIMIT_MAX
typedef struct {
    const char *nameSpace; /* path of the cgroup */
    unsigned long long softLimit;
    unsigned long long hardLimit;
} nvmlSetMemoryLimits_v1_t;

typedef struct {
    const char *nameSpace; /* path of the cgroup, set by the caller */
    unsigned long long softLimit;
    unsigned long long hardLimit;
    unsigned long long currentUsed;
} nvmlGetMemoryLimits_v1_t;
#endif

#define NVML_DEVICE_UUID_V2_BUFFER_SIZE 96

#endif
