#include "measure.h"

#include "compute.h"
#include "lookup.h"
#include "os.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define METERS_MAX 16             /* contexts measured at a time; launches in others are charged what was learned */
#define BATCHES_PER_METER 48      /* open or pending */
#define OPEN_BATCHES_PER_THREAD 4 /* streams */
#define COSTS_PER_BATCH 6         /* functions or graphs */
#define COSTS_PER_GROUP 16
#define BATCH_WORK_NS 1000000                  /* ends a batch; also the unit in which unmeasured work is counted */
#define BATCH_LAUNCHES_MAX 64                  /* ends a batch */
#define BATCH_ABANDONED_NS INT64_C(1000000000) /* the thread of an older open batch is assumed dead */
#define UNMEASURED_WORK_NS INT64_C(100000000)  /* an unmeasured launch may be on the GPU for this long */
#define LATE_INITIAL_NS 12000                  /* threshold for a late event until it is learned */
#define LATE_MIN_NS 8000                       /* lower bound of the threshold */
#define LATE_MAX_NS 100000                     /* upper bound of the threshold */
#define DELAY_SAMPLES 64                       /* delays of punctual events from which the threshold is learned */
#define CLOCK_DRIFT_DIVISOR 20000              /* drift of the GPU's clock against the host's: 1/20000, 50 ppm */
#define SLOW_RECORD_NS 50000                   /* recording took so long that the thread was preempted */
#define ALONE_EVENTS_MIN 8                     /* events needed to conclude that the process is alone */
#define ALONE_LATE_DIVISOR 24                  /* at most 1 in 24 events is late if the process is alone */
#define PENDING_PROBES_MAX 64                  /* recorded and not completed */
#define PROBE_RESULTS_MAX 1024                 /* last results kept */
#define PROBE_INTERVAL_NS INT64_C(800000)
#define RECENTLY_THROTTLED_NS INT64_C(200000000)
#define GROUP_WORK_NS 16000000 /* measured time after which a group is learned from while others share the GPU */
#define HELPER_INTERVAL_NS INT64_C(5000000)
#define HELPER_IDLE_NS INT64_C(100000000)
#define HELPER_END_NS INT64_C(2000000000) /* at exit, longest wait for the end of the helper thread */

enum batch_state { BATCH_FREE, BATCH_OPEN, BATCH_CLOSING, BATCH_PENDING };
#define BATCH_STATE_BITS 2
#define BATCH_STATE(word) ((enum batch_state)((word)&3))
#define WORD_WITH_NEXT_USE(word, state) (((((word) >> BATCH_STATE_BITS) + 1) << BATCH_STATE_BITS) | (uint64_t)(state))
#define WORD_WITH_STATE(word, state) (((word) & ~UINT64_C(3)) | (uint64_t)(state))

struct batch {
    /* The state and, in the upper bits, a use count, by which a thread notices that its batch was taken over.
       BATCH_CLOSING is exclusive: only the thread that set it accesses the other fields until it sets another state.
       In BATCH_OPEN the owning thread writes nothing into the batch, and any thread may take it over. In
       BATCH_PENDING it belongs to the holder of meter->processing. */
    _Atomic uint64_t word;
    CUevent start, end;
    _Atomic(CUstream) stream;
    _Atomic int64_t opened; /* host's clock, like closed; valid in every state but BATCH_FREE and BATCH_CLOSING */
    int64_t closed;
    bool closed_after_launch; /* closed right after its last launch */
    bool after_idle;          /* the process had no work on the GPU when start was recorded */
    uint64_t charged;
    uint64_t launches;
    uint64_t order; /* order of closing */
    size_t part_count;
    struct aliquot_cost_part parts[COSTS_PER_BATCH];
};

/* Batches that are evaluated together: those that overlap in time, and while others share the GPU also successive
   ones. */
struct batch_group {
    uint64_t measured, charged;
    unsigned late_probes, probes; /* recorded in the time of the group: late ones, all */
    size_t part_count;
    struct aliquot_cost_part parts[COSTS_PER_GROUP];
};

/* An event on the shim's own stream, where it waits for nothing but the process's time slice. */
struct probe {
    CUevent event;
    int64_t recorded_at; /* host's clock */
};

struct probe_result {
    double at; /* when it was recorded, on the GPU's clock */
    bool late;
};

/* Measures one CUDA context: its batches, probes, and what was learned about the clocks and the other processes. */
struct meter {
    _Atomic(CUcontext) context; /* NULL: the meter is free */
    int device;
    atomic_int pending_batches;
    atomic_uint target;          /* launches after which a batch ends */
    _Atomic int64_t last_opened; /* on the coarse clock, like the next two */
    _Atomic int64_t last_unmeasured;
    _Atomic int64_t last_throttled;
    _Atomic uint64_t closed_count;
    struct batch batches[BATCHES_PER_METER];
    /* The flag guards the following. Only the thread that ends the context waits for it. */
    atomic_flag processing;
    /* End event of the batch that ended last: the reference for the times of later events. Threads without the flag
       test it for NULL. */
    _Atomic(CUevent) reference;
    double reference_time; /* of reference: ns on the GPU's clock since its first event */
    bool has_least_delay;
    double least_delay; /* smallest offset of the GPU's clock from the host's seen at an event */
    int64_t least_seen;
    uint32_t late_threshold_ns; /* 0: not learned yet */
    uint32_t delays[DELAY_SAMPLES];
    unsigned delay_count;
    uint64_t late_history;       /* one bit for each of the last 64 events without dependencies */
    unsigned late_history_count; /* number of valid bits, at most 64 */
    struct batch_group group;
    CUstream probe_stream; /* for probes; NULL: not created yet */
    bool probing_failed;
    struct probe probes[PENDING_PROBES_MAX];
    uint64_t oldest_pending_probe, probe_count;
    struct probe_result probe_results[PROBE_RESULTS_MAX];
    uint64_t probe_result_count;
};

static struct meter meters[METERS_MAX];
static atomic_bool any_meter; /* false: they are all zeros */
static atomic_flag claiming_meter = ATOMIC_FLAG_INIT;
static atomic_uint fork_epoch = 1; /* increases in a forked child */
enum { HELPER_NONE, HELPER_RUNNING, HELPER_IMPOSSIBLE };
static atomic_int helper_state;
static atomic_int helper_thread; /* the last one; 0: none yet */
static atomic_bool exiting;      /* no helper thread is started any more */

/* An open batch of this thread. */
struct open_batch {
    struct meter *meter;
    CUcontext context;
    CUstream stream;
    struct batch *batch;
    uint64_t word;
    uint64_t launches, charged;
    size_t part_count;
    struct aliquot_cost_part parts[COSTS_PER_BATCH];
};

struct thread_batches {
    unsigned fork_epoch;
    unsigned next;
    unsigned open_count;
    struct meter *meter; /* of the last launch */
    int device;
    uint64_t uncounted;
    struct open_batch open[OPEN_BATCHES_PER_THREAD];
};

static __thread struct thread_batches this_thread __attribute__((tls_model("initial-exec")));

static bool can_measure(void) {
    return aliquot_real.cuEventCreate != NULL && aliquot_real.cuEventRecord != NULL &&
           aliquot_real.cuEventQuery != NULL && aliquot_real.cuEventElapsedTime != NULL &&
           aliquot_real.cuCtxSetCurrent != NULL;
}

static int exchange_capture_mode(int mode) {
    CUstreamCaptureMode exchanged = (CUstreamCaptureMode)mode;
    if (aliquot_real.cuThreadExchangeStreamCaptureMode == NULL ||
        aliquot_real.cuThreadExchangeStreamCaptureMode(&exchanged) != CUDA_SUCCESS) {
        return -1;
    }
    return (int)exchanged;
}

static int relax_capture_mode(void) {
    return exchange_capture_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
}

static void restore_capture_mode(int mode) {
    if (mode >= 0) {
        exchange_capture_mode(mode);
    }
}

static struct meter *find_meter(CUcontext context) {
    for (int i = 0; i < METERS_MAX; i++) {
        if (atomic_load_explicit(&meters[i].context, memory_order_acquire) == context) {
            return &meters[i];
        }
    }
    return NULL;
}

/* Returns the context's meter. NULL: all are in use, or another thread is claiming one. */
static struct meter *find_or_claim_meter(CUcontext context, int device) {
    struct meter *meter = find_meter(context);
    if (meter != NULL || atomic_flag_test_and_set(&claiming_meter)) {
        return meter;
    }
    meter = find_meter(context); /* another thread may have claimed it */
    for (int i = 0; i < METERS_MAX && meter == NULL; i++) {
        if (atomic_load(&meters[i].context) == NULL) {
            meter = &meters[i];
            atomic_store(&any_meter, true);
            meter->device = device;
            atomic_store(&meter->target, BATCH_LAUNCHES_MAX);
            atomic_store(&meter->context, context); /* publishes the meter */
        }
    }
    atomic_flag_clear(&claiming_meter);
    return meter;
}

static struct thread_batches *thread_batches(void) {
    unsigned now = atomic_load_explicit(&fork_epoch, memory_order_relaxed);
    if (this_thread.fork_epoch != now) {
        memset(&this_thread, 0, sizeof this_thread);
        this_thread.fork_epoch = now;
    }
    return &this_thread;
}

/* Index of this thread's open batch for the launch; -1: none. */
static int find_open_batch(const struct thread_batches *thread, const struct aliquot_launch *launch) {
    for (int i = 0; thread->open_count > 0 && i < OPEN_BATCHES_PER_THREAD; i++) {
        const struct open_batch *open = &thread->open[i];
        if (open->stream == launch->stream && open->context == launch->context && open->batch != NULL) {
            return i;
        }
    }
    return -1;
}

static __attribute__((noinline, cold)) void flush_unmeasured(struct thread_batches *thread) {
    aliquot_compute_add_used(thread->device, thread->uncounted);
    thread->uncounted = 0;
}

/* Counts unmeasured launches as used, with the time that they were charged. */
static void count_unmeasured(struct thread_batches *thread, int device, uint64_t charged) {
    if (thread->device != device && thread->uncounted > 0) {
        flush_unmeasured(thread);
    }
    thread->device = device;
    thread->uncounted += charged;
    if (thread->uncounted >= BATCH_WORK_NS) {
        flush_unmeasured(thread);
    }
}

/* False: another thread took the batch over. */
static bool set_batch_state(const struct open_batch *open, enum batch_state next) {
    uint64_t word = open->word;
    return atomic_compare_exchange_strong(&open->batch->word, &word, WORD_WITH_STATE(word, next));
}

/* Removes the batch from this thread's open batches. */
static void detach_batch(struct open_batch *open) {
    open->batch = NULL;
    this_thread.open_count--;
}

static void discard_batch(struct open_batch *open) {
    set_batch_state(open, BATCH_FREE);
    detach_batch(open);
    count_unmeasured(&this_thread, open->meter->device, open->charged);
}

/* Returns a free batch, or one whose thread is dead, in state BATCH_CLOSING. */
static struct batch *claim_batch(struct meter *meter, int64_t now, uint64_t *word) {
    for (int i = 0; i < BATCHES_PER_METER; i++) {
        struct batch *batch = &meter->batches[i];
        uint64_t found = atomic_load(&batch->word);
        bool abandoned = BATCH_STATE(found) == BATCH_OPEN && now - atomic_load(&batch->opened) > BATCH_ABANDONED_NS;
        if (BATCH_STATE(found) != BATCH_FREE && !abandoned) {
            continue;
        }
        *word = WORD_WITH_NEXT_USE(found, BATCH_CLOSING);
        if (atomic_compare_exchange_strong(&batch->word, &found, *word)) {
            return batch;
        }
    }
    return NULL;
}

static void destroy_event(CUevent event) {
    if (event != NULL && aliquot_real.cuEventDestroy_v2 != NULL) {
        aliquot_real.cuEventDestroy_v2(event);
    }
}

static bool ensure_batch_events(struct batch *batch) {
    return (batch->start != NULL || aliquot_real.cuEventCreate(&batch->start, 0) == CUDA_SUCCESS) &&
           (batch->end != NULL || aliquot_real.cuEventCreate(&batch->end, 0) == CUDA_SUCCESS);
}

/* Whether the process has no work on the GPU, as far as the hooks see launches. */
static bool is_gpu_idle(struct meter *meter, int64_t now) {
    bool idle = atomic_load(&meter->pending_batches) == 0 &&
                now - atomic_load_explicit(&meter->last_unmeasured, memory_order_relaxed) > UNMEASURED_WORK_NS;
    for (int i = 0; i < BATCHES_PER_METER && idle; i++) {
        const struct batch *batch = &meter->batches[i];
        enum batch_state state = BATCH_STATE(atomic_load(&batch->word));
        idle = state == BATCH_FREE || (state == BATCH_OPEN && now - atomic_load(&batch->opened) > UNMEASURED_WORK_NS);
    }
    return idle;
}

/* Makes sure that there is a reference event. */
static bool ensure_reference_event(struct meter *meter, CUstream stream) {
    if (atomic_load(&meter->reference) != NULL || atomic_flag_test_and_set(&meter->processing)) {
        return true;
    }
    CUevent event = NULL;
    bool recorded =
        atomic_load(&meter->reference) != NULL || (aliquot_real.cuEventCreate(&event, 0) == CUDA_SUCCESS &&
                                                   aliquot_real.cuEventRecord(event, stream) == CUDA_SUCCESS);
    if (recorded && event != NULL) {
        atomic_store(&meter->reference, event);
    } else {
        destroy_event(event);
    }
    atomic_flag_clear(&meter->processing);
    return recorded;
}

/* Index of the new batch; -1: none could be opened. */
static __attribute__((noinline)) int open_batch(struct thread_batches *thread, struct meter *meter,
                                                const struct aliquot_launch *launch) {
    int number = (int)(thread->next++ % OPEN_BATCHES_PER_THREAD);
    struct open_batch *open = &thread->open[number];
    if (open->batch != NULL) {
        discard_batch(open);
    }
    if (atomic_load(&meter->pending_batches) > 0) {
        aliquot_measure_poll(launch->context);
    }
    int64_t now = aliquot_os_clock();
    int64_t coarse = aliquot_os_clock_coarse();
    bool idle = is_gpu_idle(meter, now);
    uint64_t word = 0;
    struct batch *batch = claim_batch(meter, now, &word);
    if (batch == NULL) {
        return -1;
    }
    int mode = relax_capture_mode();
    atomic_store(&batch->stream, launch->stream);
    atomic_store(&batch->opened, now);
    if (!ensure_batch_events(batch) || !ensure_reference_event(meter, launch->stream) ||
        aliquot_real.cuEventRecord(batch->start, launch->stream) != CUDA_SUCCESS) {
        atomic_store(&batch->word, WORD_WITH_STATE(word, BATCH_FREE));
        aliquot_cost_reset_guess(launch->cost);
        number = -1;
    } else {
        batch->after_idle = idle && aliquot_os_clock() - now < SLOW_RECORD_NS;
        atomic_store_explicit(&meter->last_opened, coarse, memory_order_relaxed);
        word = WORD_WITH_STATE(word, BATCH_OPEN);
        *open = (struct open_batch){
            .meter = meter, .context = launch->context, .stream = launch->stream, .batch = batch, .word = word};
        atomic_store(&batch->word, word);
        thread->open_count++;
    }
    restore_capture_mode(mode);
    return number;
}

void aliquot_measure_begin(struct aliquot_launch *launch, bool throttled) {
    struct thread_batches *thread = thread_batches();
    launch->batch = find_open_batch(thread, launch);
    if (launch->batch >= 0) {
        return;
    }
    struct meter *meter = thread->meter;
    if (meter == NULL || atomic_load_explicit(&meter->context, memory_order_acquire) != launch->context) {
        meter = thread->meter = can_measure() ? find_or_claim_meter(launch->context, launch->device) : NULL;
    }
    if (meter == NULL) {
        aliquot_cost_reset_guess(launch->cost);
        return;
    }
    int64_t now = aliquot_os_clock_coarse();
    bool full = atomic_load_explicit(&meter->target, memory_order_relaxed) == BATCH_LAUNCHES_MAX;
    if (throttled) {
        atomic_store_explicit(&meter->last_throttled, now, memory_order_relaxed);
    }
    if (now - atomic_load_explicit(&meter->last_throttled, memory_order_relaxed) < RECENTLY_THROTTLED_NS || full ||
        launch->charged >= BATCH_WORK_NS || aliquot_cost_is_guess(launch->cost) ||
        now != atomic_load_explicit(&meter->last_opened, memory_order_relaxed)) {
        launch->batch = open_batch(thread, meter, launch);
    } else if (now != atomic_load_explicit(&meter->last_unmeasured, memory_order_relaxed)) {
        /* Written once per tick, because the context's threads share the cache line. */
        atomic_store_explicit(&meter->last_unmeasured, now, memory_order_relaxed);
    }
}

static void start_helper(void);

static __attribute__((noinline)) void close_batch(struct open_batch *open, bool closed_after_launch) {
    struct meter *meter = open->meter;
    struct batch *batch = open->batch;
    if (open->launches == 0) {
        discard_batch(open);
        return;
    }
    uint64_t word = open->word;
    bool still_owned = set_batch_state(open, BATCH_CLOSING);
    detach_batch(open);
    if (!still_owned) {
        count_unmeasured(&this_thread, meter->device, open->charged);
        return;
    }
    batch->closed_after_launch = closed_after_launch;
    batch->launches = open->launches;
    batch->charged = open->charged;
    batch->part_count = open->part_count;
    memcpy(batch->parts, open->parts, sizeof batch->parts);
    batch->closed = aliquot_os_clock();
    batch->order = atomic_fetch_add(&meter->closed_count, 1);
    int mode = relax_capture_mode();
    bool recorded = aliquot_real.cuEventRecord(batch->end, open->stream) == CUDA_SUCCESS;
    restore_capture_mode(mode);
    if (!recorded) {
        count_unmeasured(&this_thread, meter->device, open->charged);
        atomic_store(&batch->word, WORD_WITH_STATE(word, BATCH_FREE));
        return;
    }
    aliquot_compute_add_unfinished(meter->device, (int64_t)batch->charged);
    atomic_fetch_add(&meter->pending_batches, 1);
    atomic_store(&batch->word, WORD_WITH_STATE(word, BATCH_PENDING));
    start_helper();
}

/* Adds a launch to the batch. False: the batch is full of functions. */
static bool count_launch(struct open_batch *open, struct aliquot_cost *cost) {
    size_t i = 0;
    while (i < open->part_count && open->parts[i].cost != cost) {
        i++;
    }
    if (i == open->part_count) {
        open->parts[open->part_count++] = (struct aliquot_cost_part){.cost = cost};
    }
    open->parts[i].launches++;
    return open->part_count < COSTS_PER_BATCH;
}

void aliquot_measure_launched(const struct aliquot_launch *launch, bool succeeded) {
    struct thread_batches *thread = thread_batches();
    struct open_batch *open = launch->batch < 0 ? NULL : &thread->open[launch->batch];
    if (!succeeded) {
        return;
    }
    if (open == NULL || open->batch == NULL) { /* NULL if a signal handler has forked meanwhile */
        count_unmeasured(thread, launch->device, launch->charged);
        return;
    }
    open->launches++;
    open->charged += launch->charged;
    bool has_room = count_launch(open, launch->cost);
    /* With many pending batches only the work limit ends a batch, so that batches remain for all work that may be in
       flight. */
    bool many = open->launches >= atomic_load_explicit(&open->meter->target, memory_order_relaxed) &&
                atomic_load_explicit(&open->meter->pending_batches, memory_order_relaxed) < BATCHES_PER_METER / 2;
    if (!has_room || open->charged >= BATCH_WORK_NS || many || aliquot_cost_is_guess(launch->cost)) {
        close_batch(open, true);
    }
}

void aliquot_measure_pause(void) {
    struct thread_batches *thread = thread_batches();
    for (int i = 0; i < OPEN_BATCHES_PER_THREAD; i++) {
        if (thread->open[i].batch != NULL) {
            close_batch(&thread->open[i], false);
        }
    }
}

void aliquot_measure_forget_stream(CUstream stream) {
    for (int i = 0; i < METERS_MAX * BATCHES_PER_METER; i++) {
        struct batch *batch = &meters[i / BATCHES_PER_METER].batches[i % BATCHES_PER_METER];
        if (atomic_load(&batch->stream) != stream) {
            continue;
        }
        uint64_t word = atomic_load(&batch->word);
        if (BATCH_STATE(word) == BATCH_OPEN) {
            atomic_compare_exchange_strong(&batch->word, &word, WORD_WITH_NEXT_USE(word, BATCH_FREE));
        }
        /* Another thread is recording an event on the stream. */
        while (BATCH_STATE(atomic_load(&batch->word)) == BATCH_CLOSING) {
            aliquot_os_sleep_until(aliquot_os_clock() + 20000);
        }
    }
}

/* Nanoseconds between two completed events. False: the driver returned an error. */
static bool elapsed_between(CUevent from, CUevent to, double *ns) {
    float ms = 0;
    if (aliquot_real.cuEventElapsedTime(&ms, from, to) != CUDA_SUCCESS) {
        return false;
    }
    *ns = (double)ms * 1e6;
    return true;
}

static int compare_delays(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Learns the lateness threshold from the delays of punctual events. If the node agent reports no other process,
   almost all of them waited for no other process. Else the longer half may have waited; of exponentially distributed
   delays one in 128 exceeds 7 times the median. The threshold falls faster than it rises, because quiet times are
   the most informative. */
static void learn_delays(struct meter *meter) {
    qsort(meter->delays, DELAY_SAMPLES, sizeof meter->delays[0], compare_delays);
    bool alone = aliquot_compute_is_alone(meter->device, false);
    uint32_t found = alone ? meter->delays[DELAY_SAMPLES - 2] / 4 * 5 : meter->delays[DELAY_SAMPLES / 2] * 9;
    found = found < LATE_MIN_NS ? LATE_MIN_NS : found > LATE_MAX_NS ? LATE_MAX_NS : found;
    uint32_t before = meter->late_threshold_ns == 0 ? found : meter->late_threshold_ns;
    meter->late_threshold_ns = found < before ? before - (before - found) / 2 : before + (found - before) / 8;
    meter->delay_count = 0;
}

/* Whether an event completed later than the clock offset and the usual delay explain. time: ns on the GPU's clock. */
static bool is_late(struct meter *meter, double time, int64_t recorded, bool waited) {
    double delay = time - (double)recorded;
    double least = meter->least_delay + (double)(recorded - meter->least_seen) / CLOCK_DRIFT_DIVISOR;
    if (!meter->has_least_delay || delay < least) {
        meter->least_delay = least = delay;
        meter->least_seen = recorded;
        meter->has_least_delay = true;
    }
    if (!waited && delay - least < LATE_MAX_NS) {
        meter->delays[meter->delay_count++] = (uint32_t)(delay - least);
    }
    if (meter->delay_count == DELAY_SAMPLES) {
        learn_delays(meter);
    }
    return delay - least > (meter->late_threshold_ns == 0 ? LATE_INITIAL_NS : meter->late_threshold_ns);
}

static void record_lateness(struct meter *meter, bool late) {
    meter->late_history = meter->late_history << 1 | late;
    meter->late_history_count += meter->late_history_count < 64;
}

static bool is_alone(struct meter *meter) {
    bool seems = meter->late_history_count >= ALONE_EVENTS_MIN &&
                 (unsigned)__builtin_popcountll(meter->late_history) * ALONE_LATE_DIVISOR <= meter->late_history_count;
    return aliquot_compute_is_alone(meter->device, seems);
}

/* Evaluates the completed probes. */
static void collect_probes(struct meter *meter) {
    while (meter->oldest_pending_probe < meter->probe_count) {
        struct probe *probe = &meter->probes[meter->oldest_pending_probe % PENDING_PROBES_MAX];
        double since = 0;
        if (aliquot_real.cuEventQuery(probe->event) != CUDA_SUCCESS) {
            return;
        }
        CUevent reference = atomic_load(&meter->reference);
        if (reference != NULL && elapsed_between(reference, probe->event, &since)) {
            bool late = is_late(meter, meter->reference_time + since, probe->recorded_at, false);
            meter->probe_results[meter->probe_result_count++ % PROBE_RESULTS_MAX] =
                (struct probe_result){(double)probe->recorded_at + meter->least_delay, late};
            record_lateness(meter, late);
        }
        meter->oldest_pending_probe++;
    }
}

/* Adds the probes recorded between two times of the GPU's clock to the group, and counts the late ones. */
static void count_probes(const struct meter *meter, double from, double to, struct batch_group *group) {
    for (uint64_t i = 1; i <= PROBE_RESULTS_MAX && i <= meter->probe_result_count; i++) {
        const struct probe_result *result = &meter->probe_results[(meter->probe_result_count - i) % PROBE_RESULTS_MAX];
        if (result->at < from) {
            break;
        }
        if (result->at < to) {
            group->late_probes += result->late;
            group->probes++;
        }
    }
}

static void settle_charge(struct meter *meter, const struct aliquot_cost_part *parts, size_t count, uint64_t charged,
                          uint64_t measured, enum aliquot_cost_quality quality) {
    uint64_t charge_due = measured == 0 ? 0 : aliquot_cost_learn(parts, count, measured, quality);
    aliquot_compute_adjust(meter->device, (int64_t)charge_due - (int64_t)charged);
    aliquot_compute_add_used(meter->device, charge_due);
}

static void learn_group(struct meter *meter) {
    struct batch_group *group = &meter->group;
    if (group->part_count > 0) {
        bool known_alone = aliquot_compute_is_alone(meter->device, false), alone = known_alone || is_alone(meter);
        /* A probe stands for 0.8 ms, so several are needed. */
        bool enough_probes =
            group->measured >= GROUP_WORK_NS / 4 && (uint64_t)group->probes * PROBE_INTERVAL_NS > group->measured / 4;
        uint64_t measured = group->measured;
        if (enough_probes && !known_alone) {
            double own_part = 1 - (double)group->late_probes / group->probes;
            measured = (uint64_t)((double)measured * (own_part > 1.0 / 16 ? own_part : 1.0 / 16));
        }
        enum aliquot_cost_quality quality = alone || enough_probes ? ALIQUOT_COST_EXACT : ALIQUOT_COST_SHARED;
        settle_charge(meter, group->parts, group->part_count, group->charged, measured, quality);
    }
    *group = (struct batch_group){0};
}

static bool has_unmeasured_costs(const struct batch_group *group) {
    bool guesses = false;
    for (size_t i = 0; i < group->part_count; i++) {
        guesses |= aliquot_cost_is_guess(group->parts[i].cost);
    }
    return guesses;
}

static void join_group(struct meter *meter, const struct batch *batch, uint64_t measured) {
    struct batch_group *group = &meter->group;
    /* A certain overcharge is returned now, the rest when the group is learned from. */
    uint64_t charged = batch->charged < measured ? batch->charged : measured;
    aliquot_compute_adjust(meter->device, (int64_t)charged - (int64_t)batch->charged);
    group->measured += measured;
    group->charged += charged;
    for (size_t i = 0; i < batch->part_count; i++) {
        size_t at = 0;
        while (at < group->part_count && group->parts[at].cost != batch->parts[i].cost) {
            at++;
        }
        if (at == COSTS_PER_GROUP) {
            continue; /* does not happen: finish_batch() learns from the group before it is full */
        }
        if (at == group->part_count) {
            group->parts[group->part_count++] = (struct aliquot_cost_part){.cost = batch->parts[i].cost};
        }
        group->parts[at].launches += batch->parts[i].launches;
    }
}

static double larger_of(double a, double b) {
    return a > b ? a : b;
}

/* False: the driver returns no times. */
static bool finish_batch(struct meter *meter, struct batch *batch) {
    double took = 0, since = 0;
    CUevent reference = atomic_load(&meter->reference);
    if (!elapsed_between(batch->start, batch->end, &took) ||
        (reference != NULL && !elapsed_between(reference, batch->start, &since))) {
        return false;
    }
    double start_time = meter->reference_time + since;
    int64_t opened = atomic_load(&batch->opened);
    bool late = is_late(meter, start_time, opened, !batch->after_idle);
    if (batch->after_idle) {
        record_lateness(meter, late);
    }
    /* How long the batch ran on the GPU while the program was still launching. */
    double exposed = (double)batch->closed - larger_of((double)opened, start_time - meter->least_delay);
    bool gaps = took < exposed * 4 && !(batch->launches == 1 && batch->closed_after_launch);
    unsigned target = atomic_load(&meter->target);
    if (gaps) {
        atomic_store(&meter->target, target > 1 ? target / 2 : 1);
    } else if (target < BATCH_LAUNCHES_MAX && batch->launches >= target) {
        atomic_store(&meter->target, target * 2);
    }
    double covered = since < 0 ? -since : 0; /* by earlier batches */
    struct batch_group *group = &meter->group;
    bool overlaps = covered > took / 16;
    bool enough = group->measured >= GROUP_WORK_NS || group->part_count > COSTS_PER_GROUP - COSTS_PER_BATCH;
    uint64_t measured = took > covered ? (uint64_t)(took - covered) : 0;
    if (gaps) {
        settle_charge(meter, batch->parts, batch->part_count, batch->charged, measured, ALIQUOT_COST_GAPS);
    } else {
        if (enough || (!overlaps && is_alone(meter))) {
            learn_group(meter);
        }
        join_group(meter, batch, measured);
    }
    if (took > covered && !gaps) {
        count_probes(meter, start_time + covered, start_time + took, group);
    }
    if (took > covered) { /* this batch ends last so far */
        batch->end = atomic_exchange(&meter->reference, batch->end);
        meter->reference_time = start_time + took;
    }
    return true;
}

/* First pending batch with at least this order, by the order of closing. */
static struct batch *first_pending(struct meter *meter, uint64_t after) {
    struct batch *first = NULL;
    for (int i = 0; i < BATCHES_PER_METER; i++) {
        struct batch *batch = &meter->batches[i];
        if (BATCH_STATE(atomic_load(&batch->word)) == BATCH_PENDING && batch->order >= after &&
            (first == NULL || batch->order < first->order)) {
            first = batch;
        }
    }
    return first;
}

static void retire_batch(struct meter *meter, struct batch *batch) {
    aliquot_compute_add_unfinished(meter->device, -(int64_t)batch->charged);
    atomic_fetch_sub(&meter->pending_batches, 1);
    atomic_store(&batch->word, WORD_WITH_STATE(atomic_load(&batch->word), BATCH_FREE));
}

/* destroy: the context is valid, so the batch's events are destroyed, even those that another thread is recording.
   Otherwise that thread keeps its batch. */
static void drop_batch(struct meter *meter, struct batch *batch, bool destroy) {
    uint64_t word = atomic_load(&batch->word), taken;
    do {
        while (destroy && BATCH_STATE(word) == BATCH_CLOSING) {
            aliquot_os_sleep_until(aliquot_os_clock() + 20000);
            word = atomic_load(&batch->word);
        }
        if (BATCH_STATE(word) == BATCH_CLOSING) {
            return;
        }
        taken = WORD_WITH_NEXT_USE(word, BATCH_CLOSING);
    } while (!atomic_compare_exchange_strong(&batch->word, &word, taken));
    if (BATCH_STATE(word) == BATCH_PENDING) {
        aliquot_compute_add_used(meter->device, batch->charged);
        aliquot_compute_add_unfinished(meter->device, -(int64_t)batch->charged);
        atomic_fetch_sub(&meter->pending_batches, 1);
    }
    if (destroy) {
        destroy_event(batch->start);
        destroy_event(batch->end);
    }
    batch->start = batch->end = NULL;
    atomic_store(&batch->word, WORD_WITH_STATE(taken, BATCH_FREE));
}

static void drop_batches(struct meter *meter, bool destroy) {
    for (int i = 0; i < BATCHES_PER_METER; i++) {
        drop_batch(meter, &meter->batches[i], destroy);
    }
    for (int i = 0; i < PENDING_PROBES_MAX; i++) {
        if (destroy) {
            destroy_event(meter->probes[i].event);
        }
        meter->probes[i].event = NULL;
    }
    CUevent reference = atomic_exchange(&meter->reference, NULL);
    if (destroy) {
        destroy_event(reference);
    }
    if (destroy && meter->probe_stream != NULL && aliquot_real.cuStreamDestroy_v2 != NULL) {
        aliquot_real.cuStreamDestroy_v2(meter->probe_stream);
    }
    meter->probe_stream = NULL;
    meter->oldest_pending_probe = meter->probe_count = meter->probe_result_count = 0;
    meter->probing_failed = false;
    meter->reference_time = 0;
    meter->has_least_delay = false;
    meter->delay_count = 0;
    meter->group = (struct batch_group){0};
}

/* make_current: the calling thread has no current context, without which cuEventElapsedTime fails. */
static bool poll_meter(struct meter *meter, bool make_current) {
    if (atomic_load(&meter->pending_batches) == 0) {
        return false;
    }
    if (atomic_flag_test_and_set(&meter->processing)) {
        return true; /* another thread is processing the meter */
    }
    CUcontext context = atomic_load(&meter->context);
    if (make_current && aliquot_real.cuCtxSetCurrent(context) != CUDA_SUCCESS) {
        drop_batches(meter, false); /* the context is destroyed */
        atomic_flag_clear(&meter->processing);
        return false;
    }
    int mode = relax_capture_mode();
    collect_probes(meter);
    CUstream waiting[OPEN_BATCHES_PER_THREAD]; /* of unfinished batches; later batches on them are skipped, because they
                                                  might finish meanwhile */
    size_t waiting_count = 0;
    struct batch *batch = first_pending(meter, 0);
    for (uint64_t next; batch != NULL && waiting_count < OPEN_BATCHES_PER_THREAD; batch = first_pending(meter, next)) {
        next = batch->order + 1; /* read before retire_batch() frees the batch */
        bool behind = false;
        for (size_t i = 0; i < waiting_count; i++) {
            behind |= waiting[i] == atomic_load(&batch->stream);
        }
        CUresult result = behind ? CUDA_ERROR_NOT_READY : aliquot_real.cuEventQuery(batch->end);
        if (result == CUDA_SUCCESS) {
            collect_probes(meter); /* probes recorded while it ran */
        }
        if (result == CUDA_SUCCESS) {
            if (!finish_batch(meter, batch)) { /* its launches stay charged as estimated */
                aliquot_compute_add_used(meter->device, batch->charged);
            }
            retire_batch(meter, batch);
        } else if (result != CUDA_ERROR_NOT_READY) {
            drop_batches(meter, false); /* the context failed permanently */
            break;
        } else if (!behind) {
            waiting[waiting_count++] = atomic_load(&batch->stream);
        }
    }
    bool last = atomic_load(&meter->pending_batches) == 0; /* no other batch can overlap */
    if (last && (has_unmeasured_costs(&meter->group) || is_alone(meter))) {
        learn_group(meter);
    }
    restore_capture_mode(mode);
    if (make_current) {
        aliquot_real.cuCtxSetCurrent(NULL);
    }
    atomic_flag_clear(&meter->processing);
    return atomic_load(&meter->pending_batches) > 0;
}

bool aliquot_measure_poll(CUcontext context) {
    struct meter *meter = find_meter(context);
    return meter != NULL && poll_meter(meter, false);
}

void aliquot_measure_forget_context(CUcontext context) {
    struct meter *meter = context == NULL ? NULL : find_meter(context);
    if (meter == NULL) {
        return;
    }
    while (atomic_flag_test_and_set(&meter->processing)) {
        aliquot_os_sleep_until(aliquot_os_clock() + 100000); /* the holder of the flag waits for nothing */
    }
    int mode = relax_capture_mode();
    learn_group(meter);
    drop_batches(meter, true);
    restore_capture_mode(mode);
    meter->late_history = 0;
    meter->late_history_count = 0;
    atomic_store(&meter->context, NULL);
    atomic_flag_clear(&meter->processing);
}

void aliquot_measure_reset(void) {
    if (atomic_exchange(&any_meter, false)) {
        memset(meters, 0, sizeof meters);
    }
    atomic_store(&helper_state, HELPER_NONE);
    atomic_store(&helper_thread, 0);
    atomic_flag_clear(&claiming_meter);
    atomic_fetch_add(&fork_epoch, 1);
    aliquot_cost_reset();
}

static bool ensure_probe_stream(struct meter *meter) {
    if (meter->probe_stream == NULL &&
        (aliquot_real.cuStreamCreate == NULL ||
         aliquot_real.cuStreamCreate(&meter->probe_stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)) {
        meter->probe_stream = NULL;
        meter->probing_failed = true;
    }
    return meter->probe_stream != NULL;
}

static void record_probe(struct meter *meter) {
    struct probe *probe = &meter->probes[meter->probe_count % PENDING_PROBES_MAX];
    int64_t now = aliquot_os_clock();
    if (!ensure_probe_stream(meter) ||
        (probe->event == NULL && aliquot_real.cuEventCreate(&probe->event, 0) != CUDA_SUCCESS) ||
        aliquot_real.cuEventRecord(probe->event, meter->probe_stream) != CUDA_SUCCESS) {
        return;
    }
    if (aliquot_os_clock() - now < SLOW_RECORD_NS) {
        probe->recorded_at = now;
        meter->probe_count++;
    }
}

/* Records a probe while this process has work on the GPU. True: others share the GPU, so probe more often. */
static bool probe_if_shared(struct meter *meter, CUcontext context) {
    if (atomic_flag_test_and_set(&meter->processing)) {
        return false;
    }
    bool can_probe =
        !meter->probing_failed && atomic_load(&meter->reference) != NULL && atomic_load(&meter->context) == context;
    if (can_probe && meter->probe_count - meter->oldest_pending_probe < PENDING_PROBES_MAX &&
        aliquot_real.cuCtxSetCurrent(context) == CUDA_SUCCESS) {
        record_probe(meter);
        aliquot_real.cuCtxSetCurrent(NULL);
    }
    bool alone = is_alone(meter);
    atomic_flag_clear(&meter->processing);
    return can_probe && !alone;
}

struct poll_result {
    bool pending_batches, shared;
};

static struct poll_result poll_all_meters(void) {
    struct poll_result polled = {false, false};
    for (int i = 0; i < METERS_MAX; i++) {
        CUcontext context = atomic_load(&meters[i].context);
        if (context != NULL && poll_meter(&meters[i], true)) {
            polled.pending_batches = true;
            polled.shared |= probe_if_shared(&meters[i], context);
        }
    }
    return polled;
}

/* Random interval from 3/4 to 5/4 of the given one: even intervals could synchronize with the time slices that the
   probes detect. xorshift32 (Marsaglia, 2003). */
static int64_t jittered(int64_t interval) {
    static uint32_t random = 2463534242; /* used by the single helper thread only */
    random ^= random << 13;
    random ^= random >> 17;
    random ^= random << 5;
    return interval * 3 / 4 + interval / 2 * (int64_t)(random >> 16) / 65536;
}

static void *helper_main(void *unused) {
    int64_t now = aliquot_os_clock(), worked = now, shared = now - HELPER_IDLE_NS;
    struct poll_result polled = {false, false};
    atomic_store(&helper_thread, aliquot_os_thread());
    relax_capture_mode();
    while (!atomic_load(&exiting)) {
        /* Also between batches: if probes started late in each batch, they would rarely see its beginning, which is
           in the process's own time slice, and would overestimate the others. */
        aliquot_os_sleep_until(now + jittered(now - shared < HELPER_IDLE_NS ? PROBE_INTERVAL_NS : HELPER_INTERVAL_NS));
        now = aliquot_os_clock();
        polled = poll_all_meters();
        worked = polled.pending_batches ? now : worked;
        shared = polled.shared ? now : shared;
        if (now - worked < HELPER_IDLE_NS) {
            continue;
        }
        atomic_store(&helper_state, HELPER_NONE);
        int none = HELPER_NONE;
        if (!poll_all_meters().pending_batches ||
            !atomic_compare_exchange_strong(&helper_state, &none, HELPER_RUNNING)) {
            return unused;
        }
        worked = now;
    }
    atomic_store(&helper_state, HELPER_IMPOSSIBLE);
    return unused;
}

/* Looked up, not linked: before glibc 2.34 it is in libpthread, which a CUDA program has loaded, but not every
   process. */
typedef int pthread_create_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

/* In the C library for handlers of atexit(), which is linked statically. */
int __cxa_atexit(void (*handler)(void *), void *argument, void *library);

/* Ends the helper thread when the process exits. The driver's handler runs later, because it was registered earlier,
   and calls into a driver that has been torn down crash. The thread is detached, and so is not joined but watched. */
static void end_helper(void *unused) {
    (void)unused;
    int saved = errno;
    int64_t deadline = aliquot_os_clock() + HELPER_END_NS;
    atomic_store(&exiting, true);
    while (aliquot_os_clock() < deadline &&
           (atomic_load(&helper_state) == HELPER_RUNNING ||
            (atomic_load(&helper_thread) != 0 && aliquot_os_has_thread(atomic_load(&helper_thread))))) {
        aliquot_os_sleep(50000);
    }
    errno = saved;
}

static void start_helper(void) {
    static atomic_flag end_registered = ATOMIC_FLAG_INIT; /* a forked child inherits the registration */
    int none = HELPER_NONE;
    if (atomic_load_explicit(&helper_state, memory_order_relaxed) != HELPER_NONE ||
        !atomic_compare_exchange_strong(&helper_state, &none, HELPER_RUNNING)) {
        return;
    }
    if (atomic_load(&exiting) ||
        (!atomic_flag_test_and_set(&end_registered) && __cxa_atexit(end_helper, NULL, NULL) != 0)) {
        atomic_store(&helper_state, HELPER_IMPOSSIBLE);
        return;
    }
    pthread_create_function *create = (pthread_create_function *)aliquot_lookup_global("pthread_create");
    pthread_attr_t attributes;
    pthread_t thread;
    if (create == NULL || pthread_attr_init(&attributes) != 0) {
        atomic_store(&helper_state, HELPER_IMPOSSIBLE);
        return; /* launches check the batches instead */
    }
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    uint64_t before = aliquot_os_block_signals(~UINT64_C(0)); /* the new thread inherits the mask */
    bool created = create(&thread, &attributes, helper_main, NULL) == 0;
    aliquot_os_block_signals(before);
    pthread_attr_destroy(&attributes);
    if (!created) {
        atomic_store(&helper_state, HELPER_NONE);
    }
}
