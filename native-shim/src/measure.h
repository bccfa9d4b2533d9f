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
 *   to launch what was not yet there when it began; it only bounds the cost from above, and the next batch is half as
 *   long, down to a single launch.
 * - Another process had the GPU (they take turns of about 2 ms). Nothing of a process moves out of turn, events
 *   included: so an event that has nothing to wait for, on a stream of our own or recorded while nothing of ours is on
 *   the GPU, comes at once in our turn, and late in another's. The helper thread records such probes while work is on
 *   its way, each millisecond (5 ms as long as none is late), and the part of them that is late is the part of the time
 *   that was others'. It is subtracted, over 16 ms at a time, since a few probes say little. They must be spread evenly
 *   over that time: it begins in our own turn, so who looks at it later finds too much of it others'. The GPU's clock
 *   against the host's is had from the least delay seen, and how much later is late from the delays of events that came
 *   soon: a few times their median. Where nothing is late, or the node agent says that nobody else is active, what was
 *   measured is exact. Where there are no probes, costs fall back on the least of many (cost.h).
 *
 * What is certain to have been charged too much is given back as soon as a batch is over, the rest when it is learnt.
 * Where launches are neither held back nor new, batches are begun at most once in a tick of the coarse clock, so that a
 * program that launches fast doesn't pay for events it doesn't need.
 *
 * The thread is made when a batch is on its way, sleeps 1 or 5 ms at a time, blocks all signals, is detached, and ends
 * after 100 ms without work. All calls of the driver here are made in capture mode RELAXED: another thread's capture
 * isn't disturbed by them.
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
    int batch;        /* the number of the thread's batch that it is in; -1: it isn't measured */
};

/* Before the launch, charged by now: says which batch it is in, and begins one if it is time to. held_back: the thread
   has just slept. */
void aliquot_measure_begin(struct aliquot_launch *launch, bool throttled);

/* After it; the batch may end. */
void aliquot_measure_launched(const struct aliquot_launch *launch, bool succeeded);

/* Before the thread sleeps, so that the time isn't in its batches. */
void aliquot_measure_pause(void);

/* Before a stream is destroyed: nothing is recorded on it any more. */
void aliquot_measure_forget_stream(CUstream stream);

/* Learns from the batches of a context that are over. True: others are still on their way. */
bool aliquot_measure_poll(CUcontext context);

/* Call before a context ends or may end, with the context still valid. Destroys its timing events; its unfinished
   batches stay charged as estimated. If the context lives on, its launches are measured from scratch. NULL does
   nothing. */
void aliquot_measure_forget_context(CUcontext context);

/* In a forked child, whose events are not its own. */
void aliquot_measure_reset(void);

#endif
