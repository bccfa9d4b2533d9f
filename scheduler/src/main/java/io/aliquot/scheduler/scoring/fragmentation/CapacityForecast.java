package io.aliquot.scheduler.scoring.fragmentation;

import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.scoring.CacheSizes;
import io.aliquot.scheduler.scoring.fragmentation.WorkloadSampler.Sample;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/*
 * The same free capacities recur: on nodes that are alike, before and after a pod, and for one demand and the next. So a
 * forecast is computed once and kept. The prospect, nearly all of the cost, is computed at its first use.
 */
/** Forecasts from a sample of demands what will be allocated on a node. Thread-safe. */
final class CapacityForecast {
    /** The most kept forecasts in a large heap, about 250 bytes each and 4 for each demand; beyond that all are dropped. */
    private static final int MOST_FORECASTS = 1 << 17;

    private static final int BYTES = 250;
    private static final int BYTES_PER_DEMAND = 4;

    /** The forecast for one free capacity. */
    final class Forecast {
        private final FreeCapacity node;
        /** How many pods of each of the sample's demands fit, see {@link FreeCapacity#slots}. */
        final int[] slots;
        /** NaN before its first use. */
        private volatile double prospect = Double.NaN;

        private Forecast(FreeCapacity node) {
            this.node = node;
            slots = new int[sample.demands.length];
            for (int i = 0; i < slots.length; i++) {
                slots[i] = node.slots(sample.demands[i]);
            }
        }

        /** GPU that will be allocated on the node, in thousandths; the mean over the sample's sequences. */
        double prospect() {
            if (Double.isNaN(prospect)) {
                prospect = computeProspect(node, slots);
            }
            return prospect;
        }
    }

    /** The sample's demands on nodes of one shape; arrays are indexed by demand. */
    private static final class ShapeDemands {
        /** How many pods of a sequence arrive at such a node. */
        final int pods;
        /** Memory and cores of each of a pod's GPUs. A whole card requests all of them. */
        final int[] miB;

        final int[] cores;
        /** GPU that a pod takes, in thousandths. */
        final int[] taken;

        ShapeDemands(Sample sample, int pods, FreeCapacity.Shape shape) {
            int count = sample.demands.length;
            this.pods = pods;
            miB = new int[count];
            cores = new int[count];
            taken = new int[count];
            for (int i = 0; i < count; i++) {
                DemandVector demand = sample.demands[i];
                miB[i] = demand.whole() ? shape.gpuMiB() : demand.gpuMiB();
                cores[i] = demand.whole() ? shape.gpuCores() : demand.gpuCores();
                taken[i] = shape.takenBy(demand);
            }
        }
    }

    final Sample sample;
    private final double podsPerGpu;
    private final int mostGpus;
    private final int limit;
    private final Map<FreeCapacity.Shape, ShapeDemands> demandsByShape = new ConcurrentHashMap<>();
    private final Map<FreeCapacity, Forecast> forecasts = new ConcurrentHashMap<>();

    /**
     * Forecasts from a sample.
     *
     * @param podsPerGpu how many pods of a sequence arrive at a node, for each of its GPUs
     * @param mostGpus upper limit of the GPUs counted so
     */
    CapacityForecast(Sample sample, double podsPerGpu, int mostGpus) {
        this.sample = sample;
        this.podsPerGpu = podsPerGpu;
        this.mostGpus = mostGpus;
        this.limit = CacheSizes.limit(MOST_FORECASTS, BYTES + BYTES_PER_DEMAND * sample.demands.length);
    }

    Forecast of(FreeCapacity node) {
        Forecast known = forecasts.get(node);
        if (known == null) {
            known = new Forecast(node);
            if (forecasts.size() >= limit) {
                forecasts.clear();
            }
            forecasts.put(node, known);
        }
        return known;
    }

    private double computeProspect(FreeCapacity node, int[] slots) {
        ShapeDemands on = demandsByShape.computeIfAbsent(
                node.shape(),
                shape -> new ShapeDemands(sample, (int) (podsPerGpu * Math.min(shape.gpus(), mostGpus)), shape));
        var fitting = new boolean[sample.demands.length];
        int count = 0;
        for (int i = 0; i < fitting.length; i++) {
            fitting[i] = slots[i] > 0;
            count += fitting[i] ? 1 : 0;
        }
        var placement = new Placement(node, sample.demands, on);
        long sum = 0;
        for (int i = 0; i < sample.futures.length && count > 0; i++) {
            sum += placement.placeAll(sample.futures[i], fitting.clone(), count);
        }
        return (double) sum / Math.max(1, sample.futures.length);
    }

    /** Places the pods of one sequence after another on a node, each on the fullest GPUs that hold it. */
    private static final class Placement {
        private final FreeCapacity node;
        private final DemandVector[] demands;
        private final ShapeDemands on;
        private final int gpus;
        /** Free memory and cores of the GPUs, the fullest first. */
        private final int[] miB;

        private final int[] cores;

        Placement(FreeCapacity node, DemandVector[] demands, ShapeDemands on) {
            this.node = node;
            this.demands = demands;
            this.on = on;
            this.gpus = node.gpus();
            this.miB = new int[gpus];
            this.cores = new int[gpus];
        }

        /**
         * The GPU that the pods of a sequence take together.
         *
         * @param fitting the demands that fit on the node; changed
         * @param count how many these are
         */
        long placeAll(int[] future, boolean[] fitting, int count) {
            for (int gpu = 0; gpu < gpus; gpu++) {
                miB[gpu] = node.gpuMiB(gpu);
                cores[gpu] = node.gpuCores(gpu);
            }
            int cpuMillis = node.cpuMillis();
            int memoryMiB = node.memoryMiB();
            int left = count;
            long sum = 0;
            for (int i = 0; i < on.pods && left > 0; i++) {
                int pod = future[i];
                if (fitting[pod]) {
                    DemandVector demand = demands[pod];
                    if (demand.cpuMillis() <= cpuMillis && demand.memoryMiB() <= memoryMiB && place(pod)) {
                        cpuMillis -= demand.cpuMillis();
                        memoryMiB -= demand.memoryMiB();
                        sum += on.taken[pod];
                    } else {
                        // It will not fit later in the sequence either.
                        fitting[pod] = false;
                        left--;
                    }
                }
            }
            return sum;
        }

        private boolean place(int pod) {
            int requested = demands[pod].gpus();
            int gpu = next(pod, 0);
            if (requested > 1) {
                int holding = 0;
                for (int at = gpu; at < gpus; at = next(pod, at + 1)) {
                    holding++;
                }
                if (holding < requested) {
                    return false;
                }
            } else if (gpu == gpus) {
                return false;
            }
            for (int placed = 0; placed < requested; placed++) {
                takeFrom(gpu, on.miB[pod], on.cores[pod]);
                gpu = next(pod, gpu + 1);
            }
            return true;
        }

        /** The first GPU from this one on that holds a vGPU of the pod. */
        private int next(int pod, int from) {
            int gpu = from;
            while (gpu < gpus && (miB[gpu] < on.miB[pod] || cores[gpu] < on.cores[pod])) {
                gpu++;
            }
            return gpu;
        }

        /** A GPU that becomes fuller moves before the ones that were not examined yet, so that none is taken twice. */
        private void takeFrom(int gpu, int requestedMiB, int requestedCores) {
            int leftMiB = miB[gpu] - requestedMiB;
            int leftCores = cores[gpu] - requestedCores;
            int at = gpu;
            while (at > 0 && (miB[at - 1] > leftMiB || (miB[at - 1] == leftMiB && cores[at - 1] > leftCores))) {
                miB[at] = miB[at - 1];
                cores[at] = cores[at - 1];
                at--;
            }
            miB[at] = leftMiB;
            cores[at] = leftCores;
        }
    }
}
