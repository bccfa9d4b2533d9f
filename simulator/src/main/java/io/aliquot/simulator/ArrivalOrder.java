package io.aliquot.simulator;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Random;

/** Which pods arrive, and in which order. */
enum ArrivalOrder {
    /** The workload's pods, in the order of their creation. */
    GIVEN,
    /** The workload's pods, in random order. */
    SHUFFLED,
    /**
     * The workload's pods and more pods drawn from it at random, until the next one would exceed the GPU capacity to
     * request; all in random order.
     */
    DRAWN;

    /**
     * The pods in the order of their arrival; equal arguments give equal pods.
     *
     * @param requested GPU capacity to request with drawn pods, in thousandths
     */
    List<TracePod> arrivals(Trace trace, List<TracePod> workload, long requested, long seed) {
        List<TracePod> arrivals = new ArrayList<>(workload);
        var random = new Random(seed);
        switch (this) {
            case GIVEN -> arrivals.sort(Comparator.comparing(TracePod::created));
            case SHUFFLED -> Collections.shuffle(arrivals, random);
            case DRAWN -> {
                draw(trace, workload, requested, random, arrivals);
                Collections.shuffle(arrivals, random);
            }
        }
        return arrivals;
    }

    private static void draw(
            Trace trace, List<TracePod> workload, long requested, Random random, List<TracePod> arrivals) {
        long total = workload.stream().mapToLong(trace::requestedGpu).sum();
        TracePod next = workload.get(random.nextInt(workload.size()));
        while (total + trace.requestedGpu(next) <= requested) {
            total += trace.requestedGpu(next);
            arrivals.add(next);
            next = workload.get(random.nextInt(workload.size()));
        }
    }

    @Override
    public String toString() {
        return name().toLowerCase(Locale.ROOT);
    }
}
