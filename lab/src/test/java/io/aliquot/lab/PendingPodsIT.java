package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.PROMPTLY;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Annotations;
import io.fabric8.kubernetes.api.model.Pod;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import tools.jackson.databind.JsonNode;

/** When Pending pods are scheduled, and what explains why they are not, on nodes with two GPUs of 81920 MiB. */
@ExtendWith(LabExtension.class)
class PendingPodsIT {
    private static final long A_YEAR_SECONDS = 31_536_000;

    /**
     * PodResources leaves out the init container. The kubelet kills its process within a few seconds, and the share is free
     * half a minute after that, and not in a year.
     */
    @Test
    @LongTier.Only
    void theShareOfAForceDeletedPodIsFreeWhenItsProcessesHaveEnded(Lab lab, TestNamespace namespace)
            throws InterruptedException {
        String node = namespace.node();
        namespace.run(podOn(lab, "one", 50000, node));
        Pod initializes = withGrace(podOn(lab, "other", 60000, node), A_YEAR_SECONDS);
        initializes
                .getSpec()
                .getInitContainers()
                .add(initializes
                        .getSpec()
                        .getContainers()
                        .getFirst()
                        .edit()
                        .withName("init")
                        .withCommand("sleep", "infinity")
                        .build());
        namespace.create(initializes);
        namespace.await("other", "initializes", EVENTUALLY, PendingPodsIT::isInitializing);
        Pod other = namespace.get("other");
        namespace.create(podOn(lab, "pending", 40000, node));
        namespace.awaitUnschedulable("pending");

        long deleted = System.nanoTime();
        namespace.client().resource(other).withGracePeriod(0).delete();

        namespace.awaitRunning("pending", EVENTUALLY.plusMinutes(1));
        assertThat(Duration.ofNanos(System.nanoTime() - deleted)).isGreaterThan(Duration.ofSeconds(30));
        Allocations.expectNoGpuOverCapacity(lab);
    }

    private static boolean isInitializing(Pod pod) {
        return pod.getStatus().getInitContainerStatuses().stream()
                .anyMatch(status -> status.getState().getRunning() != null);
    }

    @Test
    @LongTier.Only
    void aTerminatingPodKeepsItsShareUntilItsContainersEnd(Lab lab, TestNamespace namespace) {
        String node = namespace.node();
        namespace.run(podOn(lab, "one", 50000, node));
        Pod ignoresSigterm = withGrace(podOn(lab, "other", 60000, node), 10);
        ignoresSigterm.getSpec().getContainers().getFirst().setCommand(List.of("sleep", "infinity"));
        Pod other = namespace.run(ignoresSigterm);
        namespace.create(podOn(lab, "pending", 40000, node));
        namespace.awaitUnschedulable("pending");

        namespace.client().resource(other).delete();

        Instant killed = Instant.parse(namespace.get("other").getMetadata().getDeletionTimestamp());
        Pod pending = namespace.awaitRunning("pending", PROMPTLY.plusSeconds(10));
        assertThat(pending.getStatus().getConditions())
                .filteredOn(condition -> condition.getType().equals("PodScheduled"))
                .singleElement()
                .satisfies(bound ->
                        assertThat(Instant.parse(bound.getLastTransitionTime())).isAfterOrEqualTo(killed));
        Allocations.expectNoGpuOverCapacity(lab);
    }

    @Test
    void freedCapacityThatHelpsNoPendingPodPatchesNoNodeAndFailedAttemptsDelayNoPod(Lab lab, TestNamespace namespace) {
        String node = namespace.node();
        namespace.run(podOn(lab, "one", 50000, node));
        namespace.run(podOn(lab, "other", 60000, node));
        namespace.create(podOn(lab, "pending", 40000, node));
        assertThat(namespace.awaitUnschedulable("pending")).contains("no GPU with 40000 MiB free");
        String before = wakeAnnotation(lab, node);

        for (int i = 0; i < 3; i++) {
            namespace.run(podOn(lab, "small-" + i, 1000, node));
            namespace.delete("small-" + i);
        }

        assertThat(wakeAnnotation(lab, node)).isEqualTo(before);
        // kube-scheduler retried the Pending pod at each of these creations and deletions, up to a backoff of a minute.
        namespace.delete("other");
        namespace.awaitRunning("pending", PROMPTLY);
        Allocations.expectNoGpuOverCapacity(lab);
    }

    @Test
    void explanationsAndFieldsAreAtTheirPaths(Lab lab, TestNamespace namespace) {
        for (int i = 0; i < 2; i++) {
            namespace.run(Pods.withGpuMemory(lab, "holds-" + i, 60_000));
        }
        namespace.create(Pods.withGpuMemory(lab, "pending", 40_000));
        namespace.awaitUnschedulable("pending");

        JsonNode explanation = GpuApiIT.json(GpuApiIT.kubectl(
                lab,
                namespace,
                "get",
                "--raw",
                GpuApiIT.GROUP + "/namespaces/" + namespace.name() + "/gpushares/pending/explain?node="
                        + namespace.node()));

        assertThat(explanation.toString()).contains("lacks 18080 MiB", "nvidia.com/gpumem: 21920 instead of 40000");
        assertThat(explanation.path("gpus"))
                .hasSize(2)
                .allSatisfy(gpu -> assertThat(gpu.path("memoryMiB").asInt()).isEqualTo(18_080));
        TestNamespace.awaitTrue(
                "an event that explains why the pod is Pending",
                EVENTUALLY,
                () -> namespace.events("pending").stream()
                        .anyMatch(
                                event -> event.getReason().equals("WaitingForGPU")
                                        && event.getMessage()
                                                .contains(
                                                        "lacks 18080 MiB; would fit: nvidia.com/gpumem: 21920 instead of 40000")));
        assertThat(GpuApiIT.kubectl(lab, namespace, "explain", "gpushares.spec.containers"))
                .contains("memoryMiB", "cores", "policy");
    }

    private static String wakeAnnotation(Lab lab, String node) {
        return lab.client()
                .nodes()
                .withName(node)
                .get()
                .getMetadata()
                .getAnnotations()
                .getOrDefault(Annotations.WAKE, "never");
    }

    private static Pod withGrace(Pod pod, long seconds) {
        return pod.edit()
                .editSpec()
                .withTerminationGracePeriodSeconds(seconds)
                .endSpec()
                .build();
    }

    private static Pod podOn(Lab lab, String name, int mebibytes, String node) {
        return Pods.onNode(Pods.withGpuMemory(lab, name, mebibytes), node);
    }
}
