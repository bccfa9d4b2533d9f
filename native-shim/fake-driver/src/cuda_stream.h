/* Streams and events, for other parts of the driver. */
#ifndef ALIQUOT_FAKE_CUDA_STREAM_H
#define ALIQUOT_FAKE_CUDA_STREAM_H

#include "cuda_driver.h"

/* Remove a stream or an event, which is about to be deleted, from captures and GPU queues. With the lock held. */
void stream_free(struct object *object);
void event_free(struct object *object);

/* Returns CUDA_SUCCESS if stream is a default stream or a valid handle. With the lock held. */
CUresult check_stream(CUstream stream);

/*
 * Like enter_context(), but returns the stream's own context; the current context for a default stream. A stream's own
 * context need not be current.
 */
CUresult enter_stream_context(CUstream stream, struct CUctx_st **context);

#endif
