/* Streams and events. */
#define _GNU_SOURCE
#include "cuda_capture.h"
#include "cuda_client.h"
#include "cuda_pool.h"
#include "cuda_work.h"
#include "gpu_profile.h"

#include <stdlib.h>

/* ---- streams ---- */

static CUresult enter_checked_stream(CUstream stream, struct CUctx_st **context) {
    CUresult result = enter_context(context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = check_stream(stream);
    return result == CUDA_SUCCESS ? result : leave(result);
}

static CUresult enter_stream(CUstream stream) {
    struct CUctx_st *context;
    return enter_checked_stream(stream, &context);
}

static void stream_free(void *stream) {
    capture_forget_stream(stream);
    work_release_queue(stream);
}

API CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority) {
    static unsigned long long last_id = 2;
    struct CUctx_st *context;
    if (phStream == NULL || flags > CU_STREAM_NON_BLOCKING) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct CUstream_st *stream = object_new(KIND_STREAM, sizeof *stream, context);
    if (stream == NULL) {
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    stream->object.end = stream_free;
    stream->flags = flags;
    stream->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    stream->id = ++last_id;
    work_assign_queue(stream);
    *phStream = stream;
    return leave(CUDA_SUCCESS);
}

API CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags) {
    return cuStreamCreateWithPriority(phStream, Flags, 0);
}

/* Work of the destroyed stream continues. */
API CUresult cuStreamDestroy_v2(CUstream hStream) {
    CUresult result = enter_stream(hStream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (is_default_stream(hStream)) {
        return leave(CUDA_ERROR_INVALID_HANDLE);
    }
    object_delete(hStream);
    return leave(CUDA_SUCCESS);
}

API CUresult cuStreamDestroy(CUstream hStream) {
    return cuStreamDestroy_v2(hStream);
}

/* Like enter_checked_stream(). Fails if a capture forbids waiting for the stream or querying it. */
static CUresult enter_stream_to_wait(CUstream stream, struct CUctx_st **context) {
    CUresult result = enter_checked_stream(stream, context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = capture_check_stream_wait(stream_context(*context, stream), stream);
    return result == CUDA_SUCCESS ? result : leave(result);
}

API CUresult cuStreamQuery(CUstream hStream) {
    struct CUctx_st *context;
    CUresult result = enter_stream_to_wait(hStream, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct awaited_work work = work_pending_in_stream(context, hStream);
    return leave(work_is_done(&work) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

/* Releases the lock during the wait and takes it again to trim the pools. */
static CUresult wait_and_leave(const struct awaited_work *work) {
    leave(CUDA_SUCCESS);
    work_wait(work);
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pools_trim_after_sync();
    return leave(CUDA_SUCCESS);
}

API CUresult cuStreamSynchronize(CUstream hStream) {
    struct CUctx_st *context;
    CUresult result = enter_stream_to_wait(hStream, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct awaited_work work = work_pending_in_stream(context, hStream);
    return wait_and_leave(&work);
}

/* Queries of a stream: the value for a default stream in the current context, and for any other stream. */
#define DEFINE_STREAM_GETTER(function, type, default_value, other_value)                                               \
    API CUresult function(CUstream hStream, type *answer) {                                                            \
        struct CUctx_st *context;                                                                                      \
        if (answer == NULL)                                                                                            \
            return CUDA_ERROR_INVALID_VALUE;                                                                           \
        CUresult result = enter_checked_stream(hStream, &context);                                                     \
        if (result != CUDA_SUCCESS)                                                                                    \
            return result;                                                                                             \
        *answer = is_default_stream(hStream) ? (default_value) : (other_value);                                        \
        return leave(CUDA_SUCCESS);                                                                                    \
    }

DEFINE_STREAM_GETTER(cuStreamGetPriority, int, 0, hStream->priority)
DEFINE_STREAM_GETTER(cuStreamGetFlags, unsigned int, 0, hStream->flags)
DEFINE_STREAM_GETTER(cuStreamGetId, unsigned long long, (uintptr_t)hStream, hStream->id)
DEFINE_STREAM_GETTER(cuStreamGetCtx, CUcontext, context, hStream->object.context)
DEFINE_STREAM_GETTER(cuStreamGetDevice, CUdevice, device_ordinal(context->device),
                     device_ordinal(hStream->object.context->device))

struct callback {
    CUstreamCallback function;
    CUstream stream;
    void *data;
};

static void run_callback(void *data) {
    const struct callback callback = *(struct callback *)data;
    free(data);
    callback.function(callback.stream, CUDA_SUCCESS, callback.data);
}

/* A host function needs two pieces of work: the one that it comes after, and the gate that holds up later work. */
static CUresult call_host_function(CUstream stream, void (*function)(void *data), void *data, bool can_be_captured) {
    struct CUctx_st *context;
    struct capture_member *capturing;
    CUresult result = enter_with_queue_space(&context, stream, 2, &capturing);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (capturing == NULL) {
        return leave(work_call_host_function(context, stream, function, data));
    }
    const CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_HOST, .host = {function, data}};
    return leave(can_be_captured ? capture_add_node(capturing, CUDA_SUCCESS, &params) : capture_reject(capturing));
}

API CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags) {
    if (callback == NULL || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct callback *made = malloc(sizeof *made);
    if (made == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *made = (struct callback){callback, hStream, userData};
    CUresult result = call_host_function(hStream, run_callback, made, false);
    if (result != CUDA_SUCCESS) {
        free(made);
    }
    return result;
}

API CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData) {
    return fn != NULL ? call_host_function(hStream, fn, userData, true) : CUDA_ERROR_INVALID_VALUE;
}

/* ---- events ---- */

static void event_free(void *object) {
    struct CUevent_st *event = object;
    capture_forget_event(event);
    if (event->gpu != NULL) {
        gpu_drop_completion(event->gpu, &event->completion);
    }
}

API CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags) {
    struct CUctx_st *context;
    if (phEvent == NULL || Flags > 7) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct CUevent_st *event = object_new(KIND_EVENT, sizeof *event, context);
    if (event == NULL) {
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    event->object.end = event_free;
    event->flags = Flags;
    *phEvent = event;
    return leave(CUDA_SUCCESS);
}

static CUresult enter_event(CUevent event) {
    return enter_with_handle(KIND_EVENT, event, CUDA_ERROR_INVALID_HANDLE);
}

API CUresult cuEventDestroy_v2(CUevent hEvent) {
    CUresult result = enter_event(hEvent);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    object_delete(hEvent);
    return leave(CUDA_SUCCESS);
}

API CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
    struct CUctx_st *context;
    struct capture_member *capturing;
    if (flags > CU_EVENT_RECORD_EXTERNAL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_with_queue_space(&context, hStream, 1, &capturing);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (object_find(KIND_EVENT, hEvent) == NULL) {
        return leave(CUDA_ERROR_INVALID_HANDLE);
    }
    if (capturing != NULL) {
        return leave(capture_event_record(capturing, hEvent, flags));
    }
    if (flags != 0) {
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    capture_forget_event(hEvent);
    work_record_event(context, hStream, hEvent);
    if (hEvent->is_shared) {
        leave(CUDA_SUCCESS);
        return cuEventSynchronize(hEvent);
    }
    return leave(CUDA_SUCCESS);
}

API CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
    return cuEventRecordWithFlags(hEvent, hStream, 0);
}

/* An event that was never recorded is complete. */
static bool event_is_done(CUevent event) {
    return event->gpu == NULL || (gpu_poll_completion(event->gpu, &event->completion) &&
                                  (event->late_ns == 0 || event->completion.at + event->late_ns <= gpu_now()));
}

API CUresult cuEventQuery(CUevent hEvent) {
    CUresult result = enter_event(hEvent);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = capture_check_event_wait(hEvent);
    if (result == CUDA_SUCCESS && !event_is_done(hEvent)) {
        result = CUDA_ERROR_NOT_READY;
    }
    return leave(result);
}

API CUresult cuEventSynchronize(CUevent hEvent) {
    CUresult result = enter_event(hEvent);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = capture_check_event_wait(hEvent);
    if (result != CUDA_SUCCESS) {
        return leave(result);
    }
    const struct awaited_work work = {.gpu = hEvent->gpu,
                                      .numbers = {hEvent->gpu != NULL ? hEvent->completion.number : 0}};
    uint64_t late_ns = hEvent->late_ns;
    result = wait_and_leave(&work);
    if (late_ns != 0) {
        gpu_sleep_until(gpu_now() + late_ns);
    }
    return result;
}

API CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
    struct CUctx_st *context;
    struct capture_member *capturing;
    if (Flags > CU_EVENT_WAIT_EXTERNAL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_with_queue_space(&context, hStream, 1, &capturing);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (object_find(KIND_EVENT, hEvent) == NULL) {
        return leave(CUDA_ERROR_INVALID_HANDLE);
    }
    if (capturing != NULL || capture_has_event(hEvent)) {
        return leave(capture_event_wait(stream_context(context, hStream), hStream, capturing, hEvent, Flags));
    }
    if (Flags != 0) {
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    return leave(work_wait_event(context, hStream, hEvent));
}

API CUresult cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd) {
    struct CUctx_st *context;
    if (pMilliseconds == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (object_find(KIND_EVENT, hStart) == NULL || object_find(KIND_EVENT, hEnd) == NULL) {
        return leave(CUDA_ERROR_INVALID_HANDLE);
    }
    if (capture_has_event(hStart) || capture_has_event(hEnd)) {
        return leave(CUDA_ERROR_CAPTURED_EVENT);
    }
    if (hStart->gpu == NULL || hStart->gpu != hEnd->gpu ||
        ((hStart->flags | hEnd->flags) & CU_EVENT_DISABLE_TIMING) != 0) {
        return leave(CUDA_ERROR_INVALID_HANDLE);
    }
    if (!event_is_done(hStart) || !event_is_done(hEnd)) {
        return leave(CUDA_ERROR_NOT_READY);
    }
    int64_t host_ns =
        (int64_t)(hEnd->completion.at + hEnd->late_ns) - (int64_t)(hStart->completion.at + hStart->late_ns);
    *pMilliseconds = (float)((double)host_ns * gpu_profile()->clock_rate / 1e6);
    return leave(CUDA_SUCCESS);
}

API CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd) {
    return cuEventElapsedTime_v2(pMilliseconds, hStart, hEnd);
}
