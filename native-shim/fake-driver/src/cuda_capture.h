/*
 * Stream capture, as the rest of the driver sees it. Every call that puts work into a stream asks capture_of what is to
 * become of it; every call that waits, or does its work at once, asks one of the capture_forbids whether it may. All of
 * it with the driver's lock held; the streams and events have been found to be good ones.
 */
#ifndef ALIQUOT_FAKE_CUDA_CAPTURE_H
#define ALIQUOT_FAKE_CUDA_CAPTURE_H

#include "cuda_driver.h"

/* A stream's part in a capture. */
struct capturing;

/*
 * CUDA_SUCCESS with NULL: the stream isn't capturing, its work is to be done. CUDA_SUCCESS with the stream's part: the
 * work becomes a node, by one of the functions below, and nothing else happens. Else what the call answers.
 */
CUresult capture_of(struct CUctx_st *context, CUstream stream, struct capturing **capturing);

/* Adds a node after what the stream has captured so far. Where that fails, the capture is over. */
CUresult capture_node(struct capturing *capturing, const CUgraphNodeParams *params);
/* The same for a kernel with the launch's attributes. */
CUresult capture_kernel(struct capturing *capturing, const CUgraphNodeParams *params,
                        const CUlaunchAttribute *attributes, unsigned count);
/* An allocation of so many bytes on a device, in the stream's order. */
CUresult capture_allocation(struct capturing *capturing, CUdevice device, size_t bytes, CUdeviceptr *address);
/* What cannot be captured: answers the error that says so, and the capture is over. */
CUresult capture_refuse(struct capturing *capturing);

/*
 * Whether a call may be made that isn't safe beside a capture (cuda.h, cuThreadExchangeStreamCaptureMode): one that
 * allocates or waits outside of any stream. If not, it answers the error, and the captures that forbid it are over.
 */
CUresult capture_forbids(void);
/* The same for a call that waits for or asks about a stream, an event, or all of a context. */
CUresult capture_forbids_stream(struct CUctx_st *context, CUstream stream);
CUresult capture_forbids_event(CUevent event);
CUresult capture_forbids_context(struct CUctx_st *context);

/*
 * Events. An event that was last recorded in a capture stands for what its stream had captured until then. capture_wait
 * is for waits by a stream that is capturing, for such an event, or both.
 */
CUresult capture_record(struct capturing *capturing, CUevent event, unsigned flags);
CUresult capture_wait(struct CUctx_st *context, CUstream stream, struct capturing *capturing, CUevent event,
                      unsigned flags);
bool capture_is_captured(CUevent event);

/* The stream or event is about to be deleted, or the event was recorded outside of any capture. */
void capture_forget_stream(CUstream stream);
void capture_forget_event(CUevent event);
void capture_forget_context(const struct CUctx_st *context);

#endif
