package io.aliquot.scheduler.simulate;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.scheduler.placement.Demand;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class TraceTest {
    private static final String NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\n";
    private static final String COLUMNS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n";

    @TempDir
    @SuppressWarnings("NullAway.Init")
    private Path folder;

    @Test
    void podsThatAskAlikeShareOneDemandAcrossWorkloads() throws IOException {
        write(Trace.NODES, NODES);
        write(
                "openb_pod_list_a.csv",
                COLUMNS + "p0,1000,2048,1,460,\np1,1000,2048,1,460,\np2,1000,2048,2,1000,T4|P100\n");
        write("openb_pod_list_b.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1000,2048,1,460\n");

        Trace trace = Trace.readOpenb(folder);

        List<Demand> a = trace.workloads().getOrDefault("a", List.of());
        assertThat(trace.workloads()).containsOnlyKeys("a", "b");
        assertThat(a.get(0))
                .isSameAs(a.get(1))
                .isSameAs(trace.workloads().getOrDefault("b", List.of()).get(0));
        assertThat(trace.models()).containsExactly("P100", "T4");
        assertThat(a.get(2).models()).isEqualTo(0b11);
        assertThat(Trace.asked(a.get(0))).isEqualTo(460);
        assertThat(Trace.asked(a.get(2))).isEqualTo(2000);
        assertThat(trace.capacity()).isEqualTo(2000);
    }

    @Test
    void aWrongValueIsNamedWithItsFileAndLine() throws IOException {
        write(Trace.NODES, NODES);
        write("openb_pod_list_a.csv", COLUMNS + "p0,1000,2048,1,460,\np1,1000,2048,2,460,\n");

        assertThatThrownBy(() -> Trace.readOpenb(folder))
                .isInstanceOf(TraceException.class)
                .hasMessageEndingWith(
                        "openb_pod_list_a.csv:3: gpu_milli is \"460\"; expected a whole number from 1000 to 1000");
    }

    @Test
    void aLineOfAnotherLengthIsRefused() throws IOException {
        write(Trace.NODES, NODES + "n1,64000,262144\n");

        assertThatThrownBy(() -> Trace.readOpenb(folder))
                .hasMessageEndingWith(Trace.NODES + ":3: has 3 values, and the first line names 5");
    }

    @Test
    void aMissingColumnIsNamed() throws IOException {
        write(Trace.NODES, "sn,cpu_milli,memory_mib,gpu\n");

        assertThatThrownBy(() -> Trace.readOpenb(folder)).hasMessageContaining(Trace.NODES + ":1: no column model");
    }

    @Test
    void aFolderWithoutWorkloadsSaysWhatWasLookedFor() throws IOException {
        write(Trace.NODES, NODES);

        assertThatThrownBy(() -> Trace.readOpenb(folder)).hasMessageContaining("openb_pod_list_*.csv");
    }

    private void write(String name, String text) throws IOException {
        Files.writeString(folder.resolve(name), text);
    }
}
