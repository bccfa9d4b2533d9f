/*
 * Stream capture, as the rest of the driver sees it. An entry point that submits work to a stream calls capture_find()
 * to learn whether the work is captured. An entry point that waits or acts synchronously calls one of the
 * capture_check_ functions. The caller holds the driver lock and has validated the stream and event handles.
 */
#ifndef ALIQUOT_FAKE_CUDA_CAPTURE_H
#define ALIQUOT_FAKE_CUDA_CAPTURE_H

#include "cuda_work.h"

/* A stream that takes part in a capture. */
struct capture_member;

/*
 * Looks up the capture that a stream takes part in. CUDA_SUCCESS with NULL: the stream is not capturing, and the caller
 * submits the work. CUDA_SUCCESS with a member: the caller adds the work as a graph node by one of the functions below
 * and does nothing else. Any other value is the result of the entry point.
 */
CUresult capture_find(struct CUctx_st *context, CUstream stream, struct capture_member **capturing);

/*
 * Like enter_context(), once the GPU's queue has space for that many pieces of work of the stream; sleeps without the
 * lock until then. Validates the stream. If the stream is capturing, returns its member in `capturing` and
 * does not wait for space.
 */
CUresult enter_with_queue_space(struct CUctx_st **context, CUstream stream, unsigned pieces,
                                struct capture_member **capturing);

/* Adds a node that depends on what the stream has captured so far. A failure invalidates the capture, also that of the
   check of the parameters, whose result the caller passes. */
CUresult capture_add_node(struct capture_member *capturing, CUresult checked, const CUgraphNodeParams *params);
/* The same for a stream-ordered allocation; returns its address. */
CUresult capture_add_allocation(struct capture_member *capturing, CUdevice device, size_t bytes, CUdeviceptr *address);
/* Invalidates the capture, because the call cannot be captured, and returns the error for it. */
CUresult capture_reject(struct capture_member *capturing);

/*
 * Check a call that is unsafe during a capture (cuda.h, cuThreadExchangeStreamCaptureMode). If a capture forbids the
 * call, it is invalidated and the error is returned. capture_check_unsafe_call() is for allocations and other calls
 * without a stream; the others are for calls that wait for or query a stream, an event or a whole context.
 */
CUresult capture_check_unsafe_call(void);
CUresult capture_check_stream_wait(struct CUctx_st *context, CUstream stream);
CUresult capture_check_event_wait(CUevent event);
CUresult capture_check_context_wait(struct CUctx_st *context);

/*
 * Events in captures. An event that was last recorded in a capture represents the nodes that its stream had captured
 * until then. capture_event_wait() handles a wait by a capturing stream, a wait for such an event, or both.
 */
CUresult capture_event_record(struct capture_member *capturing, CUevent event, unsigned flags);
CUresult capture_event_wait(struct CUctx_st *context, CUstream stream, struct capture_member *capturing, CUevent event,
                            unsigned flags);
bool capture_has_event(CUevent event);

/* Remove a stream, event or context that is about to be deleted, or an event that is recorded outside of a capture. */
void capture_forget_stream(CUstream stream);
void capture_forget_event(CUevent event);
void capture_forget_context(const struct CUctx_st *context);

#endif
