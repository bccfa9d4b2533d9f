package io.aliquot.simulator;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.Random;

/*
 * The process starts in equilibrium, since lifetimes are heavy-tailed: in the workload default of the openb trace the
 * mean is 26,000 s, the median 540 s, and pods that live longer than 100 mean lifetimes make up three quarters of all
 * pod time. From an empty cluster, 130 % offered would fill 17 % of it in five mean lifetimes. The initial pods are
 * those of a process that has run forever: as many as arrive in a mean lifetime, each drawn with a probability
 * proportional to its lifetime, and at a random point of its life (the equilibrium of a renewal process).
 */
/**
 * Pods that arrive and end: a Poisson process of pods drawn from a workload, with lifetimes drawn independently. Equal
 * arguments give equal pods. Not thread-safe.
 */
final class ArrivalProcess {
    /** The workload of the openb trace that gives its lifetimes to workloads without any. */
    static final String LIFETIMES = "default";

    /**
     * A pod that arrives.
     *
     * @param at seconds after the start
     * @param lifetime in seconds after its placement
     */
    record Arrival(double at, TracePod pod, double lifetime) {}

    private final Random random;
    private final List<TracePod> workload;
    private final double[] lifetimes;
    private final double meanLifetime;
    private final double meanGap;
    private double now;

    /**
     * Creates a process.
     *
     * @param offered GPU that the pods would hold on average if all were placed, in percent of the capacity
     * @throws TraceException if no lifetimes are known
     */
    ArrivalProcess(Trace trace, List<TracePod> workload, int offered, long seed) {
        this.random = new Random(seed);
        this.workload = workload;
        this.lifetimes = lifetimes(trace, workload);
        this.meanLifetime = mean(lifetimes);
        double meanRequested =
                workload.stream().mapToLong(trace::requestedGpu).average().orElseThrow();
        // Little's law: the mean number of pods is the arrival rate times the mean lifetime.
        this.meanGap = meanRequested * meanLifetime / (trace.capacity() * (offered / 100.0));
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

    /** Mean lifetime in seconds. */
    double meanLifetime() {
        return meanLifetime;
    }

    /** The pods that run at the start, in the order to place them. */
    List<Arrival> initialPods() {
        List<Arrival> pods = new ArrayList<>();
        double[] cumulative = lifetimes.clone();
        Arrays.parallelPrefix(cumulative, Double::sum);
        for (long i = Math.round(meanLifetime / meanGap); i > 0; i--) {
            int found = Arrays.binarySearch(cumulative, random.nextDouble() * cumulative[cumulative.length - 1]);
            double lifetime = lifetimes[Math.min(found < 0 ? -found - 1 : found, lifetimes.length - 1)];
            pods.add(new Arrival(0, randomPod(), random.nextDouble() * lifetime));
        }
        return pods;
    }

    /** The next pod. */
    Arrival next() {
        now -= meanGap * Math.log(1 - random.nextDouble());
        return new Arrival(now, randomPod(), lifetimes[random.nextInt(lifetimes.length)]);
    }

    private TracePod randomPod() {
        return workload.get(random.nextInt(workload.size()));
    }
}
