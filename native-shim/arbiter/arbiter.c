#include "arbiter.h"

#include <math.h>

#define SECOND (1000000000 / ARBITER_PERIOD_NS) /* in periods, like the next two */
#define RETURNED (3 * SECOND / 10)              /* a container that was idle demands its own share for so long */
#define UNUSED_MAX (2 * SECOND)                 /* after which a claim lapses, and how long at first */
#define PAUSE_MAX (64 * SECOND)
#define MEAN_WINDOW 12     /* periods over which usage is averaged: the shim counts it up to 16 ms at a time */
#define PEAK_DECAY 0.98623 /* halves in a second */
#define HEADROOM 1.25      /* demand of a container that is not held back, relative to what it used, ... */
#define MIN_DEMAND 0.03    /* ... plus this share */
#define MIN_WEIGHT 0.01    /* of a container without cores */
#define OVERCOMMIT 1.01    /* factor on what is lent: without it the GPU idles when a container misses its share */
#define WHOLE 0.995        /* a container that may use this much may use all */

#define CONFIRMED 5       /* work of each of two seconds that a figure of NVML confirms, relative to the figure */
#define UNCONFIRMED_MAX 1 /* seconds */
#define DISTRUST_MIN 2    /* seconds */
#define DISTRUST_MAX 64

#define ALWAYS 0.9        /* a container whose launches wait or run for so much of a second always has work */
#define QUEUED_MIN 5      /* periods of a second in which one that keeps work queued is seen to: some of each turn */
#define SHORT 0.02        /* a container that gets so much less than its own share falls short */
#define SHORT_FOR 2       /* seconds in a row, after which it takes turns: its launches' costs are learned then */
#define FLOOR_WINDOW 10.0 /* seconds */
#define KEPT_PART 0.42 /* of a turn that it has while one of high priority keeps work queued, it gets about so much */
#define FLOOR_CREDIT 0.02 /* seconds of GPU time that it may catch up */

#define RESOLUTION 0.01 /* of NVML's figures, which are whole percents */

static double min(double a, double b) {
    return a < b ? a : b;
}

static double max(double a, double b) {
    return a > b ? a : b;
}

/* A part that a container says, from 0 to 1. */
static double believed(double part) {
    return part >= 0 ? min(1, part) : 0;
}

static bool is_elastic(const struct arbiter_container *container) {
    return container->policy == ALIQUOT_POLICY_ELASTIC;
}

bool arbiter_is_limited(const struct arbiter_container *container) {
    return is_elastic(container) || (container->policy == ALIQUOT_POLICY_FIXED && container->cores > 0);
}

static double weight(const struct arbiter_container *container) {
    return max(container->cores, MIN_WEIGHT);
}

/* Finds out, once a second, whether a container always has work, and how it gets on with it. */
static void follow_second(struct arbiter_container *container) {
    if (!container->active) {
        container->keeps_queued = container->falls_short = false;
        container->second.periods = 0;
        return;
    }
    if (container->second.periods == 0) {
        container->second.queued = 0;
        container->second.used = container->second.busy = 0;
    }
    container->second.queued += container->queued;
    container->second.used += believed(container->used);
    container->second.busy += container->busy > 0 ? min(container->busy, SECOND) : 0; /* a wait counts when it ends */
    if (++container->second.periods == SECOND) {
        bool always = container->second.busy > ALWAYS * SECOND;
        bool less = container->second.used < (container->own - SHORT) * SECOND;
        container->keeps_queued = always && container->second.queued >= QUEUED_MIN;
        container->short_for = always && less ? container->short_for + 1 : 0;
        container->falls_short = always && (container->short_for >= SHORT_FOR || container->falls_short);
        container->second.periods = 0;
    }
}

/* What it says of its use is not all that counts: a turn that it kept beside one of high priority counts, too. */
static void follow_floor(struct arbiter_container *container) {
    double used = max(believed(container->used) / SECOND, KEPT_PART * container->kept);
    double more = used - container->floor / SECOND, most = FLOOR_WINDOW * container->floor;
    container->beyond_floor = min(most, max(-FLOOR_CREDIT, container->beyond_floor + more));
    container->kept = 0;
}

/* Follows what a container does. */
static void follow(struct arbiter_container *container) {
    container->mean += (believed(container->used) - container->mean) / MEAN_WINDOW;
    container->mean_busy += (believed(container->busy) - container->mean_busy) / MEAN_WINDOW;
    double other = 1 - max(container->mean, container->mean_busy);
    container->peak = max(container->mean / max(container->mean + other, 0.01), container->peak * PEAK_DECAY);
    container->active_for = container->active ? container->active_for + 1 : 0;
    follow_second(container);
    follow_floor(container);
    bool unused = container->fair > MIN_DEMAND && container->mean - container->own < container->fair / 2;
    container->unused_for = unused ? container->unused_for + 1 : 0;
    container->lapsed_for -= container->lapsed_for > 0;
    if (container->unused_for > UNUSED_MAX) {
        container->pause = container->pause == 0          ? UNUSED_MAX
                           : container->pause < PAUSE_MAX ? 2 * container->pause
                                                          : PAUSE_MAX;
        container->lapsed_for = container->pause;
        container->unused_for = 0;
    } else if (!unused && container->fair > MIN_DEMAND) {
        container->pause = 0;
    }
}

/* What an active container wants of the GPU, if nothing forces it to take less. */
static double wanted(const struct arbiter_container *container) {
    return min(1, container->peak * HEADROOM + MIN_DEMAND);
}

static double own_demand(const struct arbiter_container *container) {
    bool all = container->held_back || container->active_for <= RETURNED;
    return !container->active ? 0 : all ? container->own : min(container->own, wanted(container));
}

/* Work-conserving: divides what is left of the surplus among the claims of one priority, the smallest claim, relative
   to its weight, first, which gets at most its part. Returns what is left then. */
static double divide_surplus(struct arbiter_container *containers, size_t count, enum arbiter_priority priority,
                             double left) {
    double weights = 0;
    for (size_t i = 0; i < count; i++) {
        if (containers[i].priority == priority) {
            containers[i].fair = containers[i].claim > 0 ? -1 : 0; /* -1: not decided yet */
            weights += containers[i].claim > 0 ? weight(&containers[i]) : 0;
        }
    }
    for (;;) {
        struct arbiter_container *least = NULL;
        for (size_t i = 0; i < count; i++) {
            struct arbiter_container *next = &containers[i];
            if (next->priority == priority && next->fair < 0 &&
                (least == NULL || next->claim * weight(least) < least->claim * weight(next))) {
                least = next;
            }
        }
        if (least == NULL) {
            return left;
        }
        least->fair = min(least->claim, left * min(1, weight(least) / weights));
        left = max(0, left - least->fair);
        weights -= weight(least);
    }
}

static bool may_preempt(const struct arbiter_container *container) {
    return container->priority == ARBITER_HIGH && container->distrusted_for <= 0;
}

/* The own shares and claims, and the surplus, which is negative if more is demanded than there is. low, high: what
   the containers of low priority demand of it, and those of high priority that they give way to. */
static double find_surplus(struct arbiter_container *containers, size_t count, double *low, double *high) {
    double cores = 0, used = 0, free = 0, demanded = 0;
    for (size_t i = 0; i < count; i++) {
        follow(&containers[i]);
        cores += arbiter_is_limited(&containers[i]) ? containers[i].cores : 0;
        used += arbiter_is_limited(&containers[i]) ? containers[i].mean : 0;
    }
    for (size_t i = 0; i < count; i++) {
        struct arbiter_container *container = &containers[i];
        if (!arbiter_is_limited(container)) {
            /* NVML's figure, or else what it says itself, which cannot be more than others leave. */
            double said = min(container->mean, max(0, 1 - used));
            free += container->nvml_used >= 0 ? container->nvml_used : said;
            container->own = container->claim = 0;
            continue;
        }
        container->own = container->cores / max(1, cores);
        bool all = container->held_back && container->lapsed_for == 0;
        bool claims = container->active && is_elastic(container) && (all || container->peak > container->own);
        container->claim = !claims ? 0 : max(0, (all ? 1 : wanted(container)) - container->own);
        double own = own_demand(container);
        demanded += own;
        *low += container->priority == ARBITER_LOW ? own : 0;
        *high += may_preempt(container) ? own : 0;
    }
    return 1 - demanded - min(1, free);
}

static bool takes_turns(const struct arbiter_container *container) {
    return (container->keeps_queued || container->falls_short) && arbiter_is_limited(container) &&
           container->priority != ARBITER_HIGH && !container->on_several_gpus && !container->long_launches;
}

static void give_turns(struct arbiter_container *containers, size_t count) {
    double all = 0, at = 0;
    unsigned active = 0, taking = 0, queueing = 0;
    bool possible = true, high = false;
    for (size_t i = 0; i < count; i++) {
        const struct arbiter_container *container = &containers[i];
        possible &= arbiter_is_limited(container) && !(container->keeps_queued && container->long_launches);
        high |= container->priority == ARBITER_HIGH;
        active += container->active;
        if (takes_turns(container)) {
            taking++;
            queueing += container->keeps_queued;
            all += container->own + container->fair;
        }
    }
    bool turns = possible && taking > 1 && queueing > 0 && all > 0;
    for (size_t i = 0; i < count; i++) {
        struct arbiter_container *container = &containers[i];
        bool takes = turns && takes_turns(container);
        bool bursts = possible && takes_turns(container) && active == 1;
        container->waits = takes || bursts || (high && container->priority == ARBITER_LOW);
        container->turn_begins = takes ? at : 0;
        container->turn = takes ? (container->own + container->fair) / all : 1;
        at += takes ? container->turn : 0;
    }
}

void arbiter_divide(struct arbiter_container *containers, size_t count) {
    double low = 0, high = 0, surplus = find_surplus(containers, count, &low, &high);
    double left[ARBITER_PRIORITIES]; /* that no one claims */
    double some = max(0, surplus + low);
    left[ARBITER_HIGH] = divide_surplus(containers, count, ARBITER_HIGH, some);
    some = max(0, surplus - (some - left[ARBITER_HIGH]));
    left[ARBITER_NORMAL] = divide_surplus(containers, count, ARBITER_NORMAL, some);
    some = max(0, surplus + high - (some - left[ARBITER_NORMAL]));
    left[ARBITER_LOW] = divide_surplus(containers, count, ARBITER_LOW, some);
    left[ARBITER_NORMAL] = max(0, left[ARBITER_NORMAL] - (some - left[ARBITER_LOW]));
    for (size_t i = 0; i < count; i++) {
        struct arbiter_container *container = &containers[i];
        container->borrowed = 0;
        if (!arbiter_is_limited(container)) {
            continue;
        }
        double lent = is_elastic(container) ? container->fair + left[container->priority] : 0;
        double target = min(1, container->own + lent);
        if (lent > 0) {
            container->borrowed = target >= WHOLE ? 1 : max(0, target * OVERCOMMIT - container->own);
        }
    }
    give_turns(containers, count);
}

bool arbiter_preempts(struct arbiter_container *container, bool works, double seconds) {
    container->distrusted_for = max(0, container->distrusted_for - seconds);
    bool preempts = works && may_preempt(container);
    container->said += preempts ? seconds : 0;
    return preempts;
}

double arbiter_turn(struct arbiter_container *container, bool gives_way, double seconds) {
    bool keeps = container->beyond_floor <= 0 && container->floor > 0;
    container->kept += gives_way && keeps ? seconds : 0;
    return gives_way && !keeps ? 0 : container->turn;
}

void arbiter_confirm(struct arbiter_container *container, double seconds) {
    /* NVML rounds: what is too little for a whole percent is confirmed, too. */
    double used = container->nvml_used >= 0 ? container->nvml_used : container->mean;
    double shown = CONFIRMED * seconds * (believed(used) + RESOLUTION);
    container->unconfirmed = max(0, container->unconfirmed + container->said_before - container->shown_before - shown);
    bool proven = container->said_before > 0 && container->unconfirmed == 0;
    container->said_before = container->said;
    container->shown_before = shown;
    container->said = 0;
    container->distrust = proven ? max(0, container->distrust - shown) : container->distrust;
    if (container->unconfirmed > UNCONFIRMED_MAX) {
        container->distrust = min(DISTRUST_MAX, max(DISTRUST_MIN, 2 * container->distrust));
        container->distrusted_for = container->distrust;
        container->unconfirmed = container->said_before = 0;
    }
}
