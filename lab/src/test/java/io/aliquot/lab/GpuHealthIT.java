package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.GpuHealth;
import io.fabric8.kubernetes.api.model.Pod;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** GPUs that fail and recover, and a driver that is upgraded, on the simulated driver of a node. */
@ExtendWith(LabExtension.class)
class GpuHealthIT {
    private static final Duration RECOVERY = Duration.ofSeconds(60);

    @Test
    void aGpuWithAnXidErrorIsLeftOutUntilItsErrorIsCleared(Lab lab, TestNamespace namespace) {
        String node = namespace.node();
        String gpu = failUnderAPod(lab, namespace);
        try {
            awaitTrue(
                    "an event on the pod",
                    EVENTUALLY,
                    () -> namespace.events("holder").stream()
                            .anyMatch(event -> "GpuUnhealthy".equals(event.getReason())
                                    && event.getMessage().contains(gpu)
                                    && event.getMessage().contains("XID")));
            awaitTrue("an event on the node", EVENTUALLY, () -> hasEvent(lab, node, "GpuUnhealthy", gpu));
            assertThat(TestNamespace.isRunning(namespace.get("holder")))
                    .as("a pod that holds a share of it stays")
                    .isTrue();
            Pod other = namespace.run(Pods.onNode(Pods.withGpuMemory(lab, "other", 1000), node));
            assertThat(Allocations.gpuOf(other)).isNotEqualTo(gpu);
        } finally {
            lab.driver(node, "heal", gpu);
            lab.kubectl("annotate", "node", node, Annotations.CLEAR_GPU_ERRORS + "=" + gpu)
                    .expectSuccess();
        }
        awaitTrue("the GPU is healthy", EVENTUALLY, () -> isHealthy(lab, node, gpu));
        awaitTrue("an event on the node", EVENTUALLY, () -> hasEvent(lab, node, "GpuHealthy", gpu));
        lab.kubectl("annotate", "node", node, Annotations.CLEAR_GPU_ERRORS + "-")
                .expectSuccess();
    }

    @Test
    @LongTier.Only
    void aGpuThatWasResetIsHealthyWithinAMinute(Lab lab, TestNamespace namespace) {
        String node = namespace.node();
        String gpu = failUnderAPod(lab, namespace);
        try {
            namespace.deleteAllPods();
            lab.driver(node, "reset", gpu);

            awaitTrue("the GPU is healthy", RECOVERY, () -> isHealthy(lab, node, gpu));
        } finally {
            lab.driver(node, "heal", gpu);
        }
    }

    /** Runs a pod, fails its GPU and returns the GPU once it is unhealthy. */
    private static String failUnderAPod(Lab lab, TestNamespace namespace) {
        String node = namespace.node();
        String gpu = Allocations.gpuOf(namespace.run(Pods.onNode(Pods.withGpuMemory(lab, "holder", 1000), node)));
        lab.driver(node, "fail", gpu, "--xid", "48");
        awaitTrue("the GPU is unhealthy", EVENTUALLY, () -> !isHealthy(lab, node, gpu));
        return gpu;
    }

    @Test
    void anErrorOfAnApplicationIsAnEventOnItsPodAndLeavesTheGpuHealthy(Lab lab, TestNamespace namespace) {
        String node = namespace.node();
        Pod faulty = Pods.onNode(Pods.withGpuMemory(lab, "faulty", 2000), node);
        // Too much to be taken for a context: the agent takes the smallest process that it has seen for one, and
        // charges
        // every later process of the node as much.
        faulty.getSpec().getContainers().getFirst().setCommand(List.of("vgpu-sample", "alloc", "1000", "hold"));
        Pod pod = namespace.run(faulty);
        String gpu = Allocations.gpuOf(pod);
        String series = "aliquot_agent_xid_errors_total{gpu=\"" + gpu + "\",xid=\"31\"}";

        lab.driver(node, "fail", gpu, "--xid", "31");

        awaitTrue(
                "the error is counted",
                EVENTUALLY,
                () -> Lab.metrics(lab.agentOf(node), 9091).contains(series));
        awaitTrue("an event on the pod", EVENTUALLY, () -> {
            // No pod is named as long as another one, such as an earlier test's, has used the GPU in the last ten
            // seconds.
            lab.driver(node, "fail", gpu, "--xid", "31");
            return namespace.events("faulty").stream()
                    .anyMatch(event -> "GpuProgramError".equals(event.getReason())
                            && event.getMessage().contains("container main caused XID 31")
                            && event.getMessage().contains(gpu));
        });
        assertThat(isHealthy(lab, node, gpu)).isTrue();
        lab.driver(node, "heal", gpu);
    }

    @Test
    @LongTier.Only
    void aNodeWhoseDriverIsUpgradedTakesNoPodsAndItsAgentLetsTheDriverGo(Lab lab, TestNamespace namespace) {
        String node = namespace.node();
        assertThat(processesWithNvml(lab, node)).isNotEmpty();
        try {
            lab.kubectl("annotate", "node", node, Annotations.RELEASE_DRIVER + "=true")
                    .expectSuccess();

            awaitTrue(
                    "no process has NVML open",
                    Duration.ofSeconds(30),
                    () -> processesWithNvml(lab, node).isEmpty());
            namespace.create(Pods.onNode(Pods.withGpuMemory(lab, "later", 1000), node));
            assertThat(namespace.awaitUnschedulable("later")).contains("driver");
        } finally {
            lab.kubectl("annotate", "node", node, Annotations.RELEASE_DRIVER + "-")
                    .expectSuccess();
        }
        namespace.awaitRunning("later", EVENTUALLY);
    }

    private static boolean isHealthy(Lab lab, String node, String uuid) {
        return Allocations.inventory(lab, node).gpus().stream()
                .filter(gpu -> gpu.uuid().equals(uuid))
                .map(Gpu::health)
                .anyMatch(GpuHealth.Healthy.class::isInstance);
    }

    private static boolean hasEvent(Lab lab, String node, String reason, String text) {
        return lab.nodeEvents(node).stream()
                .anyMatch(event ->
                        reason.equals(event.getReason()) && event.getMessage().contains(text));
    }

    /** The node agent's processes that have NVML mapped. */
    private static List<String> processesWithNvml(Lab lab, String node) {
        String id =
                lab.agentOf(node).getStatus().getContainerStatuses().getFirst().getContainerID();
        return lab.onNode(
                        node,
                        "bash",
                        "-c",
                        "for process in /proc/[0-9]*; do if grep -q \"$1\" $process/cgroup && grep -q libnvidia-ml"
                                + " $process/maps; then echo $process; fi; done 2> /dev/null",
                        "-",
                        id.replaceFirst("^containerd://", ""))
                .expectSuccess()
                .lines()
                .toList();
    }
}
