package io.aliquot.simulator;

import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.simulation.PlacementEngine.PlacedPod;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.PriorityQueue;
import java.util.function.ToDoubleFunction;
import java.util.stream.LongStream;

/**
 * Pods that arrive at a cluster one after another. Immutable.
 *
 * @param offered GPU that all drawn pods request, or where pods end the pods of one moment, in percent of the capacity
 * @param lifetimes length of the replay in mean lifetimes; 0 if pods do not end
 * @param required GPU models that the pods are made to require
 */
record Experiment(Trace trace, ArrivalOrder order, int offered, int lifetimes, RequiredModels required) {
    /** CPU time per thread excludes other threads on the same cores. */
    private static final ThreadMXBean CPU = ManagementFactory.getThreadMXBean();

    private static final double DEMAND_STEP = 0.5;
    private static final double TIME_STEP = 0.01;
    /** Mean lifetimes before the measurement starts. */
    private static final int WARM_UP = 1;

    /** Whether pods end. */
    boolean departures() {
        return lifetimes > 0;
    }

    /** Between two samples: percent of GPU capacity requested so far or, where pods end, mean lifetimes. */
    double step() {
        return departures() ? TIME_STEP : DEMAND_STEP;
    }

    /** Replays a workload with a policy. */
    Outcome run(List<TracePod> workload, Policy policy, long seed) {
        var run = new Run(required.of(trace, workload, seed), policy, seed);
        return departures() ? run.withDepartures() : run.withoutDepartures();
    }

    /** A placed pod, and when it ends. */
    private record Departure(double at, TracePod pod, PlacedPod placed) {}

    private final class Run {
        private final long start = System.nanoTime();
        private final List<TracePod> workload;
        private final long seed;
        private final Replay replay;
        private final TypicalPods typicalPods;
        private final Map<FreeCapacity, Double> fragmentation = new HashMap<>();
        private final List<Outcome.Sample> samples = new ArrayList<>();
        private final Map<UnschedulableReason, Integer> failed = new EnumMap<>(UnschedulableReason.class);
        /** CPU time in nanoseconds. */
        private final LongStream.Builder decisions = LongStream.builder();

        /** GPU that the placed pods request. */
        private long placed;

        Run(List<TracePod> workload, Policy policy, long seed) {
            this.workload = workload;
            this.seed = seed;
            this.replay = new Replay(trace.nodes(), policy, workload, seed);
            this.typicalPods =
                    TypicalPods.of(workload.stream().map(replay::demand).toList());
        }

        Outcome withoutDepartures() {
            List<TracePod> pods = order.arrivals(trace, workload, trace.capacity() * offered / 100, seed);
            long requested = 0;
            samples.add(sample());
            for (TracePod pod : pods) {
                var unused = place(pod);
                requested += trace.requestedGpu(pod);
                if (reached(requested)) {
                    Outcome.Sample sample = sample();
                    while (reached(requested)) {
                        samples.add(sample);
                    }
                }
            }
            return outcome(sample(), pods.size());
        }

        private boolean reached(long requested) {
            return requested * 100.0 / DEMAND_STEP >= (double) trace.capacity() * samples.size();
        }

        Outcome withDepartures() {
            var process = new ArrivalProcess(trace, workload, offered, seed);
            double step = TIME_STEP * process.meanLifetime();
            double end = lifetimes * process.meanLifetime();
            var departures = new PriorityQueue<Departure>(Comparator.comparingDouble(Departure::at));
            int pods = 0;
            for (ArrivalProcess.Arrival initial : process.initialPods()) {
                place(initial, departures);
                pods++;
            }
            for (ArrivalProcess.Arrival next = process.next(); next.at() < end; next = process.next()) {
                advance(departures, next.at(), step);
                place(next, departures);
                pods++;
            }
            advance(departures, end, step);
            List<Outcome.Sample> measured = samples.subList((int) Math.round(WARM_UP / TIME_STEP), samples.size());
            return outcome(
                    new Outcome.Sample(
                            mean(measured, Outcome.Sample::allocated),
                            mean(measured, Outcome.Sample::placed),
                            mean(measured, Outcome.Sample::stranded)),
                    pods);
        }

        private static double mean(List<Outcome.Sample> samples, ToDoubleFunction<Outcome.Sample> figure) {
            return samples.stream().mapToDouble(figure).average().orElseThrow();
        }

        /** Advances the time: ends pods, and takes the samples that are due before each end. */
        private void advance(PriorityQueue<Departure> departures, double until, double step) {
            while (true) {
                Departure next = departures.peek();
                double at = next == null ? until : Math.min(next.at(), until);
                if (samples.size() * step <= at) {
                    Outcome.Sample sample = sample();
                    while (samples.size() * step <= at) {
                        samples.add(sample);
                    }
                }
                if (next == null || next.at() > until) {
                    return;
                }
                departures.remove();
                replay.end(next.placed());
                placed -= trace.requestedGpu(next.pod());
            }
        }

        private void place(ArrivalProcess.Arrival arrival, PriorityQueue<Departure> departures) {
            place(arrival.pod())
                    .ifPresent(pod ->
                            departures.add(new Departure(arrival.at() + arrival.lifetime(), arrival.pod(), pod)));
        }

        private Optional<PlacedPod> place(TracePod pod) {
            long start = CPU.getCurrentThreadCpuTime();
            Optional<PlacedPod> result = replay.place(pod);
            decisions.add(CPU.getCurrentThreadCpuTime() - start);
            if (result.isPresent()) {
                placed += trace.requestedGpu(pod);
            } else {
                failed.merge(UnschedulableReason.of(replay.demand(pod), replay.groups()), 1, Integer::sum);
            }
            return result;
        }

        private Outcome outcome(Outcome.Sample figures, int pods) {
            return new Outcome(
                    samples,
                    figures.allocated(),
                    figures.placed(),
                    figures.stranded(),
                    failed,
                    pods,
                    replay.capacities().stream().map(Run::fullness).toList(),
                    replay.usage(),
                    (System.nanoTime() - start) / 1e9,
                    Outcome.Decisions.of(decisions.build().toArray()));
        }

        private Outcome.Sample sample() {
            return new Outcome.Sample(
                    percent((double) replay.allocated()), percent((double) placed), percent(stranded()));
        }

        private double percent(double milliGpus) {
            return 100.0 * milliGpus / trace.capacity();
        }

        private double stranded() {
            double stranded = 0;
            for (Replay.NodeGroup group : replay.groups()) {
                stranded += group.nodes() * fragmentation.computeIfAbsent(group.capacity(), typicalPods::fragmentation);
            }
            return stranded;
        }

        /** Allocated percent of each GPU, the fullest first. */
        private static List<Double> fullness(FreeCapacity node) {
            List<Double> gpus = new ArrayList<>();
            for (int gpu = 0; gpu < node.gpus(); gpu++) {
                gpus.add(100 - node.part(gpu) * 100.0 / FreeCapacity.WHOLE);
            }
            return gpus;
        }
    }
}
