/* What batch.c, measure.c and meter.c share: the CUDA contexts that are measured, their batches and their probes.
   report.c prints some of it. */
#ifndef ALIQUOT_METER_H
#define ALIQUOT_METER_H

#include "compute/cost.h"
#include "compute/lateness.h"
#include "driver/abi.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define ALIQUOT_METERS_MAX 16        /* contexts measured at a time; launches in others are charged what was learned */
#define ALIQUOT_BATCHES_PER_METER 48 /* open or pending */
#define ALIQUOT_COSTS_PER_BATCH 6    /* functions or graphs */
#define ALIQUOT_COSTS_PER_GROUP 16
#define ALIQUOT_BATCH_LAUNCHES_MAX 64 /* ends a batch */
#define ALIQUOT_PENDING_PROBES_MAX 64 /* recorded and not completed */
#define ALIQUOT_SLOW_RECORD_NS 50000  /* recording an event took so long that the thread was preempted */

enum aliquot_batch_state { BATCH_FREE, BATCH_OPEN, BATCH_CLOSING, BATCH_PENDING };
#define BATCH_STATE_BITS 2
#define ALIQUOT_BATCH_STATE(word) ((enum aliquot_batch_state)((word)&3))
#define ALIQUOT_WORD_WITH_NEXT_USE(word, state)                                                                        \
    (((((word) >> BATCH_STATE_BITS) + 1) << BATCH_STATE_BITS) | (uint64_t)(state))
#define ALIQUOT_WORD_WITH_STATE(word, state) (((word) & ~UINT64_C(3)) | (uint64_t)(state))

/* The launches of a batch. */
struct aliquot_batch_work {
    uint64_t launches, charged;
    bool waits; /* its one launch waits for peers on other GPUs */
    size_t part_count;
    struct aliquot_cost_part parts[ALIQUOT_COSTS_PER_BATCH];
};

struct aliquot_batch {
    /* The state and, in the upper bits, a use count, by which a thread notices that its batch was taken over.
       BATCH_CLOSING is exclusive: only the thread that set it accesses the other fields until it sets another state.
       In BATCH_OPEN the owning thread writes nothing into the batch, and any thread may take it over. In
       BATCH_PENDING it belongs to the holder of meter->processing. */
    _Atomic uint64_t word;
    CUevent start, end;
    _Atomic(CUstream) stream;
    _Atomic int64_t opened; /* host's clock, like closed; valid in every state but BATCH_FREE and BATCH_CLOSING */
    int64_t closed;
    bool closed_after_launch; /* closed right after its last launch */
    bool after_idle;          /* the process had no work on the GPU when start was recorded */
    struct aliquot_batch_work work;
    uint64_t launched; /* sum of all charges until it was closed */
    uint64_t order;    /* order of closing */
};

/* Batches that are evaluated together. */
struct aliquot_batch_group {
    uint64_t measured, charged;
    uint64_t waited, waited_charged; /* the same of launches that wait for peers on other GPUs */
    unsigned late_probes, probes;    /* recorded in the time of the group: late ones, all */
    int64_t opened;                  /* the first of them, on the host's clock; 0: there is none */
    size_t part_count;
    struct aliquot_cost_part parts[ALIQUOT_COSTS_PER_GROUP];
};

/* An event on the shim's own stream, where it waits for nothing but the process's time slice. */
struct aliquot_probe {
    CUevent event;
    int64_t recorded_at; /* host's clock */
    bool idle;           /* the process had no work on the GPU */
};

/* Measures one CUDA context: its batches, probes, and what was learned about the clocks and the other processes. */
struct aliquot_meter {
    _Atomic(CUcontext) context; /* NULL: the meter is free */
    int device;
    atomic_int pending_batches;
    atomic_uint target;          /* launches after which a batch ends */
    _Atomic int64_t last_opened; /* on the coarse clock, like the next two */
    _Atomic int64_t last_unmeasured;
    _Atomic int64_t last_throttled;
    _Atomic uint64_t closed_count;
    struct aliquot_batch batches[ALIQUOT_BATCHES_PER_METER];
    /* The flag guards the following. Only the thread that ends the context waits for it. */
    atomic_flag processing;
    /* A recent event: the reference for the times of later events. Threads without the flag test it for NULL. */
    _Atomic(CUevent) reference;
    double reference_time; /* of reference: ns on the GPU's clock since its first event */
    /* The last time that batches covered without a break, on the same clock. */
    double covered_from, covered_to;
    struct aliquot_lateness lateness;
    struct aliquot_batch_group chain; /* batches that overlap in time, without a break */
    double chain_from, chain_to;      /* begin of the first and end of the last batch of the chain */
    double chain_longest;             /* time of its longest batch */
    bool chain_has_gaps;              /* a batch of the chain has */
    double busy_to;                   /* until then the time of batches, from their launch on, was counted as busy */
    double counted_to;                /* end of the chains whose probes were counted */
    struct aliquot_batch_group group; /* chains without gaps; several while others share the GPU */
    CUstream probe_stream;            /* for probes; NULL: not created yet */
    bool probing_failed;
    struct aliquot_probe probes[ALIQUOT_PENDING_PROBES_MAX];
    uint64_t oldest_pending_probe, probe_count;
};

extern struct aliquot_meter aliquot_meters[ALIQUOT_METERS_MAX];

/* Whether the driver has all functions that measurements need. */
bool aliquot_meter_can_measure(void);

/* Returns the context's meter or NULL. */
struct aliquot_meter *aliquot_meter_find(CUcontext context);

/* Returns the context's meter. NULL: all are in use, or another thread is claiming one. */
struct aliquot_meter *aliquot_meter_claim(CUcontext context, int device);

/* Makes sure that there is a reference event. False: the driver refused. */
bool aliquot_meter_ensure_reference(struct aliquot_meter *meter, CUstream stream);

/* Whether the process has no work on the GPU, as far as the hooks see launches. */
bool aliquot_meter_is_idle(struct aliquot_meter *meter, int64_t now);

/* NULL does nothing. */
void aliquot_meter_destroy_event(CUevent event);

/* Nanoseconds between two completed events. False: the driver returned an error. */
bool aliquot_meter_elapsed(CUevent from, CUevent to, double *ns);

/* Records a probe in the meter's context, which is current. idle: the process has no work on the GPU. */
void aliquot_meter_record_probe(struct aliquot_meter *meter, bool idle);

/* Evaluates the completed probes. */
void aliquot_meter_collect_probes(struct aliquot_meter *meter);

#endif
