package io.aliquot.scheduler.scoring.fragmentation;

import io.aliquot.scheduler.placement.DemandVector;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

/*
 * A histogram of demands in which the weight of a pod halves over the next HALF_LIFE pods. Instead of reducing all weights at
 * each pod the sampler increases the weight of the next one and scales all weights back from time to time.
 *
 * The sample is compared with the histogram each time a quarter more pods have come, at least every MOST_PODS_BETWEEN pods,
 * and drawn again if it has drifted: if a tenth of the pods are not as the sample says. Forecasts stay valid while the sample
 * does, so pods of a steady workload, which a sample of some thousand represents well enough, cost nothing. The sample is a
 * deck in which each demand has as many cards as its weight, shuffled with the same seed each time.
 */
/** Samples the demands of recent pods. Not thread-safe. */
final class WorkloadSampler {
    private static final double HALF_LIFE = 4096;
    private static final double GROWTH = Math.pow(2, 1 / HALF_LIFE);
    private static final double TOO_LARGE = 1e100;
    private static final int MOST_PODS_BETWEEN = 1024;
    private static final double MOST_DRIFT = 0.1;
    /** The most different demands; beyond that the one with the lowest weight is dropped. */
    private static final int MOST_DEMANDS = 1024;

    /** A prediction of the pods to come. */
    static final class Sample {
        /** Without duplicates. */
        final DemandVector[] demands;
        /** The part of the pods with each demand; the sum is 1. */
        final double[] frequencies;
        /** Sequences of indexes of demands; all sequences are equally likely. */
        final int[][] futures;

        private Sample(DemandVector[] demands, double[] frequencies, int[][] futures) {
            this.demands = demands;
            this.frequencies = frequencies;
            this.futures = futures;
        }
    }

    private final int count;
    private final int length;
    private final Map<DemandVector, Double> weights = new LinkedHashMap<>();
    private double next = 1;
    private long seen;
    private long due = 1;
    private Sample sample = new Sample(new DemandVector[0], new double[0], new int[0][]);

    /**
     * A sampler without pods.
     *
     * @param count sequences in a sample
     * @param length pods in a sequence
     */
    WorkloadSampler(int count, int length) {
        this.count = count;
        this.length = length;
    }

    /** Counts a pod that requests GPUs. */
    void observe(DemandVector demand) {
        weights.merge(demand, next, Double::sum);
        next *= GROWTH;
        if (next > TOO_LARGE) {
            weights.replaceAll((any, weight) -> weight / TOO_LARGE);
            next /= TOO_LARGE;
        }
        if (weights.size() > MOST_DEMANDS) {
            weights.remove(lightest());
        }
        seen++;
    }

    /** Whether so many pods have come since the last {@link #sample} that the demands may have drifted. */
    boolean isDue() {
        return seen >= due;
    }

    /** The current sample; a new one if the demands have drifted. */
    Sample sample() {
        if (isDue()) {
            due = seen + Math.max(1, Math.min(MOST_PODS_BETWEEN, seen / 4));
            if (drift() > MOST_DRIFT) {
                sample = resample();
            }
        }
        return sample;
    }

    /** The total variation distance between the sample and the histogram. */
    private double drift() {
        double total = totalWeight();
        double common = 0;
        for (int i = 0; i < sample.demands.length; i++) {
            common += Math.min(sample.frequencies[i], weights.getOrDefault(sample.demands[i], 0.0) / total);
        }
        return 1 - common;
    }

    private double totalWeight() {
        return weights.values().stream().mapToDouble(weight -> weight).sum();
    }

    private DemandVector lightest() {
        return Collections.min(weights.entrySet(), Map.Entry.comparingByValue()).getKey();
    }

    private Sample resample() {
        DemandVector[] demands = weights.keySet().toArray(new DemandVector[0]);
        double total = totalWeight();
        double[] frequencies =
                weights.values().stream().mapToDouble(weight -> weight / total).toArray();
        int cards = count * length;
        List<Integer> deck = new ArrayList<>(cards);
        double upTo = 0;
        for (int demand = 0; demand < demands.length; demand++) {
            upTo += frequencies[demand];
            while (deck.size() < cards && (deck.size() + 0.5 < upTo * cards || demand == demands.length - 1)) {
                deck.add(demand);
            }
        }
        Collections.shuffle(deck, new Random(0));
        int[][] futures = new int[count][length];
        for (int card = 0; card < cards; card++) {
            futures[card / length][card % length] = deck.get(card);
        }
        return new Sample(demands, frequencies, futures);
    }
}
