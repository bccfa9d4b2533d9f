#define _GNU_SOURCE
#include "cuda_work.h"
#include "cuda_capture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
/* As before glibc 2.34 moved it, so that the driver loads in older containers too. */
__asm__(".symver pthread_create, pthread_create@GLIBC_2.2.5");
#endif

enum { LEGACY_QUEUE = 0, CALL_POLL_NS = 1000000 };

static unsigned streams_in[GPU_QUEUES];

/* The calling thread's default stream: one more stream, that every thread has for itself, on each GPU. */
static _Thread_local struct {
    unsigned queue; /* 0: none yet */
    uint64_t last[GPU_MAX_PER_NODE];
} own_stream;

static unsigned emptiest(unsigned first, unsigned end) {
    unsigned best = first;
    for (unsigned i = first; i < end; i++)
        if (streams_in[i] < streams_in[best])
            best = i;
    return best;
}

void work_join(struct CUstream_st *stream) {
    bool blocking = (stream->flags & CU_STREAM_NON_BLOCKING) == 0;
    stream->queue =
        blocking ? emptiest(LEGACY_QUEUE + 1, GPU_BARRIER_QUEUES) : emptiest(GPU_BARRIER_QUEUES, GPU_QUEUES);
    streams_in[stream->queue]++;
}

void work_leave(struct CUstream_st *stream) {
    streams_in[stream->queue]--;
}

struct CUctx_st *work_context(struct CUctx_st *current, CUstream stream) {
    return is_default(stream) ? current : stream->object.context;
}

CUresult enter_with_room(struct CUctx_st **context, CUstream stream, unsigned pieces, struct capturing **capturing) {
    for (;;) {
        CUresult result = enter(context);
        if (result != CUDA_SUCCESS)
            return result;
        result = check_stream(stream);
        if (result == CUDA_SUCCESS)
            result = capture_of(work_context(*context, stream), stream, capturing);
        if (result != CUDA_SUCCESS)
            return leave(result);
        if (*capturing != NULL)
            return CUDA_SUCCESS;
        gpu_file *gpu = work_context(*context, stream)->device->gpu;
        if (gpu_has_queue_space(gpu, pieces))
            return CUDA_SUCCESS;
        leave(CUDA_SUCCESS);
        gpu_wait_for_queue_space(gpu, pieces);
    }
}

/* Where the number of the stream's latest work stands. */
static uint64_t *latest(struct CUctx_st *context, CUstream stream, unsigned *queue) {
    if (stream == PER_THREAD_STREAM) {
        if (own_stream.queue == 0) {
            own_stream.queue = emptiest(LEGACY_QUEUE + 1, GPU_BARRIER_QUEUES);
            streams_in[own_stream.queue]++; /* for good: threads leave no word when they end */
        }
        *queue = own_stream.queue;
        return &own_stream.last[ordinal_of(context->device)];
    }
    if (is_default(stream)) {
        *queue = LEGACY_QUEUE;
        return &context->last[LEGACY_QUEUE];
    }
    *queue = stream->queue;
    return &stream->last;
}

uint64_t work_put(struct CUctx_st *current, CUstream stream, struct gpu_work work, struct gpu_completion *mark) {
    struct CUctx_st *context = work_context(current, stream);
    uint64_t *last = latest(context, stream, &work.queue);
    if (work.queue == LEGACY_QUEUE)
        work.flags |= GPU_WORK_BARRIER;
    work.after[1] = work.queue < GPU_BARRIER_QUEUES ? context->last[LEGACY_QUEUE] : 0;
    work.priority = is_default(stream) ? 0 : stream->priority;
    uint64_t number = gpu_submit(context->device->gpu, &work, mark);
    *last = context->last[work.queue] = number;
    return number;
}

uint64_t work_put_beside(struct CUctx_st *current, CUstream stream, unsigned branch, struct gpu_work work) {
    struct CUctx_st *context = work_context(current, stream);
    work.queue = GPU_QUEUES - 1 - branch % (GPU_QUEUES - GPU_BARRIER_QUEUES);
    work.priority = is_default(stream) ? 0 : stream->priority;
    return context->last[work.queue] = gpu_submit(context->device->gpu, &work, NULL);
}

/* ---- waiting ---- */

struct awaited work_of_stream(struct CUctx_st *current, CUstream stream) {
    struct CUctx_st *context = work_context(current, stream);
    struct awaited awaited = {.gpu = context->device->gpu};
    unsigned queue;
    uint64_t *last = latest(context, stream, &queue);
    if (queue == LEGACY_QUEUE)
        memcpy(awaited.numbers, context->last, GPU_BARRIER_QUEUES * sizeof context->last[0]);
    else
        awaited.numbers[0] = *last;
    return awaited;
}

struct awaited work_of_context(struct CUctx_st *context) {
    struct awaited awaited = {.gpu = context->device->gpu};
    memcpy(awaited.numbers, context->last, sizeof context->last);
    return awaited;
}

bool work_is_over(const struct awaited *awaited) {
    for (int i = 0; i < GPU_QUEUES; i++)
        if (awaited->numbers[i] != 0 && !gpu_is_done(awaited->gpu, awaited->numbers[i]))
            return false;
    return true;
}

void work_wait(const struct awaited *awaited) {
    for (int i = 0; i < GPU_QUEUES; i++)
        if (awaited->numbers[i] != 0)
            gpu_wait(awaited->gpu, awaited->numbers[i]);
}

/* ---- events ---- */

void work_record(struct CUctx_st *current, CUstream stream, CUevent event) {
    if (event->gpu != NULL)
        gpu_drop_completion(event->gpu, &event->mark);
    event->gpu = work_context(current, stream)->device->gpu;
    (void)work_put(current, stream, (struct gpu_work){0}, &event->mark);
}

/* ---- calls ---- */

/* A function to be called when work of one GPU is over, and the gate on one, perhaps another, that it opens then. */
struct call {
    gpu_file *before, *gpu;
    uint64_t number, gate;
    void (*function)(void *data); /* NULL: none, it is all about the gate */
    void *data;
    struct call *next;
};

static pthread_mutex_t call_lock = PTHREAD_MUTEX_INITIALIZER;
static struct call *calls; /* oldest first */
static bool calling;       /* there is a thread for them */

/* Takes the oldest call that can be made off the list; if there is none, says when there may be one. */
static struct call *take_call(uint64_t *when) {
    *when = gpu_now() + CALL_POLL_NS; /* for those that come meanwhile */
    for (struct call **place = &calls; *place != NULL; place = &(*place)->next) {
        struct call *call = *place;
        uint64_t earliest = gpu_earliest_completion(call->before, call->number);
        if (earliest == 0) {
            *place = call->next;
            return call;
        }
        if (earliest < *when)
            *when = earliest;
    }
    return NULL;
}

static void *make_calls(void *unused) {
    (void)unused;
    for (;;) {
        uint64_t when;
        pthread_mutex_lock(&call_lock);
        struct call *call = take_call(&when);
        calling = calls != NULL || call != NULL;
        bool more = calling;
        pthread_mutex_unlock(&call_lock);
        if (!more)
            return NULL;
        if (call == NULL) {
            gpu_sleep_until(when);
            continue;
        }
        if (call->function != NULL)
            call->function(call->data);
        gpu_open_gate(call->gpu, call->gate);
        free(call);
    }
}

bool work_has_calls(void) {
    pthread_mutex_lock(&call_lock);
    bool any = calling;
    pthread_mutex_unlock(&call_lock);
    return any;
}

/* Puts a gate into the stream that opens when function has been called, which is when the work of a GPU is over. */
static CUresult call_after(struct CUctx_st *current, CUstream stream, gpu_file *before, uint64_t number,
                           void (*function)(void *), void *data) {
    struct call *call = malloc(sizeof *call);
    if (call == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *call = (struct call){.before = before, .number = number, .function = function, .data = data};
    call->gpu = work_context(current, stream)->device->gpu;
    pthread_mutex_lock(&call_lock);
    bool ready = calling;
    if (!ready) {
        pthread_t thread;
        pthread_attr_t detached;
        pthread_attr_init(&detached);
        pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
        ready = calling = pthread_create(&thread, &detached, make_calls, NULL) == 0; /* it finds the lock taken */
        pthread_attr_destroy(&detached);
    }
    if (ready) {
        struct call **end = &calls;
        while (*end != NULL)
            end = &(*end)->next;
        call->gate = work_put(current, stream, (struct gpu_work){.flags = GPU_WORK_GATE}, NULL);
        *end = call;
    }
    pthread_mutex_unlock(&call_lock);
    if (!ready)
        free(call);
    return ready ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult work_call(struct CUctx_st *current, CUstream stream, void (*function)(void *data), void *data) {
    uint64_t before = work_put(current, stream, (struct gpu_work){0}, NULL);
    return call_after(current, stream, work_context(current, stream)->device->gpu, before, function, data);
}

CUresult work_wait_for(struct CUctx_st *current, CUstream stream, CUevent event) {
    if (event->gpu == NULL || gpu_poll_completion(event->gpu, &event->mark))
        return CUDA_SUCCESS;
    if (event->gpu != work_context(current, stream)->device->gpu)
        return call_after(current, stream, event->gpu, event->mark.number, NULL, NULL);
    (void)work_put(current, stream, (struct gpu_work){.after = {event->mark.number}}, NULL);
    return CUDA_SUCCESS;
}

/* ---- what things cost ---- */

enum {
    START_NS = 2000,
    WAVE_NS = 5000,
    THREADS_PER_SM = 2048,
    BLOCKS_PER_SM = 32,
    HOST_BYTES_PER_US = 25000,     /* PCI Express 4.0 with 16 lanes, in practice */
    DEVICE_BYTES_PER_US = 1200000, /* written, or read and written at half of that, by an A100's memory */
};

static bool first_parameter(void *const *parameters, void *const *extra, uint64_t *value) {
    const void *from = parameters != NULL ? parameters[0] : NULL;
    for (; extra != NULL && *extra != NULL; extra += 2) /* CU_LAUNCH_PARAM_END */
        if (*extra == (void *)1)                        /* CU_LAUNCH_PARAM_BUFFER_POINTER */
            from = extra[1];
    if (from == NULL)
        return false;
    memcpy(value, from, sizeof *value);
    return true;
}

struct gpu_work kernel_work(const struct device *device, const char *name, uint64_t blocks, unsigned block_threads,
                            void *const *parameters, void *const *extra) {
    uint32_t sms = device->identity->multiprocessors;
    struct gpu_work work = {.sms = blocks < sms ? (uint32_t)blocks : sms};
    if (strstr(name, "aliquot_busy") != NULL && first_parameter(parameters, extra, &work.ns))
        return work;
    uint64_t resident = block_threads != 0 ? THREADS_PER_SM / block_threads : 1;
    resident = resident < 1 ? 1 : resident > BLOCKS_PER_SM ? BLOCKS_PER_SM : resident;
    uint64_t waves = (blocks - 1) / (resident * sms) + 1;
    work.ns = START_NS + waves * WAVE_NS;
    return work;
}

struct gpu_work copy_work(enum way way, size_t bytes) {
    uint64_t speed = way == WAY_WITHIN ? DEVICE_BYTES_PER_US / 2 : HOST_BYTES_PER_US;
    return (struct gpu_work){.ns = START_NS + bytes / speed * 1000 + bytes % speed * 1000 / speed,
                             .flags = way == WAY_OUT ? GPU_WORK_COPIES_OUT : GPU_WORK_COPIES_IN};
}

struct gpu_work fill_work(const struct device *device, size_t bytes) {
    return (struct gpu_work){.ns = START_NS + bytes / (DEVICE_BYTES_PER_US / 1000),
                             .sms = device->identity->multiprocessors};
}
