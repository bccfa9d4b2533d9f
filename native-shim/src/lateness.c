#include "lateness.h"

#include <stdlib.h>

#define INITIAL_NS 12000      /* threshold for a late event until it is learned */
#define MIN_NS 8000           /* lower bound of the threshold */
#define MAX_NS 100000         /* upper bound of the threshold */
#define DRIFT_DIVISOR 20000   /* drift of the GPU's clock against the host's: 1/20000, 50 ppm */
#define ALONE_EVENTS_MIN 8    /* events needed to conclude that the process is alone */
#define ALONE_LATE_DIVISOR 24 /* at most 1 in 24 events is late if the process is alone */
#define HISTORY_LENGTH 64

static int compare_delays(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Learns the threshold from the delays of punctual events. If the process is alone, almost all of them waited for no
   other process. Else the longer half may have waited; of exponentially distributed delays one in 128 exceeds 7 times
   the median. The threshold falls faster than it rises, because quiet times are the most informative. */
static void learn_threshold(struct aliquot_lateness *lateness, bool alone) {
    uint32_t *delays = lateness->delays;
    qsort(delays, ALIQUOT_LATENESS_DELAYS, sizeof delays[0], compare_delays);
    uint32_t found = alone ? delays[ALIQUOT_LATENESS_DELAYS - 2] / 4 * 5 : delays[ALIQUOT_LATENESS_DELAYS / 2] * 9;
    found = found < MIN_NS ? MIN_NS : found > MAX_NS ? MAX_NS : found;
    uint32_t before = lateness->threshold_ns == 0 ? found : lateness->threshold_ns;
    lateness->threshold_ns = found < before ? before - (before - found) / 2 : before + (found - before) / 8;
    lateness->delay_count = 0;
}

bool aliquot_lateness_judge(struct aliquot_lateness *lateness, double completed, int64_t recorded, bool waited,
                            bool alone) {
    double delay = completed - (double)recorded;
    double least = lateness->least_delay + (double)(recorded - lateness->least_seen) / DRIFT_DIVISOR;
    if (!lateness->has_least_delay || delay < least) {
        lateness->least_delay = least = delay;
        lateness->least_seen = recorded;
        lateness->has_least_delay = true;
    }
    if (!waited && delay - least < MAX_NS) {
        lateness->delays[lateness->delay_count++] = (uint32_t)(delay - least);
    }
    if (lateness->delay_count == ALIQUOT_LATENESS_DELAYS) {
        learn_threshold(lateness, alone);
    }
    return delay - least > (lateness->threshold_ns == 0 ? INITIAL_NS : lateness->threshold_ns);
}

void aliquot_lateness_record(struct aliquot_lateness *lateness, bool late) {
    lateness->history = lateness->history << 1 | late;
    lateness->history_count += lateness->history_count < HISTORY_LENGTH;
}

void aliquot_lateness_add_probe(struct aliquot_lateness *lateness, double completed, int64_t recorded, bool alone) {
    bool late = aliquot_lateness_judge(lateness, completed, recorded, false, alone);
    lateness->probes[lateness->probe_count++ % ALIQUOT_LATENESS_PROBES] =
        (struct aliquot_lateness_probe){aliquot_lateness_gpu_time(lateness, recorded), late};
    aliquot_lateness_record(lateness, late);
}

void aliquot_lateness_count_probes(const struct aliquot_lateness *lateness, double from, double to, unsigned *late,
                                   unsigned *all) {
    for (uint64_t i = 1; i <= ALIQUOT_LATENESS_PROBES && i <= lateness->probe_count; i++) {
        const struct aliquot_lateness_probe *probe =
            &lateness->probes[(lateness->probe_count - i) % ALIQUOT_LATENESS_PROBES];
        if (probe->at < from) {
            break;
        }
        if (probe->at < to) {
            *late += probe->late;
            ++*all;
        }
    }
}

double aliquot_lateness_gpu_time(const struct aliquot_lateness *lateness, int64_t host) {
    return (double)host + lateness->least_delay;
}

double aliquot_lateness_host_time(const struct aliquot_lateness *lateness, double gpu) {
    return gpu - lateness->least_delay;
}

bool aliquot_lateness_seems_alone(const struct aliquot_lateness *lateness) {
    return lateness->history_count >= ALONE_EVENTS_MIN &&
           (unsigned)__builtin_popcountll(lateness->history) * ALONE_LATE_DIVISOR <= lateness->history_count;
}

void aliquot_lateness_forget_clock(struct aliquot_lateness *lateness) {
    lateness->has_least_delay = false;
    lateness->delay_count = 0;
    lateness->probe_count = 0;
}

void aliquot_lateness_forget_all(struct aliquot_lateness *lateness) {
    aliquot_lateness_forget_clock(lateness);
    lateness->history = 0;
    lateness->history_count = 0;
}
