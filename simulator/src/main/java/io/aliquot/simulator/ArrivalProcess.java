package io.aliquot.simulator;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.Random;

/*
 * Lifetimes are heavy-tailed: of the openb trace's workload default the mean is 26,000 s, the median 540 s, and three quarters of all
 * time is that of pods which live more than 100 mean lifetimes. Begun with an empty cluster, 130 % offered would fill 17 % of it
 * in five mean lifetimes. So those pods are there from the start that would be if others had come and ended for ever: as many
 * as come in a mean lifetime, each drawn the more likely the longer it lives, and somewhere in its life (the equilibrium of a
 * renewal process).
 */
/**
 * Pods that come and end: a Poisson process of pods drawn from a workload, with lifetimes drawn independently. Equal for
 * equal arguments; not for several threads.
 */
final class ArrivalProcess {
    /** The workload of the openb trace whose lifetimes are taken for one that has none. */
    static final String LIFETIMES = "default";

    /**
     * A pod that comes.
     *
     * @param at seconds after the start
     * @param lifetime in seconds, if it is placed
     */
    record Arrival(double at, TracePod pod, double lifetime) {}

    private final Random random;
    private final List<TracePod> workload;
    private final double[] lifetimes;
    private final double meanLifetime;
    private final double meanGap;
    private double now;

    /**
     * ArrivalProcess.
     *
     * @param offered GPU that all pods together would hold in the mean if each found its place, in percent of what there is
     * @throws TraceException where lifetimes are not known
     */
    ArrivalProcess(Trace trace, List<TracePod> workload, int offered, long seed) {
        this.random = new Random(seed);
        this.workload = workload;
        this.lifetimes = lifetimes(trace, workload);
        this.meanLifetime = mean(lifetimes);
        double meanAsked = workload.stream().mapToLong(trace::asked).average().orElseThrow();
        // Little's law: what is there in the mean is the rate of arrivals times how long each stays.
        this.meanGap = meanAsked * meanLifetime / (trace.capacity() * (offered / 100.0));
    }

    private static double[] lifetimes(Trace trace, List<TracePod> workload) {
        double[] own = seconds(workload);
        double[] known = own.length > 0 ? own : seconds(trace.workloads().getOrDefault(LIFETIMES, List.of()));
        if (known.length == 0 || mean(known) == 0) {
            throw new TraceException("no pod has a lifetime; expected creation_time and deletion_time in the workload's"
                    + " file or in that of the workload " + LIFETIMES + ", or leave out --departures");
        }
        return known;
    }

    private static double[] seconds(List<TracePod> pods) {
        return pods.stream()
                .map(TracePod::lifetime)
                .flatMap(Optional::stream)
                .mapToDouble(Duration::toSeconds)
                .toArray();
    }

    private static double mean(double[] values) {
        double sum = 0;
        for (double value : values) {
            sum += value;
        }
        return sum / values.length;
    }

    /** In seconds. */
    double meanLifetime() {
        return meanLifetime;
    }

    /** What is there at the start, in the order in which to place it. */
    List<Arrival> start() {
        List<Arrival> there = new ArrayList<>();
        double[] upTo = lifetimes.clone();
        Arrays.parallelPrefix(upTo, Double::sum);
        for (long i = Math.round(meanLifetime / meanGap); i > 0; i--) {
            int found = Arrays.binarySearch(upTo, random.nextDouble() * upTo[upTo.length - 1]);
            double lifetime = lifetimes[Math.min(found < 0 ? -found - 1 : found, lifetimes.length - 1)];
            there.add(new Arrival(0, drawn(), random.nextDouble() * lifetime));
        }
        return there;
    }

    /** The next that comes. */
    Arrival next() {
        now -= meanGap * Math.log(1 - random.nextDouble());
        return new Arrival(now, drawn(), lifetimes[random.nextInt(lifetimes.length)]);
    }

    private TracePod drawn() {
        return workload.get(random.nextInt(workload.size()));
    }
}
