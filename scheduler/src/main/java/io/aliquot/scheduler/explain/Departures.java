package io.aliquot.scheduler.explain;

import io.aliquot.scheduler.explain.Story.Room;
import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.Holding.State;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.PodAsk;
import io.aliquot.scheduler.preemption.Budgets;
import io.aliquot.scheduler.preemption.Cost;
import io.aliquot.scheduler.preemption.Search;
import io.aliquot.scheduler.preemption.Victim;
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
record Departures(Room room, Cost cost) implements Comparable<Departures> {
    private static final Comparator<Departures> CHEAPEST_FIRST = Comparator.comparing(Departures::cost)
            .thenComparing(departures -> departures.room().node());

    static Optional<Departures> find(
            NodeView view, PodId pod, PodAsk ask, int priority, boolean preempts, Budgets budgets) {
        Predicate<Set<String>> fits = without -> {
            var gone = new HashSet<>(without);
            gone.add(pod.uid());
            return Rooms.without(view, gone).hold(ask);
        };
        List<Holding> others = view.holdings().stream()
                .filter(holding -> !holding.perGpu().isEmpty())
                .filter(holding -> !holding.pod().uid().equals(pod.uid()))
                .sorted(Comparator.comparing(holding -> holding.pod().uid()))
                .toList();
        List<Holding> ending = others.stream().filter(Departures::ends).toList();
        List<Victim> lower = others.stream()
                .filter(holding -> preempts && Victim.mayBe(holding, priority))
                .map(holding -> Victim.of(holding, budgets))
                .toList();
        Set<String> going = ending.stream().map(holding -> holding.pod().uid()).collect(Collectors.toSet());
        return Search.cheapest(lower, fits, going, ask.wantsOneGpu(), Optional.empty())
                .map(plan -> {
                    plan.victims().forEach(victim -> going.add(victim.pod().uid()));
                    List<Story.Victim> leave = new ArrayList<>();
                    plan.victims()
                            .forEach(victim -> leave.add(new Story.Victim(victim.pod(), victim.priority(), false)));
                    for (Holding holding : ending) {
                        going.remove(holding.pod().uid());
                        if (!fits.test(going)) {
                            going.add(holding.pod().uid());
                            leave.add(new Story.Victim(holding.pod(), holding.priority(), true));
                        }
                    }
                    return new Departures(new Room(view.name(), leave), plan.cost());
                });
    }

    private static boolean ends(Holding holding) {
        return holding.state() == State.LINGERING || holding.leavesBy().isBefore(Instant.MAX);
    }

    @Override
    public int compareTo(Departures other) {
        return CHEAPEST_FIRST.compare(this, other);
    }
}
