/*
 * How what programs put into streams becomes work of the GPU (gpu_time.h). Streams are spread over the GPU's queues;
 * the legacy default stream and the blocking ones wait for each other as CUDA's programming guide says. What data does
 * (copies, fills) is done when the call is made, since nothing in this GPU computes; only the time comes later.
 */
#ifndef ALIQUOT_FAKE_CUDA_WORK_H
#define ALIQUOT_FAKE_CUDA_WORK_H

#include "cuda_driver.h"
#include "gpu_time.h"

struct CUstream_st {
    struct object object;
    unsigned flags;
    int priority;
    unsigned long long id;
    unsigned queue; /* of the GPU; other streams may be in it too, as on a real GPU with more streams than channels */
    uint64_t last;  /* number of the latest work, 0: none yet */
};

struct CUevent_st {
    struct object object;
    unsigned flags;
    gpu_file *gpu; /* NULL: never recorded */
    struct gpu_completion mark;
};

#define LEGACY_STREAM ((CUstream)1)     /* CU_STREAM_LEGACY */
#define PER_THREAD_STREAM ((CUstream)2) /* CU_STREAM_PER_THREAD */

static inline bool is_default(CUstream stream) {
    return stream == NULL || stream == LEGACY_STREAM || stream == PER_THREAD_STREAM;
}

/* A stream joins a queue of its GPU, and leaves it. With the lock held. */
void work_join(struct CUstream_st *stream);
void work_leave(struct CUstream_st *stream);

/* Whether the stream and the legacy default stream wait for each other. */
static inline bool is_blocking(CUstream stream) {
    return is_default(stream) || (stream->flags & CU_STREAM_NON_BLOCKING) == 0;
}

/*
 * As enter, when there is room for so many pieces of work on the current context's GPU, and on the stream's, too;
 * sleeps, without the lock, until there is. The stream is checked. With its part in a capture in capturing, the work is
 * to be captured (cuda_capture.h), and no room is waited for.
 */
struct capturing;
CUresult enter_with_room(struct CUctx_st **context, CUstream stream, unsigned pieces, struct capturing **capturing);

/* Where a stream's work goes: its own context's GPU, or the current one's for a default stream. */
struct CUctx_st *work_context(struct CUctx_st *current, CUstream stream);

/*
 * Puts work behind all that the stream holds, and whatever else it must wait for, and answers its number. Of work only
 * ns, sms, flags and after[0] count. With the lock held and room.
 */
uint64_t work_put(struct CUctx_st *current, CUstream stream, struct gpu_work work, struct gpu_completion *mark);

/*
 * Puts work beside the stream, into a queue that branches of graphs share, to be started when work.after is over. The
 * stream knows nothing of it: something in it must come after it. With the lock held and room.
 */
uint64_t work_put_beside(struct CUctx_st *current, CUstream stream, unsigned branch, struct gpu_work work);

/* A time in the stream's order: takes none itself. Records the event. */
void work_record(struct CUctx_st *current, CUstream stream, CUevent event);

/* Holds the stream up until the event's latest recording is over. Needs room for two. */
CUresult work_wait_for(struct CUctx_st *current, CUstream stream, CUevent event);

/*
 * Calls function(data), when all work before in the stream is over, on a thread of the driver's that holds no lock;
 * work behind waits until it has returned. Needs room for two.
 */
CUresult work_call(struct CUctx_st *current, CUstream stream, void (*function)(void *data), void *data);

/* Whether there are such functions that have not returned yet. With the lock held. */
bool work_has_calls(void);

/* The latest work in each queue that somebody wants to see over. */
struct awaited {
    gpu_file *gpu;
    uint64_t numbers[GPU_QUEUES];
};

/* With the lock held. */
struct awaited work_of_stream(struct CUctx_st *current, CUstream stream);
struct awaited work_of_context(struct CUctx_st *context);
bool work_is_over(const struct awaited *awaited);

/* Sleeps until it is over. Without the lock. */
void work_wait(const struct awaited *awaited);

/*
 * What things cost. A kernel whose name contains "aliquot_busy" takes as many ns as its first parameter, a uint64_t,
 * says; any other 2 us and 5 us for each wave of its blocks. It fills a multiprocessor with each block.
 */
struct gpu_work kernel_work(const struct device *device, const char *name, uint64_t blocks, unsigned block_threads,
                            void *const *parameters, void *const *extra);

/* Copies take 2 us and their bytes at the speed of their way; fills are kernels. */
enum way { WAY_IN, WAY_OUT, WAY_WITHIN };
struct gpu_work copy_work(enum way way, size_t bytes);
struct gpu_work fill_work(const struct device *device, size_t bytes);

#endif
