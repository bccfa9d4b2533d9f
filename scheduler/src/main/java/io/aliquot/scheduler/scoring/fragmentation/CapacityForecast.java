package io.aliquot.scheduler.scoring.fragmentation;

import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.scoring.fragmentation.WorkloadSampler.Sample;
import java.util.HashMap;
import java.util.Map;

/*
 * The same free capacities recur: before and after a pod, on nodes that are alike, for one demand and the next. So forecasts
 * are cached in two generations: an entry that is used moves to the young one, and when that has half of the limit, the old
 * one is dropped. A forecast depends only on the sample and the free capacity, so dropping it costs time only. The prospect,
 * nearly all of the cost, is computed at its first use: of most free capacities only the slots are ever needed.
 *
 * A forecast costs a few microseconds, and a replay makes 20 for each pod. Hence arrays rather than records; a node's unused
 * GPUs as a count; its used GPUs sorted with the fullest first, so that the first one that fits is the one to take; and an
 * early end of a sequence when CPU or GPU is too short for the smallest demand. The longest sequences are those of a node
 * that holds all pods; a few sums (TotalDemand) recognize most such nodes, on which no pod has to be placed.
 */
/** Forecasts for free capacities from a sample of demands. Not thread-safe. */
final class CapacityForecast {
    /** The forecast for one free capacity. */
    static final class Evaluated {
        /** {@link CapacityForecast#prospect}; NaN before its first use. */
        private double prospect = Double.NaN;
        /** Free GPU that the next pod cannot use, averaged over the sample's demands, in thousandths. */
        final double idle;
        /** How many pods of each of the sample's demands fit, see {@link FreeCapacity#slots}. */
        final int[] slots;

        private Evaluated(double idle, int[] slots) {
            this.idle = idle;
            this.slots = slots;
        }
    }

    /** The sample's demands on nodes of one shape; arrays are indexed by demand. */
    private static final class ShapeDemands {
        /** How many pods of a sequence arrive at such a node. */
        final int pods;

        final boolean[] possible;
        final boolean[] whole;
        final int[] cpuMillis;
        final int[] memoryMiB;
        final int[] gpus;
        /** Memory of each GPU. */
        final int[] miB;

        final int[] cores;
        /** GPU that a pod takes, in thousandths. */
        final long[] value;
        /** How many vGPUs of the demand fit on an unused GPU. */
        final int[] perGpu;

        /** The total demand of each sequence. */
        final TotalDemand[] totals;
        /** An upper bound of all of them. */
        final TotalDemand largest;
        /** How many pods of each demand are in all sequences. */
        final int[] count;

        ShapeDemands(Sample sample, int pods, FreeCapacity.Shape shape) {
            DemandVector[] demands = sample.demands;
            int count = demands.length;
            this.pods = pods;
            possible = new boolean[count];
            whole = new boolean[count];
            cpuMillis = new int[count];
            memoryMiB = new int[count];
            gpus = new int[count];
            miB = new int[count];
            cores = new int[count];
            value = new long[count];
            perGpu = new int[count];
            for (int i = 0; i < count; i++) {
                DemandVector demand = demands[i];
                whole[i] = demand.whole();
                cpuMillis[i] = demand.cpuMillis();
                memoryMiB[i] = demand.memoryMiB();
                gpus[i] = demand.gpus();
                miB[i] = demand.whole() ? shape.gpuMiB() : demand.gpuMiB();
                cores[i] = demand.whole() ? shape.gpuCores() : demand.gpuCores();
                value[i] = (long) gpus[i] * (demand.whole() ? FreeCapacity.WHOLE : shape.part(miB[i], cores[i]));
                perGpu[i] = times(shape.gpuMiB(), shape.gpuCores(), i);
                possible[i] = demand.takes(shape) && demand.gpus() <= shape.gpus() && perGpu[i] > 0;
            }
            totals = new TotalDemand[sample.futures.length];
            this.count = new int[count];
            for (int number = 0; number < totals.length; number++) {
                totals[number] = TotalDemand.of(sample.futures[number], this);
                for (int i = 0; i < pods; i++) {
                    this.count[sample.futures[number][i]]++;
                }
            }
            largest = TotalDemand.most(totals);
        }

        int times(int leftMiB, int leftCores, int demand) {
            if (whole[demand]) {
                return 1;
            }
            int times = miB[demand] > 0 ? leftMiB / miB[demand] : Integer.MAX_VALUE;
            return cores[demand] > 0 ? Math.min(times, leftCores / cores[demand]) : times;
        }
    }

    /*
     * A vGPU is refused only if each GPU lacks memory or cores for it. A GPU that lacks memory has given away more than its
     * memory less the largest vGPU, and all GPUs together give away no more than is requested. So the ratios of those GPUs,
     * memory less the largest vGPU by requested memory, add up to less than 1. The same holds for GPUs that lack cores. If
     * the smaller ratios of all GPUs add up to 2, no pod is refused. Where a pod requests n GPUs, n - 1 GPUs may fit and the
     * pod is still refused, so n - 1 of the largest ratios are subtracted.
     */
    /** What the pods of a sequence that fit on an empty node of a shape request in total. */
    private static final class TotalDemand {
        private long cpuMillis;
        private long memoryMiB;
        private int wholeGpus;
        private long miB;
        private long cores;
        /** The largest request of one pod with parts of GPUs. */
        private int mostMiB;

        private int mostCores;
        private int mostGpus;

        /** The total of one sequence. */
        static TotalDemand of(int[] future, ShapeDemands on) {
            var total = new TotalDemand();
            for (int i = 0; i < on.pods; i++) {
                if (on.possible[future[i]]) {
                    total.add(future[i], on);
                }
            }
            return total;
        }

        private void add(int pod, ShapeDemands on) {
            cpuMillis += on.cpuMillis[pod];
            memoryMiB += on.memoryMiB[pod];
            if (on.whole[pod]) {
                wholeGpus += on.gpus[pod];
            } else {
                miB += (long) on.gpus[pod] * on.miB[pod];
                cores += (long) on.gpus[pod] * on.cores[pod];
                mostMiB = Math.max(mostMiB, on.miB[pod]);
                mostCores = Math.max(mostCores, on.cores[pod]);
                mostGpus = Math.max(mostGpus, on.gpus[pod]);
            }
        }

        /** The maximum of each amount. */
        static TotalDemand most(TotalDemand[] of) {
            var most = new TotalDemand();
            for (TotalDemand total : of) {
                most.cpuMillis = Math.max(most.cpuMillis, total.cpuMillis);
                most.memoryMiB = Math.max(most.memoryMiB, total.memoryMiB);
                most.wholeGpus = Math.max(most.wholeGpus, total.wholeGpus);
                most.miB = Math.max(most.miB, total.miB);
                most.cores = Math.max(most.cores, total.cores);
                most.mostMiB = Math.max(most.mostMiB, total.mostMiB);
                most.mostCores = Math.max(most.mostCores, total.mostCores);
                most.mostGpus = Math.max(most.mostGpus, total.mostGpus);
            }
            return most;
        }

        /** A GPU's smaller ratio, as above; 1 for an amount that is not requested. */
        double part(int leftMiB, int leftCores) {
            double memory = miB == 0 ? 1 : (double) (leftMiB - mostMiB) / miB;
            double compute = cores == 0 ? 1 : (double) (leftCores - mostCores) / cores;
            return Math.max(0, Math.min(memory, compute));
        }

        /** The sum of ratios that suffices. */
        double enough() {
            return (miB == 0 ? 0 : 1) + (cores == 0 ? 0 : 1);
        }
    }

    private final Sample sample;
    private final double podsPerGpu;
    private final int mostGpus;
    private final int limit;
    private final Map<FreeCapacity.Shape, ShapeDemands> demandsByShape = new HashMap<>();
    private Map<FreeCapacity, Evaluated> young = new HashMap<>();
    private Map<FreeCapacity, Evaluated> old = new HashMap<>();

    /** The node of the current forecast: its used GPUs, the fullest first, and the number of unused ones. */
    private int[] miB = new int[0];

    private int[] cores = new int[0];
    private int[] parts = new int[0];
    private int used;
    private int unused;

    /** The same while the pods of a sequence are placed. */
    private int[] trialMiB = new int[0];

    private int[] trialCores = new int[0];
    private int trialUsed;
    private int trialUnused;
    /** How many of them, the fullest, hold no further pod. */
    private int trialFull;
    /** For each demand the number of the last sequence in which it no longer fits. */
    private final int[] unfitSince;

    /**
     * Forecasts from a sample.
     *
     * @param podsPerGpu how many pods of a sequence arrive at a node, for each of its GPUs
     * @param mostGpus upper limit of the GPUs counted so
     * @param limit the most cached forecasts
     */
    CapacityForecast(Sample sample, double podsPerGpu, int mostGpus, int limit) {
        this.sample = sample;
        this.podsPerGpu = podsPerGpu;
        this.mostGpus = mostGpus;
        this.limit = limit;
        this.unfitSince = new int[sample.demands.length];
    }

    Sample sample() {
        return sample;
    }

    int cached() {
        return young.size() + old.size();
    }

    Evaluated of(FreeCapacity node) {
        Evaluated forecast = young.get(node);
        if (forecast == null) {
            forecast = old.remove(node);
            if (forecast == null) {
                forecast = compute(node);
            }
            if (young.size() >= limit / 2) {
                old = young;
                young = new HashMap<>();
            }
            young.put(node, forecast);
        }
        return forecast;
    }

    private Evaluated compute(FreeCapacity node) {
        ShapeDemands on = demands(node.shape());
        load(node);
        int[] slots = new int[sample.demands.length];
        double idle = 0;
        for (int i = 0; i < slots.length; i++) {
            int notUsable = node.free();
            if (on.possible[i] && on.cpuMillis[i] <= node.cpuMillis() && on.memoryMiB[i] <= node.memoryMiB()) {
                int gpusThatFit = unused;
                int vgpusThatFit = unused * on.perGpu[i];
                int unusable = 0;
                for (int gpu = 0; gpu < used; gpu++) {
                    if (!on.whole[i] && miB[gpu] >= on.miB[i] && cores[gpu] >= on.cores[i]) {
                        gpusThatFit++;
                        vgpusThatFit += on.times(miB[gpu], cores[gpu], i);
                    } else {
                        unusable += parts[gpu];
                    }
                }
                if (gpusThatFit >= on.gpus[i]) {
                    notUsable = unusable;
                    slots[i] = atMost(
                            atMost(vgpusThatFit / on.gpus[i], on.cpuMillis[i], node.cpuMillis()),
                            on.memoryMiB[i],
                            node.memoryMiB());
                }
            }
            idle += sample.shares[i] * notUsable;
        }
        return new Evaluated(idle, slots);
    }

    /** GPU that will be allocated on the node, in thousandths; the mean over the sample's sequences. */
    double prospect(FreeCapacity node, Evaluated forecast) {
        if (Double.isNaN(forecast.prospect)) {
            forecast.prospect = prospect(node, forecast.slots);
        }
        return forecast.prospect;
    }

    private double prospect(FreeCapacity node, int[] slots) {
        ShapeDemands on = demands(node.shape());
        int leastCpu = Integer.MAX_VALUE;
        int leastMiB = Integer.MAX_VALUE;
        for (int i = 0; i < slots.length; i++) {
            if (slots[i] > 0) {
                leastCpu = Math.min(leastCpu, on.cpuMillis[i]);
                leastMiB = Math.min(leastMiB, on.miB[i]);
            }
        }
        if (leastMiB == Integer.MAX_VALUE) {
            return 0; // nothing fits
        }
        load(node);
        long sum = holds(node, on.largest) ? all(on, slots) : simulate(node, on, slots, leastCpu, leastMiB);
        return (double) sum / sample.futures.length;
    }

    private ShapeDemands demands(FreeCapacity.Shape shape) {
        ShapeDemands known = demandsByShape.get(shape);
        if (known == null) {
            known = new ShapeDemands(sample, (int) (podsPerGpu * Math.min(shape.gpus(), mostGpus)), shape);
            demandsByShape.put(shape, known);
        }
        return known;
    }

    private static int atMost(int slots, int each, int all) {
        return (long) slots * each > all ? all / each : slots;
    }

    private void load(FreeCapacity node) {
        int count = node.gpus();
        if (miB.length < count) {
            miB = new int[count];
            cores = new int[count];
            parts = new int[count];
            trialMiB = new int[count];
            trialCores = new int[count];
        }
        used = 0;
        unused = 0;
        for (int gpu = 0; gpu < count; gpu++) {
            if (node.gpuMiB(gpu) == node.shape().gpuMiB()
                    && node.gpuCores(gpu) == node.shape().gpuCores()) {
                unused++;
            } else {
                miB[used] = node.gpuMiB(gpu);
                cores[used] = node.gpuCores(gpu);
                parts[used++] = node.part(gpu);
            }
        }
    }

    /** Whether all pods that fit now certainly fit together; false if that is unknown. */
    private boolean holds(FreeCapacity node, TotalDemand total) {
        // Unused GPUs that can be split.
        int splittable = unused - total.wholeGpus;
        if (total.cpuMillis > node.cpuMillis() || total.memoryMiB > node.memoryMiB() || splittable < 0) {
            return false;
        }
        double ofUnused = total.part(node.shape().gpuMiB(), node.shape().gpuCores());
        double parts = splittable * ofUnused;
        double most = splittable > 0 ? ofUnused : 0;
        for (int gpu = 0; gpu < used; gpu++) {
            double part = total.part(miB[gpu], cores[gpu]);
            parts += part;
            most = Math.max(most, part);
        }
        return parts - Math.max(0, total.mostGpus - 1) * most >= total.enough();
    }

    /** The GPU of all pods of all sequences that fit now. */
    private static long all(ShapeDemands on, int[] slots) {
        long sum = 0;
        for (int i = 0; i < slots.length; i++) {
            sum += slots[i] > 0 ? on.count[i] * on.value[i] : 0;
        }
        return sum;
    }

    /** The same of one sequence. */
    private static long all(int[] future, ShapeDemands on, int[] slots) {
        long sum = 0;
        for (int i = 0; i < on.pods; i++) {
            sum += slots[future[i]] > 0 ? on.value[future[i]] : 0;
        }
        return sum;
    }

    /*
     * A demand that does not fit will not fit later in the same sequence either, and is skipped. When no demand is left, the
     * sequence ends.
     */
    private long simulate(FreeCapacity node, ShapeDemands on, int[] slots, int leastCpu, int leastMiB) {
        long sum = 0;
        int full = 0;
        while (full < used && miB[full] < leastMiB) {
            full++;
        }
        int vgpusThatFit = 0;
        for (int i = 0; i < slots.length; i++) {
            unfitSince[i] = slots[i] > 0 ? -1 : Integer.MAX_VALUE;
            vgpusThatFit += slots[i] > 0 ? 1 : 0;
        }
        for (int number = 0; number < sample.futures.length; number++) {
            int[] future = sample.futures[number];
            if (holds(node, on.totals[number])) {
                sum += all(future, on, slots);
                continue;
            }
            System.arraycopy(miB, 0, trialMiB, 0, used);
            System.arraycopy(cores, 0, trialCores, 0, used);
            trialUsed = used;
            trialUnused = unused;
            trialFull = full;
            int cpuMillis = node.cpuMillis();
            int memoryMiB = node.memoryMiB();
            int left = vgpusThatFit;
            for (int i = 0; i < on.pods; i++) {
                int pod = future[i];
                if (unfitSince[pod] >= number) {
                    continue;
                }
                if (on.cpuMillis[pod] <= cpuMillis && on.memoryMiB[pod] <= memoryMiB && place(node.shape(), on, pod)) {
                    cpuMillis -= on.cpuMillis[pod];
                    memoryMiB -= on.memoryMiB[pod];
                    sum += on.value[pod];
                    while (trialFull < trialUsed && trialMiB[trialFull] < leastMiB) {
                        trialFull++;
                    }
                    if ((trialUnused == 0 && trialFull == trialUsed) || cpuMillis < leastCpu) {
                        break;
                    }
                } else {
                    unfitSince[pod] = number;
                    if (--left == 0) {
                        break;
                    }
                }
            }
        }
        return sum;
    }

    /** Places a pod on the fullest GPUs that hold it; false if there are too few. */
    private boolean place(FreeCapacity.Shape shape, ShapeDemands on, int pod) {
        int requested = on.gpus[pod];
        if (on.whole[pod]) {
            if (trialUnused < requested) {
                return false;
            }
            trialUnused -= requested;
            return true;
        }
        int requestedMiB = on.miB[pod];
        int requestedCores = on.cores[pod];
        if (requested > 1) {
            int gpusThatFit = trialUnused;
            for (int gpu = 0; gpu < trialUsed; gpu++) {
                gpusThatFit += trialMiB[gpu] >= requestedMiB && trialCores[gpu] >= requestedCores ? 1 : 0;
            }
            if (gpusThatFit < requested) {
                return false;
            }
        }
        // A GPU that becomes fuller moves before the ones not examined yet, so that none is taken twice.
        int gpu = trialFull;
        for (int taken = 0; taken < requested; taken++) {
            while (gpu < trialUsed && (trialMiB[gpu] < requestedMiB || trialCores[gpu] < requestedCores)) {
                gpu++;
            }
            if (gpu < trialUsed) {
                sortIn(gpu, trialMiB[gpu] - requestedMiB, trialCores[gpu] - requestedCores);
            } else if (trialUnused > 0) {
                trialUnused--;
                sortIn(trialUsed++, shape.gpuMiB() - requestedMiB, shape.gpuCores() - requestedCores);
            } else {
                return false;
            }
            gpu++;
        }
        return true;
    }

    /** Moves a GPU that has become fuller to its sorted position. */
    private void sortIn(int from, int leftMiB, int leftCores) {
        int at = from;
        while (at > 0
                && (trialMiB[at - 1] > leftMiB || (trialMiB[at - 1] == leftMiB && trialCores[at - 1] > leftCores))) {
            trialMiB[at] = trialMiB[at - 1];
            trialCores[at] = trialCores[at - 1];
            at--;
        }
        trialMiB[at] = leftMiB;
        trialCores[at] = leftCores;
    }
}
