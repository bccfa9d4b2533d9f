package io.aliquot.scheduler.preemption;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.cluster.LabelSelector;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.preemption.Budgets.Budget;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

class BudgetsTest {
    private static final int ROUNDS = 100_000;
    private static final Duration LIMIT = Duration.ofSeconds(3);
    private static final PodId POD = new PodId("default", "pod", "uid");

    private final Budgets budgets = new Budgets();

    /** Regression: a budget was lost if the last other budget of its namespace was removed at the same time. */
    @Test
    void aBudgetAddedWhileTheLastOneOfItsNamespaceIsRemovedStays() throws Exception {
        var round = new AtomicInteger();
        var removed = new AtomicInteger();
        var remover = new Thread(() -> {
            for (int i = 1; i <= ROUNDS; i++) {
                while (round.get() < i) {
                    Thread.onSpinWait();
                }
                budgets.removeBudget("default", "removed");
                removed.set(i);
            }
        });
        remover.setDaemon(true);
        remover.start();
        long start = System.nanoTime();
        for (int i = 1; i <= ROUNDS && System.nanoTime() - start < LIMIT.toNanos(); i++) {
            budgets.putBudget(budget("removed"));
            Budget stays = budget("stays");
            round.set(i);
            for (int spin = i % 100; spin > 0; spin--) {
                Thread.onSpinWait();
            }
            budgets.putBudget(stays);
            while (removed.get() < i) {
                Thread.onSpinWait();
            }
            assertThat(budgets.of(POD)).extracting(Budget::name).containsExactly("stays");
            budgets.removeBudget("default", "stays");
        }
    }

    @Test
    void anEvictionCountsAgainstTheBudgetsThatSelectThePodAndHaveNotCountedIt() {
        budgets.putBudget(new Budget("default", "selects", selector("a"), 1, Set.of("other")));
        budgets.putBudget(new Budget("default", "selects others", selector("b"), 1, Set.of()));
        budgets.putBudget(new Budget("default", "has counted it", selector("a"), 1, Set.of("pod")));
        budgets.putBudget(new Budget("elsewhere", "of another namespace", selector("a"), 1, Set.of()));
        assertThat(budgets.of(POD)).as("without labels").isEmpty();
        budgets.putPod("uid", Map.of("app", "a"));
        assertThat(budgets.of(POD)).extracting(Budget::name).containsExactly("selects");
        budgets.putBudget(new Budget("default", "selects", selector("a"), 0, Set.of()));
        assertThat(budgets.of(POD)).as("replaced").extracting(Budget::allowed).containsExactly(0);
        budgets.removePod("uid");
        assertThat(budgets.of(POD)).isEmpty();
    }

    private static LabelSelector selector(String app) {
        return LabelSelector.of(Map.of("app", app), List.of());
    }

    private static Budget budget(String name) {
        return new Budget("default", name, LabelSelector.of(Map.of(), List.of()), 1, Set.of());
    }
}
