/*
 * Learned cost of launches in nanoseconds of GPU time, from measured batches of launches: one figure per function and
 * grid size (in steps of a quarter of an octave) and one per executable graph.
 *
 * The costs are in a hash table of fixed size with open addressing and no locks: a lookup is a hash and a few relaxed
 * loads. If the probed entries are all in use, one is replaced; if a handle is reused for another function, its cost is
 * learned again. Both only make a figure wrong for a while.
 *
 * A measurement can contain GPU time of other processes. Measurements of a process alone on the GPU are exact, and so
 * on average are those from which other processes' time slices could be subtracted: their mean is the cost. A function
 * that never had such a measurement has upper bounds only, and so has one whose last 16 measurements were such.
 * Its cost is then the mean of the samples close to the minimum of the last 16 to 32 (their lowest decile, if the
 * jitter is a few percent). Where other processes' time can only be estimated, the cost is the mean of the estimates,
 * but no more than that minimum.
 */
#ifndef ALIQUOT_COST_H
#define ALIQUOT_COST_H

#include <stddef.h>
#include <stdint.h>

struct aliquot_cost;

/* COLLECTIVE: a kernel that is known to wait for its peers on other GPUs. */
enum aliquot_cost_kind { ALIQUOT_COST_KERNEL, ALIQUOT_COST_GRAPH, ALIQUOT_COST_COLLECTIVE };

/* Returns the entry of a function with a grid of this many blocks, or of a graph (blocks: 0). Never NULL. */
struct aliquot_cost *aliquot_cost_of(enum aliquot_cost_kind kind, const void *handle, uint64_t blocks);

/* Nanoseconds to charge for the next launch. Without a measurement it is a guess, which doubles with each launch
   until the first measurement, up to a bound: a long kernel that is launched a hundred times before the first one
   ends must not be charged a small guess each time. */
uint64_t aliquot_cost_next(struct aliquot_cost *cost);

/* Resets the doubling of the guess, for launches that cannot be measured. */
void aliquot_cost_reset_guess(struct aliquot_cost *cost);

/* Whether it is the cost of a kernel that waits for its peers. UNSAID until it is set. */
enum aliquot_cost_waits { ALIQUOT_WAITS_UNSAID, ALIQUOT_WAITS_NOT, ALIQUOT_WAITS };
enum aliquot_cost_waits aliquot_cost_waits(const struct aliquot_cost *cost);
void aliquot_cost_set_waits(struct aliquot_cost *cost, enum aliquot_cost_waits waits);

/* Whether the cost was never measured. */
_Bool aliquot_cost_is_guess(const struct aliquot_cost *cost);

/* Launches with one cost within a batch. */
struct aliquot_cost_part {
    struct aliquot_cost *cost;
    uint64_t launches;
};

/* Adds launches to a list, which has a part for each cost. Returns the number of parts. */
static inline size_t aliquot_cost_add(struct aliquot_cost_part *parts, size_t count, struct aliquot_cost_part added) {
    size_t i = 0;
    while (i < count && parts[i].cost != added.cost) {
        i++;
    }
    parts[i] = (struct aliquot_cost_part){added.cost, added.launches + (i < count ? parts[i].launches : 0)};
    return i < count ? count : count + 1;
}

enum aliquot_cost_quality {
    ALIQUOT_COST_EXACT,     /* the GPU time used, apart from jitter */
    ALIQUOT_COST_ESTIMATED, /* an estimate of it, of a measurement from which SHARED was learned already */
    ALIQUOT_COST_SHARED,    /* may include time slices of other processes */
    ALIQUOT_COST_GAPS,      /* may also include times without work on the GPU */
};

/* Learns from the measured nanoseconds of a batch, and returns what its launches should have been charged in total.
   If two threads call it at once for the same entries, a figure can be wrong for a while. */
uint64_t aliquot_cost_learn(const struct aliquot_cost_part *parts, size_t count, uint64_t measured,
                            enum aliquot_cost_quality quality);

/* What was learned about one function or graph. */
struct aliquot_cost_figures {
    uint64_t nanoseconds; /* charged for a launch */
    uint32_t samples, exact;
    uint64_t least; /* ns: lowest of the last inexact samples; 0: there were none */
};

/* Copies the figures of the costs with the most samples, at most max, and returns their number. */
size_t aliquot_cost_list(struct aliquot_cost_figures *figures, size_t max);

#endif
