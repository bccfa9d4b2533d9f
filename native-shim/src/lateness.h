/*
 * Which events of a GPU completed late, as arithmetic on pairs of times. It reads no clock and calls no driver.
 *
 * An event that depends on nothing completes at once in its process's own time slice and late in another process's.
 * The offset of the GPU's clock is the smallest delay seen; the threshold for "late" is a few times the median delay of
 * events that came soon.
 *
 * Times are in nanoseconds: recorded on the host's clock, completed on the GPU's. Not thread-safe.
 */
#ifndef ALIQUOT_LATENESS_H
#define ALIQUOT_LATENESS_H

#include <stdbool.h>
#include <stdint.h>

#define ALIQUOT_LATENESS_DELAYS 64   /* delays of punctual events from which the threshold is learned */
#define ALIQUOT_LATENESS_PROBES 1024 /* last probes kept */

struct aliquot_lateness_probe {
    double at; /* when it was recorded, on the GPU's clock */
    bool late;
};

/* All zeros: nothing is known. */
struct aliquot_lateness {
    bool has_least_delay;
    double least_delay; /* smallest offset of the GPU's clock from the host's seen at an event */
    int64_t least_seen;
    uint32_t threshold_ns; /* 0: not learned yet */
    uint32_t delays[ALIQUOT_LATENESS_DELAYS];
    unsigned delay_count;
    uint64_t history;       /* one bit for each of the last 64 events without dependencies */
    unsigned history_count; /* number of valid bits, at most 64 */
    struct aliquot_lateness_probe probes[ALIQUOT_LATENESS_PROBES];
    uint64_t probe_count;
};

/* Judges an event. True: it completed later than the clock offset and the usual delay explain. waited: the event may
   have waited for work of its own process, so nothing is learned from its delay. alone: it is known that no other
   process uses the GPU. */
bool aliquot_lateness_judge(struct aliquot_lateness *lateness, double completed, int64_t recorded, bool waited,
                            bool alone);

/* Adds a judgement of an event without dependencies to the history. */
void aliquot_lateness_record(struct aliquot_lateness *lateness, bool late);

/* Judges, records and keeps a probe: an event that waits for nothing but the process's time slice. */
void aliquot_lateness_add_probe(struct aliquot_lateness *lateness, double completed, int64_t recorded, bool alone);

/* Adds the number of probes recorded between two times of the GPU's clock, and of the late ones among them. */
void aliquot_lateness_count_probes(const struct aliquot_lateness *lateness, double from, double to, unsigned *late,
                                   unsigned *all);

/* A time of the host on the GPU's clock, and the reverse. */
double aliquot_lateness_gpu_time(const struct aliquot_lateness *lateness, int64_t host);
double aliquot_lateness_host_time(const struct aliquot_lateness *lateness, double gpu);

/* Whether the history suggests that no other process uses the GPU. */
bool aliquot_lateness_seems_alone(const struct aliquot_lateness *lateness);

/* The GPU's clock gets a new zero: forgets offset, delays and probes. */
void aliquot_lateness_forget_clock(struct aliquot_lateness *lateness);

/* Forgets the history, too. The threshold stays. */
void aliquot_lateness_forget_all(struct aliquot_lateness *lateness);

#endif
