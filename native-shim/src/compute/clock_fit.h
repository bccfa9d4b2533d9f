/*
 * Fits the GPU's clock to the host's, as arithmetic on pairs of times: offset and rate.
 *
 * A pair is the time at which an event was recorded, on the host's clock, and at which it completed, on the GPU's. An
 * event completes when it is recorded or later, so the clocks' difference is the line below all pairs that touches
 * them: the edge of their lower convex hull at the mean time (Moon, Skelly and Towsley, "Estimation and Removal of
 * Clock Skew from Network Delay Measurements", 1999). The lowest pair of each of the last 32 time windows counts. The
 * windows grow from 2 to 32 ms, so that a rate is known after 16 ms. A pair below the line lowers it at once. In a time
 * without pairs the line rises, because the rate is not exact, and after 10 s of it the windows begin again. Events
 * that may have waited for work only lower the line: an edge through them may have any slope.
 *
 * Times are in nanoseconds. All zeros: nothing is known. Not thread-safe.
 */
#ifndef ALIQUOT_CLOCK_FIT_H
#define ALIQUOT_CLOCK_FIT_H

#include <stdbool.h>
#include <stdint.h>

#define ALIQUOT_CLOCK_FIT_POINTS 32

struct aliquot_clock_fit {
    bool known, has_rate;
    /* The GPU's clock less the host's is offset + rate * (host - at). */
    int64_t at;
    double offset, rate;
    int64_t last;                 /* host's time of the last pair */
    int64_t window, window_begin; /* length and begin of the present window */
    unsigned count;
    struct {
        int64_t host;
        double difference;
    } points[ALIQUOT_CLOCK_FIT_POINTS]; /* lowest pair of each window */
};

/* Adds a pair. waited: the event may have waited for work. Returns how much later than the line the event completed;
 * negative: the line was lowered by that. */
double aliquot_clock_fit_add(struct aliquot_clock_fit *fit, int64_t host, double gpu, bool waited);

/* The GPU's time at a host's time, and the reverse. */
double aliquot_clock_fit_gpu(const struct aliquot_clock_fit *fit, int64_t host);
double aliquot_clock_fit_host(const struct aliquot_clock_fit *fit, double gpu);

#endif
