package io.aliquot.scheduler.explain;

import io.aliquot.scheduler.explain.Story.Room;
import io.aliquot.scheduler.explain.Story.Victim;
import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.Holding.State;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.PodAsk;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;

/**
 * Pods without which another one fits on a node: those that are ending anyway, and of those with a lower priority as few
 * and as unimportant ones as it takes. None of them could stay.
 */
record Departures(Room room, int dearest, int evicted) implements Comparable<Departures> {
    private static final Comparator<Departures> CHEAPEST_FIRST = Comparator.comparingInt(Departures::dearest)
            .thenComparingInt(Departures::evicted)
            .thenComparing(departures -> departures.room().node());

    static Optional<Departures> find(NodeView view, PodId pod, PodAsk ask, int priority, boolean preempts) {
        List<Holding> ending = holdings(view, pod).filter(Departures::ends).toList();
        List<Holding> lower = preempts
                ? holdings(view, pod)
                        .filter(holding -> holding.state() == State.HELD && !ends(holding))
                        .filter(holding -> holding.priority() < priority)
                        .sorted(Comparator.comparingInt(Holding::priority)
                                .reversed()
                                .thenComparing(holding -> holding.pod().uid()))
                        .toList()
                : List.of();
        var going = new HashSet<String>();
        going.add(pod.uid());
        ending.forEach(holding -> going.add(holding.pod().uid()));
        lower.forEach(holding -> going.add(holding.pod().uid()));
        if (!Rooms.without(view, going).hold(ask)) {
            return Optional.empty();
        }
        var leave = new ArrayList<Holding>();
        // The most important first may stay if it fits all the same; then whoever ends, who is asked last.
        for (Holding holding : Stream.concat(lower.stream(), ending.stream()).toList()) {
            going.remove(holding.pod().uid());
            if (!Rooms.without(view, going).hold(ask)) {
                going.add(holding.pod().uid());
                leave.add(holding);
            }
        }
        List<Holding> evicted = leave.stream().filter(holding -> !ends(holding)).toList();
        List<Victim> victims = leave.stream()
                .map(holding -> new Victim(holding.pod(), holding.priority(), ends(holding)))
                .toList();
        return Optional.of(new Departures(
                new Room(view.name(), victims),
                evicted.stream().mapToInt(Holding::priority).max().orElse(Integer.MIN_VALUE),
                evicted.size()));
    }

    private static Stream<Holding> holdings(NodeView view, PodId pod) {
        return view.holdings().stream()
                .filter(holding -> !holding.perGpu().isEmpty())
                .filter(holding -> !holding.pod().uid().equals(pod.uid()));
    }

    private static boolean ends(Holding holding) {
        return holding.state() == State.LINGERING || holding.leavesBy().isBefore(Instant.MAX);
    }

    @Override
    public int compareTo(Departures other) {
        return CHEAPEST_FIRST.compare(this, other);
    }
}
