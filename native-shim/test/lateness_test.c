/*
 * Tests of the arithmetic of lateness.h on recorded traces. Each line of a trace is a probe of the simulated GPU: when
 * it was recorded, on the host's clock, and when it completed, on the GPU's, both in nanoseconds. `duty` with the
 * options named at each trace made the program that recorded it.
 */
#include "check.h"
#include "lateness.h"

static struct aliquot_lateness lateness;

/* Replays a trace. Returns the fraction of late probes in its second half. */
static double late_fraction(const char *trace) {
    char path[512];
    long long recorded = 0, first = 0;
    double completed = 0, begin = 0;
    int count = 0;
    snprintf(path, sizeof path, "%s/%s.txt", TRACES, trace);
    FILE *file = fopen(path, "re");
    CHECK(file != NULL, "the trace %s", path);
    while (fscanf(file, "%lld %lf", &recorded, &completed) == 2) {
        aliquot_lateness_add_probe(&lateness, completed, recorded, false);
        first = ++count == 300 ? recorded : first;
    }
    fclose(file);
    CHECK_EQUAL(count, 600);
    begin = aliquot_lateness_gpu_time(&lateness, first);
    unsigned late = 0, all = 0;
    aliquot_lateness_count_probes(&lateness, begin, begin + 1e12, &late, &all);
    CHECK(all >= 290 && all <= 310, "%u probes", all);
    return (double)late / all;
}

/* --limits 50 --shape 1ms --latency 20 */
TEST(a_process_alone_has_almost_no_late_probes) {
    double late = late_fraction("alone_with_launch_latency");
    CHECK(late < 0.04, "%.3f are late", late);
    CHECK(aliquot_lateness_seems_alone(&lateness), "the process is alone");
}

/* --limits 50,50 --shape 1ms --latency 20 */
TEST(half_of_the_probes_are_late_beside_one_process) {
    double late = late_fraction("one_of_two_with_launch_latency");
    CHECK(late > 0.44 && late < 0.56, "%.3f are late", late);
    CHECK(!aliquot_lateness_seems_alone(&lateness), "the process is not alone");
}

/* --limits 25 --tenants 4 --shape 20ms */
TEST(three_quarters_of_the_probes_are_late_beside_three_processes) {
    double late = late_fraction("one_of_four");
    CHECK(late > 0.69 && late < 0.81, "%.3f are late", late);
    CHECK(!aliquot_lateness_seems_alone(&lateness), "the process is not alone");
}

TEST(few_events_do_not_suggest_that_the_process_is_alone) {
    for (int i = 0; i < 7; i++) {
        aliquot_lateness_record(&lateness, false);
        CHECK(!aliquot_lateness_seems_alone(&lateness), "%d events", i + 1);
    }
    aliquot_lateness_record(&lateness, false);
    CHECK(aliquot_lateness_seems_alone(&lateness), "8 punctual events");
    aliquot_lateness_forget_all(&lateness);
    CHECK(!aliquot_lateness_seems_alone(&lateness), "nothing is known");
}

TEST(a_new_clock_is_learned_from_its_first_event) {
    CHECK(!aliquot_lateness_judge(&lateness, 5000, 1000, false, false), "the first event sets the offset");
    CHECK(aliquot_lateness_judge(&lateness, 5000 + 1000000, 1000 + 900000, false, false), "100 us later");
    aliquot_lateness_forget_clock(&lateness);
    CHECK(!aliquot_lateness_judge(&lateness, 5000 + 2000000, 1000 + 1800000, false, false), "a new offset");
    CHECK_EQUAL(aliquot_lateness_host_time(&lateness, aliquot_lateness_gpu_time(&lateness, 77000)), 77000);
}
