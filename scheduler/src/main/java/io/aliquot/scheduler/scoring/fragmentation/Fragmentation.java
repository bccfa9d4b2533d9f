package io.aliquot.scheduler.scoring.fragmentation;

import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.placement.FreeCapacity.Shape;
import io.aliquot.scheduler.scoring.ScoreTerm;
import io.aliquot.scheduler.scoring.ScoringPolicy;
import io.aliquot.scheduler.scoring.fragmentation.WorkloadSampler.Sample;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;

/*
 * A candidate placement is scored by what it costs later pods, which are predicted from the recent ones (WorkloadSampler).
 * The cost is the sum of two terms in thousandths of a GPU.
 *
 * Waste. The prospect of a node's free capacity is the GPU that will be allocated there if pods arrive at random: FUTURES
 * sequences of pods are placed on it one by one, each pod on the fullest GPU that holds it, while CPU, host memory and GPU
 * last; the prospect is the mean of what they get. Waste is the decrease of the prospect beyond what the pod itself takes.
 * One number thus covers gaps that no pod fits into, GPUs without CPU left for them, host memory that runs out first, and a
 * whole GPU split for a small vGPU, without a weight for each. The sequences are short, PODS_PER_GPU for each GPU of the
 * node: in endless ones some pod would fill every gap in the end, and rare or large pods would seem to need no capacity.
 *
 * Scarcity. Waste considers one node; it does not show that pods that could go elsewhere use up the last nodes for 8 GPUs,
 * or of a model that some pods require. For each demand k of the sample, with its part s(k) of the requested GPU, the cluster
 * has capacity for N(k) more pods. A candidate that reduces it by n(k) costs SCARCITY * Σ s(k) n(k) / N(k) of all GPUs: the
 * gradient of Σ s(k) log N(k), a proportionally fair division of the capacity. The weight is low, because for common demands
 * scarcity repeats what waste says, less exactly. Without this term openb's workload gpuspec20 gets 9 points less of the
 * GPUs when 100 % is requested, multigpu30 7 points less; with prices of an empty cluster 7 and 3 points less.
 *
 * Sources. Scoring a placement by the change of what typical pods can use is the idea of Fragmentation Gradient Descent
 * (Weng et al., "Beware of Fragmentation", USENIX ATC 2023), which asks whether the next pod fits. A rollout of a base
 * policy, here random filling, as the estimate of a state's value is from Bertsekas and Castañon ("Rollout algorithms for
 * stochastic scheduling problems", Journal of Heuristics 5, 1999). Proportional fairness is Kelly's (European Transactions
 * on Telecommunications 8, 1997).
 *
 * A score depends on the free capacities before and after, the sample and the prices s(k) / N(k). Sample and prices are
 * replaced together, when one of them has moved enough; until then the score of a node that has not changed stays.
 */
/** The scoring policy that leaves the most free capacity that later pods can use. */
public final class Fragmentation implements ScoringPolicy {
    private static final int FUTURES = 16;
    private static final double PODS_PER_GPU = 7.5;
    private static final int MOST_GPUS = 16;
    private static final double SCARCITY = 0.03;
    /** In a cluster of n nodes prices are computed again after n / this many pods. */
    private static final int NODES_PER_POD = 64;
    /** If no price has moved by more than this part, all prices stay. */
    private static final double PRICE_STEP = 0.05;
    /** Per thousandth of a GPU: decides for the fuller node between candidates of equal cost. */
    private static final double TIE = 1e-9;
    /** Steps per thousandth of a GPU to which scarcity is rounded, so that equal costs compare equal. */
    private static final double STEPS = 1e4;

    private final WorkloadSampler workload = new WorkloadSampler(FUTURES, (int) (PODS_PER_GPU * MOST_GPUS));
    private FragmentationModel model = new FragmentationModel(forecast(workload.sample()), new double[0]);
    /** How many nodes there were when prices were last computed, and how many pods have come since. */
    private int nodesThen;

    private int podsSince;

    @Override
    public Model learn(List<DemandVector> pods, Supplier<List<FreeCapacity>> nodes) {
        for (DemandVector pod : pods) {
            if (pod.gpus() > 0) {
                workload.observe(pod);
            }
        }
        podsSince += pods.size();
        if (workload.isDue() || podsSince > nodesThen / NODES_PER_POD) {
            List<FreeCapacity> now = nodes.get();
            podsSince = 0;
            nodesThen = now.size();
            Sample sample = workload.sample();
            boolean resampled = sample != model.forecast.sample;
            CapacityForecast forecast = resampled ? forecast(sample) : model.forecast;
            double[] prices = prices(forecast, now);
            if (resampled || moved(model.prices, prices)) {
                model = new FragmentationModel(forecast, prices);
            }
        }
        return model;
    }

    private static CapacityForecast forecast(Sample sample) {
        return new CapacityForecast(sample, PODS_PER_GPU, MOST_GPUS);
    }

    private static boolean moved(double[] before, double[] now) {
        for (int i = 0; i < now.length; i++) {
            if (Math.abs(now[i] - before[i]) > PRICE_STEP * before[i]) {
                return true;
            }
        }
        return false;
    }

    /** For each demand of the sample, what capacity for one pod costs, in thousandths of a GPU. */
    private static double[] prices(CapacityForecast forecast, List<FreeCapacity> nodes) {
        DemandVector[] demands = forecast.sample.demands;
        var slots = new long[demands.length];
        var gpusByShape = new HashMap<Shape, Integer>();
        int gpus = 0;
        for (FreeCapacity node : nodes) {
            int[] own = forecast.of(node).slots;
            for (int i = 0; i < slots.length; i++) {
                slots[i] += own[i];
            }
            gpusByShape.merge(node.shape(), node.gpus(), Integer::sum);
            gpus += node.gpus();
        }
        var requested = new double[demands.length];
        double sum = 0;
        for (int i = 0; i < demands.length; i++) {
            // Shapes differ in what a pod takes of a GPU. A whole number, so that the order of the shapes does not
            // matter.
            long taken = 0;
            for (Map.Entry<Shape, Integer> shape : gpusByShape.entrySet()) {
                taken += (long) shape.getKey().takenBy(demands[i]) * shape.getValue();
            }
            requested[i] = forecast.sample.frequencies[i] * taken;
            sum += requested[i];
        }
        var prices = new double[demands.length];
        for (int i = 0; i < prices.length; i++) {
            prices[i] = requested[i] == 0 || slots[i] == 0
                    ? 0
                    : SCARCITY * gpus * FreeCapacity.WHOLE * requested[i] / sum / slots[i];
        }
        return prices;
    }

    private static final class FragmentationModel implements Model {
        private final CapacityForecast forecast;
        private final double[] prices;

        FragmentationModel(CapacityForecast forecast, double[] prices) {
            this.forecast = forecast;
            this.prices = prices;
        }

        @Override
        public double score(DemandVector demand, FreeCapacity before, FreeCapacity after) {
            return -waste(demand, before, after) - scarcity(before, after) - TIE * before.free();
        }

        @Override
        public List<ScoreTerm> terms(DemandVector demand, FreeCapacity before, FreeCapacity after) {
            return List.of(
                    new ScoreTerm("waste", waste(demand, before, after)),
                    new ScoreTerm("scarcity", scarcity(before, after)));
        }

        private double waste(DemandVector demand, FreeCapacity before, FreeCapacity after) {
            return forecast.of(before).prospect()
                    - forecast.of(after).prospect()
                    - before.shape().takenBy(demand);
        }

        private double scarcity(FreeCapacity before, FreeCapacity after) {
            int[] slots = forecast.of(before).slots;
            int[] left = forecast.of(after).slots;
            double sum = 0;
            for (int i = 0; i < prices.length; i++) {
                sum += prices[i] * (slots[i] - left[i]);
            }
            return Math.rint(sum * STEPS) / STEPS;
        }
    }
}
