package io.aliquot.scheduler.preemption;

import io.aliquot.scheduler.placement.GpuAmount;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.PriorityQueue;
import java.util.Set;
import java.util.function.Predicate;
import java.util.function.ToLongFunction;

/*
 * How the search works. It fixes the first part of the cost first: it admits candidates by rising priority until the
 * preemptor fits without all of them. Candidates of higher priority stay, and the last admitted priority is that of the
 * most important victim of every solution. Among the admitted candidates it tries sets by rising cost, starting with
 * the empty set and adding a pod each time; adding a pod never lowers the cost, so the first set that suffices is the
 * cheapest. If the preemptor requests one GPU, victims on different GPUs do not add up, and each GPU is searched by
 * itself. There the number of victims has a cheap lower bound: if the preemptor does not fit without the n pods that
 * hold most memory, most compute and most slots, no n pods suffice.
 *
 * After BUDGET sets the search does as kube-scheduler does: it takes all candidates and spares as many as possible, the
 * most important first. Every victim is then necessary, but there may be more than the fewest.
 */
/** Finds the cheapest set of pods of one node whose eviction frees enough capacity. */
public final class VictimSearch {
    /** Sets that are tried per node; a try costs about ten microseconds. */
    private static final int BUDGET = 3000;

    /** A total order, so that the result does not depend on the order of the candidates. */
    private static final Comparator<Victim> LEAST_IMPORTANT_FIRST = Comparator.comparingInt(Victim::priority)
            .thenComparing(Victim::since, Comparator.reverseOrder())
            .thenComparing(victim -> victim.pod().uid());

    private final Predicate<Set<String>> fits;
    private final Set<String> gone;
    private final EvictionCost bound;
    private int budget = BUDGET;

    private VictimSearch(Predicate<Set<String>> fits, Set<String> gone, EvictionCost bound) {
        this.fits = fits;
        this.gone = gone;
        this.bound = bound;
    }

    /**
     * Searches.
     *
     * @param candidates the pods that may be evicted
     * @param fits whether the preemptor would fit without these pods, by uid; must be monotonic
     * @param gone uids of the pods that terminate anyway
     * @param oneGpu whether the preemptor requests one GPU only
     * @param bound a cost that the result must be below, such as {@link EvictionCost#MAX}
     * @return empty if no set suffices, or only at the cost of {@code bound} or more
     */
    public static Optional<EvictionPlan> cheapest(
            List<Victim> candidates,
            Predicate<Set<String>> fits,
            Set<String> gone,
            boolean oneGpu,
            EvictionCost bound) {
        return new VictimSearch(fits, gone, bound).cheapest(candidates, oneGpu);
    }

    private Optional<EvictionPlan> cheapest(List<Victim> candidates, boolean oneGpu) {
        if (EvictionCost.NOTHING.compareTo(bound) >= 0) {
            return Optional.empty();
        }
        if (fitsWithout(List.of())) {
            return Optional.of(EvictionPlan.NONE);
        }
        List<Victim> sorted = candidates.stream().sorted(LEAST_IMPORTANT_FIRST).toList();
        Optional<List<Victim>> admitted = admitted(sorted);
        if (admitted.isEmpty()) {
            return Optional.empty();
        }
        int priority = admitted.get().get(admitted.get().size() - 1).priority();
        Optional<EvictionPlan> best = Optional.empty();
        Map<String, List<Victim>> groups = oneGpu ? byGpu(admitted.get()) : Map.of("", admitted.get());
        for (var group : groups.entrySet()) {
            EvictionCost below = best.map(EvictionPlan::cost).orElse(bound);
            List<Victim> together = group.getValue();
            int fewest = oneGpu ? fewest(together, group.getKey(), priority, below) : 1;
            Optional<EvictionPlan> plan = byRisingCost(together, priority, fewest, below);
            if (budget <= 0) {
                EvictionPlan reprieved = withReprieves(admitted.get());
                return reprieved.cost().compareTo(below) < 0 ? Optional.of(reprieved) : best;
            }
            if (plan.isPresent()) {
                best = plan;
            }
        }
        return best;
    }

    /** The candidates of the lowest priorities that suffice together. */
    private Optional<List<Victim>> admitted(List<Victim> sorted) {
        for (int end = 1; end <= sorted.size(); end++) {
            int priority = sorted.get(end - 1).priority();
            if (priority > bound.priority()) {
                return Optional.empty();
            }
            boolean last = end == sorted.size() || sorted.get(end).priority() > priority;
            if (last && fitsWithout(sorted.subList(0, end))) {
                return Optional.of(sorted.subList(0, end));
            }
        }
        return Optional.empty();
    }

    /** A lower bound of the number of victims on a GPU; one more than there are pods if all of them do not suffice. */
    private int fewest(List<Victim> victims, String gpu, int priority, EvictionCost below) {
        List<Victim> byMemory = mostFirst(victims, gpu, GpuAmount::memoryMiB);
        List<Victim> byCores = mostFirst(victims, gpu, GpuAmount::cores);
        List<Victim> bySlots = mostFirst(victims, gpu, GpuAmount::slots);
        for (int n = 1; n <= victims.size(); n++) {
            if (new EvictionCost(priority, 0, n, Instant.MAX).compareTo(below) >= 0) {
                break;
            }
            Set<Victim> most = new HashSet<>(byMemory.subList(0, n));
            most.addAll(byCores.subList(0, n));
            most.addAll(bySlots.subList(0, n));
            if (fitsWithout(most)) {
                return n;
            }
        }
        return victims.size() + 1;
    }

    private static List<Victim> mostFirst(List<Victim> victims, String gpu, ToLongFunction<GpuAmount> amount) {
        return victims.stream()
                .sorted(Comparator.comparingLong((Victim victim) ->
                                amount.applyAsLong(victim.perGpu().getOrDefault(gpu, GpuAmount.NOTHING)))
                        .reversed())
                .toList();
    }

    private static Map<String, List<Victim>> byGpu(List<Victim> victims) {
        Map<String, List<Victim>> byGpu = new LinkedHashMap<>();
        for (Victim victim : victims) {
            victim.perGpu().keySet().stream()
                    .sorted()
                    .forEach(gpu ->
                            byGpu.computeIfAbsent(gpu, any -> new ArrayList<>()).add(victim));
        }
        return byGpu;
    }

    /** A set of victims; {@code last} is the index of its last one in the searched list. */
    private record Subset(List<Victim> victims, int last, EvictionCost cost) {}

    private Optional<EvictionPlan> byRisingCost(List<Victim> victims, int priority, int fewest, EvictionCost below) {
        if (fewest > victims.size()) {
            return Optional.empty();
        }
        var next = new PriorityQueue<>(Comparator.comparing(Subset::cost));
        next.add(new Subset(List.of(), -1, new EvictionCost(priority, 0, 0, EvictionCost.NOTHING.oldest())));
        while (!next.isEmpty()) {
            Subset subset = next.remove();
            if (subset.cost().compareTo(below) >= 0) {
                return Optional.empty();
            }
            if (subset.victims().size() >= fewest && budget-- > 0 && fitsWithout(subset.victims())) {
                return Optional.of(new EvictionPlan(subset.victims()));
            }
            if (budget <= 0) {
                return Optional.empty();
            }
            for (int i = subset.last() + 1; i < victims.size(); i++) {
                List<Victim> more = new ArrayList<>(subset.victims());
                more.add(victims.get(i));
                EvictionCost cost = EvictionCost.of(more);
                next.add(
                        new Subset(more, i, new EvictionCost(priority, cost.violations(), cost.pods(), cost.oldest())));
            }
        }
        return Optional.empty();
    }

    /** Keeps each of these pods, the most important first, if the preemptor fits all the same: kube-scheduler's reprieve. */
    private EvictionPlan withReprieves(List<Victim> victims) {
        List<Victim> evicted = new ArrayList<>(victims);
        EvictionCost all = EvictionCost.of(victims);
        List<Victim> mostImportantFirst = victims.stream()
                .sorted(Comparator.<Victim, Boolean>comparing(victim ->
                                all.violations() == 0 || victim.budgets().isEmpty())
                        .thenComparing(LEAST_IMPORTANT_FIRST.reversed()))
                .toList();
        for (Victim victim : mostImportantFirst) {
            evicted.remove(victim);
            if (!fitsWithout(evicted)) {
                evicted.add(victim);
            }
        }
        return new EvictionPlan(evicted);
    }

    private boolean fitsWithout(Collection<Victim> victims) {
        Set<String> without = new HashSet<>(gone);
        without.addAll(Victim.uids(victims));
        return fits.test(without);
    }
}
