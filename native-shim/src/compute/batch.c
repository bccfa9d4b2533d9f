#include "compute/measure.h"

#include "compute/compute.h"
#include "compute/helper.h"
#include "compute/meter.h"
#include "driver/capture.h"
#include "driver/lookup.h"
#include "os/fork.h"
#include "os/os.h"

#include <string.h>

#define OPEN_BATCHES_PER_THREAD 16             /* streams */
#define BATCH_WORK_NS 1000000                  /* ends a batch; also the unit in which unmeasured work is counted */
#define BATCH_ABANDONED_NS INT64_C(1000000000) /* the thread of an older open batch is assumed dead */
#define RECENTLY_THROTTLED_NS INT64_C(200000000)

static atomic_uint fork_epoch = 1; /* increases in a forked child, which does not own the events */

static void forget_threads(void) {
    atomic_fetch_add(&fork_epoch, 1);
}

ALIQUOT_AFTER_FORK(forget_threads);

/* An open batch of this thread. */
struct open_batch {
    struct aliquot_meter *meter;
    CUcontext context;
    CUstream stream;
    struct aliquot_batch *batch;
    uint64_t word;
    struct aliquot_batch_work work;
};

struct thread_batches {
    unsigned fork_epoch;
    unsigned next, last; /* index of the batch to open next, and of the one used last */
    unsigned open_count;
    struct aliquot_meter *meter; /* of the last launch */
    int device;
    uint64_t uncounted;
    struct open_batch open[OPEN_BATCHES_PER_THREAD];
    struct {
        const struct aliquot_batch *batch;
        uint64_t word;
    } closed[2]; /* the last one, and the one before */
};

static __thread struct thread_batches this_thread __attribute__((tls_model("initial-exec")));

static struct thread_batches *thread_batches(void) {
    unsigned now = atomic_load_explicit(&fork_epoch, memory_order_relaxed);
    if (this_thread.fork_epoch != now) {
        memset(&this_thread, 0, sizeof this_thread);
        this_thread.fork_epoch = now;
    }
    return &this_thread;
}

/* Index of this thread's open batch for the launch; -1: none. */
static int find_open_batch(struct thread_batches *thread, const struct aliquot_launch *launch) {
    for (unsigned i = 0; thread->open_count > 0 && i < OPEN_BATCHES_PER_THREAD; i++) {
        unsigned at = (thread->last + i) % OPEN_BATCHES_PER_THREAD;
        const struct open_batch *open = &thread->open[at];
        if (open->stream == launch->stream && open->context == launch->context && open->batch != NULL) {
            thread->last = at;
            return (int)at;
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
static bool set_batch_state(const struct open_batch *open, enum aliquot_batch_state next) {
    uint64_t word = open->word;
    return atomic_compare_exchange_strong(&open->batch->word, &word, ALIQUOT_WORD_WITH_STATE(word, next));
}

/* Removes the batch from this thread's open batches. */
static void detach_batch(struct open_batch *open) {
    open->batch = NULL;
    this_thread.open_count--;
}

static void discard_batch(struct open_batch *open) {
    set_batch_state(open, BATCH_FREE);
    detach_batch(open);
    count_unmeasured(&this_thread, open->meter->device, open->work.charged);
}

/* Returns a free batch, or one whose thread is dead, in state BATCH_CLOSING. */
static struct aliquot_batch *claim_batch(struct aliquot_meter *meter, int64_t now, uint64_t *word) {
    for (int i = 0; i < ALIQUOT_BATCHES_PER_METER; i++) {
        struct aliquot_batch *batch = &meter->batches[i];
        uint64_t found = atomic_load(&batch->word);
        bool abandoned =
            ALIQUOT_BATCH_STATE(found) == BATCH_OPEN && now - atomic_load(&batch->opened) > BATCH_ABANDONED_NS;
        if (ALIQUOT_BATCH_STATE(found) != BATCH_FREE && !abandoned) {
            continue;
        }
        *word = ALIQUOT_WORD_WITH_NEXT_USE(found, BATCH_CLOSING);
        if (atomic_compare_exchange_strong(&batch->word, &found, *word)) {
            return batch;
        }
    }
    return NULL;
}

static bool ensure_batch_events(struct aliquot_batch *batch) {
    return (batch->start != NULL || aliquot_real.cuEventCreate(&batch->start, 0) == CUDA_SUCCESS) &&
           (batch->end != NULL || aliquot_real.cuEventCreate(&batch->end, 0) == CUDA_SUCCESS);
}

/* Index of the new batch; -1: none could be opened. */
static __attribute__((noinline)) int open_batch(struct thread_batches *thread, struct aliquot_meter *meter,
                                                const struct aliquot_launch *launch) {
    int number = (int)(thread->next++ % OPEN_BATCHES_PER_THREAD);
    struct open_batch *open = &thread->open[number];
    if (open->batch != NULL) {
        discard_batch(open);
    }
    if (atomic_load(&meter->pending_batches) > 0) {
        aliquot_measure_poll(launch->context);
        if (aliquot_batch_two_are_unfinished()) {
            aliquot_compute_record_queued(meter->device);
        }
    }
    aliquot_compute_is_alone(meter->device); /* the batch is exact only if this is known before its first launch */
    int64_t now = aliquot_os_clock();
    int64_t coarse = aliquot_os_clock_coarse();
    bool idle = aliquot_meter_is_idle(meter, now);
    uint64_t word = 0;
    struct aliquot_batch *batch = claim_batch(meter, now, &word);
    if (batch == NULL) {
        return -1;
    }
    int mode = aliquot_capture_relax_mode();
    atomic_store(&batch->stream, launch->stream);
    atomic_store(&batch->opened, now);
    if (aliquot_capture_may_include(launch->stream) || !ensure_batch_events(batch) ||
        !aliquot_meter_ensure_reference(meter, launch->stream) ||
        aliquot_real.cuEventRecord(batch->start, launch->stream) != CUDA_SUCCESS) {
        atomic_store(&batch->word, ALIQUOT_WORD_WITH_STATE(word, BATCH_FREE));
        aliquot_cost_reset_guess(launch->cost);
        number = -1;
    } else {
        batch->after_idle = idle && aliquot_os_clock() - now < ALIQUOT_SLOW_RECORD_NS;
        atomic_store_explicit(&meter->last_opened, coarse, memory_order_relaxed);
        word = ALIQUOT_WORD_WITH_STATE(word, BATCH_OPEN);
        *open = (struct open_batch){
            .meter = meter, .context = launch->context, .stream = launch->stream, .batch = batch, .word = word};
        atomic_store(&batch->word, word);
        thread->open_count++;
    }
    aliquot_capture_restore_mode(mode);
    return number;
}

void aliquot_batch_begin(struct aliquot_launch *launch, bool throttled) {
    struct thread_batches *thread = thread_batches();
    launch->alone = launch->waits || (throttled && aliquot_account_computes_on_several());
    launch->batch = find_open_batch(thread, launch);
    if (launch->batch >= 0) {
        return;
    }
    struct aliquot_meter *meter = thread->meter;
    if (meter == NULL || atomic_load_explicit(&meter->context, memory_order_acquire) != launch->context) {
        meter = thread->meter =
            aliquot_meter_can_measure() ? aliquot_meter_claim(launch->context, launch->device) : NULL;
    }
    if (meter == NULL) {
        aliquot_cost_reset_guess(launch->cost);
        return;
    }
    int64_t now = aliquot_os_clock_coarse();
    bool full = atomic_load_explicit(&meter->target, memory_order_relaxed) == ALIQUOT_BATCH_LAUNCHES_MAX;
    if (throttled) {
        atomic_store_explicit(&meter->last_throttled, now, memory_order_relaxed);
    }
    if (now - atomic_load_explicit(&meter->last_throttled, memory_order_relaxed) < RECENTLY_THROTTLED_NS || full ||
        launch->charged >= BATCH_WORK_NS || launch->waits || aliquot_cost_is_guess(launch->cost) ||
        now != atomic_load_explicit(&meter->last_opened, memory_order_relaxed)) {
        launch->batch = open_batch(thread, meter, launch);
    } else if (now != atomic_load_explicit(&meter->last_unmeasured, memory_order_relaxed)) {
        /* Written once per tick, because the context's threads share the cache line. */
        atomic_store_explicit(&meter->last_unmeasured, now, memory_order_relaxed);
    }
}

static __attribute__((noinline)) void close_batch(struct open_batch *open, bool closed_after_launch) {
    struct aliquot_meter *meter = open->meter;
    struct aliquot_batch *batch = open->batch;
    if (open->work.launches == 0) {
        discard_batch(open);
        return;
    }
    uint64_t word = open->word;
    bool still_owned = set_batch_state(open, BATCH_CLOSING);
    detach_batch(open);
    if (!still_owned) {
        count_unmeasured(&this_thread, meter->device, open->work.charged);
        return;
    }
    batch->closed_after_launch = closed_after_launch;
    batch->work = open->work;
    batch->closed = aliquot_os_clock();
    batch->order = atomic_fetch_add(&meter->closed_count, 1);
    int mode = aliquot_capture_relax_mode();
    bool recorded = !aliquot_capture_may_include(open->stream) && /* as a part of a graph it would not be complete */
                    aliquot_real.cuEventRecord(batch->end, open->stream) == CUDA_SUCCESS;
    aliquot_capture_restore_mode(mode);
    if (!recorded) {
        count_unmeasured(&this_thread, meter->device, open->work.charged);
        atomic_store(&batch->word, ALIQUOT_WORD_WITH_STATE(word, BATCH_FREE));
        return;
    }
    batch->launched = aliquot_compute_add_unfinished(meter->device, (int64_t)batch->work.charged);
    atomic_fetch_add(&meter->pending_batches, 1);
    word = ALIQUOT_WORD_WITH_STATE(word, BATCH_PENDING);
    this_thread.closed[1] = this_thread.closed[0];
    this_thread.closed[0].batch = batch;
    this_thread.closed[0].word = word;
    atomic_store(&batch->word, word);
    aliquot_helper_start();
}

void aliquot_batch_launched(const struct aliquot_launch *launch, bool succeeded) {
    struct thread_batches *thread = thread_batches();
    struct open_batch *open = launch->batch < 0 ? NULL : &thread->open[launch->batch];
    if (!succeeded) {
        return;
    }
    if (open == NULL || open->batch == NULL) { /* NULL if a signal handler has forked meanwhile */
        count_unmeasured(thread, launch->device, launch->charged);
        return;
    }
    open->work.launches++;
    open->work.charged += launch->charged;
    open->work.waits = launch->waits;
    open->work.part_count =
        aliquot_cost_add(open->work.parts, open->work.part_count, (struct aliquot_cost_part){launch->cost, 1});
    /* With many pending batches only the work limit ends a batch, so that batches remain for all work that may be in
       flight. */
    bool many =
        open->work.launches >= atomic_load_explicit(&open->meter->target, memory_order_relaxed) &&
        atomic_load_explicit(&open->meter->pending_batches, memory_order_relaxed) < ALIQUOT_BATCHES_PER_METER / 2;
    if (open->work.part_count == ALIQUOT_COSTS_PER_BATCH || open->work.charged >= BATCH_WORK_NS || many ||
        launch->alone || aliquot_cost_is_guess(launch->cost)) {
        close_batch(open, true);
    }
}

void aliquot_batch_pause(void) {
    struct thread_batches *thread = thread_batches();
    for (int i = 0; i < OPEN_BATCHES_PER_THREAD; i++) {
        if (thread->open[i].batch != NULL) {
            close_batch(&thread->open[i], false);
        }
    }
}

bool aliquot_batch_two_are_unfinished(void) {
    bool both = true;
    for (int i = 0; i < 2; i++) {
        const struct aliquot_batch *batch = this_thread.closed[i].batch;
        both &= batch != NULL && atomic_load(&batch->word) == this_thread.closed[i].word;
    }
    return both;
}

void aliquot_batch_end_own(CUstream stream) {
    struct thread_batches *thread = thread_batches();
    for (int i = 0; thread->open_count > 0 && i < OPEN_BATCHES_PER_THREAD; i++) {
        if (thread->open[i].batch != NULL && thread->open[i].stream == stream) {
            close_batch(&thread->open[i], false);
        }
    }
}

void aliquot_batch_end_on_stream(CUstream stream) {
    aliquot_batch_end_own(stream);
    if (stream > CU_STREAM_PER_THREAD) { /* a default stream's handle means another stream in each thread or context */
        aliquot_batch_forget_stream(stream);
    }
}

void aliquot_batch_forget_stream(CUstream stream) {
    for (int i = 0; i < ALIQUOT_METERS_MAX * ALIQUOT_BATCHES_PER_METER; i++) {
        struct aliquot_batch *batch =
            &aliquot_meters[i / ALIQUOT_BATCHES_PER_METER].batches[i % ALIQUOT_BATCHES_PER_METER];
        if (atomic_load(&batch->stream) != stream) {
            continue;
        }
        uint64_t word = atomic_load(&batch->word);
        if (ALIQUOT_BATCH_STATE(word) == BATCH_OPEN) {
            atomic_compare_exchange_strong(&batch->word, &word, ALIQUOT_WORD_WITH_NEXT_USE(word, BATCH_FREE));
        }
        /* Another thread is recording an event on the stream. */
        while (ALIQUOT_BATCH_STATE(atomic_load(&batch->word)) == BATCH_CLOSING) {
            aliquot_os_sleep(20000);
        }
    }
}
