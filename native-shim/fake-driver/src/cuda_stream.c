/*
 * Streams and events. A GPU without kernels has done everything the moment it is asked: a stream is never busy, an
 * event holds the time at which it was recorded.
 */
#define _GNU_SOURCE
#include "cuda_driver.h"
#include "cuda_pool.h"

#include <time.h>

/* ---- streams ---- */

struct CUstream_st {
    struct object object;
    unsigned flags;
    int priority;
    unsigned long long id;
};

#define LEGACY_STREAM ((CUstream)1)     /* CU_STREAM_LEGACY */
#define PER_THREAD_STREAM ((CUstream)2) /* CU_STREAM_PER_THREAD */

static bool is_default(CUstream stream) {
    return stream == NULL || stream == LEGACY_STREAM || stream == PER_THREAD_STREAM;
}

CUresult check_stream(CUstream stream) {
    if (is_default(stream) || object_find(KIND_STREAM, stream) != NULL)
        return CUDA_SUCCESS;
    return CUDA_ERROR_INVALID_HANDLE;
}

static CUresult enter_stream(CUstream stream) {
    struct CUctx_st *context;
    CUresult result = enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    result = check_stream(stream);
    return result == CUDA_SUCCESS ? result : leave(result);
}

CUresult enter_context_of(CUstream stream, struct CUctx_st **context) {
    if (is_default(stream))
        return enter(context);
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS)
        return result;
    if (object_find(KIND_STREAM, stream) == NULL)
        return leave(CUDA_ERROR_INVALID_HANDLE);
    *context = stream->object.context;
    return CUDA_SUCCESS;
}

API CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority) {
    static unsigned long long last_id = 2;
    struct CUctx_st *context;
    if (phStream == NULL || flags > CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    struct CUstream_st *stream = object_new(KIND_STREAM, sizeof *stream, context);
    if (stream == NULL)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    stream->flags = flags;
    stream->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    stream->id = ++last_id;
    *phStream = stream;
    return leave(CUDA_SUCCESS);
}

API CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags) {
    return cuStreamCreateWithPriority(phStream, Flags, 0);
}

API CUresult cuStreamDestroy_v2(CUstream hStream) {
    CUresult result = enter_stream(hStream);
    if (result != CUDA_SUCCESS)
        return result;
    if (is_default(hStream))
        return leave(CUDA_ERROR_INVALID_HANDLE);
    object_delete(hStream);
    return leave(CUDA_SUCCESS);
}

API CUresult cuStreamDestroy(CUstream hStream) {
    return cuStreamDestroy_v2(hStream);
}

API CUresult cuStreamQuery(CUstream hStream) {
    CUresult result = enter_stream(hStream);
    return result == CUDA_SUCCESS ? leave(result) : result;
}

API CUresult cuStreamSynchronize(CUstream hStream) {
    CUresult result = enter_stream(hStream);
    if (result != CUDA_SUCCESS)
        return result;
    pools_synchronised();
    return leave(CUDA_SUCCESS);
}

API CUresult cuStreamGetPriority(CUstream hStream, int *priority) {
    if (priority == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_stream(hStream);
    if (result != CUDA_SUCCESS)
        return result;
    *priority = is_default(hStream) ? 0 : hStream->priority;
    return leave(CUDA_SUCCESS);
}

API CUresult cuStreamGetFlags(CUstream hStream, unsigned int *flags) {
    if (flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_stream(hStream);
    if (result != CUDA_SUCCESS)
        return result;
    *flags = is_default(hStream) ? 0 : hStream->flags;
    return leave(CUDA_SUCCESS);
}

API CUresult cuStreamGetId(CUstream hStream, unsigned long long *streamId) {
    if (streamId == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_stream(hStream);
    if (result != CUDA_SUCCESS)
        return result;
    *streamId = is_default(hStream) ? (unsigned long long)(uintptr_t)hStream : hStream->id;
    return leave(CUDA_SUCCESS);
}

API CUresult cuStreamGetCtx(CUstream hStream, CUcontext *pctx) {
    struct CUctx_st *context;
    if (pctx == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    result = check_stream(hStream);
    if (result == CUDA_SUCCESS)
        *pctx = is_default(hStream) ? context : hStream->object.context;
    return leave(result);
}

API CUresult cuStreamGetDevice(CUstream hStream, CUdevice *device) {
    struct CUctx_st *context;
    if (device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    result = check_stream(hStream);
    if (result == CUDA_SUCCESS)
        *device = ordinal_of((is_default(hStream) ? context : hStream->object.context)->device);
    return leave(result);
}

API CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus) {
    if (captureStatus == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_stream(hStream);
    if (result != CUDA_SUCCESS)
        return result;
    *captureStatus = CU_STREAM_CAPTURE_STATUS_NONE;
    return leave(CUDA_SUCCESS);
}

API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    static _Thread_local CUstreamCaptureMode own = CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (mode == NULL || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode before = own;
    own = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

API CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags) {
    (void)length;
    if (dptr == 0 || flags == 0 || flags > 4)
        return CUDA_ERROR_INVALID_VALUE;
    return cuStreamQuery(hStream);
}

API CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags) {
    if (callback == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cuStreamQuery(hStream);
    if (result == CUDA_SUCCESS)
        callback(hStream, CUDA_SUCCESS, userData);
    return result;
}

API CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData) {
    if (fn == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cuStreamQuery(hStream);
    if (result == CUDA_SUCCESS)
        fn(userData);
    return result;
}

/* ---- events ---- */

struct CUevent_st {
    struct object object;
    unsigned flags;
    bool recorded;
    struct timespec time;
};

API CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags) {
    struct CUctx_st *context;
    if (phEvent == NULL || Flags > 7)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    struct CUevent_st *event = object_new(KIND_EVENT, sizeof *event, context);
    if (event == NULL)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    event->flags = Flags;
    *phEvent = event;
    return leave(CUDA_SUCCESS);
}

static CUresult enter_event(CUevent event) {
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS)
        return result;
    return object_find(KIND_EVENT, event) != NULL ? CUDA_SUCCESS : leave(CUDA_ERROR_INVALID_HANDLE);
}

API CUresult cuEventDestroy_v2(CUevent hEvent) {
    CUresult result = enter_event(hEvent);
    if (result != CUDA_SUCCESS)
        return result;
    object_delete(hEvent);
    return leave(CUDA_SUCCESS);
}

API CUresult cuEventDestroy(CUevent hEvent) {
    return cuEventDestroy_v2(hEvent);
}

API CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
    struct CUctx_st *context;
    CUresult result = enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (object_find(KIND_EVENT, hEvent) == NULL || check_stream(hStream) != CUDA_SUCCESS)
        return leave(CUDA_ERROR_INVALID_HANDLE);
    clock_gettime(CLOCK_MONOTONIC, &hEvent->time);
    hEvent->recorded = true;
    return leave(CUDA_SUCCESS);
}

API CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
    return flags <= 1 ? cuEventRecord(hEvent, hStream) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuEventQuery(CUevent hEvent) {
    CUresult result = enter_event(hEvent);
    return result == CUDA_SUCCESS ? leave(result) : result;
}

API CUresult cuEventSynchronize(CUevent hEvent) {
    CUresult result = enter_event(hEvent);
    if (result != CUDA_SUCCESS)
        return result;
    pools_synchronised();
    return leave(CUDA_SUCCESS);
}

API CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
    if (Flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_stream(hStream);
    if (result != CUDA_SUCCESS)
        return result;
    return leave(object_find(KIND_EVENT, hEvent) != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

API CUresult cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd) {
    if (pMilliseconds == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS)
        return result;
    if (object_find(KIND_EVENT, hStart) == NULL || object_find(KIND_EVENT, hEnd) == NULL || !hStart->recorded ||
        !hEnd->recorded || ((hStart->flags | hEnd->flags) & CU_EVENT_DISABLE_TIMING) != 0)
        return leave(CUDA_ERROR_INVALID_HANDLE);
    *pMilliseconds = (float)((double)(hEnd->time.tv_sec - hStart->time.tv_sec) * 1e3 +
                             (double)(hEnd->time.tv_nsec - hStart->time.tv_nsec) / 1e6);
    return leave(CUDA_SUCCESS);
}

API CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd) {
    return cuEventElapsedTime_v2(pMilliseconds, hStart, hEnd);
}
