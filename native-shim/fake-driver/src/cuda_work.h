/*
 * Turns stream operations into work of the simulated GPU (gpu_time.h). Streams are spread over the GPU's queues. The
 * legacy default stream and the blocking streams wait for each other, as the CUDA programming guide specifies. Copies
 * and fills move their data during the call, because nothing on this GPU computes; only their time is simulated.
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
    unsigned queue;     /* of the GPU; streams share queues, as on a real GPU with more streams than channels */
    uint64_t last_work; /* the number of its latest work, 0: none yet */
};

struct CUevent_st {
    struct object object;
    unsigned flags;
    bool is_shared;   /* another process has its handle, or it is that of another process; see cuda_ipc.c */
    gpu_file *gpu;    /* NULL: never recorded */
    uint64_t late_ns; /* it completes later than its work */
    struct gpu_completion completion;
};

#define LEGACY_STREAM ((CUstream)1)     /* CU_STREAM_LEGACY */
#define PER_THREAD_STREAM ((CUstream)2) /* CU_STREAM_PER_THREAD */

static inline bool is_legacy_stream(CUstream stream) {
    return stream == NULL || stream == LEGACY_STREAM;
}

static inline bool is_default_stream(CUstream stream) {
    return stream == NULL || stream == LEGACY_STREAM || stream == PER_THREAD_STREAM;
}

/* Whether the stream and the legacy default stream wait for each other. */
static inline bool is_blocking_stream(CUstream stream) {
    return is_default_stream(stream) || (stream->flags & CU_STREAM_NON_BLOCKING) == 0;
}

/* Assign a stream to a queue of its GPU and release it. With the lock held. */
void work_assign_queue(struct CUstream_st *stream);
void work_release_queue(struct CUstream_st *stream);

/* Returns CUDA_SUCCESS if stream is a default stream or a valid handle. With the lock held. */
CUresult check_stream(CUstream stream);

/*
 * Like enter_context(), but returns the stream's own context; the current context for a default stream. A stream's own
 * context need not be current.
 */
CUresult enter_stream_context(CUstream stream, struct CUctx_st **context);

/* The context that a stream's work runs in: its own, or the current one for a default stream. */
struct CUctx_st *stream_context(struct CUctx_st *current, CUstream stream);

/*
 * Submits work after all work of the stream, and after other streams where the default-stream rules require it; returns
 * its number. Only ns, sms, flags and after[0] of work are used. With the lock held and queue space available.
 */
uint64_t work_submit(struct CUctx_st *current, CUstream stream, struct gpu_work work,
                     struct gpu_completion *completion);

/* Records an event in the stream. The recording takes no GPU time. */
void work_record_event(struct CUctx_st *current, CUstream stream, CUevent event);

/* Makes the stream wait for the latest recording of an event. Needs queue space for two. */
CUresult work_wait_event(struct CUctx_st *current, CUstream stream, CUevent event);

/*
 * Calls function(data) once all earlier work of the stream is done, on a driver thread that holds no lock. Later work
 * of the stream waits until the function has returned. Needs queue space for two.
 */
CUresult work_call_host_function(struct CUctx_st *current, CUstream stream, void (*function)(void *data), void *data);

/* Whether host functions are outstanding. With the lock held. */
bool work_has_host_functions(void);

/* The latest work in each queue that a caller waits for; 0: none. */
struct awaited_work {
    gpu_file *gpu;
    uint64_t numbers[GPU_QUEUES];
};

/* With the lock held. */
struct awaited_work work_pending_in_stream(struct CUctx_st *current, CUstream stream);
struct awaited_work work_pending_in_context(struct CUctx_st *context);
bool work_is_done(const struct awaited_work *awaited);

/* Sleeps until the work is done. Called without the lock. */
void work_wait(const struct awaited_work *awaited);

/*
 * The time of a kernel. If its name contains "aliquot_busy", it takes the nanoseconds in its first parameter, a
 * uint64_t. If its name contains "aliquot_collective", it takes as long from the time on at which kernels of the same
 * collective have started on as many GPUs as the collective has ranks; its number and ranks are the second and third
 * parameter, also uint64_t. Any other kernel takes 2 us plus 5 us for each wave of its blocks. Each block fills a
 * multiprocessor.
 */
struct gpu_work kernel_work(const struct device *device, const char *name, uint64_t blocks, unsigned block_threads,
                            void *const *parameters, void *const *extra);

/* A copy takes 2 us plus its bytes at the bandwidth of its direction; a memset is a kernel. */
enum copy_direction { COPY_HOST_TO_DEVICE, COPY_DEVICE_TO_HOST, COPY_WITHIN_DEVICE };
struct gpu_work memcpy_work(enum copy_direction direction, size_t bytes);
struct gpu_work memset_work(const struct device *device, size_t bytes);

#endif
