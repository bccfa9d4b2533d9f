package io.aliquot.scheduler.placement;

import io.aliquot.scheduler.placement.Mix.Sample;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;

/*
 * A place is judged by what it costs those who come after. Who comes after is guessed from who came (Mix). Two costs, both
 * in thousandths of a GPU, are added up:
 *
 * Waste. A room's prospect is the GPU that will be allocated there if pods come at random: FUTURES sequences of pods are
 * put into it one by one, each on the fullest GPU that holds it, as long as CPU, host memory and GPU last, and what they
 * get is averaged. Waste is what the prospect shrinks by beyond what the pod itself takes. So gaps that nobody will fill, GPUs
 * that no CPU is left for, host memory that runs out first, a whole GPU broken for a small share are all seen in one
 * number, without a weight for each. The sequences are short, PODS_PER_GPU for each GPU of the node: with endless ones
 * anything would be filled by something in the end, and what is rare or large would seem to need no room.
 *
 * Scarcity. Waste knows one node; it doesn't see that the last nodes for 8 GPUs, or of a model that some pods insist on,
 * are being used up by pods that could go elsewhere. Each demand k of the mix, with its share s(k) of the GPU asked for, has
 * room for N(k) more in the whole cluster; a place that takes n(k) of them away costs Σ s(k) n(k) / N(k) of all GPUs: the
 * gradient of Σ s(k) log N(k), a proportionally fair division of the room. SCARCITY makes it the lesser voice, since for
 * common demands it says what waste says, only less exactly.
 *
 * The idea that a placement be judged by the change of what typical pods can use is that of Fragmentation Gradient
 * Descent (Weng et al., "Beware of Fragmentation", USENIX ATC 2023), which asks whether the next pod fits; a rollout of
 * a base policy, here: fill at random, as an estimate of what a state is worth is Bertsekas' and Castañon's ("Rollout
 * algorithms for stochastic scheduling problems", Journal of Heuristics 5, 1999); proportional fairness is Kelly's
 * (European Transactions on Telecommunications 8, 1997).
 *
 * Cost: a prospect takes FUTURES × PODS_PER_GPU × GPUs tries, about 20 us for 8 GPUs, and is kept until the mix is dealt
 * anew; so for each pod only nodes that changed since a pod like it came are judged anew. Scarcity is a sum over the
 * demands that a place takes room from, for each place that is considered.
 */
/** The placement policy that leaves the most room that pods can use. Not for several threads. */
public final class Fragmentation implements Judge<Fragmentation.Place> {
    static final int FUTURES = 32;
    private static final double PODS_PER_GPU = 7.5;
    private static final int MOST_GPUS = 16;
    private static final double SCARCITY = 0.03;
    /** What decides between places that cost the same: the fuller node. Less than anything that a place costs. */
    private static final double TIE = 1e-9;

    /** What a place costs by itself. */
    public static final class Place {
        private final double waste;
        private final int[] lost;
        private final int before;

        private Place(double waste, int[] lost, int before) {
            this.waste = waste;
            this.lost = lost;
            this.before = before;
        }

        /** GPU that will be free but of no use on this node, in thousandths; less than 0 where it makes some useful. */
        public double waste() {
            return waste;
        }
    }

    /** What is known of a room, under the present sample. */
    private static final class Known {
        final double prospect;
        /** Of the sample's demands: how many would fit. */
        final int[] slots;

        Known(double prospect, int[] slots) {
            this.prospect = prospect;
            this.slots = slots;
        }
    }

    private final Mix mix = new Mix(FUTURES, (int) (PODS_PER_GPU * MOST_GPUS));
    private final Map<Room, Integer> rooms = new HashMap<>();
    private final Map<Room.Shape, Integer> shapes = new LinkedHashMap<>();
    private final Map<Room, Known> known = new HashMap<>();
    private Sample sample = mix.sample();
    /** Of the sample's demands: share of GPU asked for, and how many more there is room for. */
    private double[] shares = new double[0];

    private long[] slots = new long[0];
    private double gpus;

    @Override
    public void arrives(Demand demand) {
        if (demand.gpus() > 0) {
            mix.see(demand);
        }
    }

    @Override
    public int edition() {
        if (sample != mix.sample()) {
            sample = mix.sample();
            known.clear();
            shares = new double[sample.demands.length];
            double all = 0;
            for (int i = 0; i < shares.length; i++) {
                shares[i] = sample.shares[i] * size(sample.demands[i]);
                all += shares[i];
            }
            for (int i = 0; i < shares.length; i++) {
                shares[i] /= all;
            }
            slots = new long[shares.length];
            rooms.forEach((room, count) -> count(room, count));
        }
        return sample.number;
    }

    /** What a demand takes of a GPU of this cluster, on average over its nodes. */
    private double size(Demand demand) {
        if (gpus == 0) {
            return (double) demand.gpus() * Room.WHOLE;
        }
        double sum = 0;
        for (Map.Entry<Room.Shape, Integer> shape : shapes.entrySet()) {
            int part = demand.whole() ? Room.WHOLE : shape.getKey().part(demand.gpuMiB(), demand.gpuCores());
            sum += (double) part * shape.getKey().gpus() * shape.getValue();
        }
        return demand.gpus() * sum / gpus;
    }

    @Override
    public void entered(Room room) {
        change(room, 1);
    }

    @Override
    public void left(Room room) {
        change(room, -1);
    }

    private void change(Room room, int by) {
        merge(rooms, room, by);
        merge(shapes, room.shape(), by);
        gpus += by * room.gpus();
        count(room, by);
    }

    private static <K> void merge(Map<K, Integer> counts, K key, int by) {
        counts.merge(key, by, (one, other) -> one + other == 0 ? null : one + other);
    }

    private void count(Room room, int by) {
        int[] own = known(room).slots;
        for (int i = 0; i < own.length; i++) {
            slots[i] += (long) by * own[i];
        }
    }

    @Override
    public Place weigh(Demand demand, Room before, Room after) {
        Known now = known(before);
        Known then = known(after);
        int[] lost = new int[now.slots.length];
        for (int i = 0; i < lost.length; i++) {
            lost[i] = now.slots[i] - then.slots[i];
        }
        return new Place(now.prospect - then.prospect - before.takenBy(demand), lost, before.free());
    }

    @Override
    public double score(Place place) {
        return -cost(place) - TIE * place.before;
    }

    /** What a place costs in room that gets scarce in the whole cluster, in thousandths of a GPU. */
    public double scarcity(Place place) {
        double sum = 0;
        for (int i = 0; i < place.lost.length; i++) {
            if (place.lost[i] != 0) {
                // A room that is kept for the very pod is not among those that there are for all.
                sum += shares[i] * place.lost[i] / Math.max(slots[i], place.lost[i]);
            }
        }
        return SCARCITY * sum * gpus * Room.WHOLE;
    }

    /** What a place costs, in thousandths of a GPU; the cheapest is the best. */
    public double cost(Place place) {
        return place.waste + scarcity(place);
    }

    private Known known(Room room) {
        return known.computeIfAbsent(room, any -> {
            int[] own = Arrays.stream(sample.demands).mapToInt(any::slots).toArray();
            return new Known(prospect(any, own), own);
        });
    }

    /** GPU that will be allocated in a room, in thousandths. */
    private double prospect(Room room, int[] own) {
        long sum = 0;
        var trial = new Trial(room);
        int pods = (int) (PODS_PER_GPU * Math.min(room.gpus(), MOST_GPUS));
        for (int[] future : sample.futures) {
            trial.restart();
            for (int i = 0; i < pods && trial.free > 0; i++) {
                if (own[future[i]] > 0) {
                    trial.offer(sample.demands[future[i]]);
                }
            }
            sum += trial.taken;
        }
        return (double) sum / FUTURES;
    }

    /** A room that pods are put into. */
    private static final class Trial {
        private final Room room;
        private final int[] miB;
        private final int[] cores;
        private int cpuMillis;
        private int memoryMiB;
        private int free;
        private int taken;

        Trial(Room room) {
            this.room = room;
            this.miB = new int[room.gpus()];
            this.cores = new int[room.gpus()];
        }

        void restart() {
            for (int gpu = 0; gpu < miB.length; gpu++) {
                miB[gpu] = room.gpuMiB(gpu);
                cores[gpu] = room.gpuCores(gpu);
            }
            cpuMillis = room.cpuMillis();
            memoryMiB = room.memoryMiB();
            free = room.free();
            taken = 0;
        }

        /** Of a model that it takes. */
        void offer(Demand demand) {
            if (demand.cpuMillis() > cpuMillis || demand.memoryMiB() > memoryMiB) {
                return;
            }
            int wantedMiB = demand.whole() ? room.shape().gpuMiB() : demand.gpuMiB();
            int wantedCores = demand.whole() ? room.shape().gpuCores() : demand.gpuCores();
            if (demand.gpus() == 1) {
                int best = fullest(wantedMiB, wantedCores);
                if (best < 0) {
                    return;
                }
                take(best, wantedMiB, wantedCores);
            } else {
                int wanted = demand.gpus();
                for (int gpu = 0; gpu < miB.length; gpu++) {
                    wanted -= miB[gpu] >= wantedMiB && cores[gpu] >= wantedCores ? 1 : 0;
                }
                if (wanted > 0) {
                    return;
                }
                wanted = demand.gpus();
                for (int gpu = 0; wanted > 0; gpu++) {
                    if (miB[gpu] >= wantedMiB && cores[gpu] >= wantedCores) {
                        take(gpu, wantedMiB, wantedCores);
                        wanted--;
                    }
                }
            }
            cpuMillis -= demand.cpuMillis();
            memoryMiB -= demand.memoryMiB();
            int part = demand.gpus() * room.shape().part(wantedMiB, wantedCores);
            taken += part;
            free -= part;
        }

        private void take(int gpu, int wantedMiB, int wantedCores) {
            miB[gpu] -= wantedMiB;
            cores[gpu] -= wantedCores;
        }

        private int fullest(int wantedMiB, int wantedCores) {
            int best = -1;
            for (int gpu = 0; gpu < miB.length; gpu++) {
                if (miB[gpu] >= wantedMiB
                        && cores[gpu] >= wantedCores
                        && (best < 0 || miB[gpu] < miB[best] || (miB[gpu] == miB[best] && cores[gpu] < cores[best]))) {
                    best = gpu;
                }
            }
            return best;
        }
    }
}
