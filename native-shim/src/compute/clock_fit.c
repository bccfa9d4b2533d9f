#include "compute/clock_fit.h"

#define WINDOW_MIN_NS 2000000
#define WINDOW_MAX_NS 32000000
#define POINTS_MIN 4         /* for a rate */
#define SPAN_MIN_NS 16000000 /* for a rate */
#define RATE_MAX 500e-6      /* crystal oscillators differ by less; a steeper edge leads through late events */
#define QUIET_NS 100000000   /* without pairs, after which the line rises */
#define RISE 20e-6           /* of the line in that time, if the rate is known */
#define RISE_UNKNOWN 300e-6  /* if it is not */
#define AGE_MAX_NS INT64_C(10000000000) /* older points are of another rate, as temperatures change */

static double line_at(const struct aliquot_clock_fit *fit, int64_t host) {
    return fit->offset + fit->rate * (double)(host - fit->at);
}

static void set_line(struct aliquot_clock_fit *fit, int64_t at, double offset) {
    fit->at = at;
    fit->offset = offset;
}

/* Finds the edge of the lower hull at the mean time: of all pairs of points on both sides, the one whose connecting
   line is lowest there. */
static void fit_line(struct aliquot_clock_fit *fit) {
    double mean = 0, lowest = 0, rate = 0;
    unsigned found = fit->count;
    int64_t first = fit->points[0].host, last = first;
    for (unsigned i = 0; i < fit->count; i++) {
        mean += (double)(fit->points[i].host - fit->points[0].host) / fit->count;
        first = fit->points[i].host < first ? fit->points[i].host : first;
        last = fit->points[i].host > last ? fit->points[i].host : last;
    }
    if (fit->count < POINTS_MIN || last - first < SPAN_MIN_NS) {
        return;
    }
    int64_t middle = fit->points[0].host + (int64_t)mean;
    for (unsigned i = 0; i < fit->count; i++) {
        for (unsigned j = 0; j < fit->count; j++) {
            if (fit->points[i].host > middle || fit->points[j].host <= middle) {
                continue;
            }
            double slope = (fit->points[j].difference - fit->points[i].difference) /
                           (double)(fit->points[j].host - fit->points[i].host);
            double there = fit->points[i].difference + slope * (double)(middle - fit->points[i].host);
            if (found == fit->count || there < lowest) {
                lowest = there;
                rate = slope;
                found = i;
            }
        }
    }
    if (found < fit->count && rate < RATE_MAX && rate > -RATE_MAX) {
        set_line(fit, fit->points[found].host, fit->points[found].difference);
        fit->rate = rate;
        fit->has_rate = true;
    }
}

static bool is_lower(const struct aliquot_clock_fit *fit, int64_t host, double difference, unsigned than) {
    return difference - line_at(fit, host) < fit->points[than].difference - line_at(fit, fit->points[than].host);
}

/* Makes room for a point: joins windows in twos, or drops the oldest. */
static void make_room(struct aliquot_clock_fit *fit) {
    bool joins = fit->window < WINDOW_MAX_NS;
    unsigned kept = 0;
    for (unsigned i = joins ? 0 : 1; i < fit->count; i += joins ? 2 : 1) {
        bool second = joins && is_lower(fit, fit->points[i + 1].host, fit->points[i + 1].difference, i);
        fit->points[kept++] = fit->points[i + second];
    }
    fit->count = kept;
    fit->window *= joins ? 2 : 1;
}

static void add_point(struct aliquot_clock_fit *fit, int64_t host, double difference) {
    if (fit->count > 0 && host - fit->window_begin < fit->window) {
        if (is_lower(fit, host, difference, fit->count - 1)) {
            fit->points[fit->count - 1].host = host;
            fit->points[fit->count - 1].difference = difference;
        }
        return;
    }
    fit_line(fit);
    if (fit->count == ALIQUOT_CLOCK_FIT_POINTS) {
        make_room(fit);
    }
    fit->window_begin = host;
    fit->points[fit->count].host = host;
    fit->points[fit->count++].difference = difference;
}

double aliquot_clock_fit_add(struct aliquot_clock_fit *fit, int64_t host, double gpu, bool waited) {
    double difference = gpu - (double)host;
    if (!fit->known) {
        *fit = (struct aliquot_clock_fit){
            .known = true, .at = host, .offset = difference, .last = host, .window = WINDOW_MIN_NS};
    } else if (!waited && host - fit->last > QUIET_NS) {
        set_line(fit, host, line_at(fit, host) + (fit->has_rate ? RISE : RISE_UNKNOWN) * (double)(host - fit->last));
        fit->count = host - fit->last > AGE_MAX_NS ? 0 : fit->count;
        fit->window = fit->count == 0 ? WINDOW_MIN_NS : fit->window;
    }
    if (!waited) {
        fit->last = host > fit->last ? host : fit->last;
        add_point(fit, host, difference);
    }
    double above = difference - line_at(fit, host);
    if (above < 0) {
        set_line(fit, host, difference);
    }
    return above;
}

double aliquot_clock_fit_gpu(const struct aliquot_clock_fit *fit, int64_t host) {
    return (double)host + line_at(fit, host);
}

double aliquot_clock_fit_host(const struct aliquot_clock_fit *fit, double gpu) {
    return (double)fit->at + (gpu - (double)fit->at - fit->offset) / (1 + fit->rate);
}
