/*
 * The compute limit: how much GPU time this container's processes may use.
 *
 * The unit is GPU time, not launches or blocks. Each launch is charged what its function has been seen to cost
 * (cost.h) to one word per container and GPU in the region (law.h); when the container is ahead of its share, the
 * launching thread sleeps until it no longer is. What was really used is measured afterwards by timing events around
 * batches of launches (measure.h), never waited for, and the word is put right by the difference.
 *
 * What a launch pays: without limits a relaxed load and a predicted branch; with limits a look at the current context,
 * a look into the table of costs and a subtraction from what this thread has taken in advance (50 us of GPU time at a
 * time); per such advance a coarse clock and two compare-and-swaps. Nobody waits for a lock, another thread or the GPU.
 *
 * Bounds: while throttled, a container has at most ALIQUOT_LAW_BURST of unfinished estimated work plus one launch on
 * the GPU. No launch waits longer than ALIQUOT_LAW_LONGEST_WAIT, and no debt is larger: collectives of several GPUs
 * wait for each other on the GPU, so to hold one back for ever would be to hold back all. A share below which a kernel
 * can't be repaid within that time (a 20 ms kernel: 1 percent) is therefore exceeded.
 *
 * Nothing that is written into the region frees a process from its own share: each keeps a private word besides the
 * shared one. What it can do is hide the container's processes from each other, or hold them back, within the bounds.
 *
 * Of a container's launches inside a stream capture nothing is charged, recorded, asked or allocated: the graph is
 * charged, whole, whenever it is launched.
 *
 * Source of the idea: Turner, "New Directions in Communications" (1986), the leaky bucket as a meter; ITU-T I.371.
 */
#ifndef ALIQUOT_COMPUTE_H
#define ALIQUOT_COMPUTE_H

#include "abi.h"
#include "limits.h"

#include <stdbool.h>
#include <stdint.h>

/* Takes over what a limit file says, after aliquot_account_limits() has. Not to be called by two threads at once. */
void aliquot_compute_set_limits(const struct aliquot_limits *limits);

/* In a forked child. */
void aliquot_compute_reset(void);

/* For the hooks of launches. Devices are the account's numbers. */

enum { ALIQUOT_COMPUTE_UNKNOWN, ALIQUOT_COMPUTE_FREE, ALIQUOT_COMPUTE_LIMITED };

/* Whether any device is limited; UNKNOWN before the first launch. */
extern int aliquot_compute_state;

/* Makes sure that the state is known, and looks whether limits have changed. */
int aliquot_compute_refresh(void);

bool aliquot_compute_is_limited(int device);

/* Charges a launch, and says until when it must be held back if it must: then nothing was charged. */
bool aliquot_compute_try_charge(int device, uint64_t cost, int64_t *until);

/* Puts a charge right by the difference to what was used; a launch that failed used nothing. */
void aliquot_compute_adjust(int device, int64_t difference);

/* GPU time that was used, for the figures that others read: as measured, or as charged if nobody measures. */
void aliquot_compute_add_used(int device, uint64_t nanoseconds);

/* This thread was held back for so long. */
void aliquot_compute_add_throttled(int device, int64_t nanoseconds);

/* Estimated work that is on the GPU: added when a batch is on its way, taken off when it is over. */
void aliquot_compute_add_unfinished(int device, int64_t nanoseconds);

/* Whether this process is the only one that uses the GPU: the node agent knows, or without one its events (seems). */
bool aliquot_compute_is_alone(int device, bool seems);

#endif
