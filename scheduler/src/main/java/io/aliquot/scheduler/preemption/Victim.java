package io.aliquot.scheduler.preemption;

import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.preemption.Budgets.Budget;
import java.time.Instant;
import java.util.List;
import java.util.Map;

/**
 * A pod that may be evicted.
 *
 * @param since when the pod was bound
 * @param perGpu what the pod holds of each GPU, by UUID
 * @param budgets the disruption budgets that its eviction counts against
 */
public record Victim(PodId pod, int priority, Instant since, Map<String, GpuAmount> perGpu, List<Budget> budgets) {
    public Victim {
        perGpu = Map.copyOf(perGpu);
        budgets = List.copyOf(budgets);
    }

    /** Whether the holder is a candidate: it holds GPUs, does not terminate, and has a lower priority than this. */
    public static boolean mayBe(Holding holding, int priority) {
        return holding.state() == Holding.State.HELD
                && holding.leavesBy().equals(Instant.MAX)
                && !holding.perGpu().isEmpty()
                && holding.priority() < priority;
    }

    public static Victim of(Holding holding, Budgets budgets) {
        return new Victim(
                holding.pod(), holding.priority(), holding.bound(), holding.perGpu(), budgets.of(holding.pod()));
    }
}
