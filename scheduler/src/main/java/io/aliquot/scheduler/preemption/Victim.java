package io.aliquot.scheduler.preemption;

import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.preemption.Budgets.Budget;
import java.time.Instant;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;

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

    /** The candidates on a node: pods that hold GPUs, do not terminate, and have a lower priority than this. */
    public static Stream<Victim> candidates(NodeView node, int priority, Budgets budgets) {
        return node.holdings().stream()
                .filter(holding -> holding.state() == Holding.State.HELD
                        && holding.leavesBy().equals(Instant.MAX)
                        && !holding.perGpu().isEmpty()
                        && holding.priority() < priority)
                .map(holding -> of(holding, budgets));
    }

    static Set<String> uids(Collection<Victim> victims) {
        return victims.stream().map(victim -> victim.pod().uid()).collect(Collectors.toSet());
    }

    static Victim of(Holding holding, Budgets budgets) {
        return new Victim(
                holding.pod(), holding.priority(), holding.bound(), holding.perGpu(), budgets.of(holding.pod()));
    }
}
