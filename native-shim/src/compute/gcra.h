/*
 * Rate limiter for GPU time: a token bucket, as arithmetic on one word; compute.h describes the whole.
 *
 * It is the generic cell rate algorithm (ITU-T I.371, 1993; "virtual scheduling"). The word is the theoretical arrival
 * time: the time at which everything charged so far will have been earned at the granted rate. It needs no timer and no
 * refill, and threads and processes share the word by compare-and-swap.
 *
 *     base = max(word, now - BURST / share)       idle time earns credit, up to a bound
 *     base - now > BURST + debt: throttle until base - BURST - debt
 *     word = base + cost / share
 *
 * A container that was idle, or could not use its share, therefore catches up by at most BURST of GPU time. A launch
 * longer than BURST runs once and is repaid.
 */
#ifndef ALIQUOT_GCRA_H
#define ALIQUOT_GCRA_H

#include "limits/limits.h"

#include <stdbool.h>
#include <stdint.h>

/* Shares are in millionths of the GPU, times in nanoseconds of CLOCK_MONOTONIC, costs in nanoseconds of GPU time. */
#define ALIQUOT_GCRA_WHOLE_GPU 1000000
#define ALIQUOT_GCRA_SHARE_MIN 1000 /* no share is lower, so that no launch waits forever */
#define ALIQUOT_GCRA_BURST_NS INT64_C(20000000)
/* What was used beyond the charges adds no more debt than this, and no launch waits longer. */
#define ALIQUOT_GCRA_WAIT_MAX_NS INT64_C(2000000000)
/* Older words of the arbiter have no effect: of an own share, and of a borrowed one. */
#define ALIQUOT_GCRA_GRANT_MAX_AGE_NS INT64_C(3000000000)
#define ALIQUOT_GCRA_BORROWED_MAX_AGE_NS INT64_C(200000000)

/* Own share now, by the limit file (0: no share) and the arbiter's word, which is less where the cores of a GPU's
   containers add up to more than the GPU. 0: no limit, since no arbiter has spoken to a container without a share. */
uint32_t aliquot_gcra_share(uint32_t fixed, uint64_t grant, int64_t now);

/* Share that may be borrowed now, by the arbiter's word. */
uint32_t aliquot_gcra_borrowed(enum aliquot_policy policy, uint64_t borrowed, int64_t now);

/* Charges cost to the word, if what was charged before will have been earned within ALIQUOT_GCRA_BURST_NS and debt
   (time, ns) more. False: nothing was charged, and *until says until when to wait. */
bool aliquot_gcra_try_charge(uint64_t *word, uint32_t share, uint64_t cost, int64_t debt, int64_t now, int64_t *until);

/* GPU time that a share earns in a time; negative for a negative one. */
int64_t aliquot_gcra_earned(int64_t time, uint32_t share);

/* GPU time that can be charged to the word before a launch is throttled; negative: none for as long as that takes. */
int64_t aliquot_gcra_room(uint64_t word, uint32_t share, int64_t now);

/* Charges more regardless of the word, up to the largest debt, or with a negative cost returns GPU time. */
void aliquot_gcra_adjust(uint64_t *word, uint32_t share, int64_t cost, int64_t now);

#endif
