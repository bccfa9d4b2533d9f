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
 * A place is judged by what it costs those who come after. Who comes after is guessed from who came (Mix). Four costs, all
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
 * Shortage. Some demands take certain GPU models only; what others use of those is lost to them, while the others could have gone
 * elsewhere. Whether that matters depends on what is still to come. Until the whole cluster is full, which is when the room for
 * the mix as a whole has been asked for, the demands confined to a set of models ask for a random amount, whose mean and variance
 * follow from the mix. If it exceeds their room, each GPU that others took there is a pod refused; if it does not, each
 * GPU kept there is a GPU that others miss in the end. So a place on such models costs others, for each GPU that it takes
 * from the confined demands, the probability of the first less that of the second, as long as this is positive. The confined
 * demands themselves pay nothing: the room is for them. Where sets overlap, the dearest counts.
 *
 * Idleness. Prospects, scarcity and shortage look at the time when the cluster is full. The emptier it is, the further away that is,
 * and where pods end as fast as they come it never arrives; then it counts what the next pod can use. A place's idleness is
 * by how much it makes the free GPU grow that the next pod of the mix can't use, which is fragmentation as the paper below
 * has it. Its weight is IDLENESS, times the GPU given back for each GPU taken lately, times the fourth power of the part
 * of the cluster's GPU that is free. So it has no say where nothing ends, rules in a cluster that stays nearly empty, and is
 * silent in one that is full.
 *
 * The idea that a placement be judged by the change of what typical pods can use is that of Fragmentation Gradient
 * Descent (Weng et al., "Beware of Fragmentation", USENIX ATC 2023), which asks whether the next pod fits; a rollout of
 * a base policy, here: fill at random, as an estimate of what a state is worth is Bertsekas' and Castañon's ("Rollout
 * algorithms for stochastic scheduling problems", Journal of Heuristics 5, 1999); proportional fairness is Kelly's
 * (European Transactions on Telecommunications 8, 1997); the price of a shortage is the newsvendor's marginal (Arrow, Harris
 * and Marschak, Econometrica 19, 1951).
 *
 * Cost: what is said of a room (Outlook) is kept as long as the sample is; so for each pod only nodes that changed since a
 * pod like it came are judged anew. Scarcity is a sum over the demands that a place takes room from; when prices have moved it
 * is added up again for those places only that might be the best (Market).
 */
/** The placement policy that leaves the most room that pods can use. Not for several threads. */
public final class Fragmentation implements ScoringPolicy<Fragmentation.Place> {
    static final int FUTURES = 32;
    private static final double PODS_PER_GPU = 7.5;
    private static final int MOST_GPUS = 16;
    private static final double SCARCITY = 0.03;
    /** What decides between places that cost the same: the fuller node. Less than anything that a place costs. */
    private static final double TIE = 1e-9;

    /** Smaller changes of a shortage are not worth a new look at all nodes, which is what the fall of a price to 0 takes. */
    private static final double SHORTAGE_STEP = 0.1;
    /** By which a logistic distribution's deviations are multiplied to come closest to a normal one's, halved. */
    private static final double NORMAL = 0.851;

    private static final double IDLENESS = 20;
    /** In a thousandth of a GPU. */
    private static final double IDLE_STEPS = 1e9;
    /** In a cluster of n nodes the market is looked at again after n / so many changes of nodes. */
    private static final int NODES_PER_CHANGE = 256;

    /** What one call may spend on counting rooms for a new sample: a millisecond or two. */
    private static final int COUNTING = 1 << 15;
    /** What a room costs of that, besides one for each demand of the sample. */
    private static final int COUNTING_ROOM = 32;

    private static final double FADING = Math.pow(2, -1 / 4096.0);
    /** Rooms that are remembered, and places, in a large heap. */
    private static final int MOST_KEPT = 65_536;
    /** Of a room or place, and of that for each demand. */
    private static final int BYTES = 256;

    private static final int BYTES_PER_DEMAND = 4;
    /** How far a loser's demand is shifted, which leaves room for as many as are lost. */
    private static final int DEMAND = 21;

    private static final int LOST = (1 << DEMAND) - 1;

    /** What a place costs by itself. Places that cost the same are one object, whose price is worked out once for all. */
    public static final class Place {
        private double waste;
        private double idle;
        /**
         * Demands of the sample that there is less room for then, and in the lower bits for how many pods less; after them
         * sets of confined demands, numbered from the number of demands on, and how many thousandths of a GPU less.
         */
        private int[] losers;
        /** The others are void. */
        private int count;

        private int hash;

        /** What {@link #scarcity} last said, and in which market. */
        private double scarcity;

        private @Nullable PriceSnapshot pricedIn;

        private Place(int[] losers) {
            this.losers = losers;
        }

        /** Written into from now on, if it is large enough. */
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

        /** GPU that will be free but of no use on this node, in thousandths; less than 0 where it makes some useful. */
        public double waste() {
            return waste;
        }
    }

    /** Of the present sample. */
    private final Map<Place, Place> places = new HashMap<>();
    /** The one that is being weighed: most cost what another has cost before. */
    private final Place draft = new Place(new int[0]);

    private final WorkloadSampler mix = new WorkloadSampler(FUTURES, (int) (PODS_PER_GPU * MOST_GPUS));
    private final Map<FreeCapacity, Integer> rooms = new HashMap<>();
    private final Map<FreeCapacity.Shape, Integer> shapes = new LinkedHashMap<>();
    private CapacityForecast outlook = outlook(mix.sample());
    /** What takes the place of the former; none most of the time. */
    private @Nullable Upcoming upcoming;

    /** Of the sample's demands: share of GPU asked for, and how many more there is room for. */
    private double[] shares = new double[0];

    private long[] slots = new long[0];
    /** The market: the two lines before, one by the other and the latter, and GPUs, as they were then. */
    private double[] prices = new double[0];

    private long[] offered = new long[0];
    private double priced;
    /** What each demand takes of a GPU, see {@link #size}. */
    private double[] sizes = new double[0];
    /** Of the sample. */
    private List<Confined> confined = List.of();
    /** Of each of these, as it was when it last changed by {@link #SHORTAGE_STEP}. */
    private double[] shortages = new double[0];

    private PriceSnapshot market = PriceSnapshot.CONSTANT;
    private int nodes;
    private int changes;
    /** Of the whole cluster, and what of it is free, in thousandths. */
    private double gpus;

    private long free;
    /** Lately, in thousandths of a GPU; what is longer ago counts less. */
    private double taken;

    private double givenBack;
    /** The last node that was taken away: it comes back at once if it has changed. */
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
     * A new sample takes effect once the room for its demands is known, which takes a look at each room that there is: some at
     * each call, so that none takes long. Rooms that come or go meanwhile are counted as they do.
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

    /** A sample that takes effect once all rooms are counted. */
    private static final class Upcoming {
        private final CapacityForecast outlook;
        private final long[] slots;
        /** Rooms and their numbers when this began, from {@code next} on to be counted. */
        private final List<Map.Entry<FreeCapacity, Integer>> rooms = new ArrayList<>();

        private int next;

        Upcoming(Sample sample, Map<FreeCapacity, Integer> rooms) {
            this.outlook = outlook(sample);
            this.slots = new long[sample.demands.length];
            rooms.forEach((room, count) -> this.rooms.add(Map.entry(room, count)));
        }

        /** Counts some rooms; whether all are counted then. */
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

    /** What a demand takes of a GPU of this cluster, on average over its nodes. */
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
        // As exact as the sums are, so that equal ones are equal.
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
            // Of the same demand no fewer.
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

    /** What a place costs in room that gets scarce in the whole cluster, in thousandths of a GPU. */
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

    /** Of all the room that there is for any demand, and what others are short of. */
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
                // A room that is kept for the very pod is not among those that there are for all.
                sum += lost <= offered[demand] ? prices[demand] * lost : shares[demand];
            }
        }
        return sum + shortage;
    }

    /** What a place costs if the cluster stays as it is, in thousandths of a GPU; less than 0 where it does good. */
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

    /** Demands that take none but some of the cluster's GPU models. */
    private static final class Confined {
        /** Bits of those. */
        private final long models;
        /** Bits of all that the cluster has. */
        private final long present;
        /** By their place in the sample. */
        private final int[] demands;
        /** Of the GPU asked for. */
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

    /** One set for each combination of models that a demand takes, with those that take fewer of these. */
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

    /** Room for the demands of a set, by their shares, in thousandths of a GPU. */
    private double room(Confined set, int[] slots) {
        double room = 0;
        for (int demand : set.demands) {
            room += shares[demand] * slots[demand] * sizes[demand];
        }
        return room / set.share;
    }

    /** How much likelier a set's demands exceed their room before the cluster is full than not; 0 where they are not. */
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
        // Twice a normal distribution's probability, less 1; a logistic one is within 0.01 of it.
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
            // What scarcity is multiplied by is none of its price.
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

    /** What a place costs, in thousandths of a GPU; the cheapest is the best. */
    public double cost(Place place) {
        return place.waste + scarcity(place) + idleness(place);
    }
}
