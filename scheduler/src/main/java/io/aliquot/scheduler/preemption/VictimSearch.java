package io.aliquot.scheduler.preemption;

import io.aliquot.api.names.GpuRequest;
import io.aliquot.scheduler.placement.FitCheck;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.GpuInfo;
import io.aliquot.scheduler.placement.GpuSelector;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.preemption.Budgets.Budget;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.IntStream;

/*
 * How the search works. A pod with one vGPU needs one GPU, and victims on different GPUs do not add up: GpuVictims finds
 * the cheapest set of each GPU, exactly for up to eleven candidates on each of eight GPUs (STEPS), and the cheapest of
 * these is the result.
 *
 * For a pod with several vGPUs, candidates are admitted by rising priority until the pod fits without all of them, so the
 * most important victim is as unimportant as possible. Then kube-scheduler's reprieve spares each of them, the most
 * important first, beside which the pod still fits: every victim is necessary, but there may be more than the fewest. If
 * one container requests all vGPUs, only the victims of the GPUs with the cheapest sets are examined. Without pods that
 * hold several GPUs and without budgets that is the optimum.
 *
 * The work on one node is at most STEPS steps, and as many checks whether the pod fits as there are candidates, plus the
 * logarithm of the number of their priorities. Nothing is stored for a set that was tried.
 */
/** Finds pods of one node whose eviction frees enough capacity, as cheap as possible. Not thread-safe. */
public final class VictimSearch {
    /** Steps of the exact search on one node: eight GPUs with eleven candidates each, all sets. A step takes 10 ns. */
    static final int STEPS = 8 << 11;

    /** Attempts to assign a GPU of the node to a container, for pods with several containers; 40 ns each. */
    public static final int ATTEMPTS = 1 << 13;

    /** A total order, so that the result does not depend on the order of the candidates. */
    private static final Comparator<Victim> LEAST_IMPORTANT_FIRST = Comparator.comparingInt(Victim::priority)
            .thenComparing(Victim::since, Comparator.reverseOrder())
            .thenComparing(victim -> victim.pod().uid());

    private final PodGpuRequest request;
    private final List<GpuInfo> gpus;
    private final boolean withinBudgets;
    private final FitCheck check;
    private final StepLimit steps = new StepLimit(STEPS);
    private int checks;

    /** A number of steps that decreases. */
    static final class StepLimit {
        private int left;

        StepLimit(int left) {
            this.left = left;
        }

        /** Whether another step may be done. */
        boolean next() {
            return left > 0 && left-- > 0;
        }

        int left() {
            return left;
        }
    }

    /**
     * Prepares a search.
     *
     * @param request of the preemptor
     * @param gpus of the node, with what is free once the pods that terminate anyway are gone; empty if it takes no pods
     * @param withinBudgets whether no plan may violate a disruption budget
     */
    VictimSearch(PodGpuRequest request, List<GpuInfo> gpus, boolean withinBudgets) {
        this.request = request;
        this.gpus = gpus;
        this.withinBudgets = withinBudgets;
        this.check = new FitCheck(request, ATTEMPTS);
    }

    /**
     * Searches.
     *
     * @param request of the preemptor
     * @param gpus of the node, with what is free once the pods that terminate anyway are gone; empty if it takes no pods
     * @param candidates the pods that may be evicted
     * @param bound a cost that the result must be below, such as {@link EvictionCost#MAX}
     * @return empty if no set suffices, or none was found that costs less than {@code bound}
     */
    public static Optional<EvictionPlan> cheapest(
            PodGpuRequest request, List<GpuInfo> gpus, List<Victim> candidates, EvictionCost bound) {
        return new VictimSearch(request, gpus, false).cheapest(candidates, bound);
    }

    /** The same without plans that violate a disruption budget. */
    static Optional<EvictionPlan> cheapestWithinBudgets(
            PodGpuRequest request, List<GpuInfo> gpus, List<Victim> candidates, EvictionCost bound) {
        return new VictimSearch(request, gpus, true).cheapest(candidates, bound);
    }

    Optional<EvictionPlan> cheapest(List<Victim> candidates, EvictionCost bound) {
        if (gpus.isEmpty() || EvictionCost.NOTHING.compareTo(bound) >= 0) {
            return Optional.empty();
        }
        if (fits(gpus)) {
            return Optional.of(EvictionPlan.NONE);
        }
        List<Victim> sorted = candidates.stream().sorted(LEAST_IMPORTANT_FIRST).toList();
        return request.requestsOneVgpu() ? forOneVgpu(sorted, bound) : forSeveralVgpus(sorted, bound);
    }

    /** The steps of the exact search and the checks of this object's searches so far. */
    int work() {
        return STEPS - steps.left() + checks;
    }

    private Optional<EvictionPlan> forOneVgpu(List<Victim> sorted, EvictionCost bound) {
        Optional<EvictionPlan> best = Optional.empty();
        for (GpuVictims gpu : lackingGpus(sorted)) {
            Optional<EvictionPlan> plan =
                    gpu.cheapest(best.map(EvictionPlan::cost).orElse(bound));
            best = plan.isPresent() ? plan : best;
        }
        return best;
    }

    /** The GPUs that would hold a vGPU of the preemptor's first container without some of these pods, or do. */
    private List<GpuVictims> lackingGpus(List<Victim> sorted) {
        Map<String, List<Victim>> byGpu = new HashMap<>();
        for (Victim victim : sorted) {
            for (String gpu : victim.perGpu().keySet()) {
                byGpu.computeIfAbsent(gpu, any -> new ArrayList<>()).add(victim);
            }
        }
        GpuRequest first = request.containers().get(0).request();
        var lacking = new ArrayList<GpuVictims>();
        for (GpuInfo gpu : gpus) {
            String uuid = gpu.gpu().uuid();
            GpuSelector.lacking(request, first, gpu)
                    .ifPresent(amount -> lacking.add(
                            new GpuVictims(uuid, amount, byGpu.getOrDefault(uuid, List.of()), withinBudgets, steps)));
        }
        return lacking;
    }

    private Optional<EvictionPlan> forSeveralVgpus(List<Victim> sorted, EvictionCost bound) {
        List<Victim> candidates = withinBudgets ? withinBudgets(sorted) : sorted;
        List<Victim> admitted = admitted(candidates);
        if (admitted.isEmpty() || admitted.get(admitted.size() - 1).priority() > bound.priority()) {
            return Optional.empty();
        }
        EvictionPlan plan = withReprieves(onCheapestGpus(admitted));
        return plan.cost().compareTo(bound) < 0 ? Optional.of(plan) : Optional.empty();
    }

    /** Without the more important pods of each budget that cannot all be evicted. */
    private static List<Victim> withinBudgets(List<Victim> sorted) {
        var counts = new HashMap<Budget, Integer>();
        var within = new ArrayList<Victim>();
        for (Victim victim : sorted) {
            if (victim.budgets().stream().allMatch(budget -> counts.getOrDefault(budget, 0) < budget.allowed())) {
                victim.budgets().forEach(budget -> counts.merge(budget, 1, Integer::sum));
                within.add(victim);
            }
        }
        return within;
    }

    /** The candidates of the lowest priorities that suffice together; empty if all of them do not. */
    private List<Victim> admitted(List<Victim> sorted) {
        if (!fits(without(sorted))) {
            return List.of();
        }
        int[] ends = ends(sorted);
        int low = 0;
        int high = ends.length - 1;
        while (low < high) {
            int middle = (low + high) >>> 1;
            if (fits(without(sorted.subList(0, ends[middle])))) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        return ends.length == 0 ? List.of() : sorted.subList(0, ends[low]);
    }

    /** For each priority the number of victims that have this or a lower one. */
    static int[] ends(List<Victim> sorted) {
        return IntStream.rangeClosed(1, sorted.size())
                .filter(end -> end == sorted.size()
                        || sorted.get(end).priority() > sorted.get(end - 1).priority())
                .toArray();
    }

    /** For a pod with one container the victims of the GPUs with the cheapest sets, if they suffice together. */
    private Collection<Victim> onCheapestGpus(List<Victim> admitted) {
        int vgpus = request.containers().get(0).request().vgpus();
        if (request.containers().size() > 1) {
            return admitted;
        }
        List<EvictionPlan> plans = lackingGpus(admitted).stream()
                .flatMap(gpu -> gpu.cheapest(EvictionCost.MAX).stream())
                .sorted(Comparator.comparing(EvictionPlan::cost))
                .limit(vgpus)
                .toList();
        var victims = new LinkedHashSet<Victim>();
        plans.forEach(plan -> victims.addAll(plan.victims()));
        return fits(without(victims)) ? victims : admitted; // not if the GPUs must be in one NUMA domain
    }

    /** Keeps each of these pods, the most important first, if the preemptor fits all the same: kube-scheduler's reprieve. */
    private EvictionPlan withReprieves(Collection<Victim> victims) {
        EvictionCost all = EvictionCost.of(victims);
        List<Victim> mostImportantFirst = victims.stream()
                .sorted(Comparator.<Victim, Boolean>comparing(victim ->
                                all.violations() == 0 || victim.budgets().isEmpty())
                        .thenComparing(LEAST_IMPORTANT_FIRST.reversed()))
                .toList();
        var evicted = new ArrayList<Victim>();
        List<GpuInfo> free = without(victims);
        for (Victim victim : mostImportantFirst) {
            List<GpuInfo> beside = with(free, victim);
            if (fits(beside)) {
                free = beside;
            } else {
                evicted.add(victim);
            }
        }
        return new EvictionPlan(evicted);
    }

    private boolean fits(List<GpuInfo> free) {
        checks++;
        return check.fits(free);
    }

    private List<GpuInfo> without(Collection<Victim> victims) {
        var free = new ArrayList<>(gpus);
        var uuids = new HashMap<String, Integer>();
        for (int i = 0; i < free.size(); i++) {
            uuids.put(free.get(i).gpu().uuid(), i);
        }
        for (Victim victim : victims) {
            victim.perGpu().forEach((uuid, amount) -> {
                Integer index = uuids.get(uuid);
                if (index != null) {
                    free.set(index, free.get(index).without(amount));
                }
            });
        }
        return free;
    }

    /** These GPUs if a victim stays. */
    static List<GpuInfo> with(List<GpuInfo> free, Victim victim) {
        return free.stream()
                .map(gpu -> {
                    GpuAmount amount = victim.perGpu().get(gpu.gpu().uuid());
                    return amount == null ? gpu : gpu.with(amount);
                })
                .toList();
    }
}
