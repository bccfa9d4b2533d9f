package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.PROMPTLY;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;
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

    private static final String KUBELET = "node1/kubelet";

    /** The containers of the installation, and the component that each belongs to. */
    private static final Map<String, String> CONTAINERS =
            Map.of("extender", "scheduler", "kube-scheduler", "scheduler", "device-plugin", "device-plugin");

    /** Containers of the installation and programs of the cluster: in the long tier each alone, else four at once. */
    static List<List<String>> programs() {
        return LongTier.orElse(
                Stream.of(
                                "extender",
                                "kube-scheduler",
                                "device-plugin",
                                KUBELET,
                                "node1/containerd",
                                "kube-apiserver",
                                "etcd")
                        .map(List::of)
                        .toList(),
                List.of(List.of("extender", "device-plugin", KUBELET, "etcd")));
    }

    @ParameterizedTest
    @MethodSource("programs")
    void runningPodsAndSchedulingSurviveSigkill(List<String> killed, Lab lab, TestNamespace namespace) {
        Workload workload = new Workload(lab, namespace);
        String before = heartbeat(lab, lab.nodes().getFirst());
        Set<String> containers = new HashSet<>();
        killed.stream()
                .filter(CONTAINERS::containsKey)
                .forEach(container -> containers.addAll(killInAllPods(lab, container)));
        String[] programs =
                killed.stream().filter(name -> !CONTAINERS.containsKey(name)).toArray(String[]::new);

        if (programs.length > 0) {
            lab.kill(programs);
            lab.start(programs);
        }

        eventually(
                "other containers run",
                () -> killed.stream()
                        .filter(CONTAINERS::containsKey)
                        .flatMap(container -> ids(podsWith(lab, container), container).stream())
                        .noneMatch(containers::contains));
        if (killed.contains(KUBELET)) {
            // until then the node's status shows the GPUs that the killed kubelet reported
            eventually(
                    "a heartbeat of the new kubelet",
                    () -> !heartbeat(lab, lab.nodes().getFirst()).equals(before));
        }
        workload.expectUndisturbedAndSchedulingContinues();
    }

    @Test
    void aPodCreatedWhileItsNodesDevicePluginIsDownIsPendingUntilItIsBack(Lab lab, TestNamespace namespace) {
        eventually("the installation is ready", () -> isReady(lab));
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

    @Test
    @LongTier.Only
    void podsCreatedWhileTheSchedulerIsKilledAllRun(Lab lab, TestNamespace namespace) {
        for (int i = 0; i < 6; i++) {
            if (i == 3) {
                killInAllPods(lab, "extender");
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

    /** Sends SIGKILL to a container in all pods of its component, and returns the IDs of the killed ones. */
    private static List<String> killInAllPods(Lab lab, String container) {
        List<Pod> pods = podsWith(lab, container);
        pods.forEach(pod -> lab.killContainer(
                pod.getSpec().getNodeName(),
                TestNamespace.containerStatus(pod, container).getContainerID()));
        return ids(pods, container);
    }

    private static List<Pod> podsWith(Lab lab, String container) {
        return lab.componentPods(Objects.requireNonNull(CONTAINERS.get(container)));
    }

    private static List<String> ids(List<Pod> pods, String container) {
        return pods.stream()
                .map(pod -> TestNamespace.containerStatus(pod, container).getContainerID())
                .toList();
    }

    /** Polls a condition until it holds; an API server that does not answer yet is no failure. */
    private static void eventually(String what, BooleanSupplier condition) {
        TestNamespace.awaitTrue(what, EVENTUALLY.multipliedBy(2), () -> {
            try {
                return condition.getAsBoolean();
            } catch (KubernetesClientException e) {
                return false;
            }
        });
    }

    /** Whether all pods of the release are ready and all nodes have allocatable vGPUs. */
    private static boolean isReady(Lab lab) {
        for (String component : List.of("scheduler", "device-plugin")) {
            List<Pod> pods = lab.componentPods(component);
            if (pods.isEmpty() || !pods.stream().allMatch(TestNamespace::isReady)) {
                return false;
            }
        }
        return lab.nodes().stream().allMatch(node -> lab.allocatable(node, Resources.VGPU) > 0);
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
            eventually("the installation is ready", () -> isReady(lab));
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
            eventually("the installation is ready", () -> isReady(lab));
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
