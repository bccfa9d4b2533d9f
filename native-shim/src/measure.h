/*
 * What launches really take, by pairs of timing events around batches of them: an event before the first launch, one
 * after the last. Nobody waits for an event: the next launch, or a helper thread if there is none, looks whether a
 * batch is over, teaches the costs (cost.h) and puts the charge right (compute.h).
 *
 * A batch is of one thread and one stream and ends with 1 ms of estimated work, with 64 launches, before its thread is
 * held back, or with a launch that was never measured. Batches of several streams that overlap in time are one, so that
 * what runs side by side is not charged twice. Time that is not the program's work must not be learnt:
 *
 * - The GPU had nothing to do between two launches of the batch. Then the batch took about as long as the program took
 *   to launch it; it only bounds the cost from above, and the next batch is half as long, down to a single launch.
 * - Another process had the GPU (they take turns of about 2 ms). Where the node agent publishes who is active, it says
 *   so. Else the events do: one that is recorded while nothing of ours is left on the GPU comes at once on a GPU to
 *   oneself, and only with our turn on one that is shared. Of the last 64 such events not more than a few are late:
 *   alone. The GPU's clock against the host's is had from the least delay seen.
 *
 * Where launches are neither held back nor new, batches are begun at most once in a tick of the coarse clock, so that a
 * program that launches fast doesn't pay for events it doesn't need.
 *
 * The thread is made when a batch is on its way, sleeps 5 ms at a time, blocks all signals, is detached, and ends after
 * 100 ms without work. All calls of the driver here are made in capture mode RELAXED: another thread's capture isn't
 * disturbed by them.
 */
#ifndef ALIQUOT_MEASURE_H
#define ALIQUOT_MEASURE_H

#include "abi.h"
#include "cost.h"

#include <stdbool.h>
#include <stdint.h>

/* What is being launched. */
struct aliquot_launch {
    CUcontext context;
    int device; /* the account's */
    CUstream stream;
    struct aliquot_cost *cost;
    uint64_t charged; /* ns */
};

/* Before the launch, charged by now: begins a batch if it is time to. held_back: the thread has just slept. */
void aliquot_measure_begin(const struct aliquot_launch *launch, bool held_back);

/* After it; the batch may end. */
void aliquot_measure_launched(const struct aliquot_launch *launch, bool succeeded);

/* Before the thread sleeps, so that the time isn't in the batch. */
void aliquot_measure_pause(const struct aliquot_launch *launch);

/* Learns from the batches of a context that are over. True: others are still on their way. */
bool aliquot_measure_poll(CUcontext context);

/* In a forked child, whose events are not its own. */
void aliquot_measure_reset(void);

#endif
