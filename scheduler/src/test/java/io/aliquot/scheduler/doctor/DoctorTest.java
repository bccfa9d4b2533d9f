package io.aliquot.scheduler.doctor;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fabric8.kubernetes.api.model.NodeSystemInfoBuilder;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.file.Path;
import java.time.Clock;
import java.time.Instant;
import java.time.ZoneOffset;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import tools.jackson.databind.json.JsonMapper;

class DoctorTest {
    private final ByteArrayOutputStream out = new ByteArrayOutputStream();
    private final ByteArrayOutputStream err = new ByteArrayOutputStream();

    @Test
    void helpIsPrintedWithoutACluster() {
        assertThat(run("--help")).isZero();
        assertThat(out.toString(UTF_8)).isEqualTo(Options.USAGE);
    }

    @Test
    void anUnknownOptionEndsWithStatus2() {
        assertThat(run("--bundles")).isEqualTo(2);
        assertThat(err.toString(UTF_8)).contains("there is no option \"--bundles\"");
    }

    private int run(String... arguments) {
        return Doctor.run(
                List.of(arguments),
                Clock.fixed(Instant.EPOCH, ZoneOffset.UTC),
                () -> 0,
                new PrintStream(out, true, UTF_8),
                new PrintStream(err, true, UTF_8));
    }

    @Test
    void theLastOfTwoOptionsThatContradictEachOtherCounts() {
        assertThat(Options.parse(List.of(
                        "--probe",
                        "-o",
                        "json",
                        "--no-probe",
                        "-n",
                        "team",
                        "--probe-image",
                        "a:1",
                        "--bundle",
                        "/tmp/a")))
                .contains(new Options(true, false, "team", Optional.of("a:1"), Optional.of(Path.of("/tmp/a"))));
        assertThatThrownBy(() -> Options.parse(List.of("-o", "yaml"))).hasMessageContaining("text or json");
        assertThatThrownBy(() -> Options.parse(List.of("-n"))).hasMessageContaining("write a value after -n");
        assertThatThrownBy(() -> Options.parse(List.of("--bundle", "/missing/a.tar.gz")))
                .hasMessageContaining("in a folder that exists, and \"/missing/a.tar.gz\" is none");
    }

    @Test
    void findingsArePrintedOneALineAndCounted() throws Exception {
        var installation = new Installation();
        installation.runtimeClasses.clear();

        String text = Doctor.text(installation.findings(), installation.state(), 1);

        assertThat(text.lines())
                .containsExactly(
                        "runtimeclass/nvidia: is missing, so no node agent and no pod with a share is created; create it"
                                + " with the handler of NVIDIA's runtime, by helm upgrade with runtimeClass.create=true,"
                                + " or set runtimeClass.name to another one (runtime-class)",
                        "1 finding: Kubernetes v1.35.4, 1 node with gpu=on, 1 of them probed");
    }

    @Test
    void theJsonHasFindingsAndWhatEachNodeIs() throws Exception {
        var installation = new Installation();
        installation.inventory(
                Installation.healthyInventory().withDriver("", "580.95.05").withCgroups("v2 systemd"));
        installation
                .node
                .getStatus()
                .setNodeInfo(new NodeSystemInfoBuilder()
                        .withKernelVersion("6.12.118")
                        .withKubeletVersion("v1.35.4")
                        .withContainerRuntimeVersion("containerd://2.2.0")
                        .build());

        String json = Doctor.json(List.of(new Finding("a", "b", "c\nd", "e")), installation.state());

        assertThat(JsonMapper.shared().readTree(json))
                .isEqualTo(JsonMapper.shared().readTree("""
                {
                  "findings": [{"check": "a", "object": "b", "problem": "c d", "action": "e"}],
                  "nodes": [{
                    "node": "node1", "kernel": "6.12.118", "kubelet": "v1.35.4", "containerRuntime": "containerd://2.2.0",
                    "cgroups": "v2 systemd", "driver": "580.95.05", "deviceInjection": "runtime",
                    "gpus": 1, "migInstances": 0, "mps": false
                  }]
                }
                """));
    }

    @Test
    void ofANodeWithoutAnAgentOnlyItsKubeletTells() throws Exception {
        var installation = new Installation();
        installation.node.getMetadata().getAnnotations().clear();

        assertThat(NodeFacts.of(installation.node)).hasToString("{\"node\":\"node1\"}");
    }

    @Test
    void aProbeFindsWhatItsScriptSays() {
        assertThat(Probe.problem("", true, "")).isEmpty();
        assertThat(Probe.problem("ld.so: ignored\nFAILED: /etc/ld.so.preload is missing\n", false, ": it says no"))
                .contains("in a container with a share /etc/ld.so.preload is missing");
        assertThat(Probe.problem("", false, ": it says no")).contains("its probe pod failed: it says no");
    }
}
