package io.aliquot.simulator;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.nodes.SharingMode;
import io.aliquot.scheduler.placement.GpuCapacity;
import io.aliquot.scheduler.simulation.SimulatedNode;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The resources contain dumps of clusters, each with the expected trace as text. */
class ClusterTraceTest {
    private static final Path DUMPS = Path.of("src/test/resources");
    private static final String UUID = "00000000-0000-0000-0000-00000000000";

    @TempDir
    @SuppressWarnings("NullAway.Init")
    private Path folder;

    @ParameterizedTest
    @ValueSource(strings = {"gfd", "hami", "aliquot", "ack"})
    void aClusterIsReadFromTheLabelsAndAnnotationsOfItsProducts(String cluster) throws IOException {
        Trace trace = read(DUMPS.resolve(cluster).resolve("dump.json").toString());

        assertThat(text(trace))
                .isEqualTo(Files.readString(DUMPS.resolve(cluster).resolve("trace.txt")));
    }

    private static String text(Trace trace) {
        String nodes = trace.nodes().stream().map(ClusterTraceTest::text).collect(Collectors.joining());
        String pods = trace.workloads().getOrDefault(ClusterTrace.WORKLOAD, List.of()).stream()
                .map(pod -> text(trace, pod))
                .collect(Collectors.joining());
        return nodes
                + pods
                + trace.remarks().stream()
                        .map(remark -> "note: " + remark + "\n")
                        .collect(Collectors.joining());
    }

    private static String text(SimulatedNode node) {
        return "node %s, %d mCPU, %d MiB%n".formatted(node.name(), node.cpuMillis(), node.memoryBytes() >> 20)
                + node.gpus().stream().map(ClusterTraceTest::text).collect(Collectors.joining());
    }

    private static String text(GpuCapacity gpu) {
        return "    %s, %d MiB, %d cores, %d slots%s%s%s%n"
                .formatted(
                        gpu.gpu().model(),
                        gpu.memoryMiB(),
                        gpu.cores(),
                        gpu.slots(),
                        gpu.sharingMode() == SharingMode.CORE_MEMORY
                                ? ""
                                : ", shared by " + gpu.sharingMode().print(),
                        gpu.cordoned() || !gpu.gpu().heldBy().isEmpty() ? ", cordoned" : "",
                        gpu.gpu().healthy() ? "" : ", unhealthy");
    }

    private static String text(Trace trace, TracePod pod) {
        String models = trace.nodes().stream()
                .flatMap(node -> node.inventory().gpus().stream())
                .filter(pod.request()::accepts)
                .map(gpu -> gpu.model())
                .distinct()
                .collect(Collectors.joining(", "));
        return "pod %s of %s, %d mCPU, %d MiB, %d thousandths of a GPU, takes %s%n"
                        .formatted(
                                pod.name(),
                                pod.created(),
                                pod.request().cpuMillis(),
                                pod.request().memoryBytes() >> 20,
                                trace.requestedGpu(pod),
                                models)
                + Stream.of(pod.request().toString().split("; "))
                        .filter(container -> !container.isEmpty())
                        .map(container -> "    " + container + "\n")
                        .collect(Collectors.joining());
    }

    @Test
    void aDumpMayBeSplitAndComeFromStandardInputWithKindsOnListsOnly() throws IOException {
        Path nodes = write("nodes.json", """
                {"kind": "NodeList", "items": [{"metadata": {"name": "n", "labels": {
                  "nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.memory": "15360", "nvidia.com/gpu.count": "1"}}}]}
                """);
        String pods = """
                {"kind": "PodList", "items": [{"metadata": {"name": "a"}, "spec": {"containers": [
                  {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}]}
                {"kind": "Pod", "metadata": {"name": "b"}, "spec": {"containers": [{"name": "main"}], "nodeName": "n"}}
                """;

        Trace trace = ClusterTrace.of(Snapshot.of(
                List.of(nodes.toString(), "-"), new ByteArrayInputStream(pods.getBytes(StandardCharsets.UTF_8))));

        assertThat(trace.nodes()).extracting(SimulatedNode::name).containsExactly("n");
        assertThat(trace.workloads().getOrDefault(ClusterTrace.WORKLOAD, List.of()))
                .extracting(TracePod::name)
                .containsExactly("a", "b");
    }

    /** Nodes with Aliquot may have cordoned GPUs. */
    @Test
    void unschedulableGpusAreNoCapacityAndANodeWithoutOtherGpusIsLeftOut() throws IOException {
        String nodes =
                node("one", "GPU-%1$s0,10,1000,100,A,0,true:GPU-%1$s1,10,9000,100,A,0,false:".formatted(UUID), "")
                        + node("none", "GPU-%1$s2,10,1000,100,A,0,true:".formatted(UUID), "GPU-" + UUID + "2")
                        + """
                {"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [
                  {"name": "main", "resources": {"limits": {"nvidia.com/gpumem": "500"}}}]}}
                """;

        Trace trace = ClusterTrace.of(
                Snapshot.of(List.of("-"), new ByteArrayInputStream(nodes.getBytes(StandardCharsets.UTF_8))));

        assertThat(trace.capacity()).isEqualTo(1000);
        assertThat(trace.meanMiB()).isEqualTo(1000);
        assertThat(trace.uniformMemory()).isTrue();
        assertThat(trace.remarks())
                .containsExactly(
                        "node one: 1 of 2 GPUs unhealthy or cordoned; not counted",
                        "node none: all its GPUs are unhealthy or cordoned; left out");
    }

    private static String node(String name, String hami, String cordoned) {
        return """
                {"kind": "Node", "metadata": {"name": "%s", "annotations": {
                  "hami.io/node-nvidia-register": "%s", "aliquot.io/cordon-gpus": "%s"}}}
                """.formatted(name, hami, cordoned);
    }

    @Test
    void anotherFormatIsRejectedWithTheExpectedCommand() throws IOException {
        Path yaml = write("pods.yaml", "apiVersion: v1\nkind: List\n");
        Path empty = write("empty.json", "{\"kind\": \"List\", \"items\": []}");
        Path cut = write("cut.json", "{\"kind\": \"List\",\n\"items\": [{\"kind\": \"Node\"");
        Path wrong = write("wrong.json", "{\"kind\": \"Node\", \"metadata\": {\"name\": \"n\", \"labels\": 5}}");
        Path nameless = write("nameless.json", "{\"kind\": \"Node\", \"metadata\": {}}");

        assertThatThrownBy(() -> read(yaml.toString()))
                .isInstanceOf(TraceException.class)
                .hasMessageStartingWith(yaml + ":1: not JSON")
                .hasMessageEndingWith("expected what kubectl get nodes,pods -A -o json prints");
        assertThatThrownBy(() -> read(empty.toString())).hasMessageStartingWith(empty + ": no nodes; expected");
        assertThatThrownBy(() -> read(cut.toString())).hasMessageStartingWith(cut + ":2: not JSON");
        assertThatThrownBy(() -> read(wrong.toString()))
                .isInstanceOf(TraceException.class)
                .hasMessageStartingWith(wrong + ": ");
        assertThatThrownBy(() -> read(nameless.toString())).hasMessageContaining("a Node without a name");
        assertThatThrownBy(() -> read(folder.resolve("none").toString())).hasMessageStartingWith("cannot read ");
    }

    @Test
    void aClusterWithNothingToSimulateIsReportedWithTheReason() throws IOException {
        Path cpuOnly = write("cpu.json", "{\"kind\": \"Node\", \"metadata\": {\"name\": \"n\"}}");
        Path noPods = write("nopods.json", """
                {"kind": "Node", "metadata": {"name": "n", "labels": {
                  "nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.memory": "15360", "nvidia.com/gpu.count": "1"}}}
                """);

        assertThatThrownBy(() -> read(cpuOnly.toString()))
                .isInstanceOf(TraceException.class)
                .hasMessage("no node has GPUs that can be simulated (1 of 1 nodes have no GPUs)");
        assertThatThrownBy(() -> read(noPods.toString())).hasMessage("no pod requests a GPU");
    }

    private Path write(String name, String text) throws IOException {
        return Files.writeString(folder.resolve(name), text);
    }

    private static Trace read(String file) {
        return ClusterTrace.of(Snapshot.of(List.of(file), InputStream.nullInputStream()));
    }
}
