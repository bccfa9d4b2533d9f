package io.aliquot.simulator;

import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/*
 * From "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent" (Weng et al.,
 * USENIX ATC 2023), section 3: a node's fragmentation is the free GPU that a pod drawn from the workload is expected to
 * be unable to use there.
 */
/** The demands that make up most of a workload, and how much of it each is. */
final class TypicalPods {
    private static final double COVERED = 0.95;

    private record Weighted(DemandVector demand, double weight) {}

    private final List<Weighted> typical;

    private TypicalPods(List<Weighted> typical) {
        this.typical = typical;
    }

    /** The most frequent demands, until 95 % of the pods are covered; memory makes no difference. */
    static TypicalPods of(Collection<DemandVector> pods) {
        Map<DemandVector, List<DemandVector>> kinds = new LinkedHashMap<>();
        for (DemandVector pod : pods) {
            var kind = new DemandVector(
                    pod.cpuMillis(), 0, pod.gpus(), pod.whole(), pod.gpuMiB(), pod.gpuCores(), pod.models());
            kinds.computeIfAbsent(kind, any -> new ArrayList<>()).add(pod);
        }
        List<List<DemandVector>> alike = new ArrayList<>(kinds.values());
        alike.sort(Comparator.comparingInt((List<DemandVector> kind) -> kind.size())
                .reversed());
        long covered = 0;
        int count = 0;
        while (count < alike.size() && covered < COVERED * pods.size()) {
            covered += alike.get(count++).size();
        }
        double all = covered;
        return new TypicalPods(alike.subList(0, count).stream()
                .map(kind -> new Weighted(kind.get(0), kind.size() / all))
                .toList());
    }

    /** Free GPU of a node that the typical pods, by weight, can't use, in thousandths. */
    double fragmentation(FreeCapacity node) {
        double sum = 0;
        for (Weighted one : typical) {
            sum += one.weight() * useless(one.demand(), node);
        }
        return sum;
    }

    private static int useless(DemandVector demand, FreeCapacity node) {
        if (demand.gpus() == 0 || demand.cpuMillis() > node.cpuMillis() || !demand.takes(node.shape())) {
            return node.free();
        }
        int enough = 0;
        int useless = 0;
        for (int gpu = 0; gpu < node.gpus(); gpu++) {
            if (node.holds(gpu, demand)) {
                enough++;
            } else {
                useless += node.part(gpu);
            }
        }
        return enough < demand.gpus() ? node.free() : useless;
    }
}
