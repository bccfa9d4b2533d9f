/*
 * Measures the GPU time of launches by timing events around batches: one event before the first launch, one after the
 * last. No thread waits for an event. The next launch, or a helper thread if no launch comes, checks whether a batch
 * has finished, updates the costs (cost.h) and adjusts the charge (compute.h).
 *
 * A batch belongs to one thread and one stream. It ends after 1 ms of estimated work, after 64 launches, with the sixth
 * function, before its thread is throttled, waits for the GPU or gives the stream work of another kind, or with a
 * launch whose cost was never measured. Batches of several streams that overlap in time form a chain and are evaluated
 * as one, so that concurrent work is not charged twice. Time that is not the program's work must not be learned:
 *
 * - Gaps: the GPU had no work between two launches of the batch. The batch then took about as long as the program took
 *   to submit the launches. The time of its chain is only an upper bound of the cost, and the next batch has half as
 * many launches, down to one.
 * - Loading: the driver keeps the first launch of a kernel until its code is on the GPU. If the driver keeps a launch
 *   for more than 0.5 ms, a batch of this launch alone is charged from its return on, and nothing is learned from it.
 * - Time slices: another process had the GPU (on the model, processes alternate every 2 ms). Nothing of a process runs
 *   outside its time slices, including events. An event without dependencies, on the shim's own stream or recorded
 *   while the process has no work on the GPU, completes immediately in the process's own slice and late in another's
 *   (lateness.h). While work is pending, the helper thread records such probes every 0.8 ms (every 5 ms while the
 *   arbiter says that no other container works). The fraction of late probes is the fraction of time that other
 *   processes had, and is subtracted. A few probes say little, so this is done over 16 ms at a time. Probes must be
 *   spread evenly over that time: it begins in the process's own slice, so probes that start late overestimate the
 *   others. If no probe is late, or the arbiter says that no other container worked from before the first launch until
 *   after the end, the measurement is exact.
 * - Time slices, where probes wait for the process's own work: because the process has one hardware queue
 *   (CUDA_DEVICE_MAX_CONNECTIONS=1) or because the hardware is such (lateness.h recognizes it). Then only probes
 *   recorded while the process has no work say whether others have the GPU. The cost of launches shorter than two time
 *   slices is learned from the minimum of many samples (cost.h): some lie within one slice or a time in which others
 *   are idle. From the time of longer ones the fraction of late probes is subtracted, at most a half. That is an
 *   estimate: it assumes that others work as much while this process does.
 *
 * A kernel that is known to wait for its peers on other GPUs is a batch of its own, and where several GPUs are limited
 * so is each launch that was throttled. What they take longer than the shortest ones is taken for waiting.
 *
 * What is certainly overcharged is returned as soon as a batch has finished, the rest when it is learned from. While
 * launches are neither throttled nor new, at most one batch per context begins in a tick of the coarse clock, so that a
 * program with many launches does not pay for unneeded events.
 *
 * The helper thread (helper.h) makes a meter's context current while it polls. The functions here switch other threads
 * to capture mode RELAXED around their driver calls. So none of these calls invalidates a stream capture, where the
 * driver has cuThreadExchangeStreamCaptureMode (CUDA 10.1).
 *
 * batch.c is the launching threads' side, measure.c evaluates finished batches, and meter.c has the contexts and their
 * probes. What they share is in meter.h.
 */
#ifndef ALIQUOT_MEASURE_H
#define ALIQUOT_MEASURE_H

#include "compute/cost.h"
#include "driver/abi.h"

#include <stdbool.h>
#include <stdint.h>

/* A launch in progress. */
struct aliquot_launch {
    CUcontext context;
    int device; /* as numbered in account.h */
    CUstream stream;
    struct aliquot_cost *cost;
    uint64_t charged; /* ns */
    bool waits;       /* for its peers on other GPUs */
    bool alone;       /* measured alone */
    int batch;        /* index of the thread's open batch; -1: the launch is not measured */
};

/* Call before the launch is forwarded and after it is charged. Assigns it to a batch, which it may begin. throttled:
   the thread has just slept. */
void aliquot_batch_begin(struct aliquot_launch *launch, bool throttled);

/* Call after the launch. The batch may end. */
void aliquot_batch_launched(const struct aliquot_launch *launch, bool succeeded);

/* Ends the thread's batches before it sleeps or waits, so that they do not include that time. */
void aliquot_batch_pause(void);

/* Whether the last two batches of this thread that have ended are unfinished, so that it keeps work queued. */
bool aliquot_batch_two_are_unfinished(void);

/* Ends the thread's batch on a stream, which gets work of another kind. */
void aliquot_batch_end_own(CUstream stream);

/* Ends all open batches on a stream, before it begins to capture. Those of other threads are not measured. */
void aliquot_batch_end_on_stream(CUstream stream);

/* Call before a stream is destroyed: no event is recorded on it afterwards. */
void aliquot_batch_forget_stream(CUstream stream);

/* Learns from the finished batches of a context. True: others are pending. */
bool aliquot_measure_poll(CUcontext context);

/* For the helper thread: learns from the finished batches of all contexts, and records a probe in those with unfinished
   ones, or in idle ones if probes wait for own work. */
struct aliquot_measure_polled {
    bool pending_batches; /* there are unfinished batches */
    bool shared;          /* in a context whose GPU other processes use, so probes must be frequent */
};
struct aliquot_measure_polled aliquot_measure_poll_all(void);

/* Call before a context ends or may end, with the context still valid. Destroys its timing events; its unfinished
   batches stay charged as estimated. If the context lives on, its launches are measured from scratch. NULL does
   nothing. */
void aliquot_measure_forget_context(CUcontext context);

#endif
