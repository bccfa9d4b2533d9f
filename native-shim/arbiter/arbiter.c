#include "arbiter.h"

#include <math.h>

#define MAX_TRIM 1.125 /* the shim limits a fixed container's grant to this multiple of its cores */
#define MIN_TRIM 0.5
#define GAIN 0.3        /* fraction of an error that is corrected each second */
#define MAX_STEP 0.03   /* largest correction in a second: NVML's figures lag, and the shim repays debt */
#define RESOLUTION 0.01 /* of NVML's figures, which are whole percents */
#define HEADROOM 1.25   /* demand of a container that is not held back, relative to what it used, ... */
#define MIN_DEMAND 0.03 /* ... plus this share */
#define OVERCOMMIT 1.01 /* factor on elastic shares: without it the GPU idles when a container misses its share */

static bool is_limited(const struct arbiter_container *container) {
    return container->cores > 0 && container->policy != ALIQUOT_POLICY_NONE;
}

static bool is_elastic(const struct arbiter_container *container) {
    return is_limited(container) && container->policy == ALIQUOT_POLICY_ELASTIC;
}

static double min(double a, double b) {
    return a < b ? a : b;
}

static double max(double a, double b) {
    return a > b ? a : b;
}

/* The share that a container is guaranteed beside the active ones. */
static double guaranteed_share(const struct arbiter_container *container, double active_cores) {
    double total = container->active ? active_cores : active_cores + container->cores;
    return container->cores / max(1, total);
}

static double demand(const struct arbiter_container *container, double guaranteed) {
    double limit = is_elastic(container) ? 1 : guaranteed;
    double wanted = container->held_back ? 1 : container->used * HEADROOM + MIN_DEMAND;
    return min(limit, wanted);
}

/* Weighted max-min fairness: the water level at which the available share is used up when each container gets the
   lesser of its demand and level times cores. */
static double water_level(const struct arbiter_container *containers, size_t count, double active_cores,
                          double available) {
    double low = 0, high = 1e4;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2, sum = 0;
        for (size_t j = 0; j < count; j++) {
            const struct arbiter_container *container = &containers[j];
            if (container->active && is_limited(container)) {
                sum += min(demand(container, guaranteed_share(container, active_cores)), middle * container->cores);
            }
        }
        *(sum > available ? &high : &low) = middle;
    }
    return low;
}

void arbiter_divide(struct arbiter_container *containers, size_t count) {
    double active_cores = 0, available = 1, elastic_cores = 0, assigned = 0;
    for (size_t i = 0; i < count; i++) {
        struct arbiter_container *container = &containers[i];
        if (container->active && is_limited(container)) {
            active_cores += container->cores;
            elastic_cores += is_elastic(container) ? container->cores : 0;
        } else if (container->active) {
            available = max(0, available - container->used); /* an unlimited container takes what it wants */
        }
    }
    double level = water_level(containers, count, active_cores, max(available, min(1, active_cores)));
    for (size_t i = 0; i < count; i++) {
        struct arbiter_container *container = &containers[i];
        container->target = 0;
        if (is_limited(container) && container->active) {
            double guaranteed = guaranteed_share(container, active_cores);
            container->target = min(demand(container, guaranteed), level * container->cores);
            assigned += container->target;
        }
    }
    double left = max(0, available - assigned);
    for (size_t i = 0; i < count; i++) {
        struct arbiter_container *container = &containers[i];
        container->share = 0;
        if (!is_limited(container)) {
            continue;
        }
        double guaranteed = guaranteed_share(container, active_cores);
        if (is_elastic(container) && container->active) {
            container->target = max(guaranteed, container->target + left * container->cores / elastic_cores);
        } else {
            container->target = guaranteed;
        }
        container->trim = container->trim == 0 ? 1 : container->trim;
        container->targets += container->target;
        container->divisions++;
        container->saturated += container->held_back;
        bool overcommit = is_elastic(container) && container->target < 1;
        container->share = min(1, container->target * container->trim * (overcommit ? OVERCOMMIT : 1));
    }
}

/* The part of the GPU by which a container got too little (negative: too much) because the shim's accounting is wrong.
   It is the lesser of the share's error and the accounting's error if both have the same sign, less NVML's resolution.
 */
static double shortfall(double target, double nvml_share, double accounted_share) {
    double share_error = target - nvml_share, accounting_error = accounted_share - nvml_share;
    double least = min(fabs(share_error), fabs(accounting_error)) - RESOLUTION;
    return share_error * accounting_error <= 0 || least <= 0 ? 0 : copysign(least, share_error);
}

void arbiter_trim(struct arbiter_container *container, double nvml_share, double accounted_share) {
    double target = container->divisions == 0 ? 0 : container->targets / container->divisions;
    bool saturated = container->divisions > 0 && container->saturated == container->divisions;
    bool known = saturated && nvml_share >= 0 && target > 0;
    double error = known ? shortfall(target, nvml_share, accounted_share) / target : 0;
    if (error * container->error > 0) { /* both seconds too little, or both too much: correct the lesser error */
        double persistent = copysign(min(fabs(error), fabs(container->error)), error);
        double step = max(-MAX_STEP, min(MAX_STEP, GAIN * persistent));
        container->trim = max(MIN_TRIM, min(MAX_TRIM, container->trim * (1 + step)));
    }
    container->error = error;
    container->targets = 0;
    container->divisions = container->saturated = 0;
}
