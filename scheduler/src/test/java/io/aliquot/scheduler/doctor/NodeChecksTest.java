package io.aliquot.scheduler.doctor;

import static io.aliquot.scheduler.doctor.Installation.healthyInventory;
import static io.aliquot.scheduler.doctor.Installation.unready;
import static io.aliquot.scheduler.doctor.Installation.warning;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.tuple;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.nodes.Inventory;
import io.fabric8.kubernetes.api.model.NodeRuntimeHandler;
import io.fabric8.kubernetes.api.model.NodeRuntimeHandlerBuilder;
import io.fabric8.kubernetes.api.model.Quantity;
import io.fabric8.kubernetes.api.model.TaintBuilder;
import java.time.ZonedDateTime;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class NodeChecksTest {
    private final Installation installation = new Installation();

    NodeChecksTest() throws Exception {}

    @Test
    void aNodeWithoutAgentIsNamedWithItsTaints() {
        installation.pods.removeLast();
        installation
                .node
                .getSpec()
                .setTaints(List.of(new TaintBuilder()
                        .withKey("dedicated")
                        .withEffect("NoSchedule")
                        .build()));

        assertFinding("agent", "has no node agent; the node has the taints dedicated");
    }

    @Test
    void anAgentThatFailsIsNamedWithItsLastMessage() {
        unready(
                installation.agent(),
                "[{name: device-plugin, ready: false, state: {waiting: {reason: CrashLoopBackOff, message: back-off 10s}},"
                        + " lastState: {terminated: {exitCode: 2, message: \"ALIQUOT_SLOTS: expected a number\\n\"}}}]");

        assertFinding(
                "agent",
                "its node agent aliquot-device-plugin-a is not ready: its container device-plugin waits"
                        + " (CrashLoopBackOff: back-off 10s); its container device-plugin ended with exit code 2 and the"
                        + " message: ALIQUOT_SLOTS: expected a number");
    }

    @Test
    void anAgentThatIsNotReadySaysWhyItself() {
        unready(installation.agent(), "[{name: device-plugin, ready: false, state: {running: {}}}]");
        installation.readiness.put("aliquot-device-plugin-a", "cannot use NVML: Driver/library version mismatch\n");
        installation.warnings.put(
                "aliquot-device-plugin-a", List.of(warning("Unhealthy", "HTTP probe failed with statuscode: 503")));

        assertFinding(
                "agent",
                "its node agent aliquot-device-plugin-a is not ready: it says: cannot use NVML: Driver/library version"
                        + " mismatch");
    }

    @Test
    void anAgentWhosePodCannotBeMadeIsNamedWithItsLastEvent() {
        unready(
                installation.agent(),
                "[{name: device-plugin, ready: false, state: {waiting: {reason: ContainerCreating}}}]");
        installation.warnings.put(
                "aliquot-device-plugin-a",
                List.of(warning("Old", "old"), warning("FailedMount", "hostPath type check failed: /data/kubelet")));

        assertFinding(
                "agent",
                "its node agent aliquot-device-plugin-a is not ready: its last event is FailedMount: hostPath type check"
                        + " failed: /data/kubelet");
    }

    @Test
    void ofANodeThatIsNotReadyTheAgentIsNotNamed() {
        installation.node.getStatus().getConditions().getFirst().setStatus("Unknown");
        installation.node.getStatus().getConditions().getFirst().setMessage("Kubelet stopped posting node status.");
        unready(installation.agent(), "[]");

        assertFinding("node", "is not Ready: Kubelet stopped posting node status.");
    }

    @Test
    void aNodeWithoutInventoryOrWithOneThatCannotBeRead() {
        installation.node.getMetadata().getAnnotations().put(Annotations.GPUS, "{\"version\":2}");
        assertThat(installation.findings()).extracting(Finding::check).containsExactly("inventory");

        installation.node.getMetadata().getAnnotations().clear();
        assertFinding("inventory", "its agent is ready and has published no GPUs");
    }

    @Test
    void anotherDevicePluginsGpus() {
        installation.node.getStatus().getAllocatable().put("nvidia.com/gpu", new Quantity("4"));
        // The agent's own sentence is about the same.
        installation.inventory(healthyInventory().withConflict("another device plugin advertises nvidia.com/gpu"));

        assertFinding(
                "other-device-plugin",
                "another device plugin advertises nvidia.com/gpu, so the node takes no pods with shares");
    }

    @Test
    void hamisRegistration() {
        installation.node.getMetadata().getAnnotations().put("hami.io/node-nvidia-register", "[{\"id\":\"GPU-1\"}]");
        assertFinding("hami", "HAMi has registered the node's GPUs, so it takes no pods with shares");

        installation.node.getMetadata().getAnnotations().put("hami.io/node-handshake", "Deleted_2026.11.29");
        assertThat(installation.findings()).isEmpty();
    }

    @Test
    void anyOtherConflictInTheAgentsWords() {
        installation.inventory(healthyInventory().withConflict("the driver is being upgraded: the node has a label"));

        assertFinding("conflict", "takes no pods with shares: the driver is being upgraded: the node has a label");
        assertThat(NodeChecks.working(installation.state())).isEmpty();
    }

    @Test
    void unhealthyGpusInTheAgentsWords() {
        installation.node.getStatus().getConditions().getLast().setStatus("False");
        installation.node.getStatus().getConditions().getLast().setMessage("0 of 1 GPUs are healthy; GPU-1: lost");

        assertFinding("gpu-health", "0 of 1 GPUs are healthy; GPU-1: lost");
    }

    @Test
    void aNodeWhoseRuntimeDoesNotReportTheHandler() {
        installation.node.getStatus().setRuntimeHandlers(handlers("", "runc", "nvidia"));
        assertThat(installation.findings()).isEmpty();

        installation.node.getStatus().setRuntimeHandlers(handlers("", "runc"));
        assertFinding(
                "runtime-handler",
                "its container runtime has no handler nvidia, which the RuntimeClass nvidia names, but runc");
    }

    private static List<NodeRuntimeHandler> handlers(String... names) {
        return Stream.of(names)
                .map(name -> new NodeRuntimeHandlerBuilder().withName(name).build())
                .toList();
    }

    @Test
    void aNodeThatAnAutoscalerTakesForUnready() {
        installation.node.getMetadata().getLabels().put("cloud.google.com/gke-accelerator", "nvidia-tesla-a100");

        assertThat(installation.findings())
                .extracting(Finding::check, Finding::action)
                .containsExactly(tuple(
                        "autoscaler",
                        "Remove the label where you set it yourself; where the cloud sets it, set the chart's value"
                                + " autoscaler.readyResource=microsoft.com/directx (docs/autoscalers.md)"));
    }

    @ParameterizedTest
    @CsvSource({"12:01:00, 60 s ahead of", "11:59:00, 60 s behind", "12:00:09, ", "11:59:51, "})
    void aClockThatDiffersFromTheApiServers(String renewed, String skew) {
        installation.lease.getSpec().setRenewTime(ZonedDateTime.parse("2026-11-29T" + renewed + "Z"));

        if (skew == null) {
            assertThat(installation.findings()).isEmpty();
        } else {
            assertFinding("clock", "its clock is " + skew + " the API server's");
        }
    }

    @Test
    void programsThatUseAGpuThroughMps() {
        installation.inventory(Installation.healthyInventory().withMps(true));

        assertFinding(
                "mps", "programs use a GPU of the node through NVIDIA's MPS, under which compute limits do not hold");
    }

    @Test
    void anAgentThatDoesNotSeeTheHostsCgroups() {
        installation.inventory(Installation.healthyInventory().withCgroups(Inventory.HIDDEN_CGROUPS));

        assertFinding(
                "cgroups",
                "its agent sees no pod's cgroup below the host's /sys/fs/cgroup, so a pod that is deleted by force keeps"
                        + " its share");
    }

    @Test
    void noNodeHasTheLabel() {
        ClusterState state = installation.state();
        var without = new ClusterState(
                state.kubernetesVersion(),
                state.deployments(),
                state.daemonSets(),
                state.pods(),
                state.webhooks(),
                state.apiService(),
                state.endpoints(),
                state.runtimeClasses(),
                List.of(),
                state.leases(),
                state.ignored(),
                state.starting(),
                state.warnings(),
                state.readiness(),
                state.refused(),
                state.serving());

        assertThat(NodeChecks.all(without)).extracting(Finding::check).containsExactly("nodes");
    }

    private void assertFinding(String check, String problem) {
        assertThat(installation.findings())
                .extracting(Finding::check, Finding::problem)
                .containsExactly(tuple(check, problem));
    }
}
