#include "compute/lateness.h"

#include <stdlib.h>

#define INITIAL_NS 12000    /* threshold for a late event until it is learned */
#define MIN_NS 8000         /* lower bound of the threshold */
#define MAX_NS 100000       /* upper bound of the threshold */
#define EVIDENCE_MIN 8      /* probes during own work needed to conclude that probes do not wait for it */
#define EVIDENCE_DIVISOR 16 /* of them, at least 1 in 16 is punctual: others have the GPU for 15/16 of the time */
#define EVIDENCE_MARGIN_NS 50000
#define CONTRADICTED_DIVISOR 8 /* if more than 1 in 8 late probes is contradicted, probes wait for own work */
#define RECENT_MAX 64
#define OTHERS_EVENTS_MIN 16
#define OTHERS_MAX_AGE_NS 1500000000 /* older events say nothing about the present */
#define WINDOW_NS 128000000          /* of pairs of times, of which the lowest one counts, and their least number */
#define WINDOW_PAIRS 16
#define QUIET_NS 1000000000 /* without pairs, after which a new window begins */
#define RISE_MAX 300e-6     /* crystal oscillators differ by less */

static int compare_delays(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Learns the threshold from the delays of punctual events. The longer half may have waited for another process; of
   exponentially distributed delays one in 512 exceeds 9 times the median. The threshold falls faster than it rises,
   because quiet times are the most informative. */
static void learn_threshold(struct aliquot_lateness *lateness) {
    uint32_t *delays = lateness->delays;
    qsort(delays, ALIQUOT_LATENESS_DELAYS, sizeof delays[0], compare_delays);
    uint32_t found = delays[ALIQUOT_LATENESS_DELAYS / 2] * 9;
    found = found < MIN_NS ? MIN_NS : found > MAX_NS ? MAX_NS : found;
    uint32_t before = lateness->threshold_ns == 0 ? found : lateness->threshold_ns;
    lateness->threshold_ns = found < before ? before - (before - found) / 2 : before + (found - before) / 8;
    lateness->delay_count = 0;
}

static void add_recent(struct aliquot_recent *recent, bool answer) {
    recent->bits = recent->bits << 1 | answer;
    recent->count += recent->count < RECENT_MAX;
}

static unsigned yes_of(const struct aliquot_recent *recent) {
    return (unsigned)__builtin_popcountll(recent->bits);
}

static double threshold_of(const struct aliquot_lateness *lateness) {
    return lateness->threshold_ns == 0 ? INITIAL_NS : lateness->threshold_ns;
}

static void forget_judgements(struct aliquot_lateness *lateness) {
    lateness->probe_count = lateness->moment_count = 0;
    lateness->late = lateness->punctual = lateness->contradicted = (struct aliquot_recent){0};
}

/* Whether a late probe waited while own work began or ended. */
static bool is_contradicted(const struct aliquot_lateness *lateness, const struct aliquot_lateness_probe *probe) {
    bool found = false;
    for (uint64_t i = 0; i < ALIQUOT_LATENESS_MOMENTS && i < lateness->moment_count && !found; i++) {
        found = lateness->moments[i] > probe->at + threshold_of(lateness) + EVIDENCE_MARGIN_NS &&
                lateness->moments[i] < probe->completed - EVIDENCE_MARGIN_NS;
    }
    return found;
}

/* Adds a pair of times to the clock. Returns how much later than its offset says the event completed. */
static double add_pair(struct aliquot_lateness_clock *clock, int64_t host, double gpu, bool waited) {
    double difference = gpu - (double)host;
    if (!clock->known) {
        *clock = (struct aliquot_lateness_clock){.known = true, .offset = difference, .begin = host, .last = host};
    }
    if (!waited) {
        if (host - clock->last > QUIET_NS) {
            clock->offset += RISE_MAX * (double)(host - clock->last);
            clock->begin = host;
            clock->pairs = 0;
        }
        clock->last = host > clock->last ? host : clock->last;
        clock->lowest = clock->pairs == 0 || difference < clock->lowest ? difference : clock->lowest;
        if (++clock->pairs >= WINDOW_PAIRS && host - clock->begin > WINDOW_NS) {
            double most = clock->offset + RISE_MAX * (double)(host - clock->begin);
            clock->offset = clock->lowest < most ? clock->lowest : most;
            clock->begin = host;
            clock->pairs = 0;
        }
    }
    double late = difference - clock->offset;
    clock->offset = late < 0 ? difference : clock->offset;
    return late;
}

bool aliquot_lateness_judge(struct aliquot_lateness *lateness, double completed, int64_t recorded, bool waited) {
    double delay = add_pair(&lateness->clock, recorded, completed, waited);
    if (delay < -threshold_of(lateness)) { /* earlier judgements were made with a wrong offset */
        forget_judgements(lateness);
    }
    delay = delay < 0 ? 0 : delay;
    if (!waited && delay < MAX_NS) {
        lateness->delays[lateness->delay_count++] = (uint32_t)delay;
    }
    if (lateness->delay_count == ALIQUOT_LATENESS_DELAYS) {
        learn_threshold(lateness);
    }
    return delay > threshold_of(lateness);
}

void aliquot_lateness_record(struct aliquot_lateness *lateness, int64_t recorded, bool late) {
    lateness->last_recorded = recorded;
    add_recent(&lateness->late, late);
}

void aliquot_lateness_add_probe(struct aliquot_lateness *lateness, double completed, int64_t recorded, bool idle) {
    bool waited = !idle && !aliquot_lateness_probes_count(lateness);
    bool late = aliquot_lateness_judge(lateness, completed, recorded, waited);
    if (!idle) {
        lateness->probes[lateness->probe_count++ % ALIQUOT_LATENESS_PROBES] = (struct aliquot_lateness_probe){
            .at = aliquot_lateness_gpu_time(lateness, recorded), .completed = completed, .late = late};
    }
    if (!waited) {
        aliquot_lateness_record(lateness, recorded, late);
    }
}

bool aliquot_lateness_others(const struct aliquot_lateness *lateness, int64_t now, double *fraction) {
    const struct aliquot_recent *late = &lateness->late;
    *fraction = (double)yes_of(late) / (late->count == 0 ? 1 : late->count);
    return late->count >= OTHERS_EVENTS_MIN && now - lateness->last_recorded < OTHERS_MAX_AGE_NS;
}

void aliquot_lateness_count_probes(struct aliquot_lateness *lateness, double from, double to, unsigned *late,
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
            if (probe->late) {
                add_recent(&lateness->contradicted, is_contradicted(lateness, probe));
            }
            if (to - probe->at > threshold_of(lateness) + EVIDENCE_MARGIN_NS) {
                add_recent(&lateness->punctual, !probe->late);
            }
        }
    }
}

void aliquot_lateness_add_moment(struct aliquot_lateness *lateness, double at) {
    lateness->moments[lateness->moment_count++ % ALIQUOT_LATENESS_MOMENTS] = at;
}

bool aliquot_lateness_probes_count(const struct aliquot_lateness *lateness) {
    const struct aliquot_recent *punctual = &lateness->punctual, *contradicted = &lateness->contradicted;
    return punctual->count >= EVIDENCE_MIN && yes_of(punctual) * EVIDENCE_DIVISOR >= punctual->count &&
           yes_of(contradicted) * CONTRADICTED_DIVISOR <= contradicted->count;
}

double aliquot_lateness_gpu_time(const struct aliquot_lateness *lateness, int64_t host) {
    return (double)host + lateness->clock.offset;
}

void aliquot_lateness_forget(struct aliquot_lateness *lateness) {
    lateness->clock.known = false;
    lateness->delay_count = 0;
    forget_judgements(lateness);
}
