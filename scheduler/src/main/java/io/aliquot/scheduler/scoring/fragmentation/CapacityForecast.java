package io.aliquot.scheduler.scoring.fragmentation;

import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.scoring.fragmentation.WorkloadSampler.Sample;
import java.util.HashMap;
import java.util.Map;

/*
 * Rooms come back: before and after a pod, on nodes that are alike, for one demand and the next. So what is said of a room is
 * kept, in two generations: who is asked for moves to the younger, and when that has half of what may be kept, the older
 * is forgotten. What is said of a room depends on the sample and the room alone, so forgetting changes nothing but time.
 * The prospect, which is nearly all of the cost, is worked out when it is first asked for: of most rooms that there are only
 * the slots are ever asked for.
 *
 * A judgement costs a few microseconds; a replay makes 20 for each pod. Hence arrays rather than records, a room's whole GPUs as a
 * count, those begun sorted with the fullest first, which is the first that holds is the one to take, and an end to a future
 * as soon as there is not enough CPU or GPU for the most modest demand. The longest are the futures of a room that holds all
 * that comes; most such rooms can be told from a few sums (Crowd), and nothing is put into them.
 */
/** What a sample of demands says of rooms. Not for several threads. */
final class CapacityForecast {
    /** What is known of a room. */
    static final class Evaluated {
        /** {@link CapacityForecast#prospect}; not a number before it was asked for. */
        private double prospect = Double.NaN;
        /** Free GPU that the next pod can't use, by the shares of the sample's demands, in thousandths. */
        final double idle;
        /** Of the sample's demands: how many would fit, as {@link FreeCapacity#slots}. */
        final int[] slots;

        private Evaluated(double idle, int[] slots) {
            this.idle = idle;
            this.slots = slots;
        }
    }

    /** The sample's demands on nodes of one shape, each number by its demand. */
    private static final class Terms {
        /** How many of a future's pods come to such a node. */
        final int pods;

        final boolean[] possible;
        final boolean[] whole;
        final int[] cpuMillis;
        final int[] memoryMiB;
        final int[] gpus;
        /** Of each GPU. */
        final int[] miB;

        final int[] cores;
        /** Of the GPUs that it takes, in thousandths. */
        final long[] value;
        /** How often it fits on an unused GPU. */
        final int[] perGpu;

        /** Of each future. */
        final Crowd[] crowds;
        /** No smaller than any of these. */
        final Crowd largest;
        /** How many pods of each demand come in all futures. */
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
     * A share is turned away only where each GPU lacks memory or cores for it. One that lacks memory has given away more than
     * all but the largest share of it, and all of them together no more than is asked for; so those GPUs' parts (memory but
     * for the largest share, by the memory asked for) add up to less than 1. Likewise those that lack cores. With parts of 2
     * in all, each the lesser of a GPU's two, no demand is refused. Where a pod wants several GPUs, all but one less than
     * that may be the ones that lack.
     */
    /** What pods that are possible on a shape want, all together. */
    private static final class Crowd {
        private long cpuMillis;
        private long memoryMiB;
        private int wholeGpus;
        private long miB;
        private long cores;
        /** Of one pod that wants shares. */
        private int mostMiB;

        private int mostCores;
        private int mostGpus;

        /** Those of a future. */
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

        /** Of everything as much as whichever wants most of it. */
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

        /** A GPU's part, as above; where nothing is asked for it can't be lacking. */
        double part(int leftMiB, int leftCores) {
            double memory = miB == 0 ? 1 : (double) (leftMiB - mostMiB) / miB;
            double compute = cores == 0 ? 1 : (double) (leftCores - mostCores) / cores;
            return Math.max(0, Math.min(memory, compute));
        }

        /** The parts that are enough. */
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

    /** The room that is being judged: its GPUs that are begun, the fullest first, and how many are not. */
    private int[] miB = new int[0];

    private int[] cores = new int[0];
    private int[] parts = new int[0];
    private int begun;
    private int whole;

    /** The same while pods are put into it. */
    private int[] trialMiB = new int[0];

    private int[] trialCores = new int[0];
    private int trialBegun;
    private int trialWhole;
    /** Number of the fullest GPUs that fit no further demand. */
    private int trialFull;
    /** Of each demand: the number of the last future in which it was seen not to fit any more. */
    private final int[] gone;

    /**
     * An outlook.
     *
     * @param podsPerGpu how many of a future's pods come to a node, for each of its GPUs
     * @param mostGpus that are counted so
     * @param mostKept rooms that are remembered
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

    /** GPU that will be allocated in a room if the sample's futures come, in thousandths; their mean. */
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

    /** Whether a crowd of demands that fit now would all be placed. False negatives are possible. */
    private boolean holds(FreeCapacity room, Crowd crowd) {
        // So many GPUs can be broken for shares.
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

    /** What all get that fit now. */
    private static long all(Terms on, int[] slots) {
        long sum = 0;
        for (int i = 0; i < slots.length; i++) {
            sum += slots[i] > 0 ? on.count[i] * on.value[i] : 0;
        }
        return sum;
    }

    /** The same of one future. */
    private static long all(int[] future, Terms on, int[] slots) {
        long sum = 0;
        for (int i = 0; i < on.pods; i++) {
            sum += slots[future[i]] > 0 ? on.value[future[i]] : 0;
        }
        return sum;
    }

    /*
     * A demand that doesn't fit will not fit later in the same future either, and isn't looked at again; where none is left
     * that might, the future is over.
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

    /** Puts a pod on the fullest GPUs that hold it; false if there are not enough. */
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
        // The fullest move to the front of those not looked at yet, so that none is taken twice.
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

    /** Puts a GPU that has got fuller where it belongs, before or at its place. */
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
