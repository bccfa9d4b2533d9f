/*
 * What a launch costs: nanoseconds of GPU time, learnt from measured batches of launches, one figure per function and
 * size of grid (in steps of a quarter of an octave) and one per executable graph.
 *
 * A table of fixed size, open addressing, no locks: looking up is a hash and a few relaxed loads. Whoever finds the
 * table full takes an entry over; a handle that comes to mean something else is learnt anew. Both only make a figure
 * wrong for a while.
 *
 * What is measured is not always what was used. A lone process's measurements are exact, and so on the average are
 * those from which others' turns could be subtracted: the mean of them is the cost. Where neither was ever had, events
 * see others' time slices, too, so that each measurement is an upper bound: then the cost is the mean of the samples
 * close to the least of the last 16 to 32 (their lowest decile, when a few percent are whatever jitter there is).
 */
#ifndef ALIQUOT_COST_H
#define ALIQUOT_COST_H

#include <stddef.h>
#include <stdint.h>

struct aliquot_cost;

enum aliquot_cost_kind { ALIQUOT_COST_KERNEL, ALIQUOT_COST_GRAPH };

/* The entry of a function with a grid of so many blocks, or of a graph. Never NULL. */
struct aliquot_cost *aliquot_cost_of(enum aliquot_cost_kind kind, const void *handle, uint64_t blocks);

/* What its next launch is charged. What was never measured costs a guess, and twice as much with each further launch
   until it is: so that a long kernel, launched a hundred times before the first is over, doesn't run for a guess. */
uint64_t aliquot_cost_next(struct aliquot_cost *cost);

/* It can't be measured: no further doubling. */
void aliquot_cost_stop_doubling(struct aliquot_cost *cost);

/* Never measured so far. */
_Bool aliquot_cost_is_guess(const struct aliquot_cost *cost);

/* Launches of one batch. */
struct aliquot_cost_part {
    struct aliquot_cost *cost;
    uint64_t launches;
};

enum aliquot_cost_quality {
    ALIQUOT_COST_EXACT,  /* what was used, give or take */
    ALIQUOT_COST_SHARED, /* others' time slices may be in it */
    ALIQUOT_COST_GAPS,   /* and times at which nothing was there to run */
};

/* Learns from what a batch took, and says what it is worth: what its launches should have been charged in all. Not to
   be called by two threads at once for the same entries; the worst that happens is a figure wrong for a while. */
uint64_t aliquot_cost_learn(const struct aliquot_cost_part *parts, size_t count, uint64_t measured,
                            enum aliquot_cost_quality quality);

/* In a forked child, to which handles may mean something else. */
void aliquot_cost_reset(void);

#endif
