/* GPU time charged and read back, on a clock of the tests' own. */
#include "check.h"
#include "usage.h"

#define PERIOD (INT64_C(1) << ALIQUOT_HISTORY_PERIOD_BITS)
#define UNIT 1024 /* ns: how exact a history is */

static struct aliquot_device device;
static struct aliquot_charge charge;

/* Keeps a share of the GPU busy from one time to another, in steps of 1 ms; the time of the last charge. */
static int64_t work(int64_t from, int64_t to, uint64_t percent) {
    for (; from < to; from += 1000000) {
        aliquot_usage_charge(&device, &charge, percent * 10000, from);
    }
    return from;
}

static double share_since(int64_t since, int64_t now) {
    struct aliquot_usage all = aliquot_usage_since(&device.gpu_time, device.history, since, now);
    struct aliquot_usage one = aliquot_usage_since(&charge.gpu_time, charge.history, since, now);
    CHECK_EQUAL(all.elapsed, one.elapsed);
    CHECK(one.used <= all.used + UNIT, "%llu", (unsigned long long)all.used);
    return one.elapsed == 0 ? 0 : (double)one.used / (double)one.elapsed;
}

static double recent_share(int64_t now) {
    return share_since(0, now);
}

#define CHECK_NEAR(found, wanted)                                                                                      \
    do {                                                                                                               \
        double near = (found);                                                                                         \
        CHECK(near > (wanted)-0.02 && near < (wanted) + 0.02, "%f instead of %f", near, wanted);                       \
    } while (0)

TEST(steady_work_reads_as_what_it_is_at_any_time) {
    int64_t now = 1000 * PERIOD;
    for (uint64_t percent = 0; percent <= 100; percent += 25) {
        now = work(now, now + 5 * PERIOD, percent);
        for (int i = 0; i < 50; i++) {
            now = work(now, now + PERIOD / 13, percent);
            CHECK_NEAR(recent_share(now), (double)percent / 100);
        }
    }
}

TEST(work_that_has_ended_fades_within_a_second_and_a_bit) {
    int64_t end = work(1000 * PERIOD, 1010 * PERIOD, 100);
    CHECK_NEAR(recent_share(end), 1.0);
    double before = 1;
    for (int64_t now = end; now < end + 4 * PERIOD; now += PERIOD / 8) {
        double share = recent_share(now);
        CHECK(share <= before + 0.25, "%f after %f", share, before); /* in steps of a period */
        before = share;
    }
    CHECK_NEAR(recent_share(end + 4 * PERIOD), 0.0);
    CHECK_NEAR(recent_share(end + 1000000 * PERIOD), 0.0);
}

TEST(work_that_has_just_begun_counts_against_the_whole_window) {
    int64_t now = work(1000 * PERIOD, 1001 * PERIOD, 100);
    CHECK_NEAR(recent_share(now + 2 * PERIOD - 2000000), 0.25); /* of almost four periods */
}

TEST(what_was_seen_before_does_not_count_again) {
    int64_t seen = work(1000 * PERIOD, 1010 * PERIOD, 100);
    CHECK_NEAR(share_since(seen, seen + PERIOD - 1000000), 0.0);
    int64_t now = work(seen + 2 * PERIOD, seen + 3 * PERIOD, 50);
    CHECK_NEAR(share_since(seen, now - 1000000), 0.25);
    CHECK_NEAR(share_since(now + 1, now), 0.0);
    CHECK_NEAR(share_since(INT64_MAX, now), 0.0);
}

TEST(counters_and_periods_may_wrap_around) {
    int64_t now = ((INT64_C(1) << 32) - 2) * PERIOD; /* the upper half of a word wraps */
    device.gpu_time = charge.gpu_time = ((UINT64_C(1) << 32) - 3) * UNIT;
    now = work(now, now + 4 * PERIOD, 50);
    CHECK_NEAR(recent_share(now), 0.5);
}

TEST(a_scribbled_history_harms_nobody_for_longer_than_it_lasts) {
    int64_t now = 1000 * PERIOD;
    memset(device.history, 0xa5, sizeof device.history);
    memset(charge.history, 0xa5, sizeof charge.history);
    now = work(now, now + 5 * PERIOD, 30);
    CHECK_NEAR(recent_share(now), 0.3);
}

TEST(a_container_counts_all_its_processes) {
    static struct aliquot_charge second;
    int64_t now = 1000 * PERIOD;
    for (int64_t end = now + 5 * PERIOD; now < end; now += 1000000) {
        aliquot_usage_charge(&device, &charge, 200000, now);
        aliquot_usage_charge(&device, &second, 300000, now);
    }
    CHECK_NEAR(recent_share(now), 0.2);
    struct aliquot_usage all = aliquot_usage_since(&device.gpu_time, device.history, 0, now);
    CHECK_NEAR((double)all.used / (double)all.elapsed, 0.5);
}
