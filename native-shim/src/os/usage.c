#include "os/usage.h"

#include <stdbool.h>

#define UNIT_BITS 10 /* unit of the times in a history word: 2^10 ns */

static uint64_t period_of(int64_t now) {
    return (uint64_t)now >> ALIQUOT_HISTORY_PERIOD_BITS;
}

static uint64_t history_word(uint64_t period, uint64_t gpu_time) {
    return period << 32 | (uint32_t)(gpu_time >> UNIT_BITS);
}

static void charge_one(uint64_t *gpu_time, uint64_t history[ALIQUOT_HISTORY], uint64_t nanoseconds, uint64_t period) {
    uint64_t before = __atomic_fetch_add(gpu_time, nanoseconds, __ATOMIC_RELAXED);
    uint64_t *word = &history[period % ALIQUOT_HISTORY];
    uint64_t found = __atomic_load_n(word, __ATOMIC_RELAXED);
    if (found >> 32 != (uint32_t)period) {
        /* Of concurrent threads, one succeeds. */
        __atomic_compare_exchange_n(word, &found, history_word(period, before), false, __ATOMIC_RELEASE,
                                    __ATOMIC_RELAXED);
    }
}

void aliquot_usage_charge(struct aliquot_device *device, struct aliquot_charge *charge, uint64_t nanoseconds,
                          int64_t now) {
    uint64_t period = period_of(now);
    charge_one(&device->gpu_time, device->history, nanoseconds, period);
    charge_one(&charge->gpu_time, charge->history, nanoseconds, period);
}

struct aliquot_usage aliquot_usage_since(const uint64_t *gpu_time, const uint64_t history[ALIQUOT_HISTORY],
                                         int64_t since, int64_t now) {
    uint64_t last = period_of(now);
    uint64_t first = last < ALIQUOT_HISTORY - 1 ? 0 : last - (ALIQUOT_HISTORY - 1);
    if (since > 0 && period_of(since - 1) + 1 > first) {
        first = period_of(since - 1) + 1; /* the first period that begins at or after since */
    }
    struct aliquot_usage usage = {0, 0};
    if (first > last) {
        return usage;
    }
    usage.elapsed = (uint64_t)now - (first << ALIQUOT_HISTORY_PERIOD_BITS);
    for (uint64_t period = first; period <= last; period++) {
        uint64_t word = __atomic_load_n(&history[period % ALIQUOT_HISTORY], __ATOMIC_ACQUIRE);
        if (word >> 32 == (uint32_t)period) {
            /* Nothing was charged between the beginning of the first period and this word. */
            uint64_t charged =
                __atomic_load_n(gpu_time, __ATOMIC_RELAXED); /* read after the word, so never less than it */
            usage.used = (uint64_t)((uint32_t)(charged >> UNIT_BITS) - (uint32_t)word) << UNIT_BITS;
            break;
        }
    }
    return usage;
}
