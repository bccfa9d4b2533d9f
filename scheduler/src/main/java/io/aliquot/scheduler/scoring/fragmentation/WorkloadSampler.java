package io.aliquot.scheduler.scoring.fragmentation;

import io.aliquot.scheduler.placement.DemandVector;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

/*
 * A histogram of the demands of pods, in which the weight of a pod halves over HALF_LIFE later pods. Instead of
 * reducing all weights at each pod, the histogram increases the weight of the next one and scales all weights back
 * occasionally.
 *
 * The sample is compared with the histogram whenever a quarter as many pods as before have arrived, and at least every
 * 1,024 pods. It is drawn again if it has drifted, which means that more than a tenth of the pods differ from the
 * sample. Evaluations of nodes stay valid between two samples, so pods of a steady workload, which a sample of some
 * thousand pods describes well enough, cause no new evaluations. The sample is a deck in which each demand has cards in
 * proportion to its weight, shuffled with a fixed seed.
 */
/** Learns the workload from the demands of earlier pods and draws samples of it. Not thread-safe. */
final class WorkloadSampler {
    private static final double HALF_LIFE = 4096;
    private static final double GROWTH = Math.pow(2, 1 / HALF_LIFE);
    private static final double TOO_LARGE = 1e100;
    private static final int MOST_PODS_BETWEEN = 1024;
    private static final double MOST_DRIFT = 0.1;
    /** How many different demands are kept; beyond that the one with the lowest weight is dropped. */
    private static final int MOST_DEMANDS = 1024;

    /** A workload sample: demands, their shares, and possible sequences of later pods. */
    static final class Sample {
        /** Unique to this sample. */
        final int number;
        /** The distinct demands. */
        final DemandVector[] demands;
        /** The share of each demand in the number of pods; they add up to 1. */
        final double[] shares;
        /** Sequences of indexes into {@code demands}; all sequences are equally likely. */
        final int[][] futures;

        private Sample(int number, DemandVector[] demands, double[] shares, int[][] futures) {
            this.number = number;
            this.demands = demands;
            this.shares = shares;
            this.futures = futures;
        }
    }

    private final int count;
    private final int length;
    private final Map<DemandVector, Double> weights = new LinkedHashMap<>();
    private double next = 1;
    private long seen;
    private long due = 1;
    private Sample sample = new Sample(0, new DemandVector[0], new double[0], new int[0][]);

    /**
     * Creates a sampler that has seen no pods.
     *
     * @param count number of futures in a sample
     * @param length number of pods in each future
     */
    WorkloadSampler(int count, int length) {
        this.count = count;
        this.length = length;
    }

    /** Records a pod; called once for each pod that requests GPUs. */
    void see(DemandVector demand) {
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

    /** The current sample; draws a new one if it is due. */
    Sample sample() {
        if (seen >= due) {
            due = seen + Math.max(1, Math.min(MOST_PODS_BETWEEN, seen / 4));
            if (drift() > MOST_DRIFT) {
                sample = resample();
            }
        }
        return sample;
    }

    /** The fraction of the pods that the sample has too few of: total variation distance. */
    private double drift() {
        double all = all();
        double common = 0;
        for (int i = 0; i < sample.demands.length; i++) {
            common += Math.min(sample.shares[i], weights.getOrDefault(sample.demands[i], 0.0) / all);
        }
        return 1 - common;
    }

    private double all() {
        return weights.values().stream().mapToDouble(weight -> weight).sum();
    }

    private DemandVector lightest() {
        return Collections.min(weights.entrySet(), Map.Entry.comparingByValue()).getKey();
    }

    private Sample resample() {
        DemandVector[] demands = weights.keySet().toArray(new DemandVector[0]);
        double all = all();
        double[] shares =
                weights.values().stream().mapToDouble(weight -> weight / all).toArray();
        int cards = count * length;
        List<Integer> deck = new ArrayList<>(cards);
        double upTo = 0;
        for (int demand = 0; demand < demands.length; demand++) {
            upTo += shares[demand];
            while (deck.size() < cards && (deck.size() + 0.5 < upTo * cards || demand == demands.length - 1)) {
                deck.add(demand);
            }
        }
        Collections.shuffle(deck, new Random(0));
        int[][] futures = new int[count][length];
        for (int card = 0; card < cards; card++) {
            futures[card / length][card % length] = deck.get(card);
        }
        return new Sample(sample.number + 1, demands, shares, futures);
    }
}
