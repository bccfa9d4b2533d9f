package io.aliquot.scheduler.scoring.fragmentation;

import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.scoring.fragmentation.WorkloadSampler.Sample;
import java.util.HashMap;
import java.util.Map;

/*
 * Results are cached per free capacity, because the same free capacities recur: before and after a pod, on equal nodes,
 * for one demand and the next. The cache has two generations. A result that is read moves to the younger one. When the
 * younger generation has half of the permitted entries, the older one is discarded. A result depends on the workload
 * sample and the free capacity only, so discarding it costs time and changes nothing else. The forecast is nearly all
 * of the cost. It is computed on first use, because most free capacities are read for their slots only.
 *
 * An evaluation costs a few microseconds; a replay makes 20 for each pod. Therefore the data is in arrays rather than
 * records, and unused GPUs are a count. GPUs in use are sorted with the fullest first, so the first one that holds a
 * demand is the one to take. A sequence of pods ends when not enough CPU or GPU memory is left for the smallest demand.
 * The longest sequences are those in which every pod fits. Most of these are recognized from a few sums (Crowd) and are
 * not simulated.
 */
/** Forecasts, for one workload sample, what a node's free capacity can hold. Not thread-safe. */
final class CapacityForecast {
    /** The cached results for one free capacity. */
    static final class Evaluated {
        /** The result of {@link CapacityForecast#prospect}; NaN until it is first requested. */
        private double prospect = Double.NaN;
        /** Free GPU that the next pod cannot use, in thousandths of a GPU: weighted mean over the sample's demands. */
        final double idle;
        /** How many pods of each demand of the sample fit, as in {@link FreeCapacity#slots}. */
        final int[] slots;

        private Evaluated(double idle, int[] slots) {
            this.idle = idle;
            this.slots = slots;
        }
    }

    /** The sample's demands on nodes of one shape; the index of each array is the demand. */
    private static final class Terms {
        /** How many pods of each future are placed on a node of this shape. */
        final int pods;

        final boolean[] possible;
        final boolean[] whole;
        final int[] cpuMillis;
        final int[] memoryMiB;
        final int[] gpus;
        /** Memory of each GPU. */
        final int[] miB;

        final int[] cores;
        /** GPU that one pod takes, in thousandths of a GPU. */
        final long[] value;
        /** How many pods fit on an unused GPU. */
        final int[] perGpu;

        /** The total demand of each future. */
        final Crowd[] crowds;
        /** The maximum of each sum over all futures. */
        final Crowd largest;
        /** How many pods of each demand all futures have together. */
        final int[] count;

        Terms(Sample sample, int pods, FreeCapacity.Shape shape) {
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
            crowds = new Crowd[sample.futures.length];
            this.count = new int[count];
            for (int number = 0; number < crowds.length; number++) {
                crowds[number] = Crowd.of(sample.futures[number], this);
                for (int i = 0; i < pods; i++) {
                    this.count[sample.futures[number][i]]++;
                }
            }
            largest = Crowd.most(crowds);
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
     * Why `part` and `enough` are a sufficient test: A share is refused only if every GPU lacks memory or cores for it.
     * A GPU that lacks memory has less left than the largest share. Pods of the future must already have taken more
     * from it than the memory that was left at the start, less the largest share. All GPUs together give no more than
     * the pods request. So over the GPUs that lack memory, the parts (memory left at the start less the largest
     * share, divided by the memory requested) add up to less than 1. The same holds for the GPUs that lack cores. The
     * part of a GPU is the smaller of its two quotients. If the parts of all GPUs add up to 2, no demand is refused. A
     * pod that requests several GPUs, g of them, is refused if all but at most g − 1 GPUs lack memory or cores. The
     * test therefore deducts g − 1 times the largest part.
     */
    /** The total demand of several pods that can run on nodes of one shape. */
    private static final class Crowd {
        private long cpuMillis;
        private long memoryMiB;
        private int wholeGpus;
        private long miB;
        private long cores;
        /** The maximum over the pods that request shares. */
        private int mostMiB;

        private int mostCores;
        private int mostGpus;

        /** The total demand of a future. */
        static Crowd of(int[] future, Terms on) {
            var crowd = new Crowd();
            for (int i = 0; i < on.pods; i++) {
                if (on.possible[future[i]]) {
                    crowd.add(future[i], on);
                }
            }
            return crowd;
        }

        private void add(int pod, Terms on) {
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

        /** The maximum of each sum. */
        static Crowd most(Crowd[] of) {
            var most = new Crowd();
            for (Crowd crowd : of) {
                most.cpuMillis = Math.max(most.cpuMillis, crowd.cpuMillis);
                most.memoryMiB = Math.max(most.memoryMiB, crowd.memoryMiB);
                most.wholeGpus = Math.max(most.wholeGpus, crowd.wholeGpus);
                most.miB = Math.max(most.miB, crowd.miB);
                most.cores = Math.max(most.cores, crowd.cores);
                most.mostMiB = Math.max(most.mostMiB, crowd.mostMiB);
                most.mostCores = Math.max(most.mostCores, crowd.mostCores);
                most.mostGpus = Math.max(most.mostGpus, crowd.mostGpus);
            }
            return most;
        }

        /** The part of a GPU in the proof above. A resource that no pod requests does not limit it. */
        double part(int leftMiB, int leftCores) {
            double memory = miB == 0 ? 1 : (double) (leftMiB - mostMiB) / miB;
            double compute = cores == 0 ? 1 : (double) (leftCores - mostCores) / cores;
            return Math.max(0, Math.min(memory, compute));
        }

        /** The sum of parts with which every demand fits. */
        double enough() {
            return (miB == 0 ? 0 : 1) + (cores == 0 ? 0 : 1);
        }
    }

    private final Sample sample;
    private final double podsPerGpu;
    private final int mostGpus;
    private final int mostKept;
    private final Map<FreeCapacity.Shape, Terms> terms = new HashMap<>();
    private Map<FreeCapacity, Evaluated> younger = new HashMap<>();
    private Map<FreeCapacity, Evaluated> older = new HashMap<>();

    /** The free capacity under evaluation: the GPUs in use, fullest first, and the number of unused GPUs. */
    private int[] miB = new int[0];

    private int[] cores = new int[0];
    private int[] parts = new int[0];
    private int begun;
    private int whole;

    /** The same data while pods of a future are placed. */
    private int[] trialMiB = new int[0];

    private int[] trialCores = new int[0];
    private int trialBegun;
    private int trialWhole;
    /** How many of the fullest GPUs hold no further demand. */
    private int trialFull;
    /** For each demand, the number of the last future in which it no longer fits. */
    private final int[] gone;

    /**
     * Creates a forecast with an empty cache.
     *
     * @param podsPerGpu how many pods of each future are placed on a node, per GPU of the node
     * @param mostGpus the largest number of GPUs per node that counts for this
     * @param mostKept the largest number of cached free capacities
     */
    CapacityForecast(Sample sample, double podsPerGpu, int mostGpus, int mostKept) {
        this.sample = sample;
        this.podsPerGpu = podsPerGpu;
        this.mostGpus = mostGpus;
        this.mostKept = mostKept;
        this.gone = new int[sample.demands.length];
    }

    Sample sample() {
        return sample;
    }

    int kept() {
        return younger.size() + older.size();
    }

    Evaluated of(FreeCapacity room) {
        Evaluated judged = younger.get(room);
        if (judged == null) {
            judged = older.remove(room);
            if (judged == null) {
                judged = judge(room);
            }
            if (younger.size() >= mostKept / 2) {
                older = younger;
                younger = new HashMap<>();
            }
            younger.put(room, judged);
        }
        return judged;
    }

    private Evaluated judge(FreeCapacity room) {
        Terms on = terms(room.shape());
        open(room);
        int[] slots = new int[sample.demands.length];
        double idle = 0;
        for (int i = 0; i < slots.length; i++) {
            int useless = room.free();
            if (on.possible[i] && on.cpuMillis[i] <= room.cpuMillis() && on.memoryMiB[i] <= room.memoryMiB()) {
                int holding = whole;
                int fitting = whole * on.perGpu[i];
                int beside = 0;
                for (int gpu = 0; gpu < begun; gpu++) {
                    if (!on.whole[i] && miB[gpu] >= on.miB[i] && cores[gpu] >= on.cores[i]) {
                        holding++;
                        fitting += on.times(miB[gpu], cores[gpu], i);
                    } else {
                        beside += parts[gpu];
                    }
                }
                if (holding >= on.gpus[i]) {
                    useless = beside;
                    slots[i] = atMost(
                            atMost(fitting / on.gpus[i], on.cpuMillis[i], room.cpuMillis()),
                            on.memoryMiB[i],
                            room.memoryMiB());
                }
            }
            idle += sample.shares[i] * useless;
        }
        return new Evaluated(idle, slots);
    }

    /** GPU that a future of the sample allocates in a free capacity, in thousandths of a GPU: mean over the futures. */
    double prospect(FreeCapacity room, Evaluated judged) {
        if (Double.isNaN(judged.prospect)) {
            judged.prospect = prospect(room, judged.slots);
        }
        return judged.prospect;
    }

    private double prospect(FreeCapacity room, int[] slots) {
        Terms on = terms(room.shape());
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
        open(room);
        long sum = holds(room, on.largest) ? all(on, slots) : tried(room, on, slots, leastCpu, leastMiB);
        return (double) sum / sample.futures.length;
    }

    private Terms terms(FreeCapacity.Shape shape) {
        Terms known = terms.get(shape);
        if (known == null) {
            known = new Terms(sample, (int) (podsPerGpu * Math.min(shape.gpus(), mostGpus)), shape);
            terms.put(shape, known);
        }
        return known;
    }

    private static int atMost(int slots, int each, int all) {
        return (long) slots * each > all ? all / each : slots;
    }

    private void open(FreeCapacity room) {
        int count = room.gpus();
        if (miB.length < count) {
            miB = new int[count];
            cores = new int[count];
            parts = new int[count];
            trialMiB = new int[count];
            trialCores = new int[count];
        }
        begun = 0;
        whole = 0;
        for (int gpu = 0; gpu < count; gpu++) {
            if (room.gpuMiB(gpu) == room.shape().gpuMiB()
                    && room.gpuCores(gpu) == room.shape().gpuCores()) {
                whole++;
            } else {
                miB[begun] = room.gpuMiB(gpu);
                cores[begun] = room.gpuCores(gpu);
                parts[begun++] = room.part(gpu);
            }
        }
    }

    /** Whether all pods of a total demand that fit now one by one also fit together. False negatives are possible. */
    private boolean holds(FreeCapacity room, Crowd crowd) {
        // The number of unused GPUs that can be split into shares.
        int spare = whole - crowd.wholeGpus;
        if (crowd.cpuMillis > room.cpuMillis() || crowd.memoryMiB > room.memoryMiB() || spare < 0) {
            return false;
        }
        double unbroken = crowd.part(room.shape().gpuMiB(), room.shape().gpuCores());
        double parts = spare * unbroken;
        double most = spare > 0 ? unbroken : 0;
        for (int gpu = 0; gpu < begun; gpu++) {
            double part = crowd.part(miB[gpu], cores[gpu]);
            parts += part;
            most = Math.max(most, part);
        }
        return parts - Math.max(0, crowd.mostGpus - 1) * most >= crowd.enough();
    }

    /** The GPU that the pods of all futures take, if every pod that fits now is placed. */
    private static long all(Terms on, int[] slots) {
        long sum = 0;
        for (int i = 0; i < slots.length; i++) {
            sum += slots[i] > 0 ? on.count[i] * on.value[i] : 0;
        }
        return sum;
    }

    /** The same for one future. */
    private static long all(int[] future, Terms on, int[] slots) {
        long sum = 0;
        for (int i = 0; i < on.pods; i++) {
            sum += slots[future[i]] > 0 ? on.value[future[i]] : 0;
        }
        return sum;
    }

    /*
     * Places the pods of each future one by one. A demand that does not fit never fits later in the same future and is
     * not tried again. A future ends when no demand is left that may fit.
     */
    private long tried(FreeCapacity room, Terms on, int[] slots, int leastCpu, int leastMiB) {
        long sum = 0;
        int full = 0;
        while (full < begun && miB[full] < leastMiB) {
            full++;
        }
        int fitting = 0;
        for (int i = 0; i < slots.length; i++) {
            gone[i] = slots[i] > 0 ? -1 : Integer.MAX_VALUE;
            fitting += slots[i] > 0 ? 1 : 0;
        }
        for (int number = 0; number < sample.futures.length; number++) {
            int[] future = sample.futures[number];
            if (holds(room, on.crowds[number])) {
                sum += all(future, on, slots);
                continue;
            }
            System.arraycopy(miB, 0, trialMiB, 0, begun);
            System.arraycopy(cores, 0, trialCores, 0, begun);
            trialBegun = begun;
            trialWhole = whole;
            trialFull = full;
            int cpuMillis = room.cpuMillis();
            int memoryMiB = room.memoryMiB();
            int left = fitting;
            for (int i = 0; i < on.pods; i++) {
                int pod = future[i];
                if (gone[pod] >= number) {
                    continue;
                }
                if (on.cpuMillis[pod] <= cpuMillis && on.memoryMiB[pod] <= memoryMiB && put(room.shape(), on, pod)) {
                    cpuMillis -= on.cpuMillis[pod];
                    memoryMiB -= on.memoryMiB[pod];
                    sum += on.value[pod];
                    while (trialFull < trialBegun && trialMiB[trialFull] < leastMiB) {
                        trialFull++;
                    }
                    if ((trialWhole == 0 && trialFull == trialBegun) || cpuMillis < leastCpu) {
                        break;
                    }
                } else {
                    gone[pod] = number;
                    if (--left == 0) {
                        break;
                    }
                }
            }
        }
        return sum;
    }

    /** Places a pod on the fullest GPUs that hold it; returns false if there are too few. */
    private boolean put(FreeCapacity.Shape shape, Terms on, int pod) {
        int wanted = on.gpus[pod];
        if (on.whole[pod]) {
            if (trialWhole < wanted) {
                return false;
            }
            trialWhole -= wanted;
            return true;
        }
        int wantedMiB = on.miB[pod];
        int wantedCores = on.cores[pod];
        if (wanted > 1) {
            int holding = trialWhole;
            for (int gpu = 0; gpu < trialBegun; gpu++) {
                holding += trialMiB[gpu] >= wantedMiB && trialCores[gpu] >= wantedCores ? 1 : 0;
            }
            if (holding < wanted) {
                return false;
            }
        }
        // A GPU that is taken moves to an index that the loop has passed, so no GPU is taken twice.
        int gpu = trialFull;
        for (int taken = 0; taken < wanted; taken++) {
            while (gpu < trialBegun && (trialMiB[gpu] < wantedMiB || trialCores[gpu] < wantedCores)) {
                gpu++;
            }
            if (gpu < trialBegun) {
                sortIn(gpu, trialMiB[gpu] - wantedMiB, trialCores[gpu] - wantedCores);
            } else if (trialWhole > 0) {
                trialWhole--;
                sortIn(trialBegun++, shape.gpuMiB() - wantedMiB, shape.gpuCores() - wantedCores);
            } else {
                return false;
            }
            gpu++;
        }
        return true;
    }

    /** Restores the order after a GPU got fuller: moves it from its index to the same or a lower one. */
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
