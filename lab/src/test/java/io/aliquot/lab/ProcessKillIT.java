package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.PROMPTLY;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Processes are killed with SIGKILL while pods run and a pod is Pending: running pods are not disturbed, no allocation
 * is lost, and scheduling continues.
 */
@ExtendWith(LabExtension.class)
@Isolated
class ProcessKillIT {
    private static final Duration RESTART_TIMEOUT = Duration.ofMinutes(4);

    static List<String> schedulerContainers() {
        return LongTier.orElse(List.of("extender", "kube-scheduler"), List.of("extender"));
    }

    @ParameterizedTest
    @MethodSource("schedulerContainers")
    void runningPodsAndSchedulingSurviveAKilledScheduler(String container, Lab lab, TestNamespace namespace) {
        Workload workload = new Workload(lab, namespace);

        killContainerInAllPods(lab, "scheduler", container);

        workload.expectUndisturbedAndSchedulingContinues();
    }

    @Test
    void runningPodsAndSchedulingSurviveKilledDevicePlugins(Lab lab, TestNamespace namespace) {
        Workload workload = new Workload(lab, namespace);

        killContainerInAllPods(lab, "device-plugin", "device-plugin");

        workload.expectUndisturbedAndSchedulingContinues();
    }

    @Test
    void aPodCreatedWhileItsNodesDevicePluginIsDownIsPendingUntilItIsBack(Lab lab, TestNamespace namespace) {
        TestNamespace.awaitTrue(
                "the installation is ready", EVENTUALLY.multipliedBy(2), () -> installationIsReady(lab));
        String node = lab.nodes().get(0);
        Pod agent = lab.agentOf(node);
        String before = TestNamespace.containerStatus(agent, "device-plugin").getContainerID();
        lab.killContainer(node, before);
        TestNamespace.awaitTrue(
                "the killed agent is no longer ready",
                EVENTUALLY,
                () -> lab.componentPods("device-plugin").stream()
                        .filter(pod -> pod.getSpec().getNodeName().equals(node))
                        .noneMatch(pod -> TestNamespace.isReady(pod)
                                && TestNamespace.containerStatus(pod, "device-plugin")
                                        .getContainerID()
                                        .equals(before)));

        // A pod bound now would fail: the kubelet has no vGPUs, although the node's status still shows some.
        namespace.create(Pods.onNode(Pods.withGpuMemory(lab, "meanwhile", 1000), node));

        namespace.awaitRunning("meanwhile", RESTART_TIMEOUT);
    }

    static List<String> clusterComponents() {
        return LongTier.orElse(
                List.of("node1/kubelet", "node1/containerd", "kube-apiserver", "etcd"),
                List.of("node1/kubelet", "etcd"));
    }

    @ParameterizedTest
    @MethodSource("clusterComponents")
    void runningPodsAndSchedulingSurviveAKilledClusterComponent(String program, Lab lab, TestNamespace namespace) {
        Workload workload = new Workload(lab, namespace);
        String node = program.startsWith("node")
                ? program.substring(0, program.indexOf('/'))
                : lab.nodes().get(0);
        String before = heartbeat(lab, node);

        lab.kill(program);
        lab.start(program);

        if (program.endsWith("/kubelet")) {
            // until then the node's status shows the GPUs that the killed kubelet reported
            TestNamespace.awaitTrue(
                    "a heartbeat of the new kubelet",
                    EVENTUALLY,
                    () -> !heartbeat(lab, node).equals(before));
        }
        workload.expectUndisturbedAndSchedulingContinues();
    }

    @Test
    void podsCreatedWhileTheSchedulerIsKilledAllRun(Lab lab, TestNamespace namespace) {
        for (int i = 0; i < 6; i++) {
            if (i == 3) {
                killContainerInAllPods(lab, "scheduler", "extender");
            }
            String name = "arriving-" + i;
            // While the extender restarts, admission refuses pods; it loses none.
            TestNamespace.awaitTrue(
                    name + " is admitted", EVENTUALLY, () -> admitted(namespace, Pods.withGpuMemory(lab, name, 20000)));
        }
        for (int i = 0; i < 6; i++) {
            namespace.awaitRunning("arriving-" + i, EVENTUALLY);
        }
        Allocations.expectNoGpuOverCapacity(lab);
    }

    private static boolean admitted(TestNamespace namespace, Pod pod) {
        try {
            namespace.create(pod);
            return true;
        } catch (KubernetesClientException e) {
            assertThat(e.getMessage()).contains("gpu.aliquot.io");
            return false;
        }
    }

    /** The time of the last heartbeat of a node's kubelet. */
    private static String heartbeat(Lab lab, String node) {
        return lab.client().nodes().withName(node).get().getStatus().getConditions().stream()
                .filter(condition -> condition.getType().equals("Ready"))
                .findFirst()
                .orElseThrow()
                .getLastHeartbeatTime();
    }

    /** Sends SIGKILL to a container in all pods of a component at once, and waits until each has restarted. */
    private static void killContainerInAllPods(Lab lab, String component, String container) {
        List<Pod> pods = lab.componentPods(component);
        pods.forEach(pod -> lab.killContainer(
                pod.getSpec().getNodeName(),
                TestNamespace.containerStatus(pod, container).getContainerID()));
        for (Pod pod : pods) {
            String before = TestNamespace.containerStatus(pod, container).getContainerID();
            TestNamespace.awaitTrue(
                    container + " has restarted",
                    RESTART_TIMEOUT,
                    () -> lab.componentPods(component).stream()
                            .filter(now -> now.getMetadata()
                                    .getUid()
                                    .equals(pod.getMetadata().getUid()))
                            .map(now -> TestNamespace.containerStatus(now, container))
                            .anyMatch(now ->
                                    now.getReady() && !now.getContainerID().equals(before)));
        }
    }

    /** Whether all pods of the release are ready and all nodes have allocatable vGPUs. */
    private static boolean installationIsReady(Lab lab) {
        try {
            for (String component : List.of("scheduler", "device-plugin")) {
                List<Pod> pods = lab.componentPods(component);
                if (pods.isEmpty() || !pods.stream().allMatch(TestNamespace::isReady)) {
                    return false;
                }
            }
            return lab.nodes().stream().allMatch(node -> lab.allocatable(node, Resources.VGPU) > 0);
        } catch (KubernetesClientException e) {
            return false; // the API server is not back yet
        }
    }

    /**
     * A pod on each node that keeps GPU memory allocated, two pods with a whole card, and one Pending for a whole card.
     */
    private static final class Workload {
        private static final String PENDING = "pending";

        private final Lab lab;
        private final TestNamespace namespace;
        private final List<Pod> running = new ArrayList<>();

        Workload(Lab lab, TestNamespace namespace) {
            this.lab = lab;
            this.namespace = namespace;
            TestNamespace.awaitTrue(
                    "the installation is ready", EVENTUALLY.multipliedBy(2), () -> installationIsReady(lab));
            for (String node : lab.nodes()) {
                running.add(namespace.run(Pods.onNode(holding(lab, "holds-" + node, 3000, 2000), node)));
            }
            for (int i = 0; i < 2; i++) {
                namespace.create(Pods.withLimits(lab, "whole-" + i, Map.of(Resources.VGPU, "1")));
            }
            for (int i = 0; i < 2; i++) {
                running.add(namespace.awaitRunning("whole-" + i, EVENTUALLY));
            }
            namespace.create(Pods.withLimits(lab, PENDING, Map.of(Resources.VGPU, "1")));
            namespace.awaitUnschedulable(PENDING);
        }

        /** A pod whose program allocates {@code held} MiB of its limit and keeps them. */
        private static Pod holding(Lab lab, String name, int limit, int held) {
            return Pods.withGpuMemory(lab, name, limit)
                    .edit()
                    .editSpec()
                    .editFirstContainer()
                    .withCommand("vgpu-sample", "alloc", Integer.toString(held), "hold")
                    .endContainer()
                    .endSpec()
                    .build();
        }

        void expectUndisturbedAndSchedulingContinues() {
            TestNamespace.awaitTrue(
                    "the installation is ready", EVENTUALLY.multipliedBy(2), () -> installationIsReady(lab));
            // the Lease of a killed leader must expire first: scheduling works again when a pod that fits is bound
            namespace.run(Pods.withGpuMemory(lab, "next", 1000));
            namespace.delete("next");

            assertThat(TestNamespace.isBound(namespace.get(PENDING))).isFalse();
            namespace.delete("whole-0");
            namespace.await(PENDING, "is bound", PROMPTLY, TestNamespace::isBound);
            namespace.awaitRunning(PENDING, EVENTUALLY);

            for (Pod before : running) {
                String name = before.getMetadata().getName();
                if (name.equals("whole-0")) {
                    continue;
                }
                Pod now = namespace.get(name);
                assertThat(now.getMetadata().getUid())
                        .isEqualTo(before.getMetadata().getUid());
                assertThat(TestNamespace.containerStatus(now, Pods.MAIN).getRestartCount())
                        .as("restarts of " + name)
                        .isZero();
                assertThat(TestNamespace.containerStatus(now, Pods.MAIN).getContainerID())
                        .isEqualTo(
                                TestNamespace.containerStatus(before, Pods.MAIN).getContainerID());
            }
            for (String node : lab.nodes()) {
                // the program that ran throughout has allocated 2000 of 3000 MiB, and each context takes 256
                assertThat(namespace
                                .exec("holds-" + node, "vgpu-sample", "alloc", "600", "alloc", "480")
                                .expectSuccess()
                                .lines())
                        .containsExactly("alloc 600 MiB: CUDA_ERROR_OUT_OF_MEMORY", "alloc 480 MiB: CUDA_SUCCESS");
            }
            Allocations.expectNoGpuOverCapacity(lab);
        }
    }
}
