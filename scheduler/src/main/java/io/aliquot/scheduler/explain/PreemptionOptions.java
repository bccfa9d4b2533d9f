package io.aliquot.scheduler.explain;

import io.aliquot.scheduler.explain.Explanation.Room;
import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.Holding.State;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.preemption.Budgets;
import io.aliquot.scheduler.preemption.EvictionCost;
import io.aliquot.scheduler.preemption.Victim;
import io.aliquot.scheduler.preemption.VictimSearch;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.function.Predicate;
import java.util.stream.Collectors;

/**
 * Pods without which another one fits on a node: those that are ending anyway, and of those with a lower priority the
 * ones that preemption would choose. None of them could stay.
 */
record PreemptionOption(Room room, EvictionCost cost) implements Comparable<PreemptionOption> {
    private static final Comparator<PreemptionOption> CHEAPEST_FIRST = Comparator.comparing(PreemptionOption::cost)
            .thenComparing(departures -> departures.room().node());

    static Optional<PreemptionOption> find(
            NodeView view, PodId pod, PodGpuRequest ask, int priority, boolean preempts, Budgets budgets) {
        Predicate<Set<String>> fits = without -> {
            var gone = new HashSet<>(without);
            gone.add(pod.uid());
            return NodeFreeCapacity.without(view, gone).hold(ask);
        };
        List<Holding> others = view.holdings().stream()
                .filter(holding -> !holding.perGpu().isEmpty())
                .filter(holding -> !holding.pod().uid().equals(pod.uid()))
                .sorted(Comparator.comparing(holding -> holding.pod().uid()))
                .toList();
        List<Holding> ending = others.stream().filter(PreemptionOption::ends).toList();
        List<Victim> lower = others.stream()
                .filter(holding -> preempts && Victim.mayBe(holding, priority))
                .map(holding -> Victim.of(holding, budgets))
                .toList();
        Set<String> going = ending.stream().map(holding -> holding.pod().uid()).collect(Collectors.toSet());
        return VictimSearch.cheapest(lower, fits, going, ask.wantsOneGpu(), Optional.empty())
                .map(plan -> {
                    plan.victims().forEach(victim -> going.add(victim.pod().uid()));
                    List<Explanation.Victim> leave = new ArrayList<>();
                    plan.victims()
                            .forEach(victim ->
                                    leave.add(new Explanation.Victim(victim.pod(), victim.priority(), false)));
                    for (Holding holding : ending) {
                        going.remove(holding.pod().uid());
                        if (!fits.test(going)) {
                            going.add(holding.pod().uid());
                            leave.add(new Explanation.Victim(holding.pod(), holding.priority(), true));
                        }
                    }
                    return new PreemptionOption(new Room(view.name(), leave), plan.cost());
                });
    }

    private static boolean ends(Holding holding) {
        return holding.state() == State.LINGERING || holding.leavesBy().isBefore(Instant.MAX);
    }

    @Override
    public int compareTo(PreemptionOption other) {
        return CHEAPEST_FIRST.compare(this, other);
    }
}
