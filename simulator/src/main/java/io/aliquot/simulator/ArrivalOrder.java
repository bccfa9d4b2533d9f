package io.aliquot.simulator;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Random;

/** Which pods come, and in which order. */
enum ArrivalOrder {
    /** The workload's, in the order of their creation. */
    GIVEN,
    /** The workload's, in random order. */
    SHUFFLED,
    /**
     * The workload's, and more of them drawn at random until the next one would ask for more GPU than there is to be asked
     * for; all in random order.
     */
    DRAWN;

    /**
     * The pods in the order in which they come; equal for equal arguments.
     *
     * @param demand GPU to be asked for where pods are drawn, in thousandths
     */
    List<TracePod> of(Trace trace, List<TracePod> workload, long demand, long seed) {
        List<TracePod> arrivals = new ArrayList<>(workload);
        var random = new Random(seed);
        switch (this) {
            case GIVEN -> arrivals.sort(Comparator.comparing(TracePod::created));
            case SHUFFLED -> Collections.shuffle(arrivals, random);
            case DRAWN -> {
                draw(trace, workload, demand, random, arrivals);
                Collections.shuffle(arrivals, random);
            }
        }
        return arrivals;
    }

    private static void draw(Trace trace, List<TracePod> workload, long demand, Random random, List<TracePod> arrivals) {
        long total = workload.stream().mapToLong(trace::asked).sum();
        TracePod next = workload.get(random.nextInt(workload.size()));
        while (total + trace.asked(next) <= demand) {
            total += trace.asked(next);
            arrivals.add(next);
            next = workload.get(random.nextInt(workload.size()));
        }
    }

    @Override
    public String toString() {
        return name().toLowerCase(Locale.ROOT);
    }
}
