package io.aliquot.simulator;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.tuple;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.pods.GpuRequest;
import io.aliquot.api.pods.MemoryRequest;
import io.aliquot.scheduler.simulation.PodRequest;
import io.aliquot.scheduler.simulation.SimulatedNode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.TreeMap;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class RequiredModelsTest {
    /** Nodes of openb's sizes with 192 G2, 24 T4 and 8 P100. */
    private static final Trace TRACE = trace();

    private static final List<TracePod> WORKLOAD = IntStream.range(0, 400)
            .mapToObj(i -> switch (i % 8) {
                case 0 -> pod(i, 16_000, 8, 1_000, "");
                case 1, 2 -> pod(i, 4_000, 1, 460, "");
                case 3 -> pod(i, 6_000, 1, 810, "");
                case 4, 5 -> pod(i, 8_000, 1, 1_000, "");
                case 6 -> pod(i, 24_000, 2, 1_000, "");
                default -> pod(i, 20_000, 0, 0, "");
            })
            .toList();

    private static Trace trace() {
        List<SimulatedNode> nodes = new ArrayList<>();
        for (int i = 0; i < 24; i++) {
            nodes.add(node("g2-" + i, 8, "G2", 96_000, 384));
        }
        for (int i = 0; i < 12; i++) {
            nodes.add(node("t4-" + i, 2, "T4", 104_000, 512));
        }
        for (int i = 0; i < 4; i++) {
            nodes.add(node("p100-" + i, 2, "P100", 64_000, 256));
        }
        return new Trace(nodes, new TreeMap<>(), List.of());
    }

    private static SimulatedNode node(String name, int gpus, String model, int cpuMillis, long gib) {
        return TestPods.node(name, new UniformGpus(gpus, model, Trace.WHOLE, 64), cpuMillis, gib << 30);
    }

    private static TracePod pod(int number, int cpuMillis, int gpus, int milli, String model) {
        var request = milli < Trace.WHOLE
                ? new GpuRequest(1, new MemoryRequest.Mebibytes(Math.max(1, milli)), 0, false)
                : new GpuRequest(gpus, new MemoryRequest.WholeCard(), 0, true);
        return TestPods.pod(
                "p" + number,
                PodRequest.of(
                        gpus == 0 ? Optional.empty() : Optional.of(request),
                        model.isEmpty() ? Map.of() : Map.of(Annotations.USE_GPU_MODEL, model),
                        cpuMillis,
                        8L << 30));
    }

    private static List<String> accepted(TracePod pod) {
        return TRACE.nodes().stream()
                .map(node -> node.inventory().gpus().get(0))
                .filter(pod.request()::accepts)
                .map(Gpu::model)
                .distinct()
                .toList();
    }

    @Test
    void aPercentageOfThePodsWithGpusRequiresAModelThatFitsThem() {
        List<TracePod> pods = new RequiredModels(40, "").of(TRACE, WORKLOAD, 7);

        List<TracePod> requiring = pods.stream()
                .filter(pod -> pod.request().requestsGpu() && accepted(pod).size() == 1)
                .toList();
        assertThat(requiring).hasSize(140); // of 350
        assertThat(requiring.stream()
                        .filter(pod -> accepted(pod).equals(List.of("T4")))
                        .count())
                .isBetween(4L, 40L);
        assertThat(requiring)
                .filteredOn(pod -> pod.request().maxVgpus() == 8)
                .isNotEmpty()
                .allMatch(pod -> accepted(pod).equals(List.of("G2")));
        assertThat(pods)
                .extracting(
                        pod -> pod.request().cpuMillis(), pod -> pod.request().memoryBytes())
                .isEqualTo(WORKLOAD.stream()
                        .map(pod ->
                                tuple(pod.request().cpuMillis(), pod.request().memoryBytes()))
                        .toList());
        assertThat(new RequiredModels(40, "").of(TRACE, WORKLOAD, 7)).isEqualTo(pods);
        assertThat(new RequiredModels(40, "").of(TRACE, WORKLOAD, 8)).isNotEqualTo(pods);
    }

    @Test
    void podsThatAlreadyRequireAModelCountAndKeepIt() {
        List<TracePod> workload = List.of(
                pod(0, 1_000, 1, 500, "P100"),
                pod(1, 1_000, 1, 500, ""),
                pod(2, 1_000, 1, 500, ""),
                pod(3, 1_000, 1, 500, ""));

        List<TracePod> pods = new RequiredModels(50, "T4").of(TRACE, workload, 1);

        assertThat(accepted(pods.get(0))).containsExactly("P100");
        assertThat(pods).filteredOn(pod -> accepted(pod).equals(List.of("T4"))).hasSize(1);
        assertThat(new RequiredModels(25, "T4").of(TRACE, workload, 1)).isEqualTo(workload);
    }

    @Test
    void anotherFormatThanPercentAndModelIsRejected() {
        assertThat(RequiredModels.parse("25")).isEqualTo(new RequiredModels(25, ""));
        assertThat(RequiredModels.parse("25:V100M16")).isEqualTo(new RequiredModels(25, "V100M16"));
        for (String wrong : List.of("101", "-1", "T4", "25%", "")) {
            assertThatThrownBy(() -> RequiredModels.parse(wrong)).isInstanceOf(IllegalArgumentException.class);
        }
    }

    /** Without a cost for capacity that is scarce, pods that accept any model use up the required one. */
    @ParameterizedTest
    @CsvSource({"10:T4, 0.5", "25:T4, 1", "25, 0"})
    void fragmentationAllocatesMoreThanFgdIfManyPodsRequireAModel(String required, double points) {
        assertThat(margin(TRACE, WORKLOAD, RequiredModels.parse(required), 4).at100())
                .as("points more than FGD at 100 %")
                .isGreaterThan(points);
    }

    /**
     * Workloads of openb, from ../shared/openb or where {@code ALIQUOT_OPENB} points to: the long tier. A pair takes four
     * minutes of CPU time, so not each workload is paired with each requirement.
     */
    @ParameterizedTest
    @CsvSource({
        "5, default",
        "10, gpushare40",
        "25, multigpu30",
        "50, gpuspec20",
        "5:T4, cpu100",
        "10:T4, default",
        "25:T4, gpushare40",
        "50:T4, multigpu30",
        "10:P100, gpuspec20",
        "25:P100, cpu100",
        "50:P100, default",
        "25:G2, gpushare40"
    })
    @EnabledIfEnvironmentVariable(named = "ALIQUOT_LONG", matches = "1")
    void fragmentationAllocatesNoLessThanFgdOnWorkloadsOfTheTrace(String required, String workload) {
        String folder = System.getenv().getOrDefault("ALIQUOT_OPENB", "../../shared/openb");
        assumeTrue(Files.isDirectory(Path.of(folder)), folder + " is missing");
        Trace trace = OpenbTrace.read(Path.of(folder));
        List<TracePod> pods = Objects.requireNonNull(trace.workloads().get(workload));
        Margin margin = margin(trace, pods, RequiredModels.parse(required), 10);
        assertThat(margin.at100()).as("at 100 %%").isGreaterThan(-margin.interval100());
        assertThat(margin.atEnd()).as("at 130 %%").isGreaterThan(-margin.intervalEnd());
    }

    /** By how many points fragmentation allocates more than FGD on average, and the 95 % interval of the mean. */
    private record Margin(double at100, double interval100, double atEnd, double intervalEnd) {}

    private static Margin margin(Trace trace, List<TracePod> workload, RequiredModels required, int seeds) {
        var experiment = new Experiment(trace, ArrivalOrder.DRAWN, 130, 0, required);
        var at100 = new double[seeds];
        var atEnd = new double[seeds];
        IntStream.range(0, seeds).parallel().forEach(seed -> {
            Outcome fragmentation = experiment.run(workload, Policy.FRAGMENTATION, seed);
            Outcome fgd = experiment.run(workload, Policy.FGD, seed);
            int full = (int) (100 / experiment.step());
            at100[seed] = fragmentation.samples().get(full).allocated()
                    - fgd.samples().get(full).allocated();
            atEnd[seed] = fragmentation.allocated() - fgd.allocated();
        });
        return new Margin(mean(at100), interval(at100), mean(atEnd), interval(atEnd));
    }

    private static double mean(double[] values) {
        return Arrays.stream(values).average().orElseThrow();
    }

    /** By Student's t with 9 degrees of freedom, for 10 seeds. */
    private static double interval(double[] values) {
        double mean = mean(values);
        double squares = Arrays.stream(values)
                .map(value -> (value - mean) * (value - mean))
                .sum();
        return 2.262 * Math.sqrt(squares / (values.length - 1) / values.length);
    }
}
