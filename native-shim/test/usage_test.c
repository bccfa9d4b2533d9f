/* Tests of usage.h: GPU time is charged and read back, on a simulated clock. */
#include "check.h"
#include "os/usage.h"

#define PERIOD (INT64_C(1) << ALIQUOT_HISTORY_PERIOD_BITS)
#define UNIT 1024 /* ns: resolution of a history */

static struct aliquot_device device;
static struct aliquot_charge charge;

/* Charges a percentage of the time from `from` to `to`, in steps of 1 ms; returns the end. */
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

#define CHECK_NEAR(found, expected)                                                                                    \
    do {                                                                                                               \
        double near = (found);                                                                                         \
        CHECK(near > (expected)-0.02 && near < (expected) + 0.02, "found %f, expected %f", near, expected);            \
    } while (0)

TEST(steady_usage_is_reported_correctly_at_any_time) {
    int64_t now = 1000 * PERIOD;
    for (uint64_t percent = 0; percent <= 100; percent += 25) {
        now = work(now, now + 5 * PERIOD, percent);
        for (int i = 0; i < 50; i++) {
            now = work(now, now + PERIOD / 13, percent);
            CHECK_NEAR(recent_share(now), (double)percent / 100);
        }
    }
}

TEST(usage_fades_within_about_a_second_after_work_ends) {
    int64_t end = work(1000 * PERIOD, 1010 * PERIOD, 100);
    CHECK_NEAR(recent_share(end), 1.0);
    double before = 1;
    for (int64_t now = end; now < end + 4 * PERIOD; now += PERIOD / 8) {
        double share = recent_share(now);
        CHECK(share <= before + 0.25, "%f after %f", share, before); /* usage changes in steps of a period */
        before = share;
    }
    CHECK_NEAR(recent_share(end + 4 * PERIOD), 0.0);
    CHECK_NEAR(recent_share(end + 1000000 * PERIOD), 0.0);
}

TEST(work_that_has_just_begun_is_averaged_over_the_whole_window) {
    int64_t now = work(1000 * PERIOD, 1001 * PERIOD, 100);
    CHECK_NEAR(recent_share(now + 2 * PERIOD - 2000000), 0.25); /* of almost four periods */
}

TEST(usage_before_the_last_query_does_not_count_again) {
    int64_t seen = work(1000 * PERIOD, 1010 * PERIOD, 100);
    CHECK_NEAR(share_since(seen, seen + PERIOD - 1000000), 0.0);
    int64_t now = work(seen + 2 * PERIOD, seen + 3 * PERIOD, 50);
    CHECK_NEAR(share_since(seen, now - 1000000), 0.25);
    CHECK_NEAR(share_since(now + 1, now), 0.0);
    CHECK_NEAR(share_since(INT64_MAX, now), 0.0);
}

TEST(usage_is_correct_when_counters_and_periods_wrap_around) {
    int64_t now = ((INT64_C(1) << 32) - 2) * PERIOD; /* the upper half of a word wraps */
    device.gpu_time = charge.gpu_time = ((UINT64_C(1) << 32) - 3) * UNIT;
    now = work(now, now + 4 * PERIOD, 50);
    CHECK_NEAR(recent_share(now), 0.5);
}

TEST(a_corrupted_history_has_no_effect_after_its_periods_have_passed) {
    int64_t now = 1000 * PERIOD;
    memset(device.history, 0xa5, sizeof device.history);
    memset(charge.history, 0xa5, sizeof charge.history);
    now = work(now, now + 5 * PERIOD, 30);
    CHECK_NEAR(recent_share(now), 0.3);
}

TEST(the_usage_of_a_container_includes_all_its_processes) {
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
