#define _GNU_SOURCE
#include "cuda_work.h"
#include "gpu_profile.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
/* The symbol version from before glibc 2.34, so that the driver loads in older containers. */
__asm__(".symver pthread_create, pthread_create@GLIBC_2.2.5");
#endif

enum { LEGACY_QUEUE = 0, CALL_POLL_NS = 1000000 };

static unsigned streams_in_queue[GPU_QUEUES];

/* The calling thread's per-thread default stream. Each thread has one on each GPU. */
static _Thread_local struct {
    unsigned queue; /* 0: none yet */
    uint64_t last[GPU_MAX_PER_NODE];
} per_thread_stream;

static unsigned emptiest_queue(unsigned first, unsigned end) {
    unsigned best = first;
    for (unsigned i = first; i < end; i++) {
        if (streams_in_queue[i] < streams_in_queue[best]) {
            best = i;
        }
    }
    return best;
}

static unsigned emptiest_barrier_queue(void) {
    unsigned connections = gpu_profile()->connections, end = LEGACY_QUEUE + 1 + connections;
    return emptiest_queue(LEGACY_QUEUE + 1, connections == 0 || end > GPU_BARRIER_QUEUES ? GPU_BARRIER_QUEUES : end);
}

/* With one connection all streams share a queue, in which they also wait for the legacy default stream. */
void work_assign_queue(struct CUstream_st *stream) {
    bool blocking = (stream->flags & CU_STREAM_NON_BLOCKING) == 0;
    unsigned connections = gpu_profile()->connections;
    unsigned end = connections == 0 ? GPU_QUEUES : GPU_BARRIER_QUEUES + connections;
    stream->queue = blocking || connections == 1 ? emptiest_barrier_queue() : emptiest_queue(GPU_BARRIER_QUEUES, end);
    streams_in_queue[stream->queue]++;
}

void work_release_queue(struct CUstream_st *stream) {
    streams_in_queue[stream->queue]--;
}

CUresult check_stream(CUstream stream) {
    if (is_default_stream(stream) || object_find(KIND_STREAM, stream) != NULL) {
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult enter_stream_context(CUstream stream, struct CUctx_st **context) {
    if (is_default_stream(stream)) {
        return enter_context(context);
    }
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (object_find(KIND_STREAM, stream) == NULL) {
        return leave(CUDA_ERROR_INVALID_HANDLE);
    }
    *context = stream->object.context;
    return CUDA_SUCCESS;
}

struct CUctx_st *stream_context(struct CUctx_st *current, CUstream stream) {
    return is_default_stream(stream) ? current : stream->object.context;
}

/* Returns the location of the number of the stream's latest work, and the stream's queue. */
static uint64_t *last_work_of_stream(struct CUctx_st *context, CUstream stream, unsigned *queue) {
    if (stream == PER_THREAD_STREAM) {
        if (per_thread_stream.queue == 0) {
            per_thread_stream.queue = emptiest_barrier_queue();
            streams_in_queue[per_thread_stream.queue]++; /* never decremented: the driver does not learn when a thread
                                                            ends */
        }
        *queue = per_thread_stream.queue;
        return &per_thread_stream.last[device_ordinal(context->device)];
    }
    if (is_default_stream(stream)) {
        *queue = LEGACY_QUEUE;
        return &context->last_work[LEGACY_QUEUE];
    }
    *queue = stream->queue;
    return &stream->last_work;
}

uint64_t work_submit(struct CUctx_st *current, CUstream stream, struct gpu_work work,
                     struct gpu_completion *completion) {
    struct CUctx_st *context = stream_context(current, stream);
    uint64_t *last = last_work_of_stream(context, stream, &work.queue);
    if (work.queue == LEGACY_QUEUE) {
        work.flags |= GPU_WORK_BARRIER;
    }
    work.after[1] = work.queue < GPU_BARRIER_QUEUES ? context->last_work[LEGACY_QUEUE] : 0;
    work.priority = is_default_stream(stream) ? 0 : stream->priority;
    uint64_t number = gpu_submit(context->device->gpu, &work, completion);
    *last = context->last_work[work.queue] = number;
    return number;
}

/* ---- waiting ---- */

struct awaited_work work_pending_in_stream(struct CUctx_st *current, CUstream stream) {
    struct CUctx_st *context = stream_context(current, stream);
    struct awaited_work awaited = {.gpu = context->device->gpu};
    unsigned queue;
    uint64_t *last = last_work_of_stream(context, stream, &queue);
    if (queue == LEGACY_QUEUE) {
        memcpy(awaited.numbers, context->last_work, GPU_BARRIER_QUEUES * sizeof context->last_work[0]);
    } else {
        awaited.numbers[0] = *last;
    }
    return awaited;
}

struct awaited_work work_pending_in_context(struct CUctx_st *context) {
    struct awaited_work awaited = {.gpu = context->device->gpu};
    memcpy(awaited.numbers, context->last_work, sizeof context->last_work);
    return awaited;
}

bool work_is_done(const struct awaited_work *awaited) {
    for (int i = 0; i < GPU_QUEUES; i++) {
        if (awaited->numbers[i] != 0 && !gpu_is_done(awaited->gpu, awaited->numbers[i])) {
            return false;
        }
    }
    return true;
}

void work_wait(const struct awaited_work *awaited) {
    for (int i = 0; i < GPU_QUEUES; i++) {
        if (awaited->numbers[i] != 0) {
            gpu_wait(awaited->gpu, awaited->numbers[i]);
        }
    }
}

/* ---- events ---- */

void work_record_event(struct CUctx_st *current, CUstream stream, CUevent event) {
    if (event->gpu != NULL) {
        gpu_drop_completion(event->gpu, &event->completion);
    }
    const struct gpu_profile *profile = gpu_profile();
    event->gpu = stream_context(current, stream)->device->gpu;
    event->late_ns = gpu_profile_between(profile->late_min_ns, profile->late_max_ns);
    struct gpu_work work = {.flags = profile->events_after_own ? GPU_WORK_AFTER_KERNELS : 0};
    (void)work_submit(current, stream, work, &event->completion);
}

/* ---- host functions ---- */

/*
 * A host function to call when work of one GPU is done, and the gate to open afterwards, which may be on another GPU.
 */
struct pending_call {
    gpu_file *awaited_gpu, *gpu;
    uint64_t awaited_number, gate;
    void (*function)(void *data); /* NULL: only opens the gate */
    void *data;
    struct pending_call *next;
};

static pthread_mutex_t call_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct pending_call *pending_calls; /* oldest first */
static bool call_thread_running;           /* the thread that calls host functions is running */

/*
 * Removes and returns the oldest call that is ready. If there is none, returns NULL and the earliest time at which one
 * may be.
 */
static struct pending_call *take_ready_call(uint64_t *wake_time) {
    *wake_time = gpu_now() + CALL_POLL_NS; /* limits the sleep, for calls that are added meanwhile */
    for (struct pending_call **link = &pending_calls; *link != NULL; link = &(*link)->next) {
        struct pending_call *call = *link;
        uint64_t earliest = gpu_earliest_completion(call->awaited_gpu, call->awaited_number);
        if (earliest == 0) {
            *link = call->next;
            return call;
        }
        if (earliest < *wake_time) {
            *wake_time = earliest;
        }
    }
    return NULL;
}

static void *run_call_thread(void *unused) {
    (void)unused;
    for (;;) {
        uint64_t wake_time;
        pthread_mutex_lock(&call_mutex);
        struct pending_call *call = take_ready_call(&wake_time);
        call_thread_running = pending_calls != NULL || call != NULL;
        bool more = call_thread_running;
        pthread_mutex_unlock(&call_mutex);
        if (!more) {
            return NULL;
        }
        if (call == NULL) {
            gpu_sleep_until(wake_time);
            continue;
        }
        if (call->function != NULL) {
            call->function(call->data);
        }
        gpu_open_gate(call->gpu, call->gate);
        free(call);
    }
}

bool work_has_host_functions(void) {
    pthread_mutex_lock(&call_mutex);
    bool any = call_thread_running;
    pthread_mutex_unlock(&call_mutex);
    return any;
}

/*
 * Submits a gate to the stream. The gate opens once work awaited_number of awaited_gpu is done and function has
 * returned.
 */
static CUresult submit_gate_after(struct CUctx_st *current, CUstream stream, gpu_file *awaited_gpu,
                                  uint64_t awaited_number, void (*function)(void *), void *data) {
    struct pending_call *call = malloc(sizeof *call);
    if (call == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *call = (struct pending_call){
        .awaited_gpu = awaited_gpu, .awaited_number = awaited_number, .function = function, .data = data};
    call->gpu = stream_context(current, stream)->device->gpu;
    pthread_mutex_lock(&call_mutex);
    bool ready = call_thread_running;
    if (!ready) {
        pthread_t thread;
        pthread_attr_t detached;
        pthread_attr_init(&detached);
        pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
        /* The new thread waits for call_mutex. */
        ready = call_thread_running = pthread_create(&thread, &detached, run_call_thread, NULL) == 0;
        pthread_attr_destroy(&detached);
    }
    if (ready) {
        struct pending_call **end = &pending_calls;
        while (*end != NULL) {
            end = &(*end)->next;
        }
        call->gate = work_submit(current, stream, (struct gpu_work){.flags = GPU_WORK_GATE}, NULL);
        *end = call;
    }
    pthread_mutex_unlock(&call_mutex);
    if (!ready) {
        free(call);
    }
    return ready ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult work_call_host_function(struct CUctx_st *current, CUstream stream, void (*function)(void *data), void *data) {
    uint64_t awaited = work_submit(current, stream, (struct gpu_work){0}, NULL);
    return submit_gate_after(current, stream, stream_context(current, stream)->device->gpu, awaited, function, data);
}

CUresult work_wait_event(struct CUctx_st *current, CUstream stream, CUevent event) {
    if (event->gpu == NULL || gpu_poll_completion(event->gpu, &event->completion)) {
        return CUDA_SUCCESS;
    }
    if (event->gpu != stream_context(current, stream)->device->gpu) {
        return submit_gate_after(current, stream, event->gpu, event->completion.number, NULL, NULL);
    }
    (void)work_submit(current, stream, (struct gpu_work){.after = {event->completion.number}}, NULL);
    return CUDA_SUCCESS;
}

/* ---- durations ---- */

enum {
    START_NS = 2000,
    WAVE_NS = 5000,
    THREADS_PER_SM = 2048,
    BLOCKS_PER_SM = 32,
    HOST_BYTES_PER_US = 25000,     /* effective bandwidth of PCI Express 4.0 with 16 lanes */
    DEVICE_BYTES_PER_US = 1631232, /* four fifths of what the device's attributes (clock, width) allow; a copy reads and
                                      writes, at half of it */
};

/* Reads the parameter of that number of a kernel that has only parameters of type uint64_t. */
static bool read_parameter(void *const *parameters, void *const *extra, int number, uint64_t *value) {
    const void *from = parameters != NULL ? parameters[number] : NULL;
    for (; extra != NULL && *extra != NULL; extra += 2) { /* CU_LAUNCH_PARAM_END */
        if (*extra == (void *)1) {                        /* CU_LAUNCH_PARAM_BUFFER_POINTER */
            from = (const uint64_t *)extra[1] + number;
        }
    }
    if (from == NULL) {
        return false;
    }
    memcpy(value, from, sizeof *value);
    return true;
}

/* The multiprocessors that a kernel occupies. Where the profile says what fills one, several that the kernel fills in
   part count as fewer. */
static uint32_t occupied_sms(uint32_t sms, uint64_t blocks, unsigned block_threads) {
    uint64_t full = gpu_profile()->warps, warps = blocks * ((block_threads + 31) / 32);
    uint64_t occupied = full > 0 && warps < blocks * full ? (warps + full - 1) / full : blocks;
    return occupied < sms ? (uint32_t)occupied : sms;
}

struct gpu_work kernel_work(const struct device *device, const char *name, uint64_t blocks, unsigned block_threads,
                            void *const *parameters, void *const *extra) {
    uint32_t sms = device->identity->multiprocessors;
    struct gpu_work work = {.sms = occupied_sms(sms, blocks, block_threads)};
    uint64_t number, ranks;
    if (strstr(name, "aliquot_busy") != NULL && read_parameter(parameters, extra, 0, &work.ns)) {
        return work;
    }
    if (strstr(name, "aliquot_collective") != NULL && read_parameter(parameters, extra, 0, &work.ns) &&
        read_parameter(parameters, extra, 1, &number) && read_parameter(parameters, extra, 2, &ranks)) {
        work.ns = work.ns == 0 ? 1 : work.ns;
        work.flags = GPU_WORK_COLLECTIVE;
        work.after[0] = gpu_collective(number, (unsigned)ranks);
        return work;
    }
    uint64_t resident = block_threads != 0 ? THREADS_PER_SM / block_threads : 1;
    resident = resident < 1 ? 1 : resident > BLOCKS_PER_SM ? BLOCKS_PER_SM : resident;
    uint64_t waves = (blocks - 1) / (resident * sms) + 1;
    work.ns = START_NS + waves * WAVE_NS;
    return work;
}

struct gpu_work memcpy_work(enum copy_direction direction, size_t bytes) {
    uint64_t speed = direction == COPY_WITHIN_DEVICE ? DEVICE_BYTES_PER_US / 2 : HOST_BYTES_PER_US;
    return (struct gpu_work){.ns = START_NS + bytes / speed * 1000 + bytes % speed * 1000 / speed,
                             .flags = direction == COPY_DEVICE_TO_HOST ? GPU_WORK_COPIES_OUT : GPU_WORK_COPIES_IN};
}

struct gpu_work memset_work(const struct device *device, size_t bytes) {
    return (struct gpu_work){.ns = START_NS + bytes / (DEVICE_BYTES_PER_US / 1000),
                             .sms = device->identity->multiprocessors};
}
