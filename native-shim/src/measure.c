#include "measure.h"

#include "compute.h"
#include "lookup.h"
#include "os.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define CONTEXTS 16 /* that are measured at a time; others are charged what was learnt */
#define BATCHES 48  /* of a context, open or on their way */
#define STREAMS 4   /* that a thread has batches on */
#define PARTS 6     /* functions in a batch */
#define GROUP_PARTS 16
#define ENOUGH_WORK 1000000            /* ns that end a batch, or are counted */
#define ENOUGH_LAUNCHES 64             /* that do */
#define ABANDONED INT64_C(1000000000)  /* ns after which an open batch's thread is taken for dead */
#define RECENT INT64_C(100000000)      /* ns for which a launch that isn't measured may be on the GPU */
#define LATE_AT_FIRST 12000            /* ns by which an event is late that waited for another's turn, until learnt */
#define LATE_LEAST 8000                /* and at least, */
#define LATE_MOST 100000               /* and at most, however much on-time events differ */
#define DELAYS 64                      /* of events on time, from which it is learnt */
#define DRIFT 20000                    /* one part in so many that the GPU's and the host's clocks may drift: 50 ppm */
#define SLOW_RECORD 50000              /* ns: recording took so long that the thread was away */
#define STARTS_NEEDED 8                /* events before we believe that we are alone */
#define LATE_ALLOWED 24                /* one late event in so many, and we still are alone */
#define PROBES 64                      /* on their way */
#define PROBED 1024                    /* probes that are remembered */
#define PROBE_INTERVAL INT64_C(800000) /* ns */
#define HELD_BACK_LATELY INT64_C(200000000) /* ns */
#define GROUP_WORK 16000000              /* ns measured from which a group is learnt from where others share the GPU */
#define HELPER_INTERVAL INT64_C(5000000) /* ns */
#define HELPER_PATIENCE INT64_C(100000000) /* ns without work */

enum state { FREE, OPEN, CLOSING, ON_ITS_WAY };
#define STATE_BITS 2
#define STATE_OF(word) ((enum state)((word)&3))
#define NEXT(word, state) (((((word) >> STATE_BITS) + 1) << STATE_BITS) | (uint64_t)(state))
#define SAME(word, state) (((word) & ~UINT64_C(3)) | (uint64_t)(state))

struct batch {
    /* State and, above it, a count of its users: a thread whose batch was taken over finds another count. CLOSING is
       exclusive: whoever brought it there alone touches the rest, until it sets another state. OPEN, its thread writes
       nothing into it, and anybody may take it over; ON_ITS_WAY, it belongs to who holds the context's flag. */
    _Atomic uint64_t word;
    CUevent start, end;
    _Atomic(CUstream) stream;
    _Atomic int64_t opened; /* on the host's clock, as is closed; right in every state but FREE and CLOSING */
    int64_t closed;
    bool at_once; /* closed right after its last launch */
    bool dry;     /* nothing of ours was on the GPU when start was recorded */
    uint64_t charged;
    uint64_t launches;
    uint64_t order; /* in which they closed */
    size_t part_count;
    struct aliquot_cost_part parts[PARTS];
};

/* Batches that overlap in time, as one; where others share the GPU, several after each other, too. */
struct group {
    uint64_t measured, charged;
    unsigned contested, probed; /* probes while others had the GPU, of so many in its time */
    size_t part_count;
    struct aliquot_cost_part parts[GROUP_PARTS];
};

/* An event on a stream of our own, where it has nothing to wait for but our turn. */
struct probe {
    CUevent event;
    int64_t host; /* when it was recorded */
};

struct probed {
    double at; /* on the GPU's clock, when it was recorded */
    bool late;
};

struct context {
    _Atomic(CUcontext) handle; /* NULL: free */
    int device;
    atomic_int on_their_way;
    atomic_uint target;          /* launches in a batch */
    _Atomic int64_t last_opened; /* on the coarse clock */
    _Atomic int64_t last_unmeasured;
    _Atomic int64_t last_held_back;
    _Atomic uint64_t closed_count;
    struct batch batches[BATCHES];
    /* What follows is guarded by this flag. Nobody waits for it but who ends the context. */
    atomic_flag busy;
    /* The end of the latest batch, from which the others' times are reckoned. Others look whether there is one. */
    _Atomic(CUevent) last;
    double last_time; /* of it, on the GPU's clock, in ns from its first event */
    bool has_least;
    double least_delay; /* GPU's clock less host's, the least seen for an event that was recorded */
    int64_t least_seen;
    uint32_t late_from; /* ns; 0: not learnt yet */
    uint32_t delays[DELAYS];
    unsigned delay_count;
    uint64_t late;   /* of the latest 64 events that had nothing to wait for, a bit each */
    unsigned starts; /* how many there were, up to 64 */
    struct group group;
    CUstream side; /* probes are recorded on it; NULL: none yet */
    bool unprobeable;
    struct probe probes[PROBES];
    uint64_t first_probe, next_probe;
    struct probed probed[PROBED];
    uint64_t next_probed;
};

static struct context contexts[CONTEXTS];
static atomic_flag claiming = ATOMIC_FLAG_INIT;
static atomic_uint epoch = 1; /* another one in a forked child */
static atomic_int helping;

/* This thread's open batches. */
struct open {
    struct context *context;
    CUcontext handle;
    CUstream stream;
    struct batch *batch;
    uint64_t word;
    uint64_t launches, charged;
    size_t part_count;
    struct aliquot_cost_part parts[PARTS];
};

struct mine {
    unsigned epoch;
    unsigned next;
    unsigned open_count;
    struct context *context; /* where it launched last */
    int device;              /* on which */
    uint64_t uncounted;      /* ns were charged for launches that nobody measures, since they were last counted */
    struct open open[STREAMS];
};

static __thread struct mine mine __attribute__((tls_model("initial-exec")));

static bool can_measure(void) {
    return aliquot_bare.cuEventCreate != NULL && aliquot_bare.cuEventRecord != NULL &&
           aliquot_bare.cuEventQuery != NULL && aliquot_bare.cuEventElapsedTime != NULL;
}

static int exchange_mode(int mode) {
    CUstreamCaptureMode exchanged = (CUstreamCaptureMode)mode;
    if (aliquot_bare.cuThreadExchangeStreamCaptureMode == NULL ||
        aliquot_bare.cuThreadExchangeStreamCaptureMode(&exchanged) != CUDA_SUCCESS) {
        return -1;
    }
    return (int)exchanged;
}

static int relax(void) {
    return exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
}

static void restore(int mode) {
    if (mode >= 0) {
        exchange_mode(mode);
    }
}

static struct context *find(CUcontext handle) {
    for (int i = 0; i < CONTEXTS; i++) {
        if (atomic_load_explicit(&contexts[i].handle, memory_order_acquire) == handle) {
            return &contexts[i];
        }
    }
    return NULL;
}

/* NULL: there are too many, or another thread is just claiming one. */
static struct context *find_or_claim(CUcontext handle, int device) {
    struct context *context = find(handle);
    if (context != NULL || atomic_flag_test_and_set(&claiming)) {
        return context;
    }
    context = find(handle); /* another may have been faster */
    for (int i = 0; i < CONTEXTS && context == NULL; i++) {
        if (atomic_load(&contexts[i].handle) == NULL) {
            context = &contexts[i];
            context->device = device;
            atomic_store(&context->target, ENOUGH_LAUNCHES);
            atomic_store(&context->handle, handle); /* now others may find it */
        }
    }
    atomic_flag_clear(&claiming);
    return context;
}

static struct mine *my_batches(void) {
    unsigned now = atomic_load_explicit(&epoch, memory_order_relaxed);
    if (mine.epoch != now) {
        memset(&mine, 0, sizeof mine);
        mine.epoch = now;
    }
    return &mine;
}

/* The number of this thread's open batch that a launch belongs to; -1: there is none. */
static int find_open(const struct mine *my, const struct aliquot_launch *launch) {
    for (int i = 0; my->open_count > 0 && i < STREAMS; i++) {
        const struct open *open = &my->open[i];
        if (open->stream == launch->stream && open->handle == launch->context && open->batch != NULL) {
            return i;
        }
    }
    return -1;
}

static __attribute__((noinline, cold)) void count_now(struct mine *my) {
    aliquot_compute_used(my->device, my->uncounted);
    my->uncounted = 0;
}

/* Nobody will know what they took: it counts as what was charged. */
static void count_unmeasured(struct mine *my, int device, uint64_t charged) {
    if (my->device != device && my->uncounted > 0) {
        count_now(my);
    }
    my->device = device;
    my->uncounted += charged;
    if (my->uncounted >= ENOUGH_WORK) {
        count_now(my);
    }
}

/* False: it was taken over, and is no longer ours. */
static bool set_state(const struct open *open, enum state next) {
    uint64_t word = open->word;
    return atomic_compare_exchange_strong(&open->batch->word, &word, SAME(word, next));
}

/* It is this thread's no longer. */
static void let_go(struct open *open) {
    open->batch = NULL;
    mine.open_count--;
}

static void give_up(struct open *open) {
    set_state(open, FREE);
    let_go(open);
    count_unmeasured(&mine, open->context->device, open->charged);
}

/* A free batch, or one whose thread is dead; it is CLOSING now. */
static struct batch *take_batch(struct context *context, int64_t now, uint64_t *word) {
    for (int i = 0; i < BATCHES; i++) {
        struct batch *batch = &context->batches[i];
        uint64_t found = atomic_load(&batch->word);
        bool abandoned = STATE_OF(found) == OPEN && now - atomic_load(&batch->opened) > ABANDONED;
        if (STATE_OF(found) != FREE && !abandoned) {
            continue;
        }
        *word = NEXT(found, CLOSING);
        if (atomic_compare_exchange_strong(&batch->word, &found, *word)) {
            return batch;
        }
    }
    return NULL;
}

static void destroy_event(CUevent event) {
    if (event != NULL && aliquot_bare.cuEventDestroy_v2 != NULL) {
        aliquot_bare.cuEventDestroy_v2(event);
    }
}

static bool has_events(struct batch *batch) {
    return (batch->start != NULL || aliquot_bare.cuEventCreate(&batch->start, 0) == CUDA_SUCCESS) &&
           (batch->end != NULL || aliquot_bare.cuEventCreate(&batch->end, 0) == CUDA_SUCCESS);
}

/* Nothing of ours is on the GPU, as far as we see launches. */
static bool is_dry(struct context *context, int64_t now) {
    bool dry = atomic_load(&context->on_their_way) == 0 &&
               now - atomic_load_explicit(&context->last_unmeasured, memory_order_relaxed) > RECENT;
    for (int i = 0; i < BATCHES && dry; i++) {
        const struct batch *batch = &context->batches[i];
        enum state state = STATE_OF(atomic_load(&batch->word));
        dry = state == FREE || (state == OPEN && now - atomic_load(&batch->opened) > RECENT);
    }
    return dry;
}

/* The event from which times are reckoned until a batch is over. */
static bool has_reference(struct context *context, CUstream stream) {
    if (atomic_load(&context->last) != NULL || atomic_flag_test_and_set(&context->busy)) {
        return true;
    }
    CUevent event = NULL;
    bool recorded = atomic_load(&context->last) != NULL || (aliquot_bare.cuEventCreate(&event, 0) == CUDA_SUCCESS &&
                                                            aliquot_bare.cuEventRecord(event, stream) == CUDA_SUCCESS);
    if (recorded && event != NULL) {
        atomic_store(&context->last, event);
    } else {
        destroy_event(event);
    }
    atomic_flag_clear(&context->busy);
    return recorded;
}

/* The number of the thread's batch; -1: none could be opened. */
static __attribute__((noinline)) int open_batch(struct mine *my, struct context *context,
                                                const struct aliquot_launch *launch) {
    int number = (int)(my->next++ % STREAMS);
    struct open *open = &my->open[number];
    if (open->batch != NULL) {
        give_up(open);
    }
    if (atomic_load(&context->on_their_way) > 0) {
        aliquot_measure_poll(launch->context);
    }
    int64_t now = aliquot_os_clock();
    int64_t coarse = aliquot_os_clock_coarse();
    bool dry = is_dry(context, now);
    uint64_t word = 0;
    struct batch *batch = take_batch(context, now, &word);
    if (batch == NULL) {
        return -1;
    }
    int mode = relax();
    atomic_store(&batch->stream, launch->stream);
    atomic_store(&batch->opened, now);
    if (!has_events(batch) || !has_reference(context, launch->stream) ||
        aliquot_bare.cuEventRecord(batch->start, launch->stream) != CUDA_SUCCESS) {
        atomic_store(&batch->word, SAME(word, FREE));
        aliquot_cost_unmeasurable(launch->cost);
        number = -1;
    } else {
        batch->dry = dry && aliquot_os_clock() - now < SLOW_RECORD;
        atomic_store_explicit(&context->last_opened, coarse, memory_order_relaxed);
        word = SAME(word, OPEN);
        *open = (struct open){
            .context = context, .handle = launch->context, .stream = launch->stream, .batch = batch, .word = word};
        atomic_store(&batch->word, word);
        my->open_count++;
    }
    restore(mode);
    return number;
}

void aliquot_measure_begin(struct aliquot_launch *launch, bool held_back) {
    struct mine *my = my_batches();
    launch->batch = find_open(my, launch);
    if (launch->batch >= 0) {
        return;
    }
    struct context *context = my->context;
    if (context == NULL || atomic_load_explicit(&context->handle, memory_order_acquire) != launch->context) {
        context = my->context = can_measure() ? find_or_claim(launch->context, launch->device) : NULL;
    }
    if (context == NULL) {
        aliquot_cost_unmeasurable(launch->cost);
        return;
    }
    int64_t now = aliquot_os_clock_coarse();
    bool full = atomic_load_explicit(&context->target, memory_order_relaxed) == ENOUGH_LAUNCHES;
    if (held_back) {
        atomic_store_explicit(&context->last_held_back, now, memory_order_relaxed);
    }
    if (now - atomic_load_explicit(&context->last_held_back, memory_order_relaxed) < HELD_BACK_LATELY || full ||
        launch->charged >= ENOUGH_WORK || aliquot_cost_is_guess(launch->cost) ||
        now != atomic_load_explicit(&context->last_opened, memory_order_relaxed)) {
        launch->batch = open_batch(my, context, launch);
    } else if (now != atomic_load_explicit(&context->last_unmeasured, memory_order_relaxed)) {
        atomic_store_explicit(&context->last_unmeasured, now, memory_order_relaxed); /* its threads share the line */
    }
}

static void start_helper(void);

static __attribute__((noinline)) void close_batch(struct open *open, bool at_once) {
    struct context *context = open->context;
    struct batch *batch = open->batch;
    if (open->launches == 0) {
        give_up(open);
        return;
    }
    uint64_t word = open->word;
    bool ours = set_state(open, CLOSING);
    let_go(open);
    if (!ours) {
        count_unmeasured(&mine, context->device, open->charged);
        return;
    }
    batch->at_once = at_once;
    batch->launches = open->launches;
    batch->charged = open->charged;
    batch->part_count = open->part_count;
    memcpy(batch->parts, open->parts, sizeof batch->parts);
    batch->closed = aliquot_os_clock();
    batch->order = atomic_fetch_add(&context->closed_count, 1);
    int mode = relax();
    bool recorded = aliquot_bare.cuEventRecord(batch->end, open->stream) == CUDA_SUCCESS;
    restore(mode);
    if (!recorded) {
        count_unmeasured(&mine, context->device, open->charged);
        atomic_store(&batch->word, SAME(word, FREE));
        return;
    }
    aliquot_compute_unfinished(context->device, (int64_t)batch->charged);
    atomic_fetch_add(&context->on_their_way, 1);
    atomic_store(&batch->word, SAME(word, ON_ITS_WAY));
    start_helper();
}

/* False: no room for another function. */
static bool add_part(struct open *open, struct aliquot_cost *cost) {
    size_t i = 0;
    while (i < open->part_count && open->parts[i].cost != cost) {
        i++;
    }
    if (i == open->part_count) {
        open->parts[open->part_count++] = (struct aliquot_cost_part){.cost = cost};
    }
    open->parts[i].launches++;
    return open->part_count < PARTS;
}

void aliquot_measure_launched(const struct aliquot_launch *launch, bool succeeded) {
    struct mine *my = my_batches();
    struct open *open = launch->batch < 0 ? NULL : &my->open[launch->batch];
    if (!succeeded) {
        return;
    }
    if (open == NULL || open->batch == NULL) { /* NULL where a signal's handler has forked meanwhile */
        count_unmeasured(my, launch->device, launch->charged);
        return;
    }
    open->launches++;
    open->charged += launch->charged;
    bool room = add_part(open, launch->cost);
    /* With many on their way only work ends one: there must be batches left for all that may be in flight. */
    bool many = open->launches >= atomic_load_explicit(&open->context->target, memory_order_relaxed) &&
                atomic_load_explicit(&open->context->on_their_way, memory_order_relaxed) < BATCHES / 2;
    if (!room || open->charged >= ENOUGH_WORK || many || aliquot_cost_is_guess(launch->cost)) {
        close_batch(open, true);
    }
}

void aliquot_measure_pause(void) {
    struct mine *my = my_batches();
    for (int i = 0; i < STREAMS; i++) {
        if (my->open[i].batch != NULL) {
            close_batch(&my->open[i], false);
        }
    }
}

void aliquot_measure_forget_stream(CUstream stream) {
    for (int i = 0; i < CONTEXTS * BATCHES; i++) {
        struct batch *batch = &contexts[i / BATCHES].batches[i % BATCHES];
        if (atomic_load(&batch->stream) != stream) {
            continue;
        }
        uint64_t word = atomic_load(&batch->word);
        if (STATE_OF(word) == OPEN) {
            atomic_compare_exchange_strong(&batch->word, &word, NEXT(word, FREE));
        }
        /* Another thread is recording on it. */
        while (STATE_OF(atomic_load(&batch->word)) == CLOSING) {
            aliquot_os_sleep_until(aliquot_os_clock() + 20000);
        }
    }
}

/* ns between two events that are over; false: the driver doesn't say. */
static bool between(CUevent from, CUevent to, double *ns) {
    float ms = 0;
    if (aliquot_bare.cuEventElapsedTime(&ms, from, to) != CUDA_SUCCESS) {
        return false;
    }
    *ns = (double)ms * 1e6;
    return true;
}

static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* By how much events differ that waited for nobody. Where the node agent says that nobody else is there, almost all of
   them are such. Else the later half may have waited; of exponential delays one in 128 is over 7 times the median. It
   falls faster than it rises: the calmest times tell most. */
static void learn_delays(struct context *context) {
    qsort(context->delays, DELAYS, sizeof context->delays[0], compare);
    bool alone = aliquot_compute_is_alone(context->device, false);
    uint32_t found = alone ? context->delays[DELAYS - 2] / 4 * 5 : context->delays[DELAYS / 2] * 9;
    found = found < LATE_LEAST ? LATE_LEAST : found > LATE_MOST ? LATE_MOST : found;
    uint32_t before = context->late_from == 0 ? found : context->late_from;
    context->late_from = found < before ? before - (before - found) / 2 : before + (found - before) / 8;
    context->delay_count = 0;
}

/* Whether an event came later than the GPU's clock against the host's and what is usual explain. */
static bool is_late(struct context *context, double time, int64_t recorded, bool waited) {
    double delay = time - (double)recorded;
    double least = context->least_delay + (double)(recorded - context->least_seen) / DRIFT;
    if (!context->has_least || delay < least) {
        context->least_delay = least = delay;
        context->least_seen = recorded;
        context->has_least = true;
    }
    if (!waited && delay - least < LATE_MOST) {
        context->delays[context->delay_count++] = (uint32_t)(delay - least);
    }
    if (context->delay_count == DELAYS) {
        learn_delays(context);
    }
    return delay - least > (context->late_from == 0 ? LATE_AT_FIRST : context->late_from);
}

static void remember_late(struct context *context, bool late) {
    context->late = context->late << 1 | late;
    context->starts += context->starts < 64;
}

static bool is_alone(struct context *context) {
    bool seems = context->starts >= STARTS_NEEDED &&
                 (unsigned)__builtin_popcountll(context->late) * LATE_ALLOWED <= context->starts;
    return aliquot_compute_is_alone(context->device, seems);
}

/* Looks which probes have come. */
static void harvest(struct context *context) {
    while (context->first_probe < context->next_probe) {
        struct probe *probe = &context->probes[context->first_probe % PROBES];
        double since = 0;
        if (aliquot_bare.cuEventQuery(probe->event) != CUDA_SUCCESS) {
            return;
        }
        CUevent last = atomic_load(&context->last);
        if (last != NULL && between(last, probe->event, &since)) {
            bool late = is_late(context, context->last_time + since, probe->host, false);
            context->probed[context->next_probed++ % PROBED] =
                (struct probed){(double)probe->host + context->least_delay, late};
            remember_late(context, late);
        }
        context->first_probe++;
    }
}

/* Counts the probes of a time of ours, and those of them that others' turns made late. */
static void count_probes(const struct context *context, double from, double to, struct group *group) {
    for (uint64_t i = 1; i <= PROBED && i <= context->next_probed; i++) {
        const struct probed *probed = &context->probed[(context->next_probed - i) % PROBED];
        if (probed->at < from) {
            break;
        }
        if (probed->at < to) {
            group->contested += probed->late;
            group->probed++;
        }
    }
}

static void settle(struct context *context, const struct aliquot_cost_part *parts, size_t count, uint64_t charged,
                   uint64_t measured, enum aliquot_cost_quality quality) {
    uint64_t worth = measured == 0 ? 0 : aliquot_cost_learn(parts, count, measured, quality);
    aliquot_compute_correct(context->device, (int64_t)worth - (int64_t)charged);
    aliquot_compute_used(context->device, worth);
}

static void learn(struct context *context) {
    struct group *group = &context->group;
    if (group->part_count > 0) {
        bool told = aliquot_compute_is_alone(context->device, false), alone = told || is_alone(context);
        /* A probe stands for a millisecond, so it takes some of them to know. */
        bool known =
            group->measured >= GROUP_WORK / 4 && (uint64_t)group->probed * PROBE_INTERVAL > group->measured / 4;
        uint64_t measured = group->measured;
        if (known && !told) {
            double ours = 1 - (double)group->contested / group->probed;
            measured = (uint64_t)((double)measured * (ours > 1.0 / 16 ? ours : 1.0 / 16));
        }
        enum aliquot_cost_quality quality = alone || known ? ALIQUOT_COST_EXACT : ALIQUOT_COST_SHARED;
        settle(context, group->parts, group->part_count, group->charged, measured, quality);
    }
    *group = (struct group){0};
}

static bool has_guesses(const struct group *group) {
    bool guesses = false;
    for (size_t i = 0; i < group->part_count; i++) {
        guesses |= aliquot_cost_is_guess(group->parts[i].cost);
    }
    return guesses;
}

static void join(struct context *context, const struct batch *batch, uint64_t measured) {
    struct group *group = &context->group;
    /* What is charged too much for certain is given back at once; the rest when the group is learnt from. */
    uint64_t charged = batch->charged < measured ? batch->charged : measured;
    aliquot_compute_correct(context->device, (int64_t)charged - (int64_t)batch->charged);
    group->measured += measured;
    group->charged += charged;
    for (size_t i = 0; i < batch->part_count; i++) {
        size_t at = 0;
        while (at < group->part_count && group->parts[at].cost != batch->parts[i].cost) {
            at++;
        }
        if (at == GROUP_PARTS) {
            continue; /* learn() empties it before it is full */
        }
        if (at == group->part_count) {
            group->parts[group->part_count++] = (struct aliquot_cost_part){.cost = batch->parts[i].cost};
        }
        group->parts[at].launches += batch->parts[i].launches;
    }
}

static double greater(double a, double b) {
    return a > b ? a : b;
}

/* False: the driver doesn't tell its times. */
static bool finish(struct context *context, struct batch *batch) {
    double took = 0, since = 0;
    CUevent last = atomic_load(&context->last);
    if (!between(batch->start, batch->end, &took) || (last != NULL && !between(last, batch->start, &since))) {
        return false;
    }
    double start_time = context->last_time + since;
    int64_t opened = atomic_load(&batch->opened);
    bool late = is_late(context, start_time, opened, !batch->dry);
    if (batch->dry) {
        remember_late(context, late);
    }
    /* For how long it had begun on the GPU, and the program was still launching. */
    double exposed = (double)batch->closed - greater((double)opened, start_time - context->least_delay);
    bool gaps = took < exposed * 4 && !(batch->launches == 1 && batch->at_once);
    unsigned target = atomic_load(&context->target);
    if (gaps) {
        atomic_store(&context->target, target > 1 ? target / 2 : 1);
    } else if (target < ENOUGH_LAUNCHES && batch->launches >= target) {
        atomic_store(&context->target, target * 2);
    }
    double covered = since < 0 ? -since : 0; /* by batches before it */
    struct group *group = &context->group;
    bool overlaps = covered > took / 16;
    bool enough = group->measured >= GROUP_WORK || group->part_count > GROUP_PARTS - PARTS;
    uint64_t measured = took > covered ? (uint64_t)(took - covered) : 0;
    if (gaps) {
        settle(context, batch->parts, batch->part_count, batch->charged, measured, ALIQUOT_COST_GAPS);
    } else {
        if (enough || (!overlaps && is_alone(context))) {
            learn(context);
        }
        join(context, batch, measured);
    }
    if (took > covered && !gaps) {
        count_probes(context, start_time + covered, start_time + took, group);
    }
    if (took > covered) { /* the latest end so far */
        batch->end = atomic_exchange(&context->last, batch->end);
        context->last_time = start_time + took;
    }
    return true;
}

/* The first of those on their way, by the order in which they closed. */
static struct batch *first_of(struct context *context, uint64_t after) {
    struct batch *first = NULL;
    for (int i = 0; i < BATCHES; i++) {
        struct batch *batch = &context->batches[i];
        if (STATE_OF(atomic_load(&batch->word)) == ON_ITS_WAY && batch->order >= after &&
            (first == NULL || batch->order < first->order)) {
            first = batch;
        }
    }
    return first;
}

static void take_off(struct context *context, struct batch *batch) {
    aliquot_compute_unfinished(context->device, -(int64_t)batch->charged);
    atomic_fetch_sub(&context->on_their_way, 1);
    atomic_store(&batch->word, SAME(atomic_load(&batch->word), FREE));
}

/* destroy: the context is alive, so its events are destroyed, also those that another thread is just recording.
   Otherwise these are left to that thread. */
static void forget_batch(struct context *context, struct batch *batch, bool destroy) {
    uint64_t word = atomic_load(&batch->word), taken;
    do {
        while (destroy && STATE_OF(word) == CLOSING) {
            aliquot_os_sleep_until(aliquot_os_clock() + 20000);
            word = atomic_load(&batch->word);
        }
        if (STATE_OF(word) == CLOSING) {
            return;
        }
        taken = NEXT(word, CLOSING);
    } while (!atomic_compare_exchange_strong(&batch->word, &word, taken));
    if (STATE_OF(word) == ON_ITS_WAY) {
        aliquot_compute_used(context->device, batch->charged);
        aliquot_compute_unfinished(context->device, -(int64_t)batch->charged);
        atomic_fetch_sub(&context->on_their_way, 1);
    }
    if (destroy) {
        destroy_event(batch->start);
        destroy_event(batch->end);
    }
    batch->start = batch->end = NULL;
    atomic_store(&batch->word, SAME(taken, FREE));
}

static void forget_batches(struct context *context, bool destroy) {
    for (int i = 0; i < BATCHES; i++) {
        forget_batch(context, &context->batches[i], destroy);
    }
    for (int i = 0; i < PROBES; i++) {
        if (destroy) {
            destroy_event(context->probes[i].event);
        }
        context->probes[i].event = NULL;
    }
    CUevent last = atomic_exchange(&context->last, NULL);
    if (destroy) {
        destroy_event(last);
    }
    if (destroy && context->side != NULL && aliquot_bare.cuStreamDestroy_v2 != NULL) {
        aliquot_bare.cuStreamDestroy_v2(context->side);
    }
    context->side = NULL;
    context->first_probe = context->next_probe = context->next_probed = 0;
    context->unprobeable = false;
    context->last_time = 0;
    context->has_least = false;
    context->delay_count = 0;
    context->group = (struct group){0};
}

static bool poll_context(struct context *context) {
    if (atomic_load(&context->on_their_way) == 0) {
        return false;
    }
    if (atomic_flag_test_and_set(&context->busy)) {
        return true; /* somebody is at it */
    }
    int mode = relax();
    harvest(context);
    CUstream waiting[STREAMS]; /* for a batch; those behind it are not asked, lest they be over by then */
    size_t waiting_count = 0;
    struct batch *batch = first_of(context, 0);
    for (uint64_t next; batch != NULL && waiting_count < STREAMS; batch = first_of(context, next)) {
        next = batch->order + 1; /* once it is taken off, it is another's */
        bool behind = false;
        for (size_t i = 0; i < waiting_count; i++) {
            behind |= waiting[i] == atomic_load(&batch->stream);
        }
        CUresult result = behind ? CUDA_ERROR_NOT_READY : aliquot_bare.cuEventQuery(batch->end);
        if (result == CUDA_SUCCESS) {
            harvest(context); /* those that were recorded in its time */
        }
        if (result == CUDA_SUCCESS && finish(context, batch)) {
            take_off(context, batch);
        } else if (result != CUDA_ERROR_NOT_READY) {
            forget_batches(context, false); /* the context is gone, or broken for good */
            break;
        } else if (!behind) {
            waiting[waiting_count++] = atomic_load(&batch->stream);
        }
    }
    bool last = atomic_load(&context->on_their_way) == 0; /* nothing is left that it could overlap with */
    if (last && (has_guesses(&context->group) || is_alone(context))) {
        learn(context);
    }
    restore(mode);
    atomic_flag_clear(&context->busy);
    return atomic_load(&context->on_their_way) > 0;
}

bool aliquot_measure_poll(CUcontext handle) {
    struct context *context = find(handle);
    return context != NULL && poll_context(context);
}

void aliquot_compute_forget_context(CUcontext handle) {
    struct context *context = handle == NULL ? NULL : find(handle);
    if (context == NULL) {
        return;
    }
    while (atomic_flag_test_and_set(&context->busy)) {
        aliquot_os_sleep_until(aliquot_os_clock() + 100000); /* whoever is at it waits for nothing */
    }
    int mode = relax();
    learn(context);
    forget_batches(context, true);
    restore(mode);
    context->late = 0;
    context->starts = 0;
    atomic_store(&context->handle, NULL);
    atomic_flag_clear(&context->busy);
}

void aliquot_measure_reset(void) {
    memset(contexts, 0, sizeof contexts);
    atomic_store(&helping, 0);
    atomic_flag_clear(&claiming);
    atomic_fetch_add(&epoch, 1);
    aliquot_cost_reset();
}

static bool make_side(struct context *context) {
    if (context->side == NULL &&
        (aliquot_bare.cuStreamCreate == NULL ||
         aliquot_bare.cuStreamCreate(&context->side, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)) {
        context->side = NULL;
        context->unprobeable = true;
    }
    return context->side != NULL;
}

static void probe(struct context *context) {
    struct probe *probe = &context->probes[context->next_probe % PROBES];
    int64_t now = aliquot_os_clock();
    if (!make_side(context) || (probe->event == NULL && aliquot_bare.cuEventCreate(&probe->event, 0) != CUDA_SUCCESS) ||
        aliquot_bare.cuEventRecord(probe->event, context->side) != CUDA_SUCCESS) {
        return;
    }
    if (aliquot_os_clock() - now < SLOW_RECORD) {
        probe->host = now;
        context->next_probe++;
    }
}

/* Records a probe while work of ours is on the GPU. True: others share it, so more are wanted. */
static bool probe_if_shared(struct context *context, CUcontext handle) {
    if (aliquot_bare.cuCtxSetCurrent == NULL || atomic_flag_test_and_set(&context->busy)) {
        return false;
    }
    bool there =
        !context->unprobeable && atomic_load(&context->last) != NULL && atomic_load(&context->handle) == handle;
    if (there && context->next_probe - context->first_probe < PROBES &&
        aliquot_bare.cuCtxSetCurrent(handle) == CUDA_SUCCESS) {
        probe(context);
        aliquot_bare.cuCtxSetCurrent(NULL);
    }
    bool alone = is_alone(context);
    atomic_flag_clear(&context->busy);
    return there && !alone;
}

struct helped {
    bool on_their_way, shared;
};

static struct helped help_all(void) {
    struct helped helped = {false, false};
    for (int i = 0; i < CONTEXTS; i++) {
        CUcontext handle = atomic_load(&contexts[i].handle);
        if (handle != NULL && poll_context(&contexts[i])) {
            helped.on_their_way = true;
            helped.shared |= probe_if_shared(&contexts[i], handle);
        }
    }
    return helped;
}

/* Probes at even intervals would keep step with the turns that they are to tell of. From three quarters of an
   interval to one and a quarter; xorshift32 (Marsaglia, 2003). */
static int64_t uneven(int64_t interval) {
    static uint32_t random = 2463534242; /* the one helper's */
    random ^= random << 13;
    random ^= random >> 17;
    random ^= random << 5;
    return interval * 3 / 4 + interval / 2 * (int64_t)(random >> 16) / 65536;
}

static void *help(void *unused) {
    int64_t now = aliquot_os_clock(), worked = now, shared = now - HELPER_PATIENCE;
    struct helped helped = {false, false};
    relax();
    for (;;) {
        /* Between batches, too: probes that started late in each would hardly see how they begin, which is in our own
           turn, and so find too much of their time others'. */
        aliquot_os_sleep_until(now + uneven(now - shared < HELPER_PATIENCE ? PROBE_INTERVAL : HELPER_INTERVAL));
        now = aliquot_os_clock();
        helped = help_all();
        worked = helped.on_their_way ? now : worked;
        shared = helped.shared ? now : shared;
        if (now - worked < HELPER_PATIENCE) {
            continue;
        }
        atomic_store(&helping, 0);
        int none = 0;
        if (!help_all().on_their_way || !atomic_compare_exchange_strong(&helping, &none, 1)) {
            return unused;
        }
        worked = now;
    }
}

/* Not linked: before glibc 2.34 it lives in libpthread, which not every process has loaded; a CUDA program has. */
typedef int create_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

static void start_helper(void) {
    int none = 0;
    if (atomic_load_explicit(&helping, memory_order_relaxed) != 0 ||
        !atomic_compare_exchange_strong(&helping, &none, 1)) {
        return;
    }
    create_function *create = (create_function *)aliquot_lookup_global("pthread_create");
    pthread_attr_t attributes;
    pthread_t thread;
    if (create == NULL || pthread_attr_init(&attributes) != 0) {
        return; /* the next launch looks */
    }
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    uint64_t before = aliquot_os_block_signals(~UINT64_C(0)); /* a thread inherits them */
    bool created = create(&thread, &attributes, help, NULL) == 0;
    aliquot_os_block_signals(before);
    pthread_attr_destroy(&attributes);
    if (!created) {
        atomic_store(&helping, 0);
    }
}
