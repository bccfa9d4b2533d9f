package io.aliquot.simulator;

import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/*
 * From "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent" (Weng et al.,
 * USENIX ATC 2023), section 3: a node's fragmentation is the free GPU capacity that a pod drawn from the workload is
 * expected to be unable to use there.
 */
/** The most frequent demands of a workload, each with its frequency. */
final class TypicalPods {
    private static final double COVERED = 0.95;

    private record Weighted(DemandVector demand, double weight) {}

    private final List<Weighted> demands;

    private TypicalPods(List<Weighted> demands) {
        this.demands = demands;
    }

    /** The most frequent demands that together cover 95 % of the pods; host memory does not distinguish them. */
    static TypicalPods of(Collection<DemandVector> pods) {
        Map<DemandVector, Integer> counts = new LinkedHashMap<>();
        for (DemandVector pod : pods) {
            counts.merge(pod.withoutHostMemory(), 1, Integer::sum);
        }
        List<Map.Entry<DemandVector, Integer>> byFrequency = new ArrayList<>(counts.entrySet());
        byFrequency.sort(Map.Entry.<DemandVector, Integer>comparingByValue().reversed());
        long covered = 0;
        int kept = 0;
        while (kept < byFrequency.size() && covered < COVERED * pods.size()) {
            covered += byFrequency.get(kept++).getValue();
        }
        double total = covered;
        return new TypicalPods(byFrequency.subList(0, kept).stream()
                .map(entry -> new Weighted(entry.getKey(), entry.getValue() / total))
                .toList());
    }

    /** The expected free GPU capacity of a node that a typical pod cannot use, in thousandths. */
    double fragmentation(FreeCapacity node) {
        double sum = 0;
        for (Weighted typical : demands) {
            sum += typical.weight() * unusable(typical.demand(), node);
        }
        return sum;
    }

    private static int unusable(DemandVector demand, FreeCapacity node) {
        if (demand.gpus() == 0 || demand.cpuMillis() > node.cpuMillis() || !demand.takes(node.shape())) {
            return node.free();
        }
        int usableGpus = 0;
        int unusable = 0;
        for (int gpu = 0; gpu < node.gpus(); gpu++) {
            if (node.holds(gpu, demand)) {
                usableGpus++;
            } else {
                unusable += node.part(gpu);
            }
        }
        return usableGpus < demand.gpus() ? node.free() : unusable;
    }
}
