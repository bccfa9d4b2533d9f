package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.PROMPT;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.Resources;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * SIGKILL, with pods running and a pod waiting: nothing that runs is disturbed, nothing is lost, and scheduling goes on.
 */
@ExtendWith(LabExtension.class)
class ProcessKillIT {
    /** The kubelet waits longer before each restart: after four within ten minutes, more than a minute. */
    private static final Duration RESTARTED = Duration.ofMinutes(4);

    @ParameterizedTest
    @ValueSource(strings = {"extender", "kube-scheduler"})
    void theSchedulerIsKilled(String container, Lab lab, TestNamespace space) {
        Tenants tenants = new Tenants(lab, space);

        killPartOf(lab, "scheduler", container);

        tenants.expectThatAllGoesOn();
    }

    @Test
    void theDevicePluginsAreKilled(Lab lab, TestNamespace space) {
        Tenants tenants = new Tenants(lab, space);

        killPartOf(lab, "device-plugin", "device-plugin");

        tenants.expectThatAllGoesOn();
    }

    @Test
    void aPodMadeWhileItsNodesDevicePluginIsDownWaitsForIt(Lab lab, TestNamespace space) {
        TestNamespace.awaitTrue("the installation is ready", EVENTUALLY.multipliedBy(2), () -> installationIsReady(lab));
        String node = lab.nodes().get(0);
        Pod agent = lab.partsOf("device-plugin").stream()
                .filter(pod -> pod.getSpec().getNodeName().equals(node))
                .findFirst()
                .orElseThrow();
        String before = TestNamespace.status(agent, "device-plugin").getContainerID();
        lab.killContainer(node, before);
        TestNamespace.awaitTrue(
                "word that the agent has gone",
                EVENTUALLY,
                () -> lab.partsOf("device-plugin").stream()
                        .filter(pod -> pod.getSpec().getNodeName().equals(node))
                        .noneMatch(pod -> TestNamespace.ready(pod)
                                && TestNamespace.status(pod, "device-plugin")
                                        .getContainerID()
                                        .equals(before)));

        // Bound at once it would fail: the kubelet has no vGPUs for it now, although the node still shows some.
        space.create(Pods.onNode(Pods.memory(lab, "meanwhile", 1000), node));

        space.awaitRunning("meanwhile", RESTARTED);
    }

    @ParameterizedTest
    @ValueSource(strings = {"node1/kubelet", "node1/containerd", "kube-apiserver", "etcd"})
    void aProgramOfTheClusterIsKilled(String program, Lab lab, TestNamespace space) {
        Tenants tenants = new Tenants(lab, space);
        String node = program.startsWith("node")
                ? program.substring(0, program.indexOf('/'))
                : lab.nodes().get(0);
        String before = heartbeat(lab, node);

        lab.kill(program);
        lab.start(program);

        if (program.endsWith("/kubelet")) {
            // until then the API server shows what the killed kubelet has said of its GPUs
            TestNamespace.awaitTrue(
                    "word of the new kubelet",
                    EVENTUALLY,
                    () -> !heartbeat(lab, node).equals(before));
        }
        tenants.expectThatAllGoesOn();
    }

    @Test
    void theSchedulerIsKilledWhilePodsArrive(Lab lab, TestNamespace space) {
        for (int i = 0; i < 6; i++) {
            if (i == 3) {
                killPartOf(lab, "scheduler", "extender");
            }
            String name = "arriving-" + i;
            // Admission is down for the moment that the program needs to come back; then a pod is refused, not lost.
            TestNamespace.awaitTrue(name + " is admitted", EVENTUALLY, () -> admitted(space, Pods.memory(lab, name, 20000)));
        }
        for (int i = 0; i < 6; i++) {
            space.awaitRunning("arriving-" + i, EVENTUALLY);
        }
        Allocations.expectNoGpuOverCapacity(lab);
    }

    private static boolean admitted(TestNamespace space, Pod pod) {
        try {
            space.create(pod);
            return true;
        } catch (KubernetesClientException e) {
            assertThat(e.getMessage()).contains("gpu.aliquot.io");
            return false;
        }
    }

    /** When a node's kubelet was last heard of. */
    private static String heartbeat(Lab lab, String node) {
        return lab.client().nodes().withName(node).get().getStatus().getConditions().stream()
                .filter(condition -> condition.getType().equals("Ready"))
                .findFirst()
                .orElseThrow()
                .getLastHeartbeatTime();
    }

    /** SIGKILL to one container of a part of the release, in all its pods at once; waits until each has been restarted. */
    private static void killPartOf(Lab lab, String component, String container) {
        List<Pod> pods = lab.partsOf(component);
        pods.forEach(pod -> lab.killContainer(
                pod.getSpec().getNodeName(), TestNamespace.status(pod, container).getContainerID()));
        for (Pod pod : pods) {
            String before = TestNamespace.status(pod, container).getContainerID();
            TestNamespace.awaitTrue(
                    container + " has been started again",
                    RESTARTED,
                    () -> lab.partsOf(component).stream()
                            .filter(now -> now.getMetadata()
                                    .getUid()
                                    .equals(pod.getMetadata().getUid()))
                            .map(now -> TestNamespace.status(now, container))
                            .anyMatch(now ->
                                    now.getReady() && !now.getContainerID().equals(before)));
        }
    }

    /** Whether every part of the release is ready and every node offers its GPUs. */
    private static boolean installationIsReady(Lab lab) {
        try {
            for (String component : List.of("scheduler", "device-plugin")) {
                List<Pod> pods = lab.partsOf(component);
                if (pods.isEmpty() || !pods.stream().allMatch(TestNamespace::ready)) {
                    return false;
                }
            }
            return lab.nodes().stream().allMatch(node -> lab.allocatable(node, Resources.GPU) > 0);
        } catch (KubernetesClientException e) {
            return false; // the API server is not back yet
        }
    }

    /** A pod on each node that holds memory of a GPU and computes on, three whole cards, and a pod that waits. */
    private static final class Tenants {
        private static final String WAITING = "waiting";

        private final Lab lab;
        private final TestNamespace space;
        private final List<Pod> running = new ArrayList<>();

        Tenants(Lab lab, TestNamespace space) {
            this.lab = lab;
            this.space = space;
            TestNamespace.awaitTrue("the installation is ready", EVENTUALLY.multipliedBy(2), () -> installationIsReady(lab));
            for (String node : lab.nodes()) {
                running.add(space.run(Pods.onNode(holding(lab, "holds-" + node, 3000, 2000), node)));
            }
            for (int i = 0; i < 2; i++) {
                space.create(Pods.asking(lab, "whole-" + i, Map.of(Resources.GPU, "1")));
            }
            for (int i = 0; i < 2; i++) {
                running.add(space.awaitRunning("whole-" + i, EVENTUALLY));
            }
            space.create(Pods.asking(lab, WAITING, Map.of(Resources.GPU, "1")));
            space.awaitUnschedulable(WAITING);
        }

        /** A pod whose program holds some of its memory for as long as it runs. */
        private static Pod holding(Lab lab, String name, int limit, int held) {
            return Pods.memory(lab, name, limit)
                    .edit()
                    .editSpec()
                    .editFirstContainer()
                    .withCommand("vgpu-sample", "alloc", Integer.toString(held), "hold")
                    .endContainer()
                    .endSpec()
                    .build();
        }

        void expectThatAllGoesOn() {
            TestNamespace.awaitTrue("the installation is ready", EVENTUALLY.multipliedBy(2), () -> installationIsReady(lab));
            // leadership is given up only when it runs out: scheduling goes on when a pod that fits is bound
            space.run(Pods.memory(lab, "next", 1000));
            space.delete("next");

            assertThat(TestNamespace.bound(space.get(WAITING))).isFalse();
            space.delete("whole-0");
            space.await(WAITING, "is bound", PROMPT, TestNamespace::bound);
            space.awaitRunning(WAITING, EVENTUALLY);

            for (Pod before : running) {
                String name = before.getMetadata().getName();
                if (name.equals("whole-0")) {
                    continue;
                }
                Pod now = space.get(name);
                assertThat(now.getMetadata().getUid())
                        .isEqualTo(before.getMetadata().getUid());
                assertThat(TestNamespace.status(now, Pods.MAIN).getRestartCount())
                        .as("restarts of " + name)
                        .isZero();
                assertThat(TestNamespace.status(now, Pods.MAIN).getContainerID())
                        .isEqualTo(TestNamespace.status(before, Pods.MAIN).getContainerID());
            }
            for (String node : lab.nodes()) {
                // 2000 of 3000 MiB are held by the program that has run through it all
                assertThat(space.exec("holds-" + node, "vgpu-sample", "alloc", "1001", "alloc", "1000")
                                .expectSuccess()
                                .lines())
                        .containsExactly("alloc 1001 MiB: CUDA_ERROR_OUT_OF_MEMORY", "alloc 1000 MiB: CUDA_SUCCESS");
            }
            Allocations.expectNoGpuOverCapacity(lab);
        }
    }
}
