/* Tests of the compute limit's arithmetic: the rate limiter of gcra.h and the learned costs of cost.h. */
#include "aliquot/agent.h"
#include "check.h"
#include "compute/cost.h"
#include "compute/gcra.h"

#define MS INT64_C(1000000)
#define NOW (INT64_C(1000000) * MS)

/* Simulates a program that launches kernels of one cost without a pause. Returns the GPU time that it gets. */
static int64_t use_greedily(uint32_t share, uint64_t cost, int64_t during) {
    uint64_t word = 0;
    int64_t used = 0, until = 0;
    for (int64_t now = NOW; now < NOW + during;) {
        if (aliquot_gcra_try_charge(&word, share, cost, 0, now, &until)) {
            used += (int64_t)cost;
        } else {
            CHECK(until > now, "a wait ends in the future");
            now = until;
        }
    }
    return used;
}

TEST(a_greedy_launcher_gets_its_share_whatever_its_launches_cost) {
    static const uint64_t costs[] = {50000, 1000000, 20000000, 150000000};
    for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++) {
        for (uint32_t percent = 10; percent < 100; percent += 15) {
            int64_t used = use_greedily(percent * 10000, costs[i], 20000 * MS);
            int64_t fair = 200 * MS * percent;
            int64_t slack = 2 * ALIQUOT_GCRA_BURST_NS + (int64_t)costs[i];
            CHECK(used >= fair - slack && used <= fair + slack, "%u percent of 20 s: %lld ms", percent,
                  (long long)(used / MS));
        }
    }
}

TEST(idle_time_earns_a_burst_and_no_more) {
    uint64_t word = 0;
    int64_t until = 0, used = 0;
    while (aliquot_gcra_try_charge(&word, 500000, 1000000, 0, NOW, &until)) {
        used += MS;
    }
    CHECK(used <= ALIQUOT_GCRA_BURST_NS + ALIQUOT_GCRA_BURST_NS / 2 + MS, "%lld ms", (long long)(used / MS));
}

TEST(no_value_of_the_word_makes_a_launch_wait_longer_than_the_bound) {
    static const uint64_t words[] = {UINT64_MAX, INT64_MAX, (uint64_t)NOW * 2};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        uint64_t word = words[i];
        int64_t until = 0;
        CHECK(!aliquot_gcra_try_charge(&word, 10000, 1, 0, NOW, &until), "the launch waits");
        CHECK(until - NOW <= ALIQUOT_GCRA_WAIT_MAX_NS, "%lld ms", (long long)((until - NOW) / MS));
    }
}

TEST(returned_GPU_time_can_be_used_again) {
    uint64_t word = (uint64_t)NOW;
    int64_t until = 0;
    aliquot_gcra_adjust(&word, 250000, 20 * MS, NOW);
    CHECK(!aliquot_gcra_try_charge(&word, 250000, 1, 0, NOW, &until), "a debt of 80 ms");
    aliquot_gcra_adjust(&word, 250000, -20 * MS, NOW);
    CHECK(aliquot_gcra_try_charge(&word, 250000, 1, 0, NOW, &until), "no debt");
}

TEST(a_charge_beyond_the_largest_debt_is_returned_whole) {
    static const uint64_t costs[] = {250, 1000, 100000}; /* ms */
    for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++) {
        uint64_t word = (uint64_t)NOW;
        int64_t until = 0;
        CHECK(aliquot_gcra_try_charge(&word, 50000, costs[i] * MS, 0, NOW, &until), "the share allows it");
        aliquot_gcra_adjust(&word, 50000, 5 * MS, NOW); /* of other work, meanwhile */
        aliquot_gcra_adjust(&word, 50000, -(int64_t)(costs[i] * MS), NOW);
        CHECK(word >= (uint64_t)NOW, "no credit remains of %d ms", (int)costs[i]);
    }
}

TEST(more_debt_than_the_largest_is_not_added) {
    uint64_t word = (uint64_t)NOW;
    for (int i = 0; i < 100; i++) {
        aliquot_gcra_adjust(&word, 50000, 100 * MS, NOW);
    }
    CHECK_EQUAL(word, (uint64_t)NOW + ALIQUOT_GCRA_WAIT_MAX_NS);
}

TEST(a_grant_is_valid_for_three_seconds_and_never_raises_an_own_share) {
    uint64_t grant = ALIQUOT_GRANT(NOW / MS, 300000);
    CHECK_EQUAL(aliquot_gcra_share(400000, 0, NOW), 400000);
    CHECK_EQUAL(aliquot_gcra_share(400000, grant, NOW + 2999 * MS), 300000);
    CHECK_EQUAL(aliquot_gcra_share(400000, grant, NOW + 3001 * MS), 400000);
    CHECK_EQUAL(aliquot_gcra_share(400000, grant, NOW - 3001 * MS), 400000);
    CHECK_EQUAL(aliquot_gcra_share(200000, grant, NOW), 200000);
    CHECK_EQUAL(aliquot_gcra_share(400000, ALIQUOT_GRANT(NOW / MS, 0), NOW), ALIQUOT_GCRA_SHARE_MIN);
}

TEST(a_container_without_a_share_is_free_until_an_arbiter_has_spoken_and_never_again) {
    CHECK_EQUAL(aliquot_gcra_share(0, 0, NOW), 0);
    CHECK_EQUAL(aliquot_gcra_share(0, ALIQUOT_GRANT(NOW / MS, 0), NOW), ALIQUOT_GCRA_SHARE_MIN);
    CHECK_EQUAL(aliquot_gcra_share(0, ALIQUOT_GRANT(NOW / MS, 500000), NOW + 9000 * MS), ALIQUOT_GCRA_SHARE_MIN);
}

TEST(a_share_is_borrowed_by_elastic_containers_for_200_ms) {
    uint64_t word = ALIQUOT_GRANT(NOW / MS, 700000);
    CHECK_EQUAL(aliquot_gcra_borrowed(ALIQUOT_POLICY_ELASTIC, word, NOW + 199 * MS), 700000);
    CHECK_EQUAL(aliquot_gcra_borrowed(ALIQUOT_POLICY_ELASTIC, word, NOW + 201 * MS), 0);
    CHECK_EQUAL(aliquot_gcra_borrowed(ALIQUOT_POLICY_ELASTIC, word, NOW - 201 * MS), 0);
    CHECK_EQUAL(aliquot_gcra_borrowed(ALIQUOT_POLICY_FIXED, word, NOW), 0);
    CHECK_EQUAL(aliquot_gcra_borrowed(ALIQUOT_POLICY_ELASTIC, 0, NOW), 0);
    CHECK_EQUAL(aliquot_gcra_borrowed(ALIQUOT_POLICY_ELASTIC, word | 0xfffff, NOW), ALIQUOT_GCRA_WHOLE_GPU);
}

static uint64_t learn(const void *handle, uint64_t measured, enum aliquot_cost_quality quality) {
    struct aliquot_cost_part part = {aliquot_cost_of(ALIQUOT_COST_KERNEL, handle, 108), 1};
    aliquot_cost_learn(&part, 1, measured, quality);
    return aliquot_cost_next(part.cost);
}

TEST(a_cost_is_the_mean_of_exact_measurements) {
    uint64_t cost = 0;
    for (int i = 0; i < 400; i++) {
        cost = learn("f", i % 2 == 0 ? 100000 : 300000, ALIQUOT_COST_EXACT);
    }
    CHECK(cost > 180000 && cost < 220000, "%llu", (unsigned long long)cost);
}

TEST(the_smallest_measurements_count_when_others_contain_time_slices_of_other_tenants) {
    uint64_t cost = 0;
    for (int i = 0; i < 400; i++) {
        cost = learn("f", (i % 8 == 0 ? 1000000 : 3000000) + (uint64_t)(i * 7 % 11) * 3000, ALIQUOT_COST_SHARED);
    }
    CHECK(cost >= 1000000 && cost < 1050000, "%llu", (unsigned long long)cost);
}

TEST(sixteen_later_upper_bounds_replace_a_mean) {
    struct aliquot_cost *cost = aliquot_cost_of(ALIQUOT_COST_KERNEL, "contradicted", 100);
    struct aliquot_cost_part part = {.cost = cost, .launches = 10};
    aliquot_cost_learn(&part, 1, 1500000, ALIQUOT_COST_EXACT); /* with time slices of a process that has just come */
    for (int i = 0; i < 15; i++) {
        aliquot_cost_learn(&part, 1, i % 2 == 0 ? 1000000 : 3000000, ALIQUOT_COST_SHARED);
    }
    CHECK_EQUAL(aliquot_cost_next(cost), 150000);
    aliquot_cost_learn(&part, 1, 1000000, ALIQUOT_COST_SHARED);
    CHECK_EQUAL(aliquot_cost_next(cost), 100000);
}

/* The cost after 40 measurements, of which each fourth is the first length, and from which half is estimated away. */
static uint64_t learn_estimates(const void *function, uint64_t fourth, uint64_t others) {
    uint64_t cost = 0;
    for (int i = 0; i < 40; i++) {
        uint64_t measured = i % 4 == 0 ? fourth : others;
        learn(function, measured, ALIQUOT_COST_SHARED);
        cost = learn(function, measured / 2, ALIQUOT_COST_ESTIMATED);
    }
    return cost;
}

TEST(an_estimated_cost_is_a_mean_but_no_more_than_the_smallest_measurement) {
    CHECK_EQUAL(learn_estimates("never alone", 2000000, 2000000), 1000000);
    uint64_t cost = learn_estimates("at times alone", 1000000, 4000000);
    CHECK(cost > 900000 && cost <= 1000000, "%llu", (unsigned long long)cost);
}

TEST(a_batch_with_gaps_only_lowers_a_cost) {
    learn("f", 100000, ALIQUOT_COST_EXACT);
    CHECK_EQUAL(learn("f", 900000, ALIQUOT_COST_GAPS), 100000);
    CHECK_EQUAL(learn("f", 60000, ALIQUOT_COST_GAPS), 60000);
}

TEST(an_estimated_cost_doubles_until_it_is_measured) {
    struct aliquot_cost *cost = aliquot_cost_of(ALIQUOT_COST_KERNEL, "g", 1);
    uint64_t first = aliquot_cost_next(cost);
    CHECK_EQUAL(aliquot_cost_next(cost), 2 * first);
    CHECK_EQUAL(aliquot_cost_next(cost), 4 * first);
    struct aliquot_cost_part part = {cost, 3};
    aliquot_cost_learn(&part, 1, 3000, ALIQUOT_COST_EXACT);
    CHECK_EQUAL(aliquot_cost_next(cost), 1000);
}

TEST(functions_grids_and_graphs_have_separate_costs) {
    struct aliquot_cost *cost = aliquot_cost_of(ALIQUOT_COST_KERNEL, "f", 100);
    CHECK(cost == aliquot_cost_of(ALIQUOT_COST_KERNEL, "f", 101), "the same quarter of an octave");
    CHECK(cost != aliquot_cost_of(ALIQUOT_COST_KERNEL, "f", 200), "another size");
    CHECK(cost != aliquot_cost_of(ALIQUOT_COST_GRAPH, "f", 100), "a graph");
    for (uintptr_t i = 1; i < 20000; i++) { /* more than the table holds */
        CHECK(aliquot_cost_of(ALIQUOT_COST_KERNEL, (void *)(i * 64), 1) != NULL, "an entry");
    }
}
