/*
 * Batches: launches of one thread on one stream between two timing events, from the launching thread's side. measure.h
 * describes when a batch begins and ends, and what is learned from it.
 */
#ifndef ALIQUOT_BATCH_H
#define ALIQUOT_BATCH_H

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

/* Ends the thread's batch on a stream, which gets work of another kind. */
void aliquot_batch_end_own(CUstream stream);

/* Ends all open batches on a stream, before it begins to capture. Those of other threads are not measured. */
void aliquot_batch_end_on_stream(CUstream stream);

/* Call before a stream is destroyed: no event is recorded on it afterwards. */
void aliquot_batch_forget_stream(CUstream stream);

#endif
