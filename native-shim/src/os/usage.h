/*
 * Counts GPU time, and computes how much of it was used recently. No thread samples it: the first charge in a period
 * writes the counter before it to the history (ALIQUOT_HISTORY in aliquot/region.h), and a reader subtracts.
 */
#ifndef ALIQUOT_USAGE_H
#define ALIQUOT_USAGE_H

#include "aliquot/region.h"

#include <stdint.h>

/* Charges nanoseconds of GPU time to a container (its device in the region) and to one of its processes. now: the
   time of aliquot_os_clock() or its coarse form. */
void aliquot_usage_charge(struct aliquot_device *device, struct aliquot_charge *charge, uint64_t nanoseconds,
                          int64_t now);

/* Used GPU time and elapsed time, in nanoseconds. */
struct aliquot_usage {
    uint64_t used;
    uint64_t elapsed; /* 0: no period began at or after since */
};

/* Usage from since until now, at most over the last second, in whole periods: it begins up to 268 ms after since. */
struct aliquot_usage aliquot_usage_since(const uint64_t *gpu_time, const uint64_t history[ALIQUOT_HISTORY],
                                         int64_t since, int64_t now);

#endif
