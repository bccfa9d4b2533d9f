/*
 * Tests of the arithmetic of lateness.h on recorded traces. Each line of a trace is a probe of the simulated GPU: when
 * it was recorded, on the host's clock, and when it completed, on the GPU's, both in nanoseconds. `duty` with the
 * options named at each trace made the program that recorded it.
 */
#include "check.h"
#include "compute/lateness.h"

static struct aliquot_lateness lateness;

/* Replays a trace. Returns when its second half begins. */
static int64_t replay(const char *trace) {
    char path[512];
    long long recorded = 0, middle = 0;
    double completed = 0;
    unsigned late = 0, all = 0;
    int count = 0;
    snprintf(path, sizeof path, "%s/%s.txt", TRACES, trace);
    FILE *file = fopen(path, "re");
    CHECK(file != NULL, "the trace %s", path);
    aliquot_lateness_forget(&lateness);
    while (fscanf(file, "%lld %lf", &recorded, &completed) == 2) {
        aliquot_lateness_add_probe(&lateness, completed, recorded, false);
        middle = ++count == 300 ? recorded : middle;
        if (count % 10 == 0) { /* as a group of batches does */
            double now = aliquot_lateness_gpu_time(&lateness, recorded);
            aliquot_lateness_count_probes(&lateness, now - 1e7, now, &late, &all);
        }
    }
    fclose(file);
    CHECK_EQUAL(count, 600);
    return middle;
}

/* The fraction of late probes in the second half of a trace. */
static double late_fraction(const char *trace) {
    unsigned late = 0, all = 0;
    int64_t middle = replay(trace);
    double begin = aliquot_lateness_gpu_time(&lateness, middle);
    aliquot_lateness_count_probes(&lateness, begin, begin + 1e12, &late, &all);
    CHECK(all >= 290 && all <= 310, "%u probes", all);
    return (double)late / all;
}

/* --limits 50 --shape 1ms --latency 20 */
TEST(a_process_alone_has_almost_no_late_probes) {
    double late = late_fraction("alone_with_launch_latency");
    CHECK(late < 0.04, "%.3f are late", late);
}

/* --limits 50,50 --shape 1ms --latency 20 */
TEST(half_of_the_probes_are_late_beside_one_process) {
    double late = late_fraction("one_of_two_with_launch_latency");
    CHECK(late > 0.44 && late < 0.56, "%.3f are late", late);
}

/* --limits 25 --tenants 4 --shape 20ms */
TEST(three_quarters_of_the_probes_are_late_beside_three_processes) {
    double late = late_fraction("one_of_four");
    CHECK(late > 0.69 && late < 0.81, "%.3f are late", late);
}

TEST(a_new_clock_is_learned_from_its_first_event) {
    CHECK(!aliquot_lateness_judge(&lateness, 5000, 1000, false), "the first event sets the offset");
    CHECK(aliquot_lateness_judge(&lateness, 5000 + 1000000, 1000 + 900000, false), "100 us later");
    aliquot_lateness_forget(&lateness);
    CHECK(!aliquot_lateness_judge(&lateness, 5000 + 2000000, 1000 + 1800000, false), "a new offset");
}

/* xorshift32 (Marsaglia, 2003), 0 to 1. */
static double next_random(void) {
    static uint32_t random = 20261127;
    random ^= random << 13;
    random ^= random >> 17;
    random ^= random << 5;
    return random / 4294967296.0;
}

#define OFFSET 7e9

/* An event that is recorded at a time, on a GPU whose clock drifts by ppm, and completes late by some nanoseconds. */
static double completed_at(int64_t recorded, double ppm, double late) {
    return OFFSET + (double)recorded + (double)recorded * ppm / 1e6 + late;
}

/* Half of the events wait up to 2 ms for another process, all complete 0 to 15 us late. */
static void add_events(int64_t from, int64_t to, double ppm) {
    for (int64_t now = from; now < to; now += 600000 + (int64_t)(next_random() * 400000)) {
        double late = next_random() * 15000 + (next_random() < 0.5 ? next_random() * 2e6 : 0);
        aliquot_lateness_judge(&lateness, completed_at(now, ppm, late), now, false);
    }
}

static double clock_error(int64_t now, double ppm) {
    return aliquot_lateness_gpu_time(&lateness, now) - completed_at(now, ppm, 0);
}

TEST(a_clock_that_drifts_is_followed_although_half_of_the_events_are_late) {
    static const double drifts[] = {-200, -50, 0, 20, 200};
    for (size_t i = 0; i < sizeof drifts / sizeof drifts[0]; i++) {
        aliquot_lateness_forget(&lateness);
        double most = 2000 + (drifts[i] < 0 ? -drifts[i] : drifts[i]) * 260;
        for (int64_t end = 1; end <= 40; end++) {
            add_events((end - 1) * 100000000, end * 100000000, drifts[i]);
            double error = clock_error(end * 100000000, drifts[i]);
            CHECK(error > -most && error < most, "drift %.0f ppm, after %lld00 ms: %.0f ns", drifts[i], (long long)end,
                  error);
        }
    }
}

TEST(after_an_idle_time_the_first_punctual_event_sets_the_clock_right) {
    add_events(0, 1000000000, 200);
    int64_t later = 61000000000; /* a minute; a drift of 200 ppm makes 12 ms */
    aliquot_lateness_judge(&lateness, completed_at(later, 200, 1500000), later, false);
    aliquot_lateness_judge(&lateness, completed_at(later + 1000000, 200, 0), later + 1000000, false);
    double error = clock_error(later + 2000000, 200);
    CHECK(error > -1000 && error < 1000, "%.0f ns", error);
    add_events(later + 2000000, later + 1000000000, 200);
    error = clock_error(later + 1000000000, 200);
    CHECK(error > -52000 && error < 52000, "%.0f ns", error);
}

/* The process's work is on the GPU for 10 ms at a time, and 12 probes are recorded during it. */
static void probe_during_work(int batches, bool probes_wait) {
    unsigned late = 0, all = 0;
    for (int64_t i = 0; i < batches; i++) {
        int64_t begin = i * 20000000;
        for (int64_t now = begin; now < begin + 9600000; now += 800000) {
            double end = probes_wait ? (double)(begin + 10000000) : (double)now + next_random() * 3000;
            aliquot_lateness_add_probe(&lateness, OFFSET + end, now, false);
        }
        aliquot_lateness_count_probes(&lateness, aliquot_lateness_gpu_time(&lateness, begin),
                                      aliquot_lateness_gpu_time(&lateness, begin + 10000000), &late, &all);
    }
}

TEST(probes_that_wait_for_own_work_do_not_count) {
    aliquot_lateness_judge(&lateness, OFFSET, 0, false);
    probe_during_work(20, true);
    CHECK(!aliquot_lateness_probes_count(&lateness), "they say nothing about other processes");
    double others = 1;
    aliquot_lateness_others(&lateness, 0, &others);
    CHECK(others == 0, "they are not in the history");
}

TEST(probes_that_wait_for_nothing_count) {
    CHECK(!aliquot_lateness_probes_count(&lateness), "there is no evidence yet");
    probe_during_work(2, false);
    CHECK(aliquot_lateness_probes_count(&lateness), "they do not wait for own work");
}

/* Every third probe is punctual, the others are late by 2 ms; own work ends each 0.5 ms, or at their ends only. */
static bool mixed_probes_count(int64_t own_work_ends_every) {
    unsigned late = 0, all = 0;
    aliquot_lateness_forget(&lateness);
    aliquot_lateness_judge(&lateness, OFFSET, 0, false);
    for (int64_t i = 1; i <= 90; i++) {
        int64_t now = i * 2500000;
        double delay = i % 3 == 0 ? 1000 : 2000000;
        for (int64_t end = own_work_ends_every; end <= 2000000; end += own_work_ends_every) {
            aliquot_lateness_add_moment(&lateness, OFFSET + (double)(now + end));
        }
        aliquot_lateness_add_probe(&lateness, OFFSET + (double)now + delay, now, false);
    }
    double begin = aliquot_lateness_gpu_time(&lateness, 0);
    aliquot_lateness_count_probes(&lateness, begin, begin + 1e9, &late, &all);
    return aliquot_lateness_probes_count(&lateness);
}

TEST(late_probes_during_which_own_work_ends_do_not_count) {
    CHECK(mixed_probes_count(2000000), "other processes had the GPU");
    CHECK(!mixed_probes_count(500000), "the probes waited for own work");
}

TEST(judgements_with_a_wrong_offset_are_forgotten) {
    aliquot_lateness_judge(&lateness, OFFSET + 5000000, 0, false); /* the first event is late */
    for (int64_t i = 1; i < 20; i++) {
        aliquot_lateness_add_probe(&lateness, OFFSET + 5000000 + (double)i * 1e6 + 900, i * 1000000, true);
    }
    double others = 1;
    CHECK(aliquot_lateness_others(&lateness, 20000000, &others) && others < 0.1, "as far as is known");
    CHECK(!aliquot_lateness_judge(&lateness, OFFSET + 21e6, 21000000, false), "a punctual event");
    CHECK(!aliquot_lateness_others(&lateness, 21000000, &others), "the others were all late");
}
