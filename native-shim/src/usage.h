/*
 * GPU time: charging it, and how much of it was used lately. Nobody keeps time for that: whoever charges first in a
 * period writes down what had been charged before (ALIQUOT_HISTORY in aliquot/region.h), and a reader subtracts.
 */
#ifndef ALIQUOT_USAGE_H
#define ALIQUOT_USAGE_H

#include "aliquot/region.h"

#include <stdint.h>

/* Charges nanoseconds of GPU time to a container (its device in the region) and to a process of it, now: a time of
   aliquot_os_clock() or its coarse form. */
void aliquot_usage_charge(struct aliquot_device *device, struct aliquot_charge *charge, uint64_t nanoseconds,
                          int64_t now);

/* GPU time against the clock, in nanoseconds. */
struct aliquot_usage {
    uint64_t used;
    uint64_t elapsed; /* 0: nothing that isn't older than since */
};

/* From since, or the last second if that is later, until now; in whole periods, so from up to 268 ms after since. */
struct aliquot_usage aliquot_usage_since(const uint64_t *gpu_time, const uint64_t history[ALIQUOT_HISTORY],
                                         int64_t since, int64_t now);

#endif
