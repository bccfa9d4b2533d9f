/*
 * Which events of a GPU completed late, as arithmetic on pairs of times. It reads no clock and calls no driver.
 *
 * An event that depends on nothing completes at once in its process's own time slice and late in another process's. It
 * is late if it completed later than the clocks' difference and the usual delay explain. The threshold is a few times
 * the median delay of events that came soon. The clocks' difference is the least one of an event of the last 0.1 to
 * 0.3 s: none completes before it is recorded. It is wrong by as much as the clocks drift apart in that time (20 ppm: 5
 * us).
 *
 * Whether an event on an otherwise idle stream depends on nothing is up to the hardware and the number of its queues:
 * it may wait for kernels of its own process. Such probes say nothing about other processes. They are recognized by
 * their evidence: of the probes recorded while the process's own work was on the GPU, and went on for longer than the
 * threshold, at least a few are punctual if they do not wait for it. Until there is such evidence, probes do not count.
 * Nor do they count if many late ones are contradicted: own work began or ended while such a probe waited, so the
 * process had the GPU then, and the probe waited for its work.
 *
 * Times are in nanoseconds: recorded on the host's clock, completed on the GPU's. Not thread-safe.
 */
#ifndef ALIQUOT_LATENESS_H
#define ALIQUOT_LATENESS_H

#include <stdbool.h>
#include <stdint.h>

#define ALIQUOT_LATENESS_DELAYS 64   /* delays of punctual events from which the threshold is learned */
#define ALIQUOT_LATENESS_PROBES 1024 /* last probes kept */
#define ALIQUOT_LATENESS_MOMENTS 512 /* last begins and ends of own work kept */

struct aliquot_lateness_probe {
    double at, completed; /* when it was recorded, and completed, on the GPU's clock */
    bool late;
};

/* The last 64 answers to a question. All zeros: none. */
struct aliquot_recent {
    uint64_t bits;  /* the latest is the lowest */
    unsigned count; /* at most 64 */
};

struct aliquot_lateness_clock {
    bool known;
    double offset;       /* the GPU's clock less the host's */
    int64_t begin, last; /* host's time: the present window began, the last pair */
    unsigned pairs;      /* of the window, of events that did not wait */
    double lowest;       /* difference of one of them */
};

/* All zeros: nothing is known. */
struct aliquot_lateness {
    struct aliquot_lateness_clock clock;
    uint32_t threshold_ns; /* 0: not learned yet */
    uint32_t delays[ALIQUOT_LATENESS_DELAYS];
    unsigned delay_count;
    struct aliquot_recent late;         /* events without dependencies: was it late? */
    int64_t last_recorded;              /* the latest of these events */
    struct aliquot_recent punctual;     /* probes during own work: was it punctual? */
    struct aliquot_recent contradicted; /* late ones among them: did own work begin or end meanwhile? */
    struct aliquot_lateness_probe probes[ALIQUOT_LATENESS_PROBES];
    uint64_t probe_count;
    double moments[ALIQUOT_LATENESS_MOMENTS]; /* when own work began or ended, on the GPU's clock */
    uint64_t moment_count;
};

/* Judges an event. True: it completed later than the clock offset and the usual delay explain. waited: the event may
   have waited for work of its own process, so nothing is learned from its delay. */
bool aliquot_lateness_judge(struct aliquot_lateness *lateness, double completed, int64_t recorded, bool waited);

/* Adds a judgement of an event without dependencies to the history. */
void aliquot_lateness_record(struct aliquot_lateness *lateness, int64_t recorded, bool late);

/* Judges a probe: an event on an otherwise idle stream. idle: the process had no work on the GPU. Otherwise the probe
   is kept, and is recorded only if probes depend on nothing. */
void aliquot_lateness_add_probe(struct aliquot_lateness *lateness, double completed, int64_t recorded, bool idle);

/* Adds the number of probes recorded between two times of the GPU's clock, and of the late ones among them. Between
   these times own work was on the GPU, so the probes are evidence, too. */
void aliquot_lateness_count_probes(struct aliquot_lateness *lateness, double from, double to, unsigned *late,
                                   unsigned *all);

/* Adds a time of the GPU's clock at which own work began or ended. */
void aliquot_lateness_add_moment(struct aliquot_lateness *lateness, double at);

/* Whether there is evidence that probes do not wait for the process's own work. */
bool aliquot_lateness_probes_count(const struct aliquot_lateness *lateness);

/* The fraction of late events in the history. False: there are too few, or none is recent. */
bool aliquot_lateness_others(const struct aliquot_lateness *lateness, int64_t now, double *fraction);

/* A time of the host on the GPU's clock. */
double aliquot_lateness_gpu_time(const struct aliquot_lateness *lateness, int64_t host);

/* Forgets all but the threshold: the context has ended, and the GPU's clock gets a new zero. */
void aliquot_lateness_forget(struct aliquot_lateness *lateness);

#endif
