package io.aliquot.scheduler.scoring.fragmentation;

import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.scoring.CacheSizes;
import io.aliquot.scheduler.scoring.PriceSnapshot;
import io.aliquot.scheduler.scoring.ScoreTerm;
import io.aliquot.scheduler.scoring.ScoringPolicy;
import io.aliquot.scheduler.scoring.fragmentation.CapacityForecast.Evaluated;
import io.aliquot.scheduler.scoring.fragmentation.WorkloadSampler.Sample;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/*
 * The score of a candidate placement is the negative of its cost to later pods. Later pods are forecast from earlier
 * ones (WorkloadSampler). The cost is the sum of four terms, each in thousandths of a GPU:
 *
 * Waste. The capacity forecast of a node is the GPU that will be allocated there if pods arrive at random. FUTURES
 * sequences of pods are placed on the node one by one, each pod on the fullest GPU that holds it, while CPU, host
 * memory and GPU last. The forecast is the mean of what the sequences allocate. Waste is the decrease of the forecast
 * beyond what the pod itself takes. This one number covers gaps that no pod fills, GPUs for which no CPU is left, host
 * memory that runs out first, and a whole GPU split for a small share. None of these needs a weight of its own. The
 * sequences are short, PODS_PER_GPU for each GPU of the node. With endless sequences some pod would fill any gap in the
 * end, and rare or large demands would seem to need no free capacity.
 *
 * Scarcity. Waste covers one node only. It does not show that pods that could go elsewhere use up the last nodes with 8
 * free GPUs, or the last nodes of a model that some pods require. Each demand k of the workload sample has the share
 * s(k) of the GPU requested, and N(k) more pods of it fit in the whole cluster. A placement that takes n(k) of these
 * slots costs Σ s(k) n(k) / N(k) of all GPUs. This is the gradient of Σ s(k) log N(k), a proportionally fair division
 * of the free capacity. The weight SCARCITY is small, because for common demands scarcity measures the same as waste,
 * less exactly.
 *
 * Shortage. Some demands are confined to certain GPU models. Other demands could go elsewhere, and what they use of
 * these models is lost to the confined demands. Whether that matters depends on the pods still to come. The cluster is
 * full when the pods have requested its free capacity for the sample as a whole. Until then the demands confined to a
 * set of models request a random amount of GPU, whose mean and variance follow from the sample. If that amount exceeds
 * their free capacity, each GPU that other demands took there is a pod refused. If it does not, each GPU kept free
 * there is a GPU that other demands lack in the end. So a placement on these models costs, for each GPU that it takes
 * from the confined demands, the probability of the first case less that of the second, if this is positive. The
 * confined demands themselves pay nothing, because the capacity is for them. Where sets overlap, the highest cost
 * counts. Shortage is computed as a part of scarcity.
 *
 * Idleness. Forecasts, scarcity and shortage describe the time when the cluster is full. The emptier the cluster, the
 * later that time. Where pods end as fast as they arrive, the cluster never fills, and only the next pod counts. The
 * idleness of a placement is the increase of the free GPU that the next pod of the sample cannot use, which is
 * fragmentation as defined by Weng et al. below. Its weight is IDLENESS, times the GPU released per GPU allocated
 * recently (at most 1), times the fourth power of the free fraction of the cluster's GPU. So idleness has no effect
 * where no pod ends or where the cluster is full, and it dominates in a cluster that stays nearly empty.
 *
 * Sources. Scoring a placement by the change in what typical pods can use is the idea of Fragmentation Gradient Descent
 * (Weng et al., "Beware of Fragmentation", USENIX ATC 2023), which tests whether the next pod fits. Estimating the
 * value of a state by a rollout of a base policy, here random filling, is from Bertsekas and Castañon ("Rollout
 * algorithms for stochastic scheduling problems", Journal of Heuristics 5, 1999). Proportional fairness is from Kelly
 * (European Transactions on Telecommunications 8, 1997). The price of a shortage is the newsvendor's marginal (Arrow,
 * Harris and Marschak, Econometrica 19, 1951).
 *
 * Computing cost. CapacityForecast caches its results while the workload sample stays in effect. So for each pod only
 * the nodes that changed since the last pod with the same demand are evaluated again. Scarcity is a sum over the
 * demands that a placement takes slots from. When prices have moved, it is computed again only for the placements that
 * may be the best (PriceSnapshot).
 */
/** The scoring policy that leaves the most free capacity that later pods can use. Not thread-safe. */
public final class Fragmentation implements ScoringPolicy<Fragmentation.Place> {
    static final int FUTURES = 32;
    private static final double PODS_PER_GPU = 7.5;
    private static final int MOST_GPUS = 16;
    private static final double SCARCITY = 0.03;
    /** Weight of the tie-break, which prefers the fuller node at equal cost; smaller than any cost. */
    private static final double TIE = 1e-9;

    /** Smaller changes of a shortage are ignored: a price that falls to 0 makes every node be evaluated again. */
    private static final double SHORTAGE_STEP = 0.1;
    /** Half of 1.702, the scale at which a logistic distribution comes closest to a normal one. */
    private static final double NORMAL = 0.851;

    private static final double IDLENESS = 20;
    /** Idleness is rounded to this number of steps per thousandth of a GPU. */
    private static final double IDLE_STEPS = 1e9;
    /** In a cluster of n nodes, prices are computed again after n / NODES_PER_CHANGE changes of nodes. */
    private static final int NODES_PER_CHANGE = 256;

    /** How much one call may count for a new sample, in steps of {@link Upcoming#proceed}: a millisecond or two. */
    private static final int COUNTING = 1 << 15;
    /** Steps for one free capacity, besides one step for each demand of the sample. */
    private static final int COUNTING_ROOM = 32;

    private static final double FADING = Math.pow(2, -1 / 4096.0);
    /** Cached free capacities, and placements, with a large heap. */
    private static final int MOST_KEPT = 65_536;
    /** Bytes of a cached free capacity or placement, besides those for each demand. */
    private static final int BYTES = 256;

    private static final int BYTES_PER_DEMAND = 4;
    /** Bit offset of the demand in an entry of {@link Place#losers}; the lower bits hold the amount lost. */
    private static final int DEMAND = 21;

    private static final int LOST = (1 << DEMAND) - 1;

    /** The cost of a placement on its own. Placements with the same cost are one object, so that it is priced once. */
    public static final class Place {
        private double waste;
        private double idle;
        /**
         * What other demands lose. First the demands of the sample that lose slots: the demand's index, and in the
         * lower bits the number of slots. Then the sets of confined demands, numbered from the number of demands on,
         * with thousandths of a GPU.
         */
        private int[] losers;
        /** How many entries of {@code losers} are in use. */
        private int count;

        private int hash;

        /** The last result of {@link #scarcity}, and the price snapshot that it was computed at. */
        private double scarcity;

        private @Nullable PriceSnapshot pricedIn;

        private Place(int[] losers) {
            this.losers = losers;
        }

        /** Empties this buffer and makes it large enough for the given number of entries. */
        private void draw(int demands) {
            losers = losers.length < demands ? new int[demands] : losers;
            count = 0;
        }

        private void lose(int demand, int pods) {
            losers[count++] = demand << DEMAND | Math.min(LOST, pods);
        }

        private void cost(double waste, double idle) {
            this.waste = waste;
            this.idle = idle;
            this.hash = Double.hashCode(waste) * 31 + Double.hashCode(idle);
            for (int i = 0; i < count; i++) {
                hash = hash * 31 + losers[i];
            }
        }

        private Place kept() {
            var kept = new Place(Arrays.copyOf(losers, count));
            kept.count = count;
            kept.cost(waste, idle);
            return kept;
        }

        @Override
        public boolean equals(@Nullable Object other) {
            return other instanceof Place place
                    && hash == place.hash
                    && waste == place.waste
                    && idle == place.idle
                    && Arrays.equals(losers, 0, count, place.losers, 0, place.count);
        }

        @Override
        public int hashCode() {
            return hash;
        }

        /** Free GPU that becomes unusable on this node, in thousandths of a GPU; negative if some becomes usable. */
        public double waste() {
            return waste;
        }
    }

    /** The distinct costs for the current sample. */
    private final Map<Place, Place> places = new HashMap<>();
    /** Reusable buffer for the placement under evaluation; most costs are already in {@code places}. */
    private final Place draft = new Place(new int[0]);

    private final WorkloadSampler mix = new WorkloadSampler(FUTURES, (int) (PODS_PER_GPU * MOST_GPUS));
    private final Map<FreeCapacity, Integer> rooms = new HashMap<>();
    private final Map<FreeCapacity.Shape, Integer> shapes = new LinkedHashMap<>();
    private CapacityForecast outlook = outlook(mix.sample());
    /** The forecast that replaces {@code outlook} when it is complete; null most of the time. */
    private @Nullable Upcoming upcoming;

    /** For each demand of the sample: its share of the GPU requested, and how many more pods fit in the cluster. */
    private double[] shares = new double[0];

    private long[] slots = new long[0];
    /** At the last price snapshot: prices (shares / slots, then one per confined set), slots, and number of GPUs. */
    private double[] prices = new double[0];

    private long[] offered = new long[0];
    private double priced;
    /** GPU that a pod of each demand takes, see {@link #size}. */
    private double[] sizes = new double[0];
    /** The confined sets of the current sample. */
    private List<Confined> confined = List.of();
    /** The shortage of each confined set when it last changed by more than {@link #SHORTAGE_STEP}. */
    private double[] shortages = new double[0];

    private PriceSnapshot market = PriceSnapshot.CONSTANT;
    private int nodes;
    private int changes;
    /** GPUs of the whole cluster, and what is free of them in thousandths of a GPU. */
    private double gpus;

    private long free;
    /** GPU allocated and released recently, in thousandths of a GPU; older amounts count less. */
    private double taken;

    private double givenBack;
    /** The node that was removed last. A node that changed is removed and then added again at once. */
    private Optional<FreeCapacity> changing = Optional.empty();

    @Override
    public void observe(DemandVector demand) {
        taken *= FADING;
        givenBack *= FADING;
        if (demand.gpus() > 0) {
            mix.see(demand);
        }
    }

    /*
     * A new sample takes effect when the slots for its demands are counted over all free capacities. Each call counts
     * some of them, so that no call takes long. Free capacities that appear or disappear meanwhile are counted when
     * they do.
     */
    @Override
    public int modelVersion() {
        Upcoming next = upcoming;
        if (next == null) {
            Sample sample = mix.sample();
            if (sample == outlook.sample()) {
                return sample.number;
            }
            next = new Upcoming(sample, rooms);
            upcoming = next;
        }
        if (next.proceed()) {
            upcoming = null;
            begin(next);
        }
        return outlook.sample().number;
    }

    private void begin(Upcoming next) {
        Sample sample = next.outlook.sample();
        outlook = next.outlook;
        slots = next.slots;
        places.clear();
        shares = new double[sample.demands.length];
        sizes = new double[shares.length];
        double all = 0;
        for (int i = 0; i < shares.length; i++) {
            sizes[i] = size(sample.demands[i]);
            shares[i] = sample.shares[i] * sizes[i];
            all += shares[i];
        }
        for (int i = 0; i < shares.length; i++) {
            shares[i] /= all;
        }
        confined = confined(sample.demands);
        shortages = new double[confined.size()];
        look();
    }

    /** The forecast of a new sample, while its slots are being counted. */
    private static final class Upcoming {
        private final CapacityForecast outlook;
        private final long[] slots;
        /**
         * The distinct free capacities and their counts at the start; those from index {@code next} on are not counted
         * yet.
         */
        private final List<Map.Entry<FreeCapacity, Integer>> rooms = new ArrayList<>();

        private int next;

        Upcoming(Sample sample, Map<FreeCapacity, Integer> rooms) {
            this.outlook = outlook(sample);
            this.slots = new long[sample.demands.length];
            rooms.forEach((room, count) -> this.rooms.add(Map.entry(room, count)));
        }

        /** Counts some free capacities; returns whether all are counted. */
        boolean proceed() {
            int some = Math.max(1, COUNTING / (COUNTING_ROOM + slots.length));
            int end = Math.min(rooms.size(), next + some);
            for (; next < end; next++) {
                count(outlook, slots, rooms.get(next).getKey(), rooms.get(next).getValue());
            }
            return next == rooms.size();
        }
    }

    private static CapacityForecast outlook(Sample sample) {
        return new CapacityForecast(sample, PODS_PER_GPU, MOST_GPUS, mostKept(sample));
    }

    private static int mostKept(Sample sample) {
        return CacheSizes.limit(MOST_KEPT, BYTES + BYTES_PER_DEMAND * sample.demands.length);
    }

    /** GPU that a demand takes, in thousandths of a GPU; the mean over the cluster's GPUs. */
    private double size(DemandVector demand) {
        if (gpus == 0) {
            return (double) demand.gpus() * FreeCapacity.WHOLE;
        }
        double sum = 0;
        for (Map.Entry<FreeCapacity.Shape, Integer> shape : shapes.entrySet()) {
            int part = demand.whole() ? FreeCapacity.WHOLE : shape.getKey().part(demand.gpuMiB(), demand.gpuCores());
            sum += (double) part * shape.getKey().gpus() * shape.getValue();
        }
        return demand.gpus() * sum / gpus;
    }

    @Override
    public void nodeAdded(FreeCapacity room) {
        int more = changing.filter(before -> before.shape().equals(room.shape()))
                .map(before -> room.free() - before.free())
                .orElse(0);
        changing = Optional.empty();
        taken += Math.max(0, -more);
        givenBack += Math.max(0, more);
        change(room, 1);
    }

    @Override
    public void nodeRemoved(FreeCapacity room) {
        changing = Optional.of(room);
        change(room, -1);
    }

    private void change(FreeCapacity room, int by) {
        merge(rooms, room, by);
        merge(shapes, room.shape(), by);
        gpus += by * room.gpus();
        free += (long) by * room.free();
        nodes += by;
        changes++;
        count(outlook, slots, room, by);
        if (upcoming != null) {
            count(upcoming.outlook, upcoming.slots, room, by);
        }
    }

    private static <K> void merge(Map<K, Integer> counts, K key, int by) {
        counts.merge(key, by, (one, other) -> one + other == 0 ? null : one + other);
    }

    private static void count(CapacityForecast outlook, long[] slots, FreeCapacity room, int by) {
        int[] own = outlook.of(room).slots;
        for (int i = 0; i < own.length; i++) {
            slots[i] += (long) by * own[i];
        }
    }

    @Override
    public Place evaluate(DemandVector demand, FreeCapacity before, FreeCapacity after) {
        Evaluated now = outlook.of(before);
        Evaluated then = outlook.of(after);
        double waste = outlook.prospect(before, now) - outlook.prospect(after, then) - before.takenBy(demand);
        draft.draw(shares.length + confined.size());
        for (int i = 0; i < shares.length; i++) {
            if (now.slots[i] > then.slots[i]) {
                draft.lose(i, now.slots[i] - then.slots[i]);
            }
        }
        for (int i = 0; i < confined.size(); i++) {
            Confined set = confined.get(i);
            if (!set.includes(demand)) {
                int lost = (int) Math.rint(room(set, now.slots) - room(set, then.slots));
                if (lost > 0) {
                    draft.lose(shares.length + i, lost);
                }
            }
        }
        // Rounded to the precision of the sums, so that equal amounts compare as equal.
        draft.cost(waste, Math.rint((then.idle - now.idle) * IDLE_STEPS) / IDLE_STEPS + 0.0);
        Place known = places.get(draft);
        if (known == null) {
            if (places.size() >= mostKept(outlook.sample())) {
                places.clear();
            }
            known = draft.kept();
            places.put(known, known);
        }
        return known;
    }

    @Override
    public double score(Place place) {
        return -cost(place);
    }

    @Override
    public boolean dominates(Place place, Place other) {
        return place.waste <= other.waste && place.idle <= other.idle && losesNoMore(place.losers, other.losers);
    }

    private static boolean losesNoMore(int[] losers, int[] others) {
        int other = 0;
        for (int loser : losers) {
            while (other < others.length && others[other] >>> DEMAND < loser >>> DEMAND) {
                other++;
            }
            // The other placement has to lose the same demand, and at least as much of it.
            if (other == others.length || others[other] >>> DEMAND != loser >>> DEMAND || others[other] < loser) {
                return false;
            }
        }
        return true;
    }

    @Override
    public double tieBreak(FreeCapacity before) {
        return -TIE * before.free();
    }

    @Override
    public List<ScoreTerm> terms(Place place) {
        return List.of(
                new ScoreTerm("waste", place.waste),
                new ScoreTerm("scarcity", scarcity(place)),
                new ScoreTerm("idleness", idleness(place)));
    }

    /** The cost of a placement in capacity that is scarce in the whole cluster, in thousandths of a GPU. */
    public double scarcity(Place place) {
        PriceSnapshot now = prices();
        if (place.pricedIn != now) {
            place.scarcity = SCARCITY * lost(place) * priced * FreeCapacity.WHOLE;
            place.pricedIn = now;
        }
        return place.scarcity;
    }

    @Override
    public double upperBound(Place place) {
        PriceSnapshot now = prices();
        return place.pricedIn == null
                ? Double.POSITIVE_INFINITY
                : now.upperBound(
                        -(place.waste + place.scarcity + now.weight() * place.idle),
                        place.pricedIn,
                        place.scarcity,
                        0,
                        0);
    }

    @Override
    public double priceCost(Place place) {
        return place.scarcity;
    }

    @Override
    public double idleCost(Place place) {
        return place.idle;
    }

    /** The lost fraction of the cluster's slots, by the demands' shares, plus the highest price of a shortage. */
    private double lost(Place place) {
        double sum = 0;
        double shortage = 0;
        for (int i = 0; i < place.count; i++) {
            int loser = place.losers[i];
            int demand = loser >>> DEMAND;
            int lost = loser & LOST;
            if (demand >= shares.length) {
                shortage = Math.max(shortage, prices[demand] * lost);
            } else {
                // Capacity reserved for this pod is not in the cluster's slots, so more slots may be lost than exist.
                sum += lost <= offered[demand] ? prices[demand] * lost : shares[demand];
            }
        }
        return sum + shortage;
    }

    /** The cost of a placement if the cluster stays as it is, in thousandths of a GPU; negative if it is a benefit. */
    public double idleness(Place place) {
        return prices().weight() * place.idle;
    }

    @Override
    public PriceSnapshot prices() {
        if (changes > nodes / NODES_PER_CHANGE) {
            look();
        }
        return market;
    }

    /** Demands that accept only some of the cluster's GPU models. */
    private static final class Confined {
        /** Bit set of these models. */
        private final long models;
        /** Bit set of all models in the cluster. */
        private final long present;
        /** Indexes of the demands in the sample. */
        private final int[] demands;
        /** Their share of the GPU requested. */
        private final double share;

        Confined(long models, long present, DemandVector[] sample, double[] shares) {
            this.models = models;
            this.present = present;
            this.demands = IntStream.range(0, sample.length)
                    .filter(i -> includes(sample[i]))
                    .toArray();
            this.share = IntStream.of(demands).mapToDouble(i -> shares[i]).sum();
        }

        boolean includes(DemandVector demand) {
            return (demand.models() & present & ~models) == 0;
        }
    }

    /**
     * One set for each combination of models that a demand accepts; it includes demands that accept only some of these.
     */
    private List<Confined> confined(DemandVector[] demands) {
        long present = 0;
        for (FreeCapacity.Shape shape : shapes.keySet()) {
            present |= shape.gpus() > 0 ? 1L << shape.model() : 0;
        }
        var combinations = new LinkedHashSet<Long>();
        for (DemandVector demand : demands) {
            combinations.add(demand.models() & present);
        }
        combinations.remove(present);
        combinations.remove(0L);
        List<Confined> sets = new ArrayList<>();
        for (long models : combinations) {
            sets.add(new Confined(models, present, demands, shares));
        }
        return sets;
    }

    /** Free capacity for the demands of a set, weighted by their shares, in thousandths of a GPU. */
    private double room(Confined set, int[] slots) {
        double room = 0;
        for (int demand : set.demands) {
            room += shares[demand] * slots[demand] * sizes[demand];
        }
        return room / set.share;
    }

    /**
     * The probability that a set's demands exceed their free capacity before the cluster is full, less the
     * probability that they do not; at least 0.
     */
    private double shortage(Confined set) {
        double[] pods = outlook.sample().shares;
        double roomForAll = 0;
        double ofEach = 0;
        for (int i = 0; i < pods.length; i++) {
            roomForAll += shares[i] * slots[i] * sizes[i];
            ofEach += pods[i] * sizes[i];
        }
        double coming = roomForAll / ofEach;
        double room = 0;
        double mean = 0;
        double variance = 0;
        for (int i : set.demands) {
            room += shares[i] * slots[i] * sizes[i] / set.share;
            mean += coming * pods[i] * sizes[i];
            variance += coming * pods[i] * sizes[i] * sizes[i];
        }
        // Twice a normal distribution's probability, less 1. A logistic one differs by at most 0.01 from it.
        return variance == 0 ? 0 : Math.max(0, Math.tanh(NORMAL * (mean - room) / Math.sqrt(variance)));
    }

    private void look() {
        double[] before = prices;
        double then = priced;
        offered = slots.clone();
        priced = gpus;
        prices = new double[slots.length + confined.size()];
        for (int i = 0; i < slots.length; i++) {
            prices[i] = slots[i] == 0 ? 0 : shares[i] / slots[i];
        }
        for (int i = 0; i < confined.size() && gpus > 0; i++) {
            double now = shortage(confined.get(i));
            shortages[i] = Math.abs(now - shortages[i]) > SHORTAGE_STEP ? now : shortages[i];
            // Divided by the factors that scarcity is multiplied by, which do not apply to a shortage.
            prices[slots.length + i] = shortages[i] / (SCARCITY * gpus * FreeCapacity.WHOLE);
        }
        double least = 1;
        for (int i = 0; i < Math.min(before.length, prices.length); i++) {
            least = before[i] * then > 0 ? Math.min(least, prices[i] * priced / (before[i] * then)) : least;
        }
        double turnover = taken == 0 ? 0 : Math.min(1, givenBack / taken);
        double empty = gpus == 0 ? 0 : free / (gpus * FreeCapacity.WHOLE);
        market = market.next(least, IDLENESS * turnover * empty * empty * empty * empty);
        changes = 0;
    }

    /** The cost of a placement, in thousandths of a GPU; the lowest is the best. */
    public double cost(Place place) {
        return place.waste + scarcity(place) + idleness(place);
    }
}
