#include "compute/measure.h"

#include "compute/compute.h"
#include "compute/helper.h"
#include "compute/meter.h"
#include "driver/capture.h"
#include "driver/lookup.h"
#include "os/os.h"

#define GROUP_WORK_NS 16000000 /* measured time after which a group is learned from while others share the GPU */
#define CHAIN_BATCHES_MIN 8 /* an endless chain is learned from when it is this many times as long as a batch of it */
#define CHAIN_PART_MIN 0.85 /* of a chain's time, at least so much must not be counted yet */
#define LONG_LAUNCH_NS 4000000     /* a longer launch spans several time slices (2 ms on the model) */
#define STALLED_NS 500000          /* a launch that takes longer is not measured from its beginning */
#define REFERENCE_MAX_NS 100000000 /* age of the reference event; the driver's times are single floats */
#define STREAMS_WAITING_MAX 4      /* streams whose oldest batch is unfinished when a poll ends */

static double larger_of(double a, double b) {
    return a > b ? a : b;
}

static double smaller_of(double a, double b) {
    return a < b ? a : b;
}

static void settle_charge(struct aliquot_meter *meter, const struct aliquot_batch_group *group, uint64_t measured,
                          enum aliquot_cost_quality quality) {
    bool may_have_waited = quality <= ALIQUOT_COST_ESTIMATED && aliquot_account_computes_on_several(); /* compute.h */
    quality = may_have_waited ? ALIQUOT_COST_SHARED : quality;
    uint64_t due = measured == 0 ? 0 : aliquot_cost_learn(group->parts, group->part_count, measured, quality);
    aliquot_compute_adjust(meter->device, (int64_t)due - (int64_t)group->charged);
    if (may_have_waited) {
        aliquot_compute_charge_waiting(meter->device, measured - due);
    }
    aliquot_compute_add_used(meter->device, may_have_waited ? measured : due);
}

/* What is measured beyond the usual cost of launches that wait for peers is waiting. */
static void settle_waiting(struct aliquot_meter *meter, uint64_t measured, uint64_t charged) {
    if (measured > charged) {
        aliquot_compute_charge_waiting(meter->device, measured - charged);
    } else {
        aliquot_compute_adjust(meter->device, (int64_t)measured - (int64_t)charged);
    }
    aliquot_compute_add_used(meter->device, measured);
}

static uint64_t launches_of(const struct aliquot_batch_group *group) {
    uint64_t launches = 0;
    for (size_t i = 0; i < group->part_count; i++) {
        launches += group->parts[i].launches;
    }
    return launches;
}

static void learn_group(struct aliquot_meter *meter) {
    struct aliquot_batch_group *group = &meter->group;
    uint64_t all = group->measured + group->waited;
    if (all > 0) {
        bool alone = aliquot_compute_was_alone(meter->device, group->opened);
        /* A probe stands for 0.8 ms, so several are needed. */
        bool enough_probes = aliquot_lateness_probes_count(&meter->lateness) && all >= GROUP_WORK_NS / 4 &&
                             (uint64_t)group->probes * ALIQUOT_HELPER_PROBE_INTERVAL_NS > all / 4;
        double others = 0, own = 1;
        enum aliquot_cost_quality quality = alone || enough_probes ? ALIQUOT_COST_EXACT : ALIQUOT_COST_SHARED;
        if (enough_probes && !alone) {
            own = larger_of(1 - (double)group->late_probes / group->probes, 1.0 / 16);
        } else if (!alone && group->measured > launches_of(group) * LONG_LAUNCH_NS &&
                   aliquot_lateness_others(&meter->lateness, aliquot_os_clock(), &others)) {
            /* As much as others have while this process is idle, they have while it works, but no more than it. */
            own = 1 - smaller_of(others, 0.5);
            quality = ALIQUOT_COST_EXACT;
            if (group->part_count == 1) { /* of several functions, the shortest measurement says nothing about each */
                quality = ALIQUOT_COST_ESTIMATED;
                aliquot_cost_learn(group->parts, 1, group->measured, ALIQUOT_COST_SHARED);
            }
        }
        if (group->part_count > 0) {
            settle_charge(meter, group, (uint64_t)((double)group->measured * own), quality);
        }
        /* Waiting that may as well be the time of others is charged by half. */
        uint64_t waited = (uint64_t)((double)group->waited * own);
        bool unknown = quality == ALIQUOT_COST_SHARED && waited > group->waited_charged;
        settle_waiting(meter, unknown ? (waited + group->waited_charged) / 2 : waited, group->waited_charged);
    }
    *group = (struct aliquot_batch_group){0};
}

static bool has_unmeasured_costs(const struct aliquot_batch_group *group) {
    bool guesses = false;
    for (size_t i = 0; i < group->part_count; i++) {
        guesses |= aliquot_cost_is_guess(group->parts[i].cost);
    }
    return guesses;
}

static bool has_room(const struct aliquot_batch_group *group, size_t parts) {
    return group->part_count + parts <= ALIQUOT_COSTS_PER_GROUP;
}

static void add_opened(struct aliquot_batch_group *group, int64_t opened) {
    group->opened = group->opened == 0 || opened < group->opened ? opened : group->opened;
}

/* The group must have room for the parts. */
static void add_parts(struct aliquot_batch_group *group, const struct aliquot_cost_part *parts, size_t count) {
    for (size_t i = 0; i < count; i++) {
        group->part_count = aliquot_cost_add(group->parts, group->part_count, parts[i]);
    }
}

/* A certain overcharge is returned now, the rest when the chain or its group is learned from. Of a launch that waits
   for peers the usual cost, without waiting, is learned from the shortest ones. Nothing is learned from one that
   overlaps other work, which was charged for a part of its time. */
static void join_chain(struct aliquot_meter *meter, const struct aliquot_batch *batch, uint64_t measured,
                       bool overlaps) {
    struct aliquot_batch_group *chain = &meter->chain;
    uint64_t due = batch->work.charged < measured ? batch->work.charged : measured;
    if (batch->work.waits && !overlaps) {
        due = aliquot_cost_learn(batch->work.parts, batch->work.part_count, measured, ALIQUOT_COST_SHARED);
    }
    aliquot_compute_adjust(meter->device, (int64_t)due - (int64_t)batch->work.charged);
    add_opened(chain, atomic_load(&batch->opened));
    if (batch->work.waits) {
        chain->waited += measured;
        chain->waited_charged += due;
    } else {
        chain->measured += measured;
        chain->charged += due;
        add_parts(chain, batch->work.parts, batch->work.part_count);
    }
}

static void end_chain(struct aliquot_meter *meter) {
    struct aliquot_batch_group *chain = &meter->chain, *group = &meter->group;
    double span = meter->chain_to - meter->chain_from, all = (double)(chain->measured + chain->waited);
    if (chain->opened == 0) {
        return;
    }
    if (meter->chain_has_gaps || all < span * CHAIN_PART_MIN) {
        /* The whole time is the bound. An earlier chain covers a part of it, in which launches of this one ran. */
        if (chain->part_count > 0) {
            settle_charge(meter, chain, (uint64_t)larger_of(0, span - (double)chain->waited), ALIQUOT_COST_GAPS);
        }
    } else {
        double from = larger_of(meter->chain_from, meter->counted_to);
        if (!has_room(group, chain->part_count)) {
            learn_group(meter);
        }
        if (from < meter->chain_to) {
            aliquot_lateness_count_probes(&meter->lateness, from, meter->chain_to, &group->late_probes, &group->probes);
        }
        group->measured += chain->measured;
        group->charged += chain->charged;
        add_parts(group, chain->parts, chain->part_count);
    }
    add_opened(group, chain->opened);
    group->waited += chain->waited;
    group->waited_charged += chain->waited_charged;
    meter->counted_to = larger_of(meter->counted_to, meter->chain_to);
    *chain = (struct aliquot_batch_group){0};
}

/* Adds a batch's time on the GPU to the time that batches cover without a break. Returns what is new of it. Batches are
   not finished in the order in which they ran, so one may extend that time at both ends. */
static double cover(struct aliquot_meter *meter, double from, double to) {
    double before = larger_of(0, smaller_of(to, meter->covered_from) - from);
    double after = larger_of(0, to - larger_of(from, meter->covered_to));
    bool overlaps = from <= meter->covered_to && to >= meter->covered_from;
    meter->covered_from = overlaps ? smaller_of(from, meter->covered_from) : larger_of(from, meter->covered_from);
    meter->covered_to = larger_of(to, meter->covered_to);
    return before + after;
}

/* Whether a batch's gaps, without work on the GPU, make its time an upper bound only. Adapts the batches' length. */
static bool has_gaps(struct aliquot_meter *meter, const struct aliquot_batch *batch, double start, double took) {
    /* How long the batch ran on the GPU while the program was still launching. */
    double exposed = smaller_of((double)(batch->closed - atomic_load(&batch->opened)),
                                aliquot_lateness_gpu_time(&meter->lateness, batch->closed) - start);
    bool gaps = took < exposed * 4 && !(batch->work.launches == 1 && batch->closed_after_launch);
    unsigned target = atomic_load(&meter->target);
    if (gaps) {
        atomic_store(&meter->target, target > 1 ? target / 2 : 1);
    } else if (target < ALIQUOT_BATCH_LAUNCHES_MAX && batch->work.launches >= target) {
        atomic_store(&meter->target, target * 2);
    }
    return gaps;
}

/* Whether the driver kept the only launch of a batch for long, as it does when it loads the kernel's code. Such a batch
   begins when the launch returns. */
static bool was_stalled(const struct aliquot_meter *meter, const struct aliquot_batch *batch, double start) {
    return batch->work.launches == 1 && batch->closed_after_launch &&
           batch->closed - atomic_load(&batch->opened) > STALLED_NS &&
           aliquot_lateness_gpu_time(&meter->lateness, batch->closed) > start;
}

/* Charges a batch of one launch without learning from it: the known cost, or the time from the launch's return on. */
static void settle_stalled(struct aliquot_meter *meter, const struct aliquot_batch *batch, double took) {
    uint64_t due = aliquot_cost_is_guess(batch->work.parts[0].cost) ? (uint64_t)took : batch->work.charged;
    aliquot_compute_adjust(meter->device, (int64_t)due - (int64_t)batch->work.charged);
    aliquot_compute_add_used(meter->device, due);
    aliquot_cost_reset_guess(batch->work.parts[0].cost);
}

/* Counts how long the launches of a batch waited for the GPU and ran, but not what the program did in gaps. */
static void count_busy(struct aliquot_meter *meter, const struct aliquot_batch *batch, double end, bool gaps) {
    double from = larger_of(aliquot_lateness_gpu_time(&meter->lateness, atomic_load(&batch->opened)), meter->busy_to);
    double busy = gaps ? smaller_of((double)batch->work.charged, end - from) : end - from;
    meter->busy_to = larger_of(meter->busy_to, end);
    aliquot_compute_add_busy(meter->device, (int64_t)larger_of(0, busy));
}

static void learn_from_batch(struct aliquot_meter *meter, const struct aliquot_batch *batch, double start, double end) {
    struct aliquot_batch_group *chain = &meter->chain;
    double took = end - start, fresh = cover(meter, start, end);
    bool overlaps = fresh < took * 15 / 16;
    /* A batch that overlaps both this chain and the next is missing from this one. */
    bool long_enough =
        (double)(chain->measured + chain->waited) >= larger_of(GROUP_WORK_NS, meter->chain_longest * CHAIN_BATCHES_MIN);
    if (!overlaps || long_enough || !has_room(chain, batch->work.part_count)) {
        end_chain(meter);
        /* Only now, since the idle time after a chain tells how much of the GPU others use. If probes say nothing, the
           minimum of many samples counts, so they must be short. */
        if (!aliquot_lateness_probes_count(&meter->lateness) || aliquot_compute_is_alone(meter->device) ||
            meter->group.measured + meter->group.waited >= GROUP_WORK_NS) {
            learn_group(meter);
        }
    }
    bool first = chain->opened == 0;
    meter->chain_longest = first ? took : larger_of(took, meter->chain_longest);
    meter->chain_from = first ? start : smaller_of(start, meter->chain_from);
    meter->chain_to = first ? end : larger_of(end, meter->chain_to);
    bool gaps = has_gaps(meter, batch, start, took);
    meter->chain_has_gaps = gaps || (!first && meter->chain_has_gaps);
    count_busy(meter, batch, end, gaps);
    join_chain(meter, batch, (uint64_t)fresh, overlaps);
}

/* False: the driver returns no times. */
static bool finish_batch(struct aliquot_meter *meter, struct aliquot_batch *batch) {
    double took = 0, since = 0;
    CUevent reference = atomic_load(&meter->reference);
    if (!aliquot_meter_elapsed(batch->start, batch->end, &took) ||
        (reference != NULL && !aliquot_meter_elapsed(reference, batch->start, &since))) {
        return false;
    }
    double start = meter->reference_time + since, end = start + larger_of(took, 0);
    bool late = aliquot_lateness_judge(&meter->lateness, start, atomic_load(&batch->opened), !batch->after_idle);
    if (batch->after_idle) {
        aliquot_lateness_record(&meter->lateness, atomic_load(&batch->opened), late);
    }
    aliquot_lateness_add_moment(&meter->lateness, start);
    aliquot_lateness_add_moment(&meter->lateness, end);
    if (was_stalled(meter, batch, start)) {
        start = smaller_of(aliquot_lateness_gpu_time(&meter->lateness, batch->closed), end);
        settle_stalled(meter, batch, cover(meter, start, end));
    } else {
        learn_from_batch(meter, batch, start, end);
    }
    if (end - meter->reference_time > REFERENCE_MAX_NS) {
        batch->end = atomic_exchange(&meter->reference, batch->end);
        meter->reference_time = end;
    }
    return true;
}

/* First pending batch with at least this order, by the order of closing. */
static struct aliquot_batch *first_pending(struct aliquot_meter *meter, uint64_t after) {
    struct aliquot_batch *first = NULL;
    for (int i = 0; i < ALIQUOT_BATCHES_PER_METER; i++) {
        struct aliquot_batch *batch = &meter->batches[i];
        if (ALIQUOT_BATCH_STATE(atomic_load(&batch->word)) == BATCH_PENDING && batch->order >= after &&
            (first == NULL || batch->order < first->order)) {
            first = batch;
        }
    }
    return first;
}

static void retire_batch(struct aliquot_meter *meter, struct aliquot_batch *batch) {
    aliquot_compute_finished(meter->device, batch->work.charged, batch->launched);
    atomic_fetch_sub(&meter->pending_batches, 1);
    atomic_store(&batch->word, ALIQUOT_WORD_WITH_STATE(atomic_load(&batch->word), BATCH_FREE));
}

/* destroy: the context is valid, so the batch's events are destroyed, even those that another thread is recording.
   Otherwise that thread keeps its batch. */
static void drop_batch(struct aliquot_meter *meter, struct aliquot_batch *batch, bool destroy) {
    uint64_t word = atomic_load(&batch->word), taken;
    do {
        while (destroy && ALIQUOT_BATCH_STATE(word) == BATCH_CLOSING) {
            aliquot_os_sleep(20000);
            word = atomic_load(&batch->word);
        }
        if (ALIQUOT_BATCH_STATE(word) == BATCH_CLOSING) {
            return;
        }
        taken = ALIQUOT_WORD_WITH_NEXT_USE(word, BATCH_CLOSING);
    } while (!atomic_compare_exchange_strong(&batch->word, &word, taken));
    if (ALIQUOT_BATCH_STATE(word) == BATCH_PENDING) {
        aliquot_compute_add_used(meter->device, batch->work.charged);
        aliquot_compute_finished(meter->device, batch->work.charged, batch->launched);
        atomic_fetch_sub(&meter->pending_batches, 1);
    }
    if (destroy) {
        aliquot_meter_destroy_event(batch->start);
        aliquot_meter_destroy_event(batch->end);
    }
    batch->start = batch->end = NULL;
    atomic_store(&batch->word, ALIQUOT_WORD_WITH_STATE(taken, BATCH_FREE));
}

static void drop_batches(struct aliquot_meter *meter, bool destroy) {
    for (int i = 0; i < ALIQUOT_BATCHES_PER_METER; i++) {
        drop_batch(meter, &meter->batches[i], destroy);
    }
    for (int i = 0; i < ALIQUOT_PENDING_PROBES_MAX; i++) {
        if (destroy) {
            aliquot_meter_destroy_event(meter->probes[i].event);
        }
        meter->probes[i].event = NULL;
    }
    CUevent reference = atomic_exchange(&meter->reference, NULL);
    if (destroy) {
        aliquot_meter_destroy_event(reference);
    }
    if (destroy && meter->probe_stream != NULL && aliquot_real.cuStreamDestroy_v2 != NULL) {
        aliquot_real.cuStreamDestroy_v2(meter->probe_stream);
    }
    meter->probe_stream = NULL;
    meter->oldest_pending_probe = meter->probe_count = 0;
    meter->probing_failed = false;
    meter->reference_time = meter->covered_from = meter->covered_to = meter->counted_to = meter->busy_to = 0;
    aliquot_lateness_forget(&meter->lateness);
    meter->chain = meter->group = (struct aliquot_batch_group){0};
}

/* make_current: the calling thread has no current context, without which cuEventElapsedTime fails. */
static bool poll_meter(struct aliquot_meter *meter, bool make_current) {
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
    int mode = aliquot_capture_relax_mode();
    aliquot_meter_collect_probes(meter);
    CUstream waiting[STREAMS_WAITING_MAX]; /* of unfinished batches; later batches on them are skipped, because they
                                                  might finish meanwhile */
    size_t waiting_count = 0;
    struct aliquot_batch *batch = first_pending(meter, 0);
    for (uint64_t next; batch != NULL && waiting_count < STREAMS_WAITING_MAX; batch = first_pending(meter, next)) {
        next = batch->order + 1; /* read before retire_batch() frees the batch */
        bool behind = false;
        for (size_t i = 0; i < waiting_count; i++) {
            behind |= waiting[i] == atomic_load(&batch->stream);
        }
        CUresult result = behind ? CUDA_ERROR_NOT_READY : aliquot_real.cuEventQuery(batch->end);
        if (result == CUDA_SUCCESS) {
            aliquot_meter_collect_probes(meter); /* probes recorded while it ran */
            if (!finish_batch(meter, batch)) {   /* its launches stay charged as estimated */
                aliquot_compute_add_used(meter->device, batch->work.charged);
            }
            retire_batch(meter, batch);
        } else if (result != CUDA_ERROR_NOT_READY) {
            drop_batches(meter, false); /* the context failed permanently */
            break;
        } else if (!behind) {
            waiting[waiting_count++] = atomic_load(&batch->stream);
        }
    }
    aliquot_compute_repay(meter->device);
    aliquot_compute_add_unfinished(meter->device, 0);
    if (atomic_load(&meter->pending_batches) == 0) { /* no other batch can overlap */
        end_chain(meter);
        if (has_unmeasured_costs(&meter->group) || aliquot_compute_is_alone(meter->device)) {
            learn_group(meter);
        }
    }
    aliquot_capture_restore_mode(mode);
    if (make_current) {
        aliquot_real.cuCtxSetCurrent(NULL);
    }
    atomic_flag_clear(&meter->processing);
    return atomic_load(&meter->pending_batches) > 0;
}

bool aliquot_measure_poll(CUcontext context) {
    struct aliquot_meter *meter = aliquot_meter_find(context);
    return meter != NULL && poll_meter(meter, false);
}

void aliquot_measure_forget_context(CUcontext context) {
    struct aliquot_meter *meter = context == NULL ? NULL : aliquot_meter_find(context);
    if (meter == NULL) {
        return;
    }
    while (atomic_flag_test_and_set(&meter->processing)) {
        aliquot_os_sleep(100000); /* the holder of the flag waits for nothing */
    }
    int mode = aliquot_capture_relax_mode();
    end_chain(meter);
    learn_group(meter);
    drop_batches(meter, true);
    aliquot_capture_restore_mode(mode);
    atomic_store(&meter->context, NULL);
    atomic_flag_clear(&meter->processing);
}

/* Records a probe while this process has work on the GPU, or while it has none if probes wait for its work. True:
   others share the GPU, so probe more often. */
static bool probe_if_shared(struct aliquot_meter *meter, CUcontext context, bool pending) {
    if (atomic_flag_test_and_set(&meter->processing)) {
        return false;
    }
    bool idle = !pending &&
                !aliquot_compute_waits_for_turn(meter->device) && /* each probe would interrupt another's turn */
                !aliquot_lateness_probes_count(&meter->lateness) && aliquot_meter_is_idle(meter, aliquot_os_clock());
    bool can_probe = (pending || idle) && !meter->probing_failed && atomic_load(&meter->reference) != NULL &&
                     atomic_load(&meter->context) == context;
    if (can_probe && meter->probe_count - meter->oldest_pending_probe < ALIQUOT_PENDING_PROBES_MAX &&
        aliquot_real.cuCtxSetCurrent(context) == CUDA_SUCCESS) {
        aliquot_meter_collect_probes(meter);
        aliquot_meter_record_probe(meter, idle);
        aliquot_real.cuCtxSetCurrent(NULL);
    }
    bool alone = aliquot_compute_is_alone(meter->device);
    atomic_flag_clear(&meter->processing);
    return can_probe && !alone;
}

struct aliquot_measure_polled aliquot_measure_poll_all(void) {
    struct aliquot_measure_polled polled = {false, false};
    for (int i = 0; i < ALIQUOT_METERS_MAX; i++) {
        CUcontext context = atomic_load(&aliquot_meters[i].context);
        if (context != NULL) {
            bool pending = poll_meter(&aliquot_meters[i], true);
            polled.pending_batches |= pending;
            polled.shared |= probe_if_shared(&aliquot_meters[i], context, pending);
        }
    }
    return polled;
}
