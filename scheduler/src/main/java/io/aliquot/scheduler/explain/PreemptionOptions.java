package io.aliquot.scheduler.explain;

import io.aliquot.scheduler.explain.Explanation.PreemptionOption;
import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.Holding.State;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.FitCheck;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.preemption.Budgets;
import io.aliquot.scheduler.preemption.EvictionCost;
import io.aliquot.scheduler.preemption.EvictionPlan;
import io.aliquot.scheduler.preemption.Victim;
import io.aliquot.scheduler.preemption.VictimSearch;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * Finds pods without which a Pending pod would fit: pods that terminate already, and of the pods of lower priority
 * those that preemption would select.
 */
record PreemptionOptions(PodId pod, PodGpuRequest request, int priority, boolean mayPreempt, Budgets budgets) {
    private record PricedOption(PreemptionOption option, EvictionCost cost) {}

    /** The options with the lowest eviction cost, one for each node at most, cheapest first. */
    List<PreemptionOption> cheapest(Stream<NodeView> views, int limit) {
        return views.flatMap(view -> on(view).stream())
                .sorted(Comparator.comparing(PricedOption::cost)
                        .thenComparing(priced -> priced.option().node()))
                .limit(limit)
                .map(PricedOption::option)
                .toList();
    }

    private Optional<PricedOption> on(NodeView view) {
        List<Holding> others = view.holdings().stream()
                .filter(holding -> !holding.perGpu().isEmpty())
                .filter(holding -> !holding.pod().uid().equals(pod.uid()))
                .sorted(Comparator.comparing(holding -> holding.pod().uid()))
                .toList();
        List<Holding> terminating =
                others.stream().filter(PreemptionOptions::terminates).toList();
        List<Victim> candidates =
                mayPreempt ? Victim.candidates(view, priority, budgets).toList() : List.of();
        Set<String> gone =
                terminating.stream().map(holding -> holding.pod().uid()).collect(Collectors.toCollection(HashSet::new));
        gone.add(pod.uid());
        return VictimSearch.cheapest(request, view.gpusWithout(gone), candidates, EvictionCost.MAX)
                .map(plan -> new PricedOption(
                        new PreemptionOption(view.name(), victims(view, plan, terminating)), plan.cost()));
    }

    /** The plan's victims, and those of the terminating pods without which these alone would not suffice. */
    private List<Explanation.Victim> victims(NodeView view, EvictionPlan plan, List<Holding> terminating) {
        var check = new FitCheck(request, VictimSearch.ATTEMPTS);
        var victims = new ArrayList<Explanation.Victim>();
        var removed = new HashSet<String>();
        removed.add(pod.uid());
        terminating.forEach(holding -> removed.add(holding.pod().uid()));
        for (Victim victim : plan.victims()) {
            removed.add(victim.pod().uid());
            victims.add(Explanation.Victim.of(victim.pod(), victim.priority(), false));
        }
        for (Holding holding : terminating) {
            removed.remove(holding.pod().uid());
            if (!check.fits(view.gpusWithout(removed))) {
                removed.add(holding.pod().uid());
                victims.add(Explanation.Victim.of(holding.pod(), holding.priority(), true));
            }
        }
        return victims;
    }

    private static boolean terminates(Holding holding) {
        return holding.state() == State.LINGERING || holding.leavesBy().isBefore(Instant.MAX);
    }
}
