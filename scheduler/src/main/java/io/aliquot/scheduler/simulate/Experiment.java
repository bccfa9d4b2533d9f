package io.aliquot.scheduler.simulate;

import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.simulate.Replay.Placed;
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
 * Pods that come to a cluster one after another. Immutable.
 *
 * @param offered GPU that drawn pods ask for altogether, or at a time where they end, in percent of what there is
 * @param lifetimes how many mean lifetimes pods come and go for; 0 if they stay
 * @param required GPU models that pods are made to require
 */
record Experiment(Trace trace, Arrivals arrivals, int offered, int lifetimes, RequiredModels required) {
    /** Of a thread, so that others on the same cores don't count. */
    private static final ThreadMXBean CPU = ManagementFactory.getThreadMXBean();

    private static final double DEMAND_STEP = 0.5;
    private static final double TIME_STEP = 0.01;
    /** Mean lifetimes until it counts. */
    private static final int WARM_UP = 1;

    /** Whether pods end. */
    boolean departures() {
        return lifetimes > 0;
    }

    /** Between two samples: percent of demand that has arrived or, where pods end, mean lifetimes. */
    double step() {
        return departures() ? TIME_STEP : DEMAND_STEP;
    }

    /** Offers a workload's pods to a policy. */
    Outcome run(List<Pod> workload, Contender contender, long seed) {
        var run = new Run(required.of(trace, workload, seed), contender, seed);
        return departures() ? run.comeAndGo() : run.stay();
    }

    /** Something that was placed, and when it ends. */
    private record Ending(double at, Pod pod, Placed placed) {}

    private final class Run {
        private final long start = System.nanoTime();
        private final List<Pod> workload;
        private final long seed;
        private final Replay replay;
        private final TypicalPods typical;
        private final Map<FreeCapacity, Double> fragmentation = new HashMap<>();
        private final List<Outcome.Sample> samples = new ArrayList<>();
        private final Map<Failure, Integer> failed = new EnumMap<>(Failure.class);
        /** In nanoseconds. */
        private final LongStream.Builder decisions = LongStream.builder();

        /** What the pods that are there asked for. */
        private long placed;

        Run(List<Pod> workload, Contender contender, long seed) {
            this.workload = workload;
            this.seed = seed;
            this.replay = new Replay(trace.nodes(), contender, workload, seed);
            this.typical = TypicalPods.of(workload.stream().map(replay::demand).toList());
        }

        Outcome stay() {
            List<Pod> pods = arrivals.of(trace, workload, trace.capacity() * offered / 100, seed);
            long asked = 0;
            samples.add(sample());
            for (Pod pod : pods) {
                var unused = offer(pod);
                asked += trace.asked(pod);
                if (reached(asked)) {
                    Outcome.Sample sample = sample();
                    while (reached(asked)) {
                        samples.add(sample);
                    }
                }
            }
            return outcome(sample(), pods.size());
        }

        private boolean reached(long asked) {
            return asked * 100.0 / DEMAND_STEP >= (double) trace.capacity() * samples.size();
        }

        Outcome comeAndGo() {
            var coming = new Traffic(trace, workload, offered, seed);
            double step = TIME_STEP * coming.meanLifetime();
            double end = lifetimes * coming.meanLifetime();
            var endings = new PriorityQueue<Ending>(Comparator.comparingDouble(Ending::at));
            int pods = 0;
            for (Traffic.Arrival there : coming.start()) {
                offer(there, endings);
                pods++;
            }
            for (Traffic.Arrival next = coming.next(); next.at() < end; next = coming.next()) {
                pass(endings, next.at(), step);
                offer(next, endings);
                pods++;
            }
            pass(endings, end, step);
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

        /** Lets time pass: ends what ends, and takes the samples that are due before. */
        private void pass(PriorityQueue<Ending> endings, double until, double step) {
            while (true) {
                Ending next = endings.peek();
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
                endings.remove();
                replay.end(next.placed());
                placed -= trace.asked(next.pod());
            }
        }

        private void offer(Traffic.Arrival arrival, PriorityQueue<Ending> endings) {
            offer(arrival.pod())
                    .ifPresent(
                            found -> endings.add(new Ending(arrival.at() + arrival.lifetime(), arrival.pod(), found)));
        }

        private Optional<Placed> offer(Pod pod) {
            long begin = CPU.getCurrentThreadCpuTime();
            Optional<Placed> found = replay.offer(pod);
            decisions.add(CPU.getCurrentThreadCpuTime() - begin);
            if (found.isPresent()) {
                placed += trace.asked(pod);
            } else {
                failed.merge(Failure.of(replay.demand(pod), replay.nodes()), 1, Integer::sum);
            }
            return found;
        }

        private Outcome outcome(Outcome.Sample figures, int pods) {
            return new Outcome(
                    samples,
                    figures.allocated(),
                    figures.placed(),
                    figures.stranded(),
                    failed,
                    pods,
                    replay.rooms().stream().map(Run::fullness).toList(),
                    replay.held(),
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
            for (Replay.Alike node : replay.nodes()) {
                stranded += node.nodes() * fragmentation.computeIfAbsent(node.room(), typical::fragmentation);
            }
            return stranded;
        }

        private static List<Double> fullness(FreeCapacity room) {
            List<Double> gpus = new ArrayList<>();
            for (int gpu = 0; gpu < room.gpus(); gpu++) {
                gpus.add(100 - room.part(gpu) * 100.0 / FreeCapacity.WHOLE);
            }
            return gpus;
        }
    }
}
