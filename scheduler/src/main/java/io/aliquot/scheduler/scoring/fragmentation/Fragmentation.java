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
 * A candidate placement is scored by what it costs later pods, which are predicted from the recent ones (WorkloadSampler).
 * The cost is the sum of four terms in thousandths of a GPU.
 *
 * Waste. The prospect of a node's free capacity is the GPU that will be allocated there if pods arrive at random: FUTURES
 * sequences of pods are placed on it one by one, each pod on the fullest GPU that holds it, while CPU, host memory and GPU
 * last; the prospect is the mean of what they get. Waste is the decrease of the prospect beyond what the pod itself takes.
 * One number thus covers gaps that no pod fits into, GPUs without CPU left for them, host memory that runs out first, and a
 * whole GPU split for a small share, without a weight for each. The sequences are short, PODS_PER_GPU for each GPU of the
 * node: in endless ones some pod would fill every gap in the end, and rare or large pods would seem to need no capacity.
 *
 * Scarcity. Waste considers one node; it does not show that pods that could go elsewhere use up the last nodes for 8 GPUs,
 * or of a model that some pods require. For each demand k of the sample, with its part s(k) of the requested GPU, the cluster
 * has capacity for N(k) more pods. A candidate that reduces it by n(k) costs Σ s(k) n(k) / N(k) of all GPUs: the gradient of
 * Σ s(k) log N(k), a proportionally fair division of the capacity. The weight SCARCITY is low, because for common demands
 * scarcity repeats what waste says, less exactly.
 *
 * Shortage. Some demands require certain GPU models. What other pods take of these models is lost to them, although the
 * others could have gone elsewhere. Whether it matters depends on the pods still to come. Until the whole cluster is full,
 * that is, until the capacity for the sample as a whole has been requested, the demands confined to a set of models request a
 * random amount, whose mean and variance follow from the sample. If it exceeds their capacity, each GPU that others took
 * there means a refused pod; if not, each GPU kept for them is missing to others in the end. So other pods pay, for each GPU
 * that they take from the confined demands, the probability of the former less that of the latter, where it is positive. The
 * confined demands pay nothing. Where sets overlap, the highest price counts.
 *
 * Idleness. Prospect, scarcity and shortage concern the time when the cluster is full. The emptier the cluster, the further
 * away that time is, and where pods end as fast as they arrive it never comes; then it matters what the next pod can use. A
 * candidate's idleness is the increase of the free GPU that the next pod of the sample cannot use, which is fragmentation as
 * defined by the paper below. Its weight is IDLENESS, times the GPU freed per GPU allocated recently, times the fourth power
 * of the cluster's free part. So idleness has no effect where no pod ends or in a full cluster, and decides in a cluster that
 * stays nearly empty.
 *
 * Sources. Scoring a placement by the change of what typical pods can use is the idea of Fragmentation Gradient Descent
 * (Weng et al., "Beware of Fragmentation", USENIX ATC 2023), which asks whether the next pod fits. A rollout of a base
 * policy, here random filling, as the estimate of a state's value is from Bertsekas and Castañon ("Rollout algorithms for
 * stochastic scheduling problems", Journal of Heuristics 5, 1999). Proportional fairness is Kelly's (European Transactions
 * on Telecommunications 8, 1997). The price of a shortage is the newsvendor's marginal (Arrow, Harris and Marschak,
 * Econometrica 19, 1951).
 *
 * Cost. Forecasts of free capacities are cached while the sample is the same, so a pod causes evaluations only on nodes that
 * changed since a pod like it. Scarcity is a sum over the demands that lose capacity; after prices have moved it is computed
 * again only for candidates that may be the best (PriceSnapshot).
 */
/** The scoring policy that leaves the most free capacity that later pods can use. Not thread-safe. */
public final class Fragmentation implements ScoringPolicy<Fragmentation.Evaluation> {
    static final int FUTURES = 32;
    private static final double PODS_PER_GPU = 7.5;
    private static final int MOST_GPUS = 16;
    private static final double SCARCITY = 0.03;
    /** Decides for the fuller node between candidates of equal cost. Less than any difference of costs. */
    private static final double TIE = 1e-9;

    /** Smaller changes of a shortage are ignored: a price that falls to 0 causes all nodes to be scored again. */
    private static final double SHORTAGE_STEP = 0.1;
    /** Half of the factor by which a logistic distribution comes closest to a normal one. */
    private static final double NORMAL = 0.851;

    private static final double IDLENESS = 20;
    /** Steps per thousandth of a GPU to which idleness is rounded. */
    private static final double IDLE_STEPS = 1e9;
    /** In a cluster of n nodes prices are computed again after n / this many changes of nodes. */
    private static final int NODES_PER_CHANGE = 256;

    /** Work that one call may spend on counting nodes for a new sample: one or two milliseconds. */
    private static final int COUNTING = 1 << 15;
    /** The part of it per node, besides 1 for each demand of the sample. */
    private static final int COUNTING_NODE = 32;

    private static final double FADING = Math.pow(2, -1 / 4096.0);
    /** The most cached forecasts, and evaluations, in a large heap. */
    private static final int MOST_CACHED = 65_536;
    /** Size of a forecast or an evaluation, without the part for each demand. */
    private static final int BYTES = 256;

    private static final int BYTES_PER_DEMAND = 4;
    /** Bits of the amount in an element of {@link Evaluation#losses}; the demand's number is above them. */
    private static final int AMOUNT_BITS = 21;

    private static final int AMOUNT = (1 << AMOUNT_BITS) - 1;

    /** The costs of a candidate without prices. Candidates of equal costs share one object, which is pricedGpus once. */
    public static final class Evaluation {
        private double waste;
        private double idle;
        /**
         * The demands of the sample that lose capacity, and in the lower bits for how many pods; after them the sets of
         * confined demands, numbered from the number of demands on, and how many thousandths of a GPU they lose.
         */
        private int[] losses;
        /** How many elements of {@code losses} are valid. */
        private int count;

        private int hash;

        /** The last result of {@link #scarcity}, and at which prices. */
        private double scarcity;

        private @Nullable PriceSnapshot pricedIn;

        private Evaluation(int[] losses) {
            this.losses = losses;
        }

        /** Removes all losses; this many can then be added. */
        private void reset(int demands) {
            losses = losses.length < demands ? new int[demands] : losses;
            count = 0;
        }

        private void addLoss(int demand, int amount) {
            losses[count++] = demand << AMOUNT_BITS | Math.min(AMOUNT, amount);
        }

        private void setCosts(double waste, double idle) {
            this.waste = waste;
            this.idle = idle;
            this.hash = Double.hashCode(waste) * 31 + Double.hashCode(idle);
            for (int i = 0; i < count; i++) {
                hash = hash * 31 + losses[i];
            }
        }

        private Evaluation copy() {
            var copy = new Evaluation(Arrays.copyOf(losses, count));
            copy.count = count;
            copy.setCosts(waste, idle);
            return copy;
        }

        @Override
        public boolean equals(@Nullable Object other) {
            return other instanceof Evaluation evaluation
                    && hash == evaluation.hash
                    && waste == evaluation.waste
                    && idle == evaluation.idle
                    && Arrays.equals(losses, 0, count, evaluation.losses, 0, evaluation.count);
        }

        @Override
        public int hashCode() {
            return hash;
        }

        /** GPU on this node that will stay free without use, in thousandths; negative if the pod makes some usable. */
        public double waste() {
            return waste;
        }
    }

    /** The evaluations with the current sample. */
    private final Map<Evaluation, Evaluation> evaluations = new HashMap<>();
    /** Buffer to look up evaluations, most of which exist already. */
    private final Evaluation scratch = new Evaluation(new int[0]);

    private final WorkloadSampler workload = new WorkloadSampler(FUTURES, (int) (PODS_PER_GPU * MOST_GPUS));
    /** How many nodes have a free capacity. */
    private final Map<FreeCapacity, Integer> nodesByFree = new HashMap<>();

    /** How many nodes have a shape. */
    private final Map<FreeCapacity.Shape, Integer> shapes = new LinkedHashMap<>();

    private CapacityForecast forecast = forecast(workload.sample());
    /** The next model while it is being prepared; null otherwise. */
    private @Nullable NextModel next;

    /** Of the sample's demands: the part of the requested GPU, and for how many more pods there is capacity. */
    private double[] shares = new double[0];

    private long[] slots = new long[0];
    // At the last computation of prices: shares by slots, slots, and GPUs.

    private double[] prices = new double[0];

    private long[] pricedSlots = new long[0];
    private double pricedGpus;
    /** What each demand takes of a GPU, see {@link #size}. */
    private double[] sizes = new double[0];
    /** The sets of confined demands of the sample. */
    private List<Confined> confined = List.of();
    /** The shortage of each set when it last changed by {@link #SHORTAGE_STEP}. */
    private double[] shortages = new double[0];

    private PriceSnapshot snapshot = PriceSnapshot.CONSTANT;
    private int nodes;
    private int changes;
    /** GPUs of the whole cluster. */
    private double gpus;

    /** Their free part, in thousandths of a GPU. */
    private long free;
    /** GPU allocated recently, in thousandths; earlier pods count less. */
    private double allocated;

    /** GPU freed recently, likewise. */
    private double freed;
    /** The node removed last; if it has changed, the next call adds it again. */
    private Optional<FreeCapacity> changing = Optional.empty();

    @Override
    public void observe(DemandVector demand) {
        allocated *= FADING;
        freed *= FADING;
        if (demand.gpus() > 0) {
            workload.observe(demand);
        }
    }

    /*
     * A new sample takes effect once the cluster's capacity for its demands is counted. Each call counts some of the nodes,
     * so that no call takes long. Nodes that change meanwhile are counted when they change.
     */
    @Override
    public int modelVersion() {
        NextModel pending = next;
        if (pending == null) {
            Sample sample = workload.sample();
            if (sample == forecast.sample()) {
                return sample.number;
            }
            pending = new NextModel(sample, nodesByFree);
            next = pending;
        }
        if (pending.countSome()) {
            next = null;
            use(pending);
        }
        return forecast.sample().number;
    }

    private void use(NextModel model) {
        Sample sample = model.forecast.sample();
        forecast = model.forecast;
        slots = model.slots;
        evaluations.clear();
        shares = new double[sample.demands.length];
        sizes = new double[shares.length];
        double sum = 0;
        for (int i = 0; i < shares.length; i++) {
            sizes[i] = size(sample.demands[i]);
            shares[i] = sample.shares[i] * sizes[i];
            sum += shares[i];
        }
        for (int i = 0; i < shares.length; i++) {
            shares[i] /= sum;
        }
        confined = confined(sample.demands);
        shortages = new double[confined.size()];
        updatePrices();
    }

    /** A sample that takes effect once all nodes are counted. */
    private static final class NextModel {
        private final CapacityForecast forecast;
        private final long[] slots;
        /** Free capacities and their numbers of nodes at the start; those from {@code next} on are not counted yet. */
        private final List<Map.Entry<FreeCapacity, Integer>> nodes = new ArrayList<>();

        private int next;

        NextModel(Sample sample, Map<FreeCapacity, Integer> nodesByFree) {
            this.forecast = forecast(sample);
            this.slots = new long[sample.demands.length];
            nodesByFree.forEach((node, count) -> this.nodes.add(Map.entry(node, count)));
        }

        /** Counts some nodes; returns whether all are counted. */
        boolean countSome() {
            int some = Math.max(1, COUNTING / (COUNTING_NODE + slots.length));
            int end = Math.min(nodes.size(), next + some);
            for (; next < end; next++) {
                count(forecast, slots, nodes.get(next).getKey(), nodes.get(next).getValue());
            }
            return next == nodes.size();
        }
    }

    private static CapacityForecast forecast(Sample sample) {
        return new CapacityForecast(sample, PODS_PER_GPU, MOST_GPUS, cacheLimit(sample));
    }

    private static int cacheLimit(Sample sample) {
        return CacheSizes.limit(MOST_CACHED, BYTES + BYTES_PER_DEMAND * sample.demands.length);
    }

    /** GPUs that a demand takes, in thousandths, on average over the cluster's nodes. */
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
    public void nodeAdded(FreeCapacity node) {
        int more = changing.filter(before -> before.shape().equals(node.shape()))
                .map(before -> node.free() - before.free())
                .orElse(0);
        changing = Optional.empty();
        allocated += Math.max(0, -more);
        freed += Math.max(0, more);
        change(node, 1);
    }

    @Override
    public void nodeRemoved(FreeCapacity node) {
        changing = Optional.of(node);
        change(node, -1);
    }

    private void change(FreeCapacity node, int by) {
        merge(nodesByFree, node, by);
        merge(shapes, node.shape(), by);
        gpus += by * node.gpus();
        free += (long) by * node.free();
        nodes += by;
        changes++;
        count(forecast, slots, node, by);
        if (next != null) {
            count(next.forecast, next.slots, node, by);
        }
    }

    private static <K> void merge(Map<K, Integer> counts, K key, int by) {
        counts.merge(key, by, (one, other) -> one + other == 0 ? null : one + other);
    }

    private static void count(CapacityForecast forecast, long[] slots, FreeCapacity node, int by) {
        int[] own = forecast.of(node).slots;
        for (int i = 0; i < own.length; i++) {
            slots[i] += (long) by * own[i];
        }
    }

    @Override
    public Evaluation evaluate(DemandVector demand, FreeCapacity before, FreeCapacity after) {
        Evaluated now = forecast.of(before);
        Evaluated then = forecast.of(after);
        double waste = forecast.prospect(before, now) - forecast.prospect(after, then) - before.takenBy(demand);
        scratch.reset(shares.length + confined.size());
        for (int i = 0; i < shares.length; i++) {
            if (now.slots[i] > then.slots[i]) {
                scratch.addLoss(i, now.slots[i] - then.slots[i]);
            }
        }
        for (int i = 0; i < confined.size(); i++) {
            Confined set = confined.get(i);
            if (!set.includes(demand)) {
                int lost = (int) Math.rint(capacity(set, now.slots) - capacity(set, then.slots));
                if (lost > 0) {
                    scratch.addLoss(shares.length + i, lost);
                }
            }
        }
        // Rounded to the accuracy of the sums, so that equal ones compare equal.
        scratch.setCosts(waste, Math.rint((then.idle - now.idle) * IDLE_STEPS) / IDLE_STEPS + 0.0);
        Evaluation known = evaluations.get(scratch);
        if (known == null) {
            if (evaluations.size() >= cacheLimit(forecast.sample())) {
                evaluations.clear();
            }
            known = scratch.copy();
            evaluations.put(known, known);
        }
        return known;
    }

    @Override
    public double score(Evaluation evaluation) {
        return -cost(evaluation);
    }

    @Override
    public boolean dominates(Evaluation evaluation, Evaluation other) {
        return evaluation.waste <= other.waste
                && evaluation.idle <= other.idle
                && losesNoMoreThan(evaluation.losses, other.losses);
    }

    private static boolean losesNoMoreThan(int[] losses, int[] others) {
        int other = 0;
        for (int loss : losses) {
            while (other < others.length && others[other] >>> AMOUNT_BITS < loss >>> AMOUNT_BITS) {
                other++;
            }
            // The other must lose as much of the same demand, or more.
            if (other == others.length
                    || others[other] >>> AMOUNT_BITS != loss >>> AMOUNT_BITS
                    || others[other] < loss) {
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
    public List<ScoreTerm> terms(Evaluation evaluation) {
        return List.of(
                new ScoreTerm("waste", evaluation.waste),
                new ScoreTerm("scarcity", scarcity(evaluation)),
                new ScoreTerm("idleness", idleness(evaluation)));
    }

    /** The cost of capacity that becomes scarce in the whole cluster, in thousandths of a GPU. */
    public double scarcity(Evaluation evaluation) {
        PriceSnapshot now = prices();
        if (evaluation.pricedIn != now) {
            evaluation.scarcity = SCARCITY * lost(evaluation) * pricedGpus * FreeCapacity.WHOLE;
            evaluation.pricedIn = now;
        }
        return evaluation.scarcity;
    }

    @Override
    public double upperBound(Evaluation evaluation) {
        PriceSnapshot now = prices();
        return evaluation.pricedIn == null
                ? Double.POSITIVE_INFINITY
                : now.upperBound(
                        -(evaluation.waste + evaluation.scarcity + now.weight() * evaluation.idle),
                        evaluation.pricedIn,
                        evaluation.scarcity,
                        0,
                        0);
    }

    @Override
    public double priceCost(Evaluation evaluation) {
        return evaluation.scarcity;
    }

    @Override
    public double idleCost(Evaluation evaluation) {
        return evaluation.idle;
    }

    /** The part of the cluster's capacity that the candidate's losses are worth, shortage included. */
    private double lost(Evaluation evaluation) {
        double sum = 0;
        double shortage = 0;
        for (int i = 0; i < evaluation.count; i++) {
            int loss = evaluation.losses[i];
            int demand = loss >>> AMOUNT_BITS;
            int lost = loss & AMOUNT;
            if (demand >= shares.length) {
                shortage = Math.max(shortage, prices[demand] * lost);
            } else {
                // Capacity reserved for the pod itself is not part of the cluster's free capacity.
                sum += lost <= pricedSlots[demand] ? prices[demand] * lost : shares[demand];
            }
        }
        return sum + shortage;
    }

    /** The cost if the cluster stays as full as it is, in thousandths of a GPU; may be negative. */
    public double idleness(Evaluation evaluation) {
        return prices().weight() * evaluation.idle;
    }

    @Override
    public PriceSnapshot prices() {
        if (changes > nodes / NODES_PER_CHANGE) {
            updatePrices();
        }
        return snapshot;
    }

    /** Demands that accept only some of the cluster's GPU models. */
    private static final class Confined {
        /** Bits of these models. */
        private final long models;
        /** Bits of all models of the cluster. */
        private final long present;
        /** Their indexes in the sample. */
        private final int[] demands;
        /** Their part of the requested GPU. */
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

    /** One set for each combination of models that a demand accepts; includes demands that accept fewer of them. */
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

    /** Capacity for the demands of a set, weighted by their shares, in thousandths of a GPU. */
    private double capacity(Confined set, int[] slots) {
        double capacity = 0;
        for (int demand : set.demands) {
            capacity += shares[demand] * slots[demand] * sizes[demand];
        }
        return capacity / set.share;
    }

    /** The probability that a set's demands exceed their capacity before the cluster is full, less that they do not; 0 or more. */
    private double shortage(Confined set) {
        double[] pods = forecast.sample().shares;
        double capacityForAll = 0;
        double perPod = 0;
        for (int i = 0; i < pods.length; i++) {
            capacityForAll += shares[i] * slots[i] * sizes[i];
            perPod += pods[i] * sizes[i];
        }
        double coming = capacityForAll / perPod;
        double capacity = 0;
        double mean = 0;
        double variance = 0;
        for (int i : set.demands) {
            capacity += shares[i] * slots[i] * sizes[i] / set.share;
            mean += coming * pods[i] * sizes[i];
            variance += coming * pods[i] * sizes[i] * sizes[i];
        }
        // Twice a normal distribution's probability, less 1; a logistic one is within 0.01 of it.
        return variance == 0 ? 0 : Math.max(0, Math.tanh(NORMAL * (mean - capacity) / Math.sqrt(variance)));
    }

    private void updatePrices() {
        double[] before = prices;
        double then = pricedGpus;
        pricedSlots = slots.clone();
        pricedGpus = gpus;
        prices = new double[slots.length + confined.size()];
        for (int i = 0; i < slots.length; i++) {
            prices[i] = slots[i] == 0 ? 0 : shares[i] / slots[i];
        }
        for (int i = 0; i < confined.size() && gpus > 0; i++) {
            double now = shortage(confined.get(i));
            shortages[i] = Math.abs(now - shortages[i]) > SHORTAGE_STEP ? now : shortages[i];
            // Divided by the factors of scarcity(), which do not apply to a shortage.
            prices[slots.length + i] = shortages[i] / (SCARCITY * gpus * FreeCapacity.WHOLE);
        }
        double least = 1;
        for (int i = 0; i < Math.min(before.length, prices.length); i++) {
            least = before[i] * then > 0 ? Math.min(least, prices[i] * pricedGpus / (before[i] * then)) : least;
        }
        double turnover = allocated == 0 ? 0 : Math.min(1, freed / allocated);
        double empty = gpus == 0 ? 0 : free / (gpus * FreeCapacity.WHOLE);
        snapshot = snapshot.next(least, IDLENESS * turnover * empty * empty * empty * empty);
        changes = 0;
    }

    /** The total cost, in thousandths of a GPU; the lowest is the best. */
    public double cost(Evaluation evaluation) {
        return evaluation.waste + scarcity(evaluation) + idleness(evaluation);
    }
}
