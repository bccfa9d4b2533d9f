#include "arbiter.h"

#include <math.h>

#define MOST_TRIM 1.125 /* what the shim believes of a fixed container's grant */
#define LEAST_TRIM 0.5
#define GAIN 0.3      /* of an error, this much is corrected each second, */
#define STEP 0.03     /* and never more than this: NVML lags, and what was owed is repaid */
#define EXACT 0.01    /* NVML's figures are whole percents */
#define HEADROOM 1.25 /* who isn't held back wants that much more than it used */
#define LEAST_WANT 0.03
#define OVERCOMMIT 1.01 /* elastic ones are granted so much more: else what one misses by an error the GPU is idle */

static bool is_limited(const struct arbiter_container *container) {
    return container->cores > 0 && container->policy != ALIQUOT_POLICY_NONE;
}

static bool is_elastic(const struct arbiter_container *container) {
    return is_limited(container) && container->policy == ALIQUOT_POLICY_ELASTIC;
}

static double lesser(double a, double b) {
    return a < b ? a : b;
}

static double greater(double a, double b) {
    return a > b ? a : b;
}

/* What is certain to a container if it wants it, beside those that want now. */
static double entitled(const struct arbiter_container *container, double wanted_cores) {
    double all = container->wants ? wanted_cores : wanted_cores + container->cores;
    return container->cores / greater(1, all);
}

static double demand(const struct arbiter_container *container, double entitled_to) {
    double most = is_elastic(container) ? 1 : entitled_to;
    double want = container->held_back ? 1 : container->used * HEADROOM + LEAST_WANT;
    return lesser(most, want);
}

/* Weighted max-min: the level at which the room is used up, each getting its demand or level times cores. */
static double level(const struct arbiter_container *containers, size_t count, double wanted_cores, double room) {
    double low = 0, high = 1e4;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2, sum = 0;
        for (size_t j = 0; j < count; j++) {
            const struct arbiter_container *container = &containers[j];
            if (container->wants && is_limited(container)) {
                sum += lesser(demand(container, entitled(container, wanted_cores)), middle * container->cores);
            }
        }
        *(sum > room ? &high : &low) = middle;
    }
    return low;
}

void arbiter_divide(struct arbiter_container *containers, size_t count) {
    double wanted_cores = 0, room = 1, elastic_cores = 0, given = 0;
    for (size_t i = 0; i < count; i++) {
        struct arbiter_container *container = &containers[i];
        if (container->wants && is_limited(container)) {
            wanted_cores += container->cores;
            elastic_cores += is_elastic(container) ? container->cores : 0;
        } else if (container->wants) {
            room = greater(0, room - container->used); /* nobody holds it back */
        }
    }
    double at = level(containers, count, wanted_cores, greater(room, lesser(1, wanted_cores)));
    for (size_t i = 0; i < count; i++) {
        struct arbiter_container *container = &containers[i];
        container->target = 0;
        if (is_limited(container) && container->wants) {
            double least = entitled(container, wanted_cores);
            container->target = lesser(demand(container, least), at * container->cores);
            given += container->target;
        }
    }
    double left = greater(0, room - given);
    for (size_t i = 0; i < count; i++) {
        struct arbiter_container *container = &containers[i];
        container->share = 0;
        if (!is_limited(container)) {
            continue;
        }
        double least = entitled(container, wanted_cores);
        if (is_elastic(container) && container->wants) {
            container->target = greater(least, container->target + left * container->cores / elastic_cores);
        } else {
            container->target = least;
        }
        container->trim = container->trim == 0 ? 1 : container->trim;
        container->targets += container->target;
        container->divisions++;
        container->waits += container->held_back;
        bool over = is_elastic(container) && container->target < 1;
        container->share = lesser(1, container->target * container->trim * (over ? OVERCOMMIT : 1));
    }
}

/* By how much of the GPU it got too little (or too much: negative) because its books are wrong. Of two figures that
   point the same way the lesser one, less what NVML doesn't tell. */
static double missed(double target, double seen, double booked) {
    double owed = target - seen, wrong = booked - seen;
    double least = lesser(fabs(owed), fabs(wrong)) - EXACT;
    return owed * wrong <= 0 || least <= 0 ? 0 : copysign(least, owed);
}

void arbiter_trim(struct arbiter_container *container, double seen, double booked) {
    double target = container->divisions == 0 ? 0 : container->targets / container->divisions;
    bool saturated = container->divisions > 0 && container->waits == container->divisions;
    bool known = saturated && seen >= 0 && target > 0;
    double error = known ? missed(target, seen, booked) / target : 0;
    if (error * container->error > 0) { /* both too little, or both too much: the lesser of them */
        double lasting = copysign(lesser(fabs(error), fabs(container->error)), error);
        double step = greater(-STEP, lesser(STEP, GAIN * lasting));
        container->trim = greater(LEAST_TRIM, lesser(MOST_TRIM, container->trim * (1 + step)));
    }
    container->error = error;
    container->targets = 0;
    container->divisions = container->waits = 0;
}
