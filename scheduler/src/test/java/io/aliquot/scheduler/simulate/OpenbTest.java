package io.aliquot.scheduler.simulate;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.tuple;

import io.aliquot.api.Gpu;
import io.aliquot.api.GpuRequest;
import io.aliquot.api.MemoryRequest;
import io.aliquot.scheduler.placement.ContainerAsk;
import io.aliquot.scheduler.placement.HostLoad;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.SortedMap;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class OpenbTest {
    private static final String NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\n";
    private static final String COLUMNS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n";

    @TempDir
    @SuppressWarnings("NullAway.Init")
    private Path folder;

    @Test
    void aThousandthOfAGpuIsAMebibyteAndAWholeOneIsExclusive() throws IOException {
        write(Openb.NODES, NODES);
        write("openb_pod_list_a.csv", COLUMNS + "p0,1000,2048,1,460,\np1,1000,2048,2,1000,\np2,1000,2048,0,0,\n");

        Trace trace = Openb.read(folder);

        Node node = trace.nodes().get(0);
        assertThat(node.name()).isEqualTo("n0");
        assertThat(node.facts().allocatable()).isEqualTo(new HostLoad(64_000, 262_144L << 20));
        assertThat(node.facts().inventory().gpus())
                .extracting(Gpu::model, Gpu::memoryMiB)
                .containsExactly(tuple("P100", 1000), tuple("P100", 1000));
        assertThat(trace.capacity()).isEqualTo(2000);
        List<Pod> pods = trace.workloads().getOrDefault("a", List.of());
        assertThat(pods.get(0).requests()).isEqualTo(new HostLoad(1_000, 2_048L << 20));
        assertThat(requests(pods))
                .containsExactly(
                        new GpuRequest(1, new MemoryRequest.Mebibytes(460), 0, false),
                        new GpuRequest(2, new MemoryRequest.WholeCard(), 0, true));
        assertThat(pods).extracting(trace::asked).containsExactly(460L, 2000L, 0L);
    }

    private static List<GpuRequest> requests(List<Pod> pods) {
        return pods.stream()
                .flatMap(pod -> pod.ask().containers().stream())
                .map(ContainerAsk::request)
                .toList();
    }

    @Test
    void aPodTakesTheModelsOfItsSpecAndNoOthers() throws IOException {
        write(Openb.NODES, NODES + "n1,64000,262144,1,V100M16\nn2,64000,262144,1,V100M32\n");
        write("openb_pod_list_a.csv", COLUMNS + "p0,1000,2048,1,460,P100|V100M16\np1,1000,2048,1,460,\n");

        Trace trace = Openb.read(folder);

        List<Pod> pods = trace.workloads().getOrDefault("a", List.of());
        assertThat(taken(trace, pods.get(0))).containsExactly("n0", "n1");
        assertThat(taken(trace, pods.get(1))).containsExactly("n0", "n1", "n2");
    }

    private static List<String> taken(Trace trace, Pod pod) {
        return trace.nodes().stream()
                .filter(node -> pod.ask().takes(node.facts().inventory().gpus().get(0)))
                .map(Node::name)
                .toList();
    }

    @Test
    void podsThatAskAlikeShareOneAskAcrossWorkloads() throws IOException {
        write(Openb.NODES, NODES);
        write("openb_pod_list_a.csv", COLUMNS + "p0,1000,2048,1,460,T4\n");
        write("openb_pod_list_b.csv", COLUMNS + "p0,2000,2048,1,460,T4\n");

        SortedMap<String, List<Pod>> workloads = Openb.read(folder).workloads();

        assertThat(workloads.getOrDefault("a", List.of()).get(0).ask())
                .isSameAs(workloads.getOrDefault("b", List.of()).get(0).ask());
    }

    @Test
    void timesAreKnownWhereTheFileHasThem() throws IOException {
        write(Openb.NODES, NODES);
        write(
                "openb_pod_list_a.csv",
                "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\np0,1000,2048,1,460,5,65\n");
        write("openb_pod_list_b.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1000,2048,1,460\n");

        SortedMap<String, List<Pod>> workloads = Openb.read(folder).workloads();

        Pod known = workloads.getOrDefault("a", List.of()).get(0);
        assertThat(known.created()).isEqualTo(Instant.ofEpochSecond(5));
        assertThat(known.lifetime()).contains(Duration.ofMinutes(1));
        assertThat(workloads.getOrDefault("b", List.of()).get(0).lifetime()).isEmpty();
    }

    @Test
    void aWrongValueIsNamedWithItsFileAndLine() throws IOException {
        write(Openb.NODES, NODES);
        write("openb_pod_list_a.csv", COLUMNS + "p0,1000,2048,1,460,\np1,1000,2048,2,460,\n");

        assertThatThrownBy(() -> Openb.read(folder))
                .isInstanceOf(TraceException.class)
                .hasMessageEndingWith(
                        "openb_pod_list_a.csv:3: gpu_milli is \"460\"; expected a whole number from 1000 to 1000");
    }

    @Test
    void aLineOfAnotherLengthIsRefused() throws IOException {
        write(Openb.NODES, NODES + "n1,64000,262144\n");

        assertThatThrownBy(() -> Openb.read(folder))
                .hasMessageEndingWith(Openb.NODES + ":3: has 3 values, and the first line names 5");
    }

    @Test
    void aMissingColumnIsNamed() throws IOException {
        write(Openb.NODES, "sn,cpu_milli,memory_mib,gpu\n");

        assertThatThrownBy(() -> Openb.read(folder)).hasMessageContaining(Openb.NODES + ":1: no column model");
    }

    @Test
    void aFolderWithoutWorkloadsSaysWhatWasLookedFor() throws IOException {
        write(Openb.NODES, NODES);

        assertThatThrownBy(() -> Openb.read(folder)).hasMessageContaining("openb_pod_list_*.csv");
    }

    private void write(String name, String text) throws IOException {
        Files.writeString(folder.resolve(name), text);
    }
}
