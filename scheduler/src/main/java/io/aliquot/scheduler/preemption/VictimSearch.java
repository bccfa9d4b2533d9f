package io.aliquot.scheduler.preemption;

import io.aliquot.api.pods.GpuRequest;
import io.aliquot.scheduler.placement.FitCheck;
import io.aliquot.scheduler.placement.GpuInfo;
import io.aliquot.scheduler.placement.GpuSelector;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.Comparator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;

/*
 * A pod with one vGPU needs one GPU, and victims on different GPUs do not add up: the result is the cheapest plan of one
 * GPU. For a pod with several vGPUs the candidates are all pods of the node. If one container requests all vGPUs, the
 * victims of the GPUs with the cheapest plans are tried as well.
 *
 * The work on one node is at most four checks for each candidate on each of its GPUs, plus the logarithm of the number of
 * priorities, plus 64 on each GPU with few candidates.
 */
/**
 * Finds pods of one node whose eviction frees enough capacity, as cheap as possible, by {@link Reprieve}. Not thread-safe.
 */
public final class VictimSearch {
    /** Attempts to assign a GPU of the node to a container, for pods with several containers; 40 ns each. */
    public static final int ATTEMPTS = 1 << 13;

    private final PodGpuRequest request;
    private final List<GpuInfo> gpus;
    private final boolean withinBudgets;
    private final FitCheck check;
    private int checks;

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
        return request.requestsOneVgpu() ? forOneVgpu(candidates, bound) : forSeveralVgpus(candidates, bound);
    }

    /** The checks of this object's searches so far whether the preemptor, or a vGPU of it, fits. */
    int checks() {
        return checks;
    }

    private Optional<EvictionPlan> forOneVgpu(List<Victim> candidates, EvictionCost bound) {
        Optional<EvictionPlan> best = Optional.empty();
        for (GpuInfo gpu : gpus) {
            Optional<EvictionPlan> plan =
                    onGpu(gpu, candidates, best.map(EvictionPlan::cost).orElse(bound));
            best = plan.isPresent() ? plan : best;
        }
        return best;
    }

    /** The pods of one GPU to evict for one vGPU of the preemptor's first container. */
    private Optional<EvictionPlan> onGpu(GpuInfo gpu, List<Victim> candidates, EvictionCost bound) {
        GpuRequest first = request.containers().get(0).request();
        List<Victim> holders = candidates.stream()
                .filter(victim -> victim.perGpu().containsKey(gpu.gpu().uuid()))
                .toList();
        return new Reprieve(List.of(gpu), withinBudgets, free -> {
                    checks++;
                    return GpuSelector.holds(request, first, free.get(0));
                })
                .cheapest(holders, bound);
    }

    private Optional<EvictionPlan> forSeveralVgpus(List<Victim> candidates, EvictionCost bound) {
        var reprieve = new Reprieve(gpus, withinBudgets, this::fits);
        Optional<EvictionPlan> best = request.containers().size() > 1
                ? Optional.empty()
                : reprieve.cheapest(onCheapestGpus(candidates), bound);
        Optional<EvictionPlan> plan =
                reprieve.cheapest(candidates, best.map(EvictionPlan::cost).orElse(bound));
        return plan.isPresent() ? plan : best;
    }

    /** The victims of the GPUs with the cheapest plans, one GPU for each vGPU. */
    private Set<Victim> onCheapestGpus(List<Victim> candidates) {
        var victims = new LinkedHashSet<Victim>();
        gpus.stream()
                .flatMap(gpu -> onGpu(gpu, candidates, EvictionCost.MAX).stream())
                .sorted(Comparator.comparing(EvictionPlan::cost))
                .limit(request.containers().get(0).request().vgpus())
                .forEach(plan -> victims.addAll(plan.victims()));
        return victims;
    }

    private boolean fits(List<GpuInfo> free) {
        checks++;
        return check.fits(free);
    }
}
