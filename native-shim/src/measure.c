#include "measure.h"

#include "compute.h"
#include "lookup.h"
#include "os.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define CONTEXTS 16 /* that are measured at a time; others are charged what was learnt */
#define BATCHES 48  /* of a context, open or on their way */
#define STREAMS 4   /* that a thread has batches on */
#define PARTS 6     /* functions in a batch */
#define GROUP_PARTS 16
#define ENOUGH_WORK 1000000           /* ns that end a batch */
#define ENOUGH_LAUNCHES 64            /* that do */
#define ABANDONED INT64_C(1000000000) /* ns after which an open batch's thread is taken for dead */
#define RECENT INT64_C(100000000)     /* ns for which a launch that isn't measured may be on the GPU */
#define LATE 25000                    /* ns by which an event is late when another process has the GPU */
#define DRIFT 20000                   /* one part in so many that the GPU's and the host's clocks may drift: 50 ppm */
#define SLOW_RECORD 50000             /* ns: recording took so long that the thread was away */
#define STARTS_NEEDED 8               /* before we believe that we are alone */
#define LATE_ALLOWED 2                /* in 64 */
#define HELPER_INTERVAL 5000000       /* ns */
#define HELPER_PATIENCE 20            /* intervals without work */

enum state { FREE, OPEN, CLOSING, ON_ITS_WAY };
#define STATE_BITS 2
#define STATE_OF(word) ((enum state)((word)&3))
#define NEXT(word, state) (((((word) >> STATE_BITS) + 1) << STATE_BITS) | (uint64_t)(state))
#define SAME(word, state) (((word) & ~UINT64_C(3)) | (uint64_t)(state))

struct batch {
    /* State and, above it, a count of its users: a thread whose batch was taken over finds another count. */
    _Atomic uint64_t word;
    CUevent start, end;
    CUstream stream;
    int64_t opened, closed; /* on the host's clock */
    bool dry;               /* nothing of ours was on the GPU when start was recorded */
    uint64_t charged;
    uint64_t launches;
    uint64_t order; /* in which they closed */
    size_t part_count;
    struct aliquot_cost_part parts[PARTS];
};

/* Batches that overlap in time, as one. */
struct group {
    uint64_t measured, charged;
    bool gaps;
    size_t part_count;
    struct aliquot_cost_part parts[GROUP_PARTS];
};

struct context {
    _Atomic(CUcontext) handle; /* NULL: free */
    int device;
    atomic_int on_their_way;
    atomic_uint target;          /* launches in a batch */
    _Atomic int64_t last_opened; /* on the coarse clock */
    _Atomic int64_t last_unmeasured;
    _Atomic uint64_t closed_count;
    struct batch batches[BATCHES];
    /* What follows is guarded by this flag. Nobody waits for it but who ends the context. */
    atomic_flag busy;
    CUevent last;     /* the end of the latest batch, from which the others' times are reckoned */
    double last_time; /* of it, on the GPU's clock, in ns from its first event */
    bool has_least;
    double least_delay; /* GPU's clock less host's, the least seen for an event that was recorded */
    int64_t least_seen;
    _Atomic uint64_t late; /* of the latest 64 dry starts, one bit each */
    _Atomic uint32_t starts;
    struct group group;
};

static struct context contexts[CONTEXTS];
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

static struct context *find_or_claim(CUcontext handle, int device) {
    struct context *context = find(handle);
    for (int i = 0; i < CONTEXTS && context == NULL; i++) {
        CUcontext none = NULL;
        if (atomic_load_explicit(&contexts[i].handle, memory_order_relaxed) == NULL &&
            atomic_compare_exchange_strong(&contexts[i].handle, &none, handle)) {
            context = &contexts[i];
            context->device = device;
            atomic_store(&context->target, ENOUGH_LAUNCHES);
        }
    }
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

static struct open *my_batch(const struct aliquot_launch *launch) {
    struct mine *my = my_batches();
    for (int i = 0; i < STREAMS; i++) {
        struct open *open = &my->open[i];
        if (open->stream == launch->stream && open->handle == launch->context && open->batch != NULL) {
            return open;
        }
    }
    return NULL;
}

/* False: it was taken over, and is no longer ours. */
static bool set_state(const struct open *open, enum state next) {
    uint64_t word = open->word;
    return atomic_compare_exchange_strong(&open->batch->word, &word, SAME(word, next));
}

static void give_up(struct open *open) {
    set_state(open, FREE);
    open->batch = NULL;
}

/* A free batch, or one whose thread is dead. */
static struct batch *take_batch(struct context *context, int64_t now, uint64_t *word) {
    for (int i = 0; i < BATCHES; i++) {
        struct batch *batch = &context->batches[i];
        uint64_t found = atomic_load(&batch->word);
        bool abandoned = STATE_OF(found) == OPEN && now - batch->opened > ABANDONED;
        if (STATE_OF(found) != FREE && !abandoned) {
            continue;
        }
        *word = NEXT(found, OPEN);
        if (atomic_compare_exchange_strong(&batch->word, &found, *word)) {
            return batch;
        }
    }
    return NULL;
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
        dry = state == FREE || (state == OPEN && now - batch->opened > RECENT);
    }
    return dry;
}

static void open_batch(struct context *context, const struct aliquot_launch *launch) {
    struct mine *my = my_batches();
    struct open *open = &my->open[my->next++ % STREAMS];
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
        return;
    }
    int mode = relax();
    batch->opened = now;
    *open = (struct open){
        .context = context, .handle = launch->context, .stream = launch->stream, .batch = batch, .word = word};
    if (!has_events(batch) || aliquot_bare.cuEventRecord(batch->start, launch->stream) != CUDA_SUCCESS) {
        give_up(open);
        aliquot_cost_unmeasurable(launch->cost);
    } else {
        batch->dry = dry && aliquot_os_clock() - now < SLOW_RECORD;
        atomic_store_explicit(&context->last_opened, coarse, memory_order_relaxed);
    }
    restore(mode);
}

void aliquot_measure_begin(const struct aliquot_launch *launch, bool held_back) {
    if (my_batch(launch) != NULL) {
        return;
    }
    if (!can_measure()) {
        aliquot_cost_unmeasurable(launch->cost);
        return;
    }
    struct context *context = find_or_claim(launch->context, launch->device);
    if (context == NULL) {
        aliquot_cost_unmeasurable(launch->cost);
        return;
    }
    int64_t now = aliquot_os_clock_coarse();
    bool full = atomic_load_explicit(&context->target, memory_order_relaxed) == ENOUGH_LAUNCHES;
    if (held_back || full || launch->charged >= ENOUGH_WORK || aliquot_cost_is_guess(launch->cost) ||
        now != atomic_load_explicit(&context->last_opened, memory_order_relaxed)) {
        open_batch(context, launch);
    } else {
        atomic_store_explicit(&context->last_unmeasured, now, memory_order_relaxed);
    }
}

static void start_helper(void);

static void close_batch(struct open *open) {
    struct context *context = open->context;
    struct batch *batch = open->batch;
    if (open->launches == 0) {
        give_up(open);
        return;
    }
    uint64_t word = open->word;
    bool ours = set_state(open, CLOSING);
    open->batch = NULL;
    if (!ours) {
        return;
    }
    batch->stream = open->stream;
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
    struct open *open = my_batch(launch);
    if (open == NULL || !succeeded) {
        return;
    }
    open->launches++;
    open->charged += launch->charged;
    bool room = add_part(open, launch->cost);
    if (!room || open->charged >= ENOUGH_WORK ||
        open->launches >= atomic_load_explicit(&open->context->target, memory_order_relaxed) ||
        aliquot_cost_is_guess(launch->cost)) {
        close_batch(open);
    }
}

void aliquot_measure_pause(const struct aliquot_launch *launch) {
    struct open *open = my_batch(launch);
    if (open != NULL) {
        close_batch(open);
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

/* A start that was recorded with nothing of ours on the GPU: did it come at once? */
static void watch_start(struct context *context, const struct batch *batch, double start_time) {
    double delay = start_time - (double)batch->opened;
    double drifted = context->least_delay + (double)(batch->opened - context->least_seen) / DRIFT;
    if (!context->has_least || delay < drifted) {
        context->least_delay = delay;
        context->least_seen = batch->opened;
        context->has_least = true;
        drifted = delay;
    }
    if (batch->dry) {
        uint64_t late = atomic_load_explicit(&context->late, memory_order_relaxed);
        atomic_store_explicit(&context->late, late << 1 | (delay - drifted > LATE), memory_order_relaxed);
        atomic_fetch_add_explicit(&context->starts, 1, memory_order_relaxed);
    }
}

static bool is_alone(struct context *context) {
    return aliquot_compute_is_alone(
        context->device,
        atomic_load_explicit(&context->starts, memory_order_relaxed) >= STARTS_NEEDED &&
            __builtin_popcountll(atomic_load_explicit(&context->late, memory_order_relaxed)) <= LATE_ALLOWED);
}

static void learn(struct context *context) {
    struct group *group = &context->group;
    if (group->charged > 0) {
        enum aliquot_cost_quality quality = group->gaps         ? ALIQUOT_COST_GAPS
                                            : is_alone(context) ? ALIQUOT_COST_EXACT
                                                                : ALIQUOT_COST_SHARED;
        uint64_t worth = aliquot_cost_learn(group->parts, group->part_count, group->measured, quality);
        aliquot_compute_correct(context->device, (int64_t)worth - (int64_t)group->charged);
        aliquot_compute_used(context->device, worth);
    }
    *group = (struct group){0};
}

static void join(struct group *group, const struct batch *batch, double measured, bool gaps) {
    group->measured += (uint64_t)measured;
    group->charged += batch->charged;
    group->gaps |= gaps;
    for (size_t i = 0; i < batch->part_count; i++) {
        size_t at = 0;
        while (at < group->part_count && group->parts[at].cost != batch->parts[i].cost) {
            at++;
        }
        if (at == GROUP_PARTS) {
            group->gaps = true; /* not all is told apart */
            continue;
        }
        if (at == group->part_count) {
            group->parts[group->part_count++] = (struct aliquot_cost_part){.cost = batch->parts[i].cost};
        }
        group->parts[at].launches += batch->parts[i].launches;
    }
}

/* False: the driver doesn't tell its times. */
static bool finish(struct context *context, struct batch *batch) {
    double took = 0, since = 0;
    if (!between(batch->start, batch->end, &took) ||
        (context->last != NULL && !between(context->last, batch->start, &since))) {
        return false;
    }
    double start_time = context->last_time + since;
    watch_start(context, batch, start_time);
    double host = (double)(batch->closed - batch->opened);
    bool gaps = batch->launches > 1 && took < host * 1.25;
    unsigned target = atomic_load(&context->target);
    if (gaps) {
        atomic_store(&context->target, target > 1 ? target / 2 : 1);
    } else if (target < ENOUGH_LAUNCHES && batch->launches >= target) {
        atomic_store(&context->target, target * 2);
    }
    double covered = since < 0 ? -since : 0; /* by batches before it */
    bool overlaps = covered > took / 16;
    if (!overlaps || context->group.part_count > GROUP_PARTS - PARTS) {
        learn(context);
    }
    join(&context->group, batch, took > covered ? took - covered : 0, gaps);
    if (took > covered) { /* the latest end so far */
        CUevent end = batch->end;
        batch->end = context->last;
        context->last = end;
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

static void forget_batches(struct context *context, bool destroy) {
    for (int i = 0; i < BATCHES; i++) {
        struct batch *batch = &context->batches[i];
        uint64_t word = atomic_load(&batch->word);
        if (STATE_OF(word) == ON_ITS_WAY) {
            take_off(context, batch);
        }
        if (destroy && aliquot_bare.cuEventDestroy_v2 != NULL) {
            CUevent events[] = {batch->start, batch->end};
            for (int event = 0; event < 2; event++) {
                if (events[event] != NULL) {
                    aliquot_bare.cuEventDestroy_v2(events[event]);
                }
            }
        }
        batch->start = batch->end = NULL;
        atomic_store(&batch->word, NEXT(word, FREE));
    }
    if (destroy && context->last != NULL && aliquot_bare.cuEventDestroy_v2 != NULL) {
        aliquot_bare.cuEventDestroy_v2(context->last);
    }
    context->last = NULL;
    context->last_time = 0;
    context->has_least = false;
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
    struct batch *batch = first_of(context, 0);
    while (batch != NULL) {
        CUresult result = aliquot_bare.cuEventQuery(batch->end);
        uint64_t next = batch->order + 1;
        if (result == CUDA_SUCCESS && finish(context, batch)) {
            take_off(context, batch);
        } else if (result != CUDA_ERROR_NOT_READY) {
            forget_batches(context, false); /* the context is gone, or broken for good */
            break;
        }
        batch = first_of(context, next);
    }
    if (atomic_load(&context->on_their_way) == 0) {
        learn(context); /* nothing is left that it could overlap with */
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
    atomic_store(&context->late, 0);
    atomic_store(&context->starts, 0);
    atomic_store(&context->handle, NULL);
    atomic_flag_clear(&context->busy);
}

void aliquot_measure_reset(void) {
    memset(contexts, 0, sizeof contexts);
    atomic_store(&helping, 0);
    atomic_fetch_add(&epoch, 1);
    aliquot_cost_reset();
}

/* True: some are on their way. */
static bool poll_all(void) {
    bool any = false;
    for (int i = 0; i < CONTEXTS; i++) {
        CUcontext handle = atomic_load(&contexts[i].handle);
        if (handle != NULL && atomic_load(&contexts[i].on_their_way) > 0) {
            any |= poll_context(&contexts[i]);
        }
    }
    return any;
}

static void *help(void *unused) {
    int idle = 0;
    relax();
    for (;;) {
        aliquot_os_sleep_until(aliquot_os_clock() + HELPER_INTERVAL);
        idle = poll_all() ? 0 : idle + 1;
        if (idle < HELPER_PATIENCE) {
            continue;
        }
        atomic_store(&helping, 0);
        int none = 0;
        if (!poll_all() || !atomic_compare_exchange_strong(&helping, &none, 1)) {
            return unused;
        }
        idle = 0;
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
