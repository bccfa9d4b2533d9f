package io.aliquot.simulator;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.tuple;

import io.aliquot.api.names.Resources;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.pods.GpuRequest;
import io.aliquot.api.pods.MemoryRequest;
import io.aliquot.scheduler.simulation.PodRequest;
import io.aliquot.scheduler.simulation.SimulatedNode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class OpenbTraceTest {
    private static final String NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\n";
    private static final String COLUMNS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n";

    private static final String SIZED_NODES = """
            sn,cpu_milli,memory_mib,gpu,model,gpu_memory_mib
            n0,48000,196608,2,T4,16000
            n1,48000,196608,2,L40S,48000
            n2,48000,196608,0,none,
            """;
    private static final String AMOUNTS =
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_mem_mib,gpu_cores,gpu_spec\n";

    @TempDir
    @SuppressWarnings("NullAway.Init")
    private Path folder;

    @Test
    void aThousandthOfAGpuIsOneMebibyteAndAWholeGpuIsExclusive() throws IOException {
        write(OpenbTrace.NODES, NODES);
        write("openb_pod_list_a.csv", COLUMNS + "p0,1000,2048,1,460,\np1,1000,2048,2,1000,\np2,1000,2048,0,0,\n");

        Trace trace = OpenbTrace.read(folder);

        SimulatedNode node = trace.nodes().get(0);
        assertThat(node.name()).isEqualTo("n0");
        assertThat(node.cpuMillis()).isEqualTo(64_000);
        assertThat(node.memoryBytes()).isEqualTo(262_144L << 20);
        assertThat(node.inventory().gpus())
                .extracting(Gpu::model, Gpu::memoryMiB)
                .containsExactly(tuple("P100", 1000), tuple("P100", 1000));
        assertThat(trace.capacity()).isEqualTo(2000);
        List<TracePod> pods = trace.workloads().getOrDefault("a", List.of());
        assertThat(pods.get(0).request().cpuMillis()).isEqualTo(1_000);
        assertThat(pods.get(0).request().memoryBytes()).isEqualTo(2_048L << 20);
        assertThat(requests(pods))
                .containsExactly(
                        "APP " + new GpuRequest(1, new MemoryRequest.Mebibytes(460), 0, false),
                        "APP " + new GpuRequest(2, new MemoryRequest.WholeCard(), 0, true));
        assertThat(pods).extracting(trace::requestedGpu).containsExactly(460L, 2000L, 0L);
    }

    private static List<String> requests(List<TracePod> pods) {
        return pods.stream()
                .map(TracePod::request)
                .filter(PodRequest::requestsGpu)
                .map(PodRequest::toString)
                .toList();
    }

    @Test
    void podsRequestMemoryAndCoresAsInAManifestIfNodesGiveTheMemoryOfTheirGpus() throws IOException {
        write(OpenbTrace.NODES, SIZED_NODES);
        write("openb_pod_list_a.csv", AMOUNTS + """
                both,1000,2048,1,,4000,30,
                memory,1000,2048,2,0,8000,,T4
                cores,1000,2048,1,,,25,
                whole,1000,2048,1,1000,,,
                none,1000,2048,0,0,,,
                """);

        Trace trace = OpenbTrace.read(folder);

        assertThat(trace.nodes().get(0).inventory().gpus())
                .extracting(Gpu::memoryMiB)
                .containsExactly(16_000, 16_000);
        assertThat(trace.meanMiB()).isEqualTo(32_000);
        assertThat(trace.capacity()).isEqualTo(4_000);
        List<TracePod> pods = trace.workloads().getOrDefault("a", List.of());
        assertThat(requests(pods))
                .containsExactly(
                        inManifest(Map.of(Resources.VGPU, "1", Resources.MEMORY, "4000", Resources.CORES, "30")),
                        inManifest(Map.of(Resources.VGPU, "2", Resources.MEMORY, "8000")),
                        inManifest(Map.of(Resources.VGPU, "1", Resources.CORES, "25")),
                        inManifest(Map.of(Resources.VGPU, "1")));
        assertThat(accepted(trace, pods.get(1))).containsExactly("n0");
        assertThat(pods).extracting(trace::requestedGpu).containsExactly(300L, 500L, 1000L, 1000L, 0L);
    }

    private static String inManifest(Map<String, String> limits) {
        return "APP " + GpuRequest.parse(limits).orElseThrow();
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '!',
            value = {
                "1,500,4000,!gpu_milli is \"500\" beside gpu_mem_mib or gpu_cores; expected 0 or nothing",
                "1,1000,,30!gpu_milli is \"1000\" beside gpu_mem_mib or gpu_cores; expected 0 or nothing",
                "1,500,,!gpu_milli is \"500\", but the nodes have gpu_memory_mib; expected 1000, or gpu_mem_mib and gpu_cores",
                "1,,4Gi,!gpu_mem_mib is \"4Gi\"; expected a whole number from 1 to 16777216",
                "1,,0,!gpu_mem_mib is \"0\"; expected a whole number from 1 to 16777216",
                "1,,4000,101!gpu_cores is \"101\"; expected a whole number from 0 to 100",
                "0,,4000,!num_gpu is \"0\"; expected a whole number from 1 to 64",
                "1,,,!gpu_milli is \"\"; expected a whole number from 1 to 1000",
            })
    void anInvalidAmountIsReportedWithFileAndLine(String cells, String message) throws IOException {
        write(OpenbTrace.NODES, SIZED_NODES);
        write("openb_pod_list_a.csv", AMOUNTS + "p0,1000,2048,1,,4000,30,\np1,1000,2048," + cells + ",\n");

        assertThatThrownBy(() -> OpenbTrace.read(folder))
                .isInstanceOf(TraceException.class)
                .hasMessageEndingWith("openb_pod_list_a.csv:3: " + message);
    }

    @Test
    void requestsInMebibytesNeedTheMemoryOfTheGpus() throws IOException {
        write(OpenbTrace.NODES, NODES);
        write("openb_pod_list_a.csv", AMOUNTS + "p0,1000,2048,1,,4000,30,\n");

        assertThatThrownBy(() -> OpenbTrace.read(folder))
                .isInstanceOf(TraceException.class)
                .hasMessageContaining("openb_pod_list_a.csv:2: gpu_mem_mib is \"4000\"")
                .hasMessageEndingWith("expected a column gpu_memory_mib in " + OpenbTrace.NODES);
    }

    @Test
    void theMemoryOfTheGpusIsRequiredForAllNodesOrNone() throws IOException {
        write(OpenbTrace.NODES, SIZED_NODES + "n3,48000,196608,1,T4,\n");
        write("openb_pod_list_a.csv", AMOUNTS + "p0,1000,2048,1,,4000,30,\n");

        assertThatThrownBy(() -> OpenbTrace.read(folder))
                .hasMessageEndingWith(
                        OpenbTrace.NODES + ":5: gpu_memory_mib is \"\"; expected a whole number from 1 to 16777216");
    }

    @Test
    void eachPodOfTheDocumentedInferenceMixFitsOnANode() {
        Trace trace = OpenbTrace.read(Path.of("../docs/placement/inference-mix"));
        List<TracePod> pods = trace.workloads().getOrDefault("inference", List.of());
        var empty = new Replay(trace.nodes(), Policy.BINPACK, pods, 0);

        assertThat(trace.capacity()).isEqualTo(688_000);
        assertThat(pods).hasSize(1_124);
        assertThat(pods)
                .allSatisfy(pod -> assertThat(empty.groups())
                        .anyMatch(node -> node.capacity().fits(empty.demand(pod))));
    }

    @Test
    void aPodAcceptsOnlyTheModelsOfItsSpec() throws IOException {
        write(OpenbTrace.NODES, NODES + "n1,64000,262144,1,V100M16\nn2,64000,262144,1,V100M32\n");
        write("openb_pod_list_a.csv", COLUMNS + "p0,1000,2048,1,460,P100|V100M16\np1,1000,2048,1,460,\n");

        Trace trace = OpenbTrace.read(folder);

        List<TracePod> pods = trace.workloads().getOrDefault("a", List.of());
        assertThat(accepted(trace, pods.get(0))).containsExactly("n0", "n1");
        assertThat(accepted(trace, pods.get(1))).containsExactly("n0", "n1", "n2");
    }

    private static List<String> accepted(Trace trace, TracePod pod) {
        return trace.nodes().stream()
                .filter(node -> node.inventory().gpus().stream().anyMatch(pod.request()::accepts))
                .map(SimulatedNode::name)
                .toList();
    }

    @Test
    void podsWithEqualRequestsShareOneObjectAcrossWorkloads() throws IOException {
        write(OpenbTrace.NODES, NODES);
        write("openb_pod_list_a.csv", COLUMNS + "p0,1000,2048,1,460,T4\n");
        write("openb_pod_list_b.csv", COLUMNS + "p0,1000,2048,1,460,T4\n");

        SortedMap<String, List<TracePod>> workloads = OpenbTrace.read(folder).workloads();

        assertThat(workloads.getOrDefault("a", List.of()).get(0).request())
                .isSameAs(workloads.getOrDefault("b", List.of()).get(0).request());
    }

    @Test
    void timesAreReadIfTheFileHasThem() throws IOException {
        write(OpenbTrace.NODES, NODES);
        write(
                "openb_pod_list_a.csv",
                "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\np0,1000,2048,1,460,5,65\n");
        write("openb_pod_list_b.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1000,2048,1,460\n");

        SortedMap<String, List<TracePod>> workloads = OpenbTrace.read(folder).workloads();

        TracePod known = workloads.getOrDefault("a", List.of()).get(0);
        assertThat(known.created()).isEqualTo(Instant.ofEpochSecond(5));
        assertThat(known.lifetime()).contains(Duration.ofMinutes(1));
        assertThat(workloads.getOrDefault("b", List.of()).get(0).lifetime()).isEmpty();
    }

    @Test
    void anInvalidValueIsReportedWithFileAndLine() throws IOException {
        write(OpenbTrace.NODES, NODES);
        write("openb_pod_list_a.csv", COLUMNS + "p0,1000,2048,1,460,\np1,1000,2048,2,460,\n");

        assertThatThrownBy(() -> OpenbTrace.read(folder))
                .isInstanceOf(TraceException.class)
                .hasMessageEndingWith(
                        "openb_pod_list_a.csv:3: gpu_milli is \"460\"; expected a whole number from 1000 to 1000");
    }

    @Test
    void aLineWithTooFewValuesIsRejected() throws IOException {
        write(OpenbTrace.NODES, NODES + "n1,64000,262144\n");

        assertThatThrownBy(() -> OpenbTrace.read(folder))
                .hasMessageEndingWith(OpenbTrace.NODES + ":3: has 3 values, and the first line names 5");
    }

    @Test
    void aMissingColumnIsReported() throws IOException {
        write(OpenbTrace.NODES, "sn,cpu_milli,memory_mib,gpu\n");

        assertThatThrownBy(() -> OpenbTrace.read(folder))
                .hasMessageContaining(OpenbTrace.NODES + ":1: no column model");
    }

    @Test
    void aFolderWithoutWorkloadsIsReportedWithTheExpectedFileName() throws IOException {
        write(OpenbTrace.NODES, NODES);

        assertThatThrownBy(() -> OpenbTrace.read(folder)).hasMessageContaining("openb_pod_list_*.csv");
    }

    private void write(String name, String text) throws IOException {
        Files.writeString(folder.resolve(name), text);
    }
}
