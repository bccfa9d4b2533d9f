/*
 * The law by which GPU time is given out, as arithmetic on one word; compute.h tells the whole.
 *
 * The generic cell rate algorithm (ITU-T I.371, 1993; "virtual scheduling"): the word is the time at which all that was
 * given so far will have been earned at the granted rate, the theoretical arrival time. It needs no timer and no
 * refill, and any number of threads and processes share it by compare-and-swap.
 *
 *     base = max(word, now - BURST / share)       idle time earns, but not without end
 *     base - now > BURST: not yet; come back at base - BURST
 *     word = base + cost / share
 *
 * So whoever was idle, or could not use what it had, makes up for BURST of GPU time at most, and what is longer than
 * BURST runs once and is repaid.
 */
#ifndef ALIQUOT_GCRA_H
#define ALIQUOT_GCRA_H

#include "limits.h"

#include <stdbool.h>
#include <stdint.h>

/* Shares are in millionths of the GPU, times in nanoseconds of CLOCK_MONOTONIC, costs in nanoseconds of GPU time. */
#define ALIQUOT_GCRA_WHOLE_GPU 1000000
#define ALIQUOT_GCRA_SHARE_MIN 1000 /* a share never falls below: nobody waits for ever */
#define ALIQUOT_GCRA_BURST_NS INT64_C(20000000)
/* Debt beyond this is forgiven, and no launch waits longer: ranks of a collective wait for each other. */
#define ALIQUOT_GCRA_WAIT_MAX_NS INT64_C(2000000000)
/* A grant older than this says nothing. */
#define ALIQUOT_GCRA_GRANT_MAX_AGE_NS INT64_C(3000000000)

/* The share that holds now. A grant, which programs in the container could forge, lifts a fixed share by an eighth at
   most: as much as it takes to make up for costs that were estimated too high. */
uint32_t aliquot_gcra_share(uint32_t fixed, enum aliquot_policy policy, uint64_t grant, int64_t now);

/* Takes cost from the word, or says until when to wait. */
bool aliquot_gcra_try_charge(uint64_t *word, uint32_t share, uint64_t cost, int64_t now, int64_t *until);

/* Takes more, whatever the word says, or gives back. */
void aliquot_gcra_adjust(uint64_t *word, uint32_t share, int64_t cost, int64_t now);

#endif
