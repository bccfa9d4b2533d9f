/*
 * The hooks of work on streams that is no kernel: rows of hooks.h, with what transfer.c needs to define them.
 *
 *     T(HOOK, symbol, name, version, flags, parameters, arguments, stream, bytes)
 *
 * arguments are the parameters' names; stream is where the work runs; bytes is what it reads and writes in the GPU's
 * memory, by functions of transfer.c.
 *
 * ALIQUOT_TRANSFER is two ABIs of a synchronous function, and ALIQUOT_STREAM_TRANSFER of one with a parameter `stream`:
 * for the legacy default stream, and for per-thread default streams. The forms with _VERSIONS have a third one, from
 * before CUDA 3.2, with parameters of its own (old); the symbols of the others end with _v2.
 */
#ifndef ALIQUOT_TRANSFERS_H
#define ALIQUOT_TRANSFERS_H

/* clang-format off */
#define ALIQUOT_TRANSFER(T, HOOK, symbol, name, version, version_per_thread, parameters, arguments, bytes) \
    T(HOOK, symbol, name, version, 0, parameters, arguments, NULL, bytes) \
    T(HOOK, symbol##_ptds, name, version_per_thread, 2, parameters, arguments, CU_STREAM_PER_THREAD, bytes)
#define ALIQUOT_STREAM_TRANSFER(T, HOOK, symbol, name, version, version_per_thread, parameters, arguments, bytes) \
    T(HOOK, symbol, name, version, 0, parameters, arguments, stream, bytes) \
    T(HOOK, symbol##_ptsz, name, version_per_thread, 2, parameters, arguments, aliquot_per_thread(stream), bytes)
#define ALIQUOT_TRANSFER_VERSIONS(T, HOOK, symbol, version, old, parameters, arguments, bytes) \
    T(HOOK, symbol, #symbol, version, 0, old, arguments, NULL, bytes) \
    ALIQUOT_TRANSFER(T, HOOK, symbol##_v2, #symbol, 3020, 7000, parameters, arguments, bytes)
#define ALIQUOT_STREAM_TRANSFER_VERSIONS(T, HOOK, symbol, version, old, parameters, arguments, bytes) \
    T(HOOK, symbol, #symbol, version, 0, old, arguments, stream, bytes) \
    ALIQUOT_STREAM_TRANSFER(T, HOOK, symbol##_v2, #symbol, 3020, 7000, parameters, arguments, bytes)

#define ALIQUOT_TRANSFERS(T, HOOK) \
    /* copies within the GPU, and from and to the host */ \
    ALIQUOT_TRANSFER(T, HOOK, cuMemcpy, "cuMemcpy", 4000, 7000, \
         (CUdeviceptr destination, CUdeviceptr source, size_t bytes), (destination, source, bytes), \
         copied_between_addresses(source, destination, bytes)) \
    ALIQUOT_STREAM_TRANSFER(T, HOOK, cuMemcpyAsync, "cuMemcpyAsync", 4000, 7000, \
         (CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream), \
         (destination, source, bytes, stream), copied_between_addresses(source, destination, bytes)) \
    ALIQUOT_TRANSFER(T, HOOK, cuMemcpyPeer, "cuMemcpyPeer", 4000, 7000, \
         (CUdeviceptr destination, CUcontext there, CUdeviceptr source, CUcontext here, size_t bytes), \
         (destination, there, source, here, bytes), product(2, bytes, 1)) \
    ALIQUOT_STREAM_TRANSFER(T, HOOK, cuMemcpyPeerAsync, "cuMemcpyPeerAsync", 4000, 7000, \
         (CUdeviceptr destination, CUcontext there, CUdeviceptr source, CUcontext here, size_t bytes, \
          CUstream stream), (destination, there, source, here, bytes, stream), product(2, bytes, 1)) \
    ALIQUOT_TRANSFER_VERSIONS(T, HOOK, cuMemcpyHtoD, 2000, \
         (CUdeviceptr_v1 destination, const void *source, unsigned int bytes), \
         (CUdeviceptr destination, const void *source, size_t bytes), (destination, source, bytes), 0) \
    ALIQUOT_TRANSFER_VERSIONS(T, HOOK, cuMemcpyDtoH, 2000, \
         (void *destination, CUdeviceptr_v1 source, unsigned int bytes), \
         (void *destination, CUdeviceptr source, size_t bytes), (destination, source, bytes), 0) \
    ALIQUOT_TRANSFER_VERSIONS(T, HOOK, cuMemcpyDtoD, 2000, \
         (CUdeviceptr_v1 destination, CUdeviceptr_v1 source, unsigned int bytes), \
         (CUdeviceptr destination, CUdeviceptr source, size_t bytes), (destination, source, bytes), \
         product(2, bytes, 1)) \
    ALIQUOT_STREAM_TRANSFER_VERSIONS(T, HOOK, cuMemcpyHtoDAsync, 2000, \
         (CUdeviceptr_v1 destination, const void *source, unsigned int bytes, CUstream stream), \
         (CUdeviceptr destination, const void *source, size_t bytes, CUstream stream), \
         (destination, source, bytes, stream), 0) \
    ALIQUOT_STREAM_TRANSFER_VERSIONS(T, HOOK, cuMemcpyDtoHAsync, 2000, \
         (void *destination, CUdeviceptr_v1 source, unsigned int bytes, CUstream stream), \
         (void *destination, CUdeviceptr source, size_t bytes, CUstream stream), (destination, source, bytes, stream), \
         0) \
    ALIQUOT_STREAM_TRANSFER_VERSIONS(T, HOOK, cuMemcpyDtoDAsync, 3000, \
         (CUdeviceptr_v1 destination, CUdeviceptr_v1 source, unsigned int bytes, CUstream stream), \
         (CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream), \
         (destination, source, bytes, stream), product(2, bytes, 1)) \
    ALIQUOT_TRANSFER_VERSIONS(T, HOOK, cuMemcpyDtoA, 2000, \
         (CUarray destination, unsigned int offset, CUdeviceptr_v1 source, unsigned int bytes), \
         (CUarray destination, size_t offset, CUdeviceptr source, size_t bytes), (destination, offset, source, bytes), \
         product(2, bytes, 1)) \
    ALIQUOT_TRANSFER_VERSIONS(T, HOOK, cuMemcpyAtoD, 2000, \
         (CUdeviceptr_v1 destination, CUarray source, unsigned int offset, unsigned int bytes), \
         (CUdeviceptr destination, CUarray source, size_t offset, size_t bytes), (destination, source, offset, bytes), \
         product(2, bytes, 1)) \
    ALIQUOT_TRANSFER_VERSIONS(T, HOOK, cuMemcpyAtoA, 2000, \
         (CUarray destination, unsigned int there, CUarray source, unsigned int here, unsigned int bytes), \
         (CUarray destination, size_t there, CUarray source, size_t here, size_t bytes), \
         (destination, there, source, here, bytes), product(2, bytes, 1)) \
    ALIQUOT_TRANSFER_VERSIONS(T, HOOK, cuMemcpyHtoA, 2000, \
         (CUarray destination, unsigned int offset, const void *source, unsigned int bytes), \
         (CUarray destination, size_t offset, const void *source, size_t bytes), (destination, offset, source, bytes), \
         0) \
    ALIQUOT_TRANSFER_VERSIONS(T, HOOK, cuMemcpyAtoH, 2000, \
         (void *destination, CUarray source, unsigned int offset, unsigned int bytes), \
         (void *destination, CUarray source, size_t offset, size_t bytes), (destination, source, offset, bytes), 0) \
    ALIQUOT_STREAM_TRANSFER_VERSIONS(T, HOOK, cuMemcpyHtoAAsync, 2000, \
         (CUarray destination, unsigned int offset, const void *source, unsigned int bytes, CUstream stream), \
         (CUarray destination, size_t offset, const void *source, size_t bytes, CUstream stream), \
         (destination, offset, source, bytes, stream), 0) \
    ALIQUOT_STREAM_TRANSFER_VERSIONS(T, HOOK, cuMemcpyAtoHAsync, 2000, \
         (void *destination, CUarray source, unsigned int offset, unsigned int bytes, CUstream stream), \
         (void *destination, CUarray source, size_t offset, size_t bytes, CUstream stream), \
         (destination, source, offset, bytes, stream), 0) \
    ALIQUOT_TRANSFER_VERSIONS(T, HOOK, cuMemcpy2D, 2000, (const CUDA_MEMCPY2D_v1 *copy), \
         (const CUDA_MEMCPY2D_v2 *copy), (copy), COPIED(copy, 1)) \
    ALIQUOT_TRANSFER_VERSIONS(T, HOOK, cuMemcpy2DUnaligned, 2000, (const CUDA_MEMCPY2D_v1 *copy), \
         (const CUDA_MEMCPY2D_v2 *copy), (copy), COPIED(copy, 1)) \
    ALIQUOT_TRANSFER_VERSIONS(T, HOOK, cuMemcpy3D, 2000, (const CUDA_MEMCPY3D_v1 *copy), \
         (const CUDA_MEMCPY3D_v2 *copy), (copy), COPIED(copy, copy->Depth)) \
    ALIQUOT_STREAM_TRANSFER_VERSIONS(T, HOOK, cuMemcpy2DAsync, 2000, (const CUDA_MEMCPY2D_v1 *copy, CUstream stream), \
         (const CUDA_MEMCPY2D_v2 *copy, CUstream stream), (copy, stream), COPIED(copy, 1)) \
    ALIQUOT_STREAM_TRANSFER_VERSIONS(T, HOOK, cuMemcpy3DAsync, 2000, (const CUDA_MEMCPY3D_v1 *copy, CUstream stream), \
         (const CUDA_MEMCPY3D_v2 *copy, CUstream stream), (copy, stream), COPIED(copy, copy->Depth)) \
    ALIQUOT_TRANSFER(T, HOOK, cuMemcpy3DPeer, "cuMemcpy3DPeer", 4000, 7000, (const CUDA_MEMCPY3D_PEER *copy), (copy), \
         COPIED(copy, copy->Depth)) \
    ALIQUOT_STREAM_TRANSFER(T, HOOK, cuMemcpy3DPeerAsync, "cuMemcpy3DPeerAsync", 4000, 7000, \
         (const CUDA_MEMCPY3D_PEER *copy, CUstream stream), (copy, stream), COPIED(copy, copy->Depth)) \
    ALIQUOT_STREAM_TRANSFER(T, HOOK, cuMemcpyBatchAsync, "cuMemcpyBatchAsync", 12080, 12080, \
         (CUdeviceptr *destinations, CUdeviceptr *sources, size_t *bytes, size_t count, \
          CUmemcpyAttributes *attributes, size_t *first, size_t kinds, size_t *failed, CUstream stream), \
         (destinations, sources, bytes, count, attributes, first, kinds, failed, stream), \
         copied_by_list(destinations, sources, bytes, count)) \
    ALIQUOT_STREAM_TRANSFER(T, HOOK, cuMemcpyBatchAsync_v2, "cuMemcpyBatchAsync", 13000, 13000, \
         (CUdeviceptr *destinations, CUdeviceptr *sources, size_t *bytes, size_t count, \
          CUmemcpyAttributes *attributes, size_t *first, size_t kinds, CUstream stream), \
         (destinations, sources, bytes, count, attributes, first, kinds, stream), \
         copied_by_list(destinations, sources, bytes, count)) \
    ALIQUOT_STREAM_TRANSFER(T, HOOK, cuMemcpy3DBatchAsync, "cuMemcpy3DBatchAsync", 12080, 12080, \
         (size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, size_t *failed, unsigned long long flags, CUstream stream), \
         (count, copies, failed, flags, stream), copied_by_operations(copies, count)) \
    ALIQUOT_STREAM_TRANSFER(T, HOOK, cuMemcpy3DBatchAsync_v2, "cuMemcpy3DBatchAsync", 13000, 13000, \
         (size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, unsigned long long flags, CUstream stream), \
         (count, copies, flags, stream), copied_by_operations(copies, count)) \
    ALIQUOT_STREAM_TRANSFER(T, HOOK, cuMemcpyWithAttributesAsync, "cuMemcpyWithAttributesAsync", 13020, 13020, \
         (CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUmemcpyAttributes *attributes, CUstream stream), \
         (destination, source, bytes, attributes, stream), copied_between_addresses(source, destination, bytes)) \
    ALIQUOT_STREAM_TRANSFER(T, HOOK, cuMemcpy3DWithAttributesAsync, "cuMemcpy3DWithAttributesAsync", 13020, 13020, \
         (CUDA_MEMCPY3D_BATCH_OP *copy, unsigned long long flags, CUstream stream), (copy, flags, stream), \
         copied_by_operations(copy, 1)) \
    /* fills */ \
    ALIQUOT_TRANSFER_VERSIONS(T, HOOK, cuMemsetD8, 2000, \
         (CUdeviceptr_v1 destination, unsigned char value, unsigned int count), \
         (CUdeviceptr destination, unsigned char value, size_t count), (destination, value, count), count) \
    ALIQUOT_TRANSFER_VERSIONS(T, HOOK, cuMemsetD16, 2000, \
         (CUdeviceptr_v1 destination, unsigned short value, unsigned int count), \
         (CUdeviceptr destination, unsigned short value, size_t count), (destination, value, count), \
         product(count, 2, 1)) \
    ALIQUOT_TRANSFER_VERSIONS(T, HOOK, cuMemsetD32, 2000, \
         (CUdeviceptr_v1 destination, unsigned int value, unsigned int count), \
         (CUdeviceptr destination, unsigned int value, size_t count), (destination, value, count), \
         product(count, 4, 1)) \
    ALIQUOT_STREAM_TRANSFER(T, HOOK, cuMemsetD8Async, "cuMemsetD8Async", 3020, 7000, \
         (CUdeviceptr destination, unsigned char value, size_t count, CUstream stream), \
         (destination, value, count, stream), count) \
    ALIQUOT_STREAM_TRANSFER(T, HOOK, cuMemsetD16Async, "cuMemsetD16Async", 3020, 7000, \
         (CUdeviceptr destination, unsigned short value, size_t count, CUstream stream), \
         (destination, value, count, stream), product(count, 2, 1)) \
    ALIQUOT_STREAM_TRANSFER(T, HOOK, cuMemsetD32Async, "cuMemsetD32Async", 3020, 7000, \
         (CUdeviceptr destination, unsigned int value, size_t count, CUstream stream), \
         (destination, value, count, stream), product(count, 4, 1)) \
    ALIQUOT_TRANSFER_VERSIONS(T, HOOK, cuMemsetD2D8, 2000, \
         (CUdeviceptr_v1 destination, unsigned int pitch, unsigned char value, unsigned int width, \
          unsigned int height), \
         (CUdeviceptr destination, size_t pitch, unsigned char value, size_t width, size_t height), \
         (destination, pitch, value, width, height), product(width, height, 1)) \
    ALIQUOT_TRANSFER_VERSIONS(T, HOOK, cuMemsetD2D16, 2000, \
         (CUdeviceptr_v1 destination, unsigned int pitch, unsigned short value, unsigned int width, \
          unsigned int height), \
         (CUdeviceptr destination, size_t pitch, unsigned short value, size_t width, size_t height), \
         (destination, pitch, value, width, height), product(width, height, 2)) \
    ALIQUOT_TRANSFER_VERSIONS(T, HOOK, cuMemsetD2D32, 2000, \
         (CUdeviceptr_v1 destination, unsigned int pitch, unsigned int value, unsigned int width, \
          unsigned int height), \
         (CUdeviceptr destination, size_t pitch, unsigned int value, size_t width, size_t height), \
         (destination, pitch, value, width, height), product(width, height, 4)) \
    ALIQUOT_STREAM_TRANSFER(T, HOOK, cuMemsetD2D8Async, "cuMemsetD2D8Async", 3020, 7000, \
         (CUdeviceptr destination, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream), \
         (destination, pitch, value, width, height, stream), product(width, height, 1)) \
    ALIQUOT_STREAM_TRANSFER(T, HOOK, cuMemsetD2D16Async, "cuMemsetD2D16Async", 3020, 7000, \
         (CUdeviceptr destination, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream), \
         (destination, pitch, value, width, height, stream), product(width, height, 2)) \
    ALIQUOT_STREAM_TRANSFER(T, HOOK, cuMemsetD2D32Async, "cuMemsetD2D32Async", 3020, 7000, \
         (CUdeviceptr destination, size_t pitch, unsigned int value, size_t width, size_t height, CUstream stream), \
         (destination, pitch, value, width, height, stream), product(width, height, 4)) \
    /* waits and host functions */ \
    ALIQUOT_STREAM_TRANSFER(T, HOOK, cuStreamWaitEvent, "cuStreamWaitEvent", 3020, 7000, \
         (CUstream stream, CUevent event, unsigned int flags), (stream, event, flags), 0) \
    ALIQUOT_STREAM_TRANSFER(T, HOOK, cuStreamWaitValue32, "cuStreamWaitValue32", 8000, 8000, \
         (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags), \
         (stream, address, value, flags), 0) \
    ALIQUOT_STREAM_TRANSFER(T, HOOK, cuStreamWaitValue32_v2, "cuStreamWaitValue32", 11070, 11070, \
         (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags), \
         (stream, address, value, flags), 0) \
    ALIQUOT_STREAM_TRANSFER(T, HOOK, cuStreamWaitValue64, "cuStreamWaitValue64", 9000, 9000, \
         (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags), \
         (stream, address, value, flags), 0) \
    ALIQUOT_STREAM_TRANSFER(T, HOOK, cuStreamWaitValue64_v2, "cuStreamWaitValue64", 11070, 11070, \
         (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags), \
         (stream, address, value, flags), 0) \
    ALIQUOT_STREAM_TRANSFER(T, HOOK, cuStreamBatchMemOp, "cuStreamBatchMemOp", 8000, 8000, \
         (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations, unsigned int flags), \
         (stream, count, operations, flags), 0) \
    ALIQUOT_STREAM_TRANSFER(T, HOOK, cuStreamBatchMemOp_v2, "cuStreamBatchMemOp", 11070, 11070, \
         (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations, unsigned int flags), \
         (stream, count, operations, flags), 0) \
    ALIQUOT_STREAM_TRANSFER(T, HOOK, cuWaitExternalSemaphoresAsync, "cuWaitExternalSemaphoresAsync", 10000, 10000, \
         (const CUexternalSemaphore *semaphores, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *parameters, \
          unsigned int count, CUstream stream), (semaphores, parameters, count, stream), 0) \
    ALIQUOT_STREAM_TRANSFER(T, HOOK, cuLaunchHostFunc, "cuLaunchHostFunc", 10000, 10000, \
         (CUstream stream, CUhostFn function, void *data), (stream, function, data), 0) \
    ALIQUOT_STREAM_TRANSFER(T, HOOK, cuStreamAddCallback, "cuStreamAddCallback", 5000, 7000, \
         (CUstream stream, CUstreamCallback function, void *data, unsigned int flags), \
         (stream, function, data, flags), 0)
/* clang-format on */

#endif
