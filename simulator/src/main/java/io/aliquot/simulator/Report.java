package io.aliquot.simulator;

import io.aliquot.scheduler.placement.GpuAmount;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.function.ToDoubleFunction;
import org.jspecify.annotations.Nullable;

/**
 * The results of a simulation, as JSON and in the HTML page. GPU amounts are percent of the cluster's GPU capacity,
 * rounded to thousandths.
 *
 * @param nodes of the map, in the order of {@link Result#gpus}
 */
record Report(Program program, Input input, List<MapNode> nodes, List<Result> results) {
    /** The program that ran. */
    record Program(String version, List<String> arguments) {}

    /**
     * The input of the simulation.
     *
     * @param source names of the files, or of the cluster
     * @param offered GPU that drawn pods request, in percent
     * @param lifetimes length of the replay in mean lifetimes; 0 if pods do not end
     * @param seeds number of seeds, from 0 up
     * @param alike whether all GPUs have the same memory
     * @param remarks what the simulation leaves out of its input
     */
    record Input(
            String source,
            int nodes,
            int gpus,
            String arrivals,
            int offered,
            int lifetimes,
            int seeds,
            boolean alike,
            List<String> remarks) {}

    /**
     * A node in the map of GPUs.
     *
     * @param model of its first GPU
     * @param uuids of the GPUs; derived from the node's name where unknown
     */
    record MapNode(String name, String model, int gpus, List<String> uuids) {}

    /**
     * The results of a workload with a policy.
     *
     * @param pods of the workload
     * @param mean over the replays
     * @param replays one per seed
     * @param curve over the GPU capacity requested so far, or over time
     * @param gpus how full each GPU is at the end with seed 0, in percent, by node
     * @param held what pods hold of each GPU at that time
     */
    record Result(
            String workload,
            String policy,
            int pods,
            Figures mean,
            List<Figures> replays,
            Curve curve,
            List<List<Integer>> gpus,
            Held held) {}

    /**
     * What pods hold of each GPU, by node and in the order of {@link MapNode#uuids}.
     *
     * @param cores percent
     */
    record Held(List<List<Long>> memoryMiB, List<List<Integer>> cores, List<List<Integer>> vgpus) {
        private static final Held OMITTED = new Held(List.of(), List.of(), List.of());

        private static Held of(List<List<GpuAmount>> held) {
            return new Held(
                    each(held, GpuAmount::memoryMiB), each(held, GpuAmount::cores), each(held, GpuAmount::slots));
        }

        private static <T> List<List<T>> each(List<List<GpuAmount>> held, Function<GpuAmount, T> amount) {
            return held.stream().map(node -> node.stream().map(amount).toList()).toList();
        }
    }

    /**
     * The figures of a replay, or the mean over several.
     *
     * @param atCapacity allocated when the pods had requested 100 % of the capacity; null if they never did, or if pods
     *     end
     * @param placedAtCapacity placed at that time
     * @param allocated after the last pod; where pods end, the mean over time
     * @param placed the same of what the placed pods request, measured by the mean GPU
     * @param stranded the same of the stranded capacity
     * @param pods that arrived
     * @param failed pods that fitted on no node, by the reason
     * @param seconds that the replay took
     * @param decisionMillis CPU time per pod
     */
    record Figures(
            @Nullable Double atCapacity,
            @Nullable Double placedAtCapacity,
            double allocated,
            double placed,
            double stranded,
            double pods,
            Map<UnschedulableReason, Double> failed,
            double seconds,
            Outcome.Decisions decisionMillis) {}

    /**
     * A curve over the GPU capacity requested so far, in percent; where pods end, over time in mean lifetimes.
     *
     * @param step between two values; the first is at 0
     */
    record Curve(double step, Band allocated, Band stranded) {}

    /** Mean and range over the replays. */
    record Band(List<Double> mean, List<Double> min, List<Double> max) {}

    /** Summarizes the replays of a workload with a policy. */
    static Result result(String workload, Policy policy, int pods, List<Outcome> outcomes, Experiment experiment) {
        return new Result(
                workload,
                policy.toString(),
                pods,
                mean(outcomes, experiment),
                outcomes.stream()
                        .map(outcome -> mean(List.of(outcome), experiment))
                        .toList(),
                new Curve(
                        experiment.step(),
                        band(outcomes, Outcome.Sample::allocated),
                        band(outcomes, Outcome.Sample::stranded)),
                outcomes.get(0).gpus().stream()
                        .map(node ->
                                node.stream().map(gpu -> (int) Math.round(gpu)).toList())
                        .toList(),
                Held.of(outcomes.get(0).held()));
    }

    /** The nodes of a trace. */
    static List<MapNode> nodes(Trace trace) {
        return trace.nodes().stream()
                .map(node -> new MapNode(
                        node.name(),
                        node.inventory().gpus().stream()
                                .findFirst()
                                .map(gpu -> gpu.model())
                                .orElse(""),
                        node.inventory().gpus().size(),
                        node.inventory().gpus().stream().map(gpu -> gpu.uuid()).toList()))
                .toList();
    }

    /** The report without what the page does not show, and what would multiply its size. */
    Report page() {
        return new Report(
                program,
                input,
                nodes.stream()
                        .map(node -> new MapNode(node.name(), node.model(), node.gpus(), List.of()))
                        .toList(),
                results.stream()
                        .map(result -> new Result(
                                result.workload(),
                                result.policy(),
                                result.pods(),
                                result.mean(),
                                result.replays(),
                                result.curve(),
                                result.gpus(),
                                Held.OMITTED))
                        .toList());
    }

    private static Figures mean(List<Outcome> outcomes, Experiment experiment) {
        Map<UnschedulableReason, Double> failed = new EnumMap<>(UnschedulableReason.class);
        for (UnschedulableReason failure : UnschedulableReason.values()) {
            double pods = mean(outcomes, outcome -> outcome.failed().getOrDefault(failure, 0));
            if (pods > 0) {
                failed.put(failure, pods);
            }
        }
        return new Figures(
                atCapacity(outcomes, Outcome.Sample::allocated, experiment),
                atCapacity(outcomes, Outcome.Sample::placed, experiment),
                mean(outcomes, Outcome::allocated),
                mean(outcomes, Outcome::placed),
                mean(outcomes, Outcome::stranded),
                mean(outcomes, Outcome::pods),
                failed,
                mean(outcomes, Outcome::seconds),
                new Outcome.Decisions(
                        mean(outcomes, outcome -> outcome.decisions().p50()),
                        mean(outcomes, outcome -> outcome.decisions().p99())));
    }

    private static @Nullable Double atCapacity(
            List<Outcome> outcomes, ToDoubleFunction<Outcome.Sample> figure, Experiment experiment) {
        int capacity = (int) Math.round(100 / experiment.step());
        boolean reached = !experiment.departures()
                && outcomes.stream().allMatch(outcome -> outcome.samples().size() > capacity);
        return reached
                ? (Double) mean(
                        outcomes,
                        outcome -> figure.applyAsDouble(outcome.samples().get(capacity)))
                : null;
    }

    private static double mean(List<Outcome> outcomes, ToDoubleFunction<Outcome> figure) {
        return rounded(outcomes.stream().mapToDouble(figure).average().orElseThrow());
    }

    /** The samples that all replays have; some seeds draw one step more than others. */
    private static Band band(List<Outcome> outcomes, ToDoubleFunction<Outcome.Sample> figure) {
        int length = outcomes.stream()
                .mapToInt(outcome -> outcome.samples().size())
                .min()
                .orElseThrow();
        var band = new Band(new ArrayList<>(), new ArrayList<>(), new ArrayList<>());
        for (int i = 0; i < length; i++) {
            int at = i;
            var over = outcomes.stream()
                    .mapToDouble(
                            outcome -> figure.applyAsDouble(outcome.samples().get(at)))
                    .summaryStatistics();
            band.mean().add(rounded(over.getAverage()));
            band.min().add(rounded(over.getMin()));
            band.max().add(rounded(over.getMax()));
        }
        return band;
    }

    private static double rounded(double value) {
        return Math.round(value * 1000) / 1000.0;
    }

    /** The results of each workload, one per policy. */
    List<List<Result>> byWorkload() {
        return results.stream()
                .map(Result::workload)
                .distinct()
                .map(workload -> results.stream()
                        .filter(result -> result.workload().equals(workload))
                        .toList())
                .toList();
    }
}
