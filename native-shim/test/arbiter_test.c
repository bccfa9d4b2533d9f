/* Tests of the arbiter's law (arbiter.h). duty tests what follows for programs on a GPU. */
#include "arbiter.h"
#include "check.h"

#include <math.h>

#define PERIODS_PER_SECOND (1000000000 / ARBITER_PERIOD_NS)
#define CHECK_SHARE(share, expected)                                                                                   \
    CHECK(fabs((share)-100 * (expected) / 100.0) < 0.005, "%s is %.3f", #share, (double)(share))

static struct arbiter_container container(double cores, enum aliquot_policy policy) {
    return (struct arbiter_container){.cores = cores, .policy = policy, .priority = ARBITER_NORMAL, .nvml_used = -1};
}

/* Keeps work queued and uses a part of the GPU. */
static void work(struct arbiter_container *of, double used) {
    of->active = of->held_back = true;
    of->used = used;
    of->busy = 1;
}

static void divide_for(struct arbiter_container *containers, size_t count, double seconds) {
    for (int i = 0; i < seconds * PERIODS_PER_SECOND; i++) {
        arbiter_divide(containers, count);
    }
}

/* The same, and waits for none of it. */
static void queue(struct arbiter_container *of, double used) {
    work(of, used);
    of->queued = true;
}

TEST(an_own_share_is_the_cores_whatever_anyone_does) {
    struct arbiter_container both[] = {container(0.3, ALIQUOT_POLICY_FIXED), container(0.5, ALIQUOT_POLICY_ELASTIC)};
    for (int i = 0; i < 4; i++) {
        both[0].active = both[0].held_back = i & 1;
        both[1].active = both[1].held_back = i & 2;
        both[0].used = both[1].used = i;
        divide_for(both, 2, 1);
        CHECK_SHARE(both[0].own, 0.3);
        CHECK_SHARE(both[1].own, 0.5);
        CHECK_SHARE(both[0].borrowed, 0);
    }
}

TEST(an_elastic_container_borrows_what_idle_ones_leave_and_gives_it_back_in_one_period) {
    struct arbiter_container both[] = {container(0.3, ALIQUOT_POLICY_FIXED), container(0.3, ALIQUOT_POLICY_ELASTIC)};
    arbiter_divide(both, 2);
    CHECK_SHARE(both[1].borrowed, 1); /* without a ramp: before its first launch */
    work(&both[1], 1);
    divide_for(both, 2, 1);
    CHECK_SHARE(both[1].borrowed, 1);
    both[0].active = true; /* its first launch: nothing waited or was used yet */
    arbiter_divide(both, 2);
    CHECK(both[1].borrowed >= 0.4 && both[1].borrowed < 0.42, "%.3f", both[1].borrowed);
}

TEST(what_an_active_container_does_not_want_is_lent_after_300_ms) {
    struct arbiter_container both[] = {container(0.5, ALIQUOT_POLICY_FIXED), container(0.3, ALIQUOT_POLICY_ELASTIC)};
    both[0].active = true;
    both[0].used = both[0].busy = 0.1;
    work(&both[1], 0.5);
    divide_for(both, 2, 0.3);
    CHECK(both[1].borrowed < 0.22, "%.3f", both[1].borrowed);
    divide_for(both, 2, 5);
    CHECK(both[1].borrowed > 0.5 && both[1].borrowed < 0.6, "%.3f", both[1].borrowed);
    both[0].held_back = true;
    arbiter_divide(both, 2);
    CHECK(both[1].borrowed < 0.22, "%.3f", both[1].borrowed);
}

TEST(a_container_that_others_keep_from_its_share_still_demands_it) {
    struct arbiter_container both[] = {container(0.5, ALIQUOT_POLICY_FIXED), container(0.3, ALIQUOT_POLICY_ELASTIC)};
    both[0].active = true;
    both[0].used = 0.15; /* and it waits for the rest of the time */
    both[0].busy = 1;
    work(&both[1], 0.8);
    divide_for(both, 2, 20);
    CHECK(both[1].borrowed < 0.22, "%.3f", both[1].borrowed);
}

TEST(elastic_containers_share_the_surplus_by_their_cores) {
    struct arbiter_container three[] = {container(0.1, ALIQUOT_POLICY_ELASTIC), container(0.2, ALIQUOT_POLICY_ELASTIC),
                                        container(0.1, ALIQUOT_POLICY_FIXED)};
    for (int i = 0; i < 3; i++) {
        work(&three[i], three[i].cores * 3);
    }
    divide_for(three, 3, 1);
    CHECK(fabs(three[0].borrowed - 0.2) < 0.01, "%.3f", three[0].borrowed);
    CHECK(fabs(three[1].borrowed - 0.4) < 0.01, "%.3f", three[1].borrowed);
}

TEST(without_cores_an_elastic_container_gets_all_that_others_leave_and_nothing_else) {
    struct arbiter_container both[] = {container(0, ALIQUOT_POLICY_ELASTIC), container(1, ALIQUOT_POLICY_FIXED)};
    work(&both[0], 0.5);
    divide_for(both, 2, 1);
    CHECK_SHARE(both[0].borrowed, 1);
    work(&both[1], 1);
    arbiter_divide(both, 2);
    CHECK_SHARE(both[0].borrowed, 0);
    CHECK_SHARE(both[0].own, 0);
    struct arbiter_container two[] = {container(0, ALIQUOT_POLICY_ELASTIC), container(0, ALIQUOT_POLICY_ELASTIC)};
    work(&two[0], 0.5);
    work(&two[1], 0.5);
    divide_for(two, 2, 1);
    CHECK(fabs(two[0].borrowed - 0.5) < 0.01, "%.3f", two[0].borrowed);
}

TEST(claims_of_a_higher_priority_are_served_first) {
    struct arbiter_container three[] = {container(0.2, ALIQUOT_POLICY_ELASTIC), container(0.2, ALIQUOT_POLICY_ELASTIC),
                                        container(0.2, ALIQUOT_POLICY_ELASTIC)};
    three[0].priority = ARBITER_HIGH;
    three[0].active = true;
    three[2].priority = ARBITER_LOW;
    work(&three[1], 0.4);
    work(&three[2], 0.4);
    divide_for(three, 3, 2);
    /* The one of low priority may use what that of high priority leaves at any moment, since it gives way. */
    CHECK(three[1].borrowed > 0.5 && three[2].borrowed < 0.04, "%.3f, %.3f", three[1].borrowed, three[2].borrowed);
    work(&three[0], 0.4);
    arbiter_divide(three, 3);
    CHECK(three[0].borrowed > 0.39 && three[1].borrowed < 0.01, "%.3f, %.3f", three[0].borrowed, three[1].borrowed);
}

TEST(high_priority_may_borrow_what_low_priority_demands_and_low_what_high_does_not_use_now) {
    struct arbiter_container three[] = {container(0.3, ALIQUOT_POLICY_ELASTIC), container(0.5, ALIQUOT_POLICY_ELASTIC),
                                        container(0.2, ALIQUOT_POLICY_FIXED)};
    three[0].priority = ARBITER_HIGH;
    three[1].priority = ARBITER_LOW;
    work(&three[0], 0.4);
    work(&three[1], 0.5);
    divide_for(three, 3, 0.5);
    CHECK_SHARE(three[1].own, 0.5);
    CHECK_SHARE(three[0].borrowed, 1); /* all */
    CHECK_SHARE(three[1].borrowed, 1);
    work(&three[2], 0.2); /* neither gives way nor takes */
    divide_for(three, 3, 0.5);
    CHECK(fabs(three[0].borrowed - 0.5) < 0.02, "%.3f", three[0].borrowed);
    CHECK(fabs(three[1].borrowed - 0.3) < 0.02, "%.3f", three[1].borrowed);
    three[0].distrusted_for = 1; /* so that the one of low priority does not give way */
    arbiter_divide(three, 3);
    CHECK_SHARE(three[1].borrowed, 0);
}

/* For seconds, says that there is work, all the time or a part of each second. Returns for how long others give way. */
static double claim_work(struct arbiter_container *high, double part, double nvml, int seconds) {
    double preempted = 0;
    for (int ms = 0; ms < seconds * 1000; ms++) {
        preempted += arbiter_preempts(high, ms % 1000 < part * 1000, 0.001) ? 0.001 : 0;
        if (ms % 1000 == 999) {
            high->nvml_used = nvml;
            arbiter_confirm(high, 1);
        }
    }
    return preempted;
}

TEST(work_that_NVML_does_not_confirm_makes_no_one_give_way_for_long) {
    struct arbiter_container high = container(0.3, ALIQUOT_POLICY_ELASTIC);
    high.priority = ARBITER_HIGH;
    double preempted = claim_work(&high, 1, 0, 3);
    CHECK(preempted > 1 && preempted <= 3.01, "%.3f of the first 3 s", preempted);
    claim_work(&high, 1, 0, 120);
    preempted = claim_work(&high, 1, 0, 600);
    CHECK(preempted < 35, "%.3f of 600 s", preempted);
    preempted = claim_work(&high, 1, 0.03, 600);
    CHECK(preempted < 60, "%.3f of 600 s with a little work", preempted);
    claim_work(&high, 0.5, 0.5, 70); /* it has paused long enough, and works */
    CHECK(claim_work(&high, 0.5, 0.5, 20) > 9.9, "it is believed again");
    CHECK(claim_work(&high, 0.3, 0.04, 20) > 5.9, "short requests use less than a tick of the arbiter's");
    CHECK(claim_work(&high, 0.04, 0, 600) > 23.9, "so short that NVML shows nothing");
    high.priority = ARBITER_NORMAL;
    CHECK(claim_work(&high, 1, 1, 3) == 0, "only high priority goes first");
}

TEST(work_that_NVML_shows_a_second_late_is_confirmed) {
    struct arbiter_container high = container(0.3, ALIQUOT_POLICY_ELASTIC);
    high.priority = ARBITER_HIGH;
    double preempted = 0;
    for (int i = 0; i < 10; i++) { /* 3 s of work, 3 s without */
        preempted += claim_work(&high, 1, 0, 1) + claim_work(&high, 1, 1, 2);
        claim_work(&high, 0, 1, 1);
        claim_work(&high, 0, 0, 2);
    }
    CHECK(preempted > 29.9, "%.3f of 30 s", preempted);
}

TEST(a_claim_that_is_not_used_lapses_and_comes_back) {
    struct arbiter_container both[] = {container(0.2, ALIQUOT_POLICY_ELASTIC), container(0.2, ALIQUOT_POLICY_ELASTIC)};
    work(&both[0], 0.5);
    work(&both[1], 0.1); /* says that it waits, and uses less than its own share */
    both[1].busy = 0.1;
    divide_for(both, 2, 1.5);
    CHECK(both[1].borrowed > 0.25, "%.3f", both[1].borrowed);
    divide_for(both, 2, 1);
    CHECK(both[0].borrowed > 0.5, "%.3f", both[0].borrowed);
    int claimed = 0;
    for (int i = 0; i < 60 * PERIODS_PER_SECOND; i++) {
        arbiter_divide(both, 2);
        claimed += both[1].fair > 0.25;
    }
    CHECK(claimed > PERIODS_PER_SECOND && claimed < 10 * PERIODS_PER_SECOND, "%d periods of a minute", claimed);
}

TEST(false_figures_end_no_lending_and_no_share) {
    static const double wrong[] = {1e300, 1e9, 2, -1, -1e300, NAN, INFINITY};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct arbiter_container three[] = {container(0.3, ALIQUOT_POLICY_ELASTIC),
                                            container(0.2, ALIQUOT_POLICY_FIXED), container(0, ALIQUOT_POLICY_NONE)};
        work(&three[0], 0.8);
        three[1].used = three[1].busy = wrong[i];
        three[2].active = true;
        three[2].used = three[2].busy = wrong[i];
        divide_for(three, 3, 3);
        CHECK_SHARE(three[0].own, 0.3);
        CHECK_SHARE(three[1].own, 0.2);
        CHECK(three[0].borrowed >= 0.45 && three[0].borrowed <= 1, "%.3f with %g", three[0].borrowed, wrong[i]);
    }
}

TEST(a_container_without_a_limit_is_believed_by_NVMLs_figure) {
    struct arbiter_container both[] = {container(0.3, ALIQUOT_POLICY_ELASTIC), container(0, ALIQUOT_POLICY_NONE)};
    work(&both[0], 0.5);
    both[1].active = true;
    both[1].used = 1;
    both[1].nvml_used = 0.2;
    divide_for(both, 2, 1);
    CHECK(fabs(both[0].borrowed - 0.5) < 0.02, "%.3f", both[0].borrowed);
}

TEST(more_cores_than_the_GPU_has_are_scaled_down) {
    struct arbiter_container both[] = {container(0.75, ALIQUOT_POLICY_FIXED), container(0.5, ALIQUOT_POLICY_FIXED)};
    arbiter_divide(both, 2);
    CHECK_SHARE(both[0].own, 0.6);
    CHECK_SHARE(both[1].own, 0.4);
}

static bool takes_turns(const struct arbiter_container *container) {
    return container->waits && container->turn < 1;
}

TEST(containers_that_keep_work_queued_take_turns_after_a_second_in_proportion_to_what_they_get) {
    struct arbiter_container three[] = {container(0.2, ALIQUOT_POLICY_FIXED), container(0.3, ALIQUOT_POLICY_FIXED),
                                        container(0.25, ALIQUOT_POLICY_ELASTIC)};
    queue(&three[0], 0.2);
    queue(&three[1], 0.3);
    queue(&three[2], 0.5);
    divide_for(three, 3, 0.9);
    CHECK(!takes_turns(&three[0]) && !takes_turns(&three[1]) && !takes_turns(&three[2]), "not at once");
    divide_for(three, 3, 0.2);
    CHECK(takes_turns(&three[0]) && takes_turns(&three[1]) && takes_turns(&three[2]), "all wait for their turns");
    CHECK_SHARE(three[0].turn_begins, 0);
    CHECK(fabs(three[0].turn - 0.2) < 0.01, "%.3f", three[0].turn);
    CHECK(fabs(three[1].turn_begins - three[0].turn) < 0.001, "%.3f", three[1].turn_begins);
    CHECK(fabs(three[1].turn - 0.3) < 0.01, "%.3f", three[1].turn);
    CHECK(fabs(three[2].turn_begins + three[2].turn - 1) < 0.001, "the round is full");
    three[0].active = false;
    arbiter_divide(three, 3);
    CHECK(!takes_turns(&three[0]), "one that returns launches at once");
    CHECK_SHARE(three[1].turn_begins, 0);
}

TEST(a_container_that_gets_its_cores_without_a_turn_is_never_kept_waiting) {
    struct arbiter_container waits[] = {container(0.3, ALIQUOT_POLICY_FIXED), container(0.7, ALIQUOT_POLICY_FIXED)};
    work(&waits[0], 0.29);
    queue(&waits[1], 0.65);
    divide_for(waits, 2, 5);
    CHECK(!takes_turns(&waits[0]) && !takes_turns(&waits[1]), "it gets what its cores are");
    waits[0].used = 0.13;
    divide_for(waits, 2, 1);
    waits[0].used = 0.29;
    divide_for(waits, 2, 3);
    CHECK(!takes_turns(&waits[0]) && !takes_turns(&waits[1]), "it has fallen short for a moment");
    waits[0].used = 0.13;
    divide_for(waits, 2, 3.1);
    CHECK(takes_turns(&waits[0]) && takes_turns(&waits[1]), "it falls short, so both take turns");
    waits[0].used = 0.3;
    divide_for(waits, 2, 5);
    CHECK(takes_turns(&waits[0]), "and keeps its turns, which it owes its cores to");

    struct arbiter_container requests[] = {container(0.3, ALIQUOT_POLICY_FIXED), container(0.7, ALIQUOT_POLICY_FIXED)};
    queue(&requests[0], 0.2);
    requests[0].busy = 0.8;
    queue(&requests[1], 0.7);
    divide_for(requests, 2, 5);
    CHECK(!takes_turns(&requests[0]) && !takes_turns(&requests[1]), "it has pauses");
}

TEST(a_container_that_keeps_work_queued_launches_in_bursts_while_it_is_alone) {
    struct arbiter_container both[] = {container(0.3, ALIQUOT_POLICY_FIXED), container(0.3, ALIQUOT_POLICY_FIXED)};
    queue(&both[0], 0.3);
    divide_for(both, 2, 1.1);
    CHECK(both[0].waits, "its turn is the whole round");
    CHECK_SHARE(both[0].turn, 1);
    work(&both[1], 0.3);
    arbiter_divide(both, 2);
    CHECK(!both[0].waits && !both[1].waits, "one that waits for each launch would wait for a burst");
    both[1].active = false;
    both[1].policy = ALIQUOT_POLICY_NONE;
    arbiter_divide(both, 2);
    CHECK(!both[0].waits, "beside one without a limit, it keeps more in flight");
}

TEST(there_are_no_turns_beside_a_container_without_a_limit_or_for_one_on_several_GPUs_or_of_high_priority) {
    struct arbiter_container three[] = {container(0.3, ALIQUOT_POLICY_FIXED), container(0.3, ALIQUOT_POLICY_FIXED),
                                        container(0.3, ALIQUOT_POLICY_NONE)};
    queue(&three[0], 0.3);
    queue(&three[1], 0.3);
    divide_for(three, 3, 3);
    CHECK(!takes_turns(&three[0]) && !takes_turns(&three[1]), "beside one without a limit");
    divide_for(three, 2, 0.1);
    CHECK(takes_turns(&three[0]) && takes_turns(&three[1]), "without it");
    three[0].on_several_gpus = true;
    arbiter_divide(three, 2);
    CHECK(!takes_turns(&three[0]) && !takes_turns(&three[1]), "its kernels may wait for each other");
    three[0].on_several_gpus = false;
    three[0].long_launches = true;
    arbiter_divide(three, 2);
    CHECK(!takes_turns(&three[0]) && !takes_turns(&three[1]), "its turn would not end");
    three[2].policy = ALIQUOT_POLICY_FIXED;
    queue(&three[2], 0.3);
    divide_for(three, 3, 1.1);
    CHECK(!takes_turns(&three[1]) && !takes_turns(&three[2]), "it would take from the turns of others");
    three[0].long_launches = false;
    arbiter_divide(three, 3);
    CHECK(takes_turns(&three[1]) && takes_turns(&three[2]), "then they do");
    three[0].priority = ARBITER_HIGH;
    arbiter_divide(three, 2);
    CHECK(!takes_turns(&three[0]) && !takes_turns(&three[1]), "high priority launches at once");
}

TEST(beside_a_container_on_several_GPUs_others_take_turns_for_the_whole_round) {
    struct arbiter_container three[] = {container(0.3, ALIQUOT_POLICY_FIXED), container(0.3, ALIQUOT_POLICY_FIXED),
                                        container(0.3, ALIQUOT_POLICY_FIXED)};
    for (int i = 0; i < 3; i++) {
        queue(&three[i], 0.3);
    }
    three[0].on_several_gpus = true;
    divide_for(three, 3, 3);
    CHECK(!three[0].waits && three[1].waits && three[2].waits, "its kernels may wait for each other");
    CHECK_SHARE(three[1].turn + three[2].turn, 1);
}

TEST(a_container_of_low_priority_keeps_its_floor_over_10_s_while_it_gives_way) {
    struct arbiter_container both[] = {container(0.3, ALIQUOT_POLICY_FIXED), container(0.7, ALIQUOT_POLICY_FIXED)};
    both[0].priority = ARBITER_HIGH;
    both[1].priority = ARBITER_LOW;
    both[1].floor = 0.05;
    arbiter_divide(both, 2);
    CHECK(both[1].waits, "it has little in flight");
    CHECK_SHARE(arbiter_turn(&both[1], false, 0), 1);
    CHECK_SHARE(arbiter_turn(&both[1], true, 0), 1);
    queue(&both[1], 0.7);
    divide_for(both, 2, 20);
    CHECK_SHARE(arbiter_turn(&both[1], true, 0), 0);
    both[1].used = 0;
    divide_for(both, 2, 9.9);
    CHECK_SHARE(arbiter_turn(&both[1], true, 0), 0);
    divide_for(both, 2, 0.2);
    CHECK_SHARE(arbiter_turn(&both[1], true, 0), 1);
}

TEST(a_container_of_low_priority_that_hides_what_it_uses_keeps_its_turn_for_little_more_than_twice_its_floor) {
    struct arbiter_container both[] = {container(0.3, ALIQUOT_POLICY_FIXED), container(0.7, ALIQUOT_POLICY_FIXED)};
    both[0].priority = ARBITER_HIGH;
    both[1].priority = ARBITER_LOW;
    both[1].floor = 0.05;
    double kept = 0, period = 1.0 / PERIODS_PER_SECOND;
    for (int i = 0; i < 60 * PERIODS_PER_SECOND; i++) {
        arbiter_divide(both, 2);
        kept += arbiter_turn(&both[1], true, period) * period;
    }
    CHECK(kept > 0.1 * 60 && kept < 0.13 * 60, "%.2f of 60 s", kept);
}
