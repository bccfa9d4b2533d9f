package io.aliquot.scheduler.scoring.fragmentation;

import io.aliquot.scheduler.placement.DemandVector;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

/*
 * A histogram of what pods have asked for in which the past fades, by half over HALF_LIFE pods: instead of making all
 * weights smaller at each pod the weight of the next one is made larger, and all are scaled back now and then.
 *
 * The sample is compared with it whenever as many pods have come as a quarter of those before, but at least every 1,024, and
 * is sampled again if it has drifted: if a tenth of the pods are others than it says. What is thought of nodes holds between two
 * dealings, so that pods of a steady mix, which a sample of some thousand tells well enough, cost nothing. The sample is a deck in which each demand has as many cards as its
 * weight, shuffled always alike.
 */
/** What pods ask for here, learnt from those that came. Not for several threads. */
final class WorkloadSampler {
    private static final double HALF_LIFE = 4096;
    private static final double GROWTH = Math.pow(2, 1 / HALF_LIFE);
    private static final double TOO_LARGE = 1e100;
    private static final int MOST_PODS_BETWEEN = 1024;
    private static final double MOST_DRIFT = 0.1;
    /** Different demands that are remembered; of more the lightest are forgotten. */
    private static final int MOST_DEMANDS = 1024;

    /** What may come. */
    static final class Sample {
        /** Of no other sample. */
        final int number;
        /** Each once. */
        final DemandVector[] demands;
        /** Of the pods, by demand; they add up to 1. */
        final double[] shares;
        /** Sequences of demands, by their place among all; each sequence is as likely as another. */
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
     * Nothing seen yet.
     *
     * @param count of futures in a sample
     * @param length of each
     */
    WorkloadSampler(int count, int length) {
        this.count = count;
        this.length = length;
    }

    /** A pod has come; once for each that asks for GPUs. */
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

    /** The present one, which may be a new one now. */
    Sample sample() {
        if (seen >= due) {
            due = seen + Math.max(1, Math.min(MOST_PODS_BETWEEN, seen / 4));
            if (drift() > MOST_DRIFT) {
                sample = resample();
            }
        }
        return sample;
    }

    /** The part of the pods that the sample has too few of: total variation distance. */
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
