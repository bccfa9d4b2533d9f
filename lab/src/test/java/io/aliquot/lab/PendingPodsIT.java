package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.PROMPTLY;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.Annotations;
import io.aliquot.api.Gpu;
import io.fabric8.kubernetes.api.model.Pod;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** When Pending pods are scheduled, on a node with two GPUs of 81920 MiB. */
@ExtendWith(LabExtension.class)
class PendingPodsIT {
    @Test
    void deletingAPodUnblocksAPendingPodThatFitsTheNodesTotalButNoSingleGpu(Lab lab, TestNamespace namespace) {
        String node = lab.nodes().get(0);
        namespace.run(podOn(lab, "one", 50000, node));
        namespace.run(podOn(lab, "other", 60000, node));
        namespace.create(podOn(lab, "pending", 40000, node));
        assertThat(namespace.awaitUnschedulable("pending")).contains("no GPU with 40000 MiB free");

        namespace.delete("other");

        namespace.awaitRunning("pending", PROMPTLY);
        Allocations.expectNoGpuOverCapacity(lab);
    }

    @Test
    @LongTier.Only
    void theShareOfAForceDeletedPodIsFreeAfterItsGracePeriod(Lab lab, TestNamespace namespace)
            throws InterruptedException {
        String node = lab.nodes().get(0);
        namespace.run(podOn(lab, "one", 50000, node));
        Pod other = namespace.run(withGrace(podOn(lab, "other", 60000, node), 15));
        namespace.create(podOn(lab, "pending", 40000, node));
        namespace.awaitUnschedulable("pending");

        namespace.client().resource(other).withGracePeriod(0).delete();

        TimeUnit.SECONDS.sleep(12);
        assertThat(TestNamespace.isBound(namespace.get("pending")))
                .as("before the grace period is over")
                .isFalse();
        namespace.awaitRunning("pending", EVENTUALLY);
        Allocations.expectNoGpuOverCapacity(lab);
    }

    @Test
    @LongTier.Only
    void aTerminatingPodKeepsItsShareUntilItsContainersEnd(Lab lab, TestNamespace namespace)
            throws InterruptedException {
        String node = lab.nodes().get(0);
        namespace.run(podOn(lab, "one", 50000, node));
        // SIGTERM does not end a container's first process if that has no handler for it
        Pod other = namespace.run(withGrace(podOn(lab, "other", 60000, node), 10));
        namespace.create(podOn(lab, "pending", 40000, node));
        namespace.awaitUnschedulable("pending");

        namespace.client().resource(other).delete();

        TimeUnit.SECONDS.sleep(8);
        assertThat(TestNamespace.isBound(namespace.get("pending")))
                .as("while the other pod terminates")
                .isFalse();
        namespace.awaitRunning("pending", PROMPTLY.plusSeconds(2));
        Allocations.expectNoGpuOverCapacity(lab);
    }

    @Test
    void uncordoningGpusUnblocksAPendingPod(Lab lab, TestNamespace namespace) {
        String node = lab.nodes().get(0);
        String all =
                Allocations.inventory(lab, node).gpus().stream().map(Gpu::uuid).collect(Collectors.joining(","));
        lab.kubectl("annotate", "--overwrite", "node", node, Annotations.CORDON_GPUS + "=" + all)
                .expectSuccess();
        try {
            namespace.create(podOn(lab, "pending", 40000, node));
            namespace.awaitUnschedulable("pending");
        } finally {
            lab.kubectl("annotate", "node", node, Annotations.CORDON_GPUS + "-").expectSuccess();
        }
        namespace.awaitRunning("pending", PROMPTLY);
    }

    @Test
    void freedCapacityThatHelpsNoPendingPodPatchesNoNodeAndFailedAttemptsDelayNoPod(Lab lab, TestNamespace namespace) {
        String node = lab.nodes().get(0);
        namespace.run(podOn(lab, "one", 50000, node));
        namespace.run(podOn(lab, "other", 60000, node));
        namespace.create(podOn(lab, "pending", 40000, node));
        namespace.awaitUnschedulable("pending");
        Map<String, String> before = wakeAnnotations(lab);

        for (int i = 0; i < 3; i++) {
            namespace.run(podOn(lab, "small-" + i, 1000, node));
            namespace.delete("small-" + i);
        }

        assertThat(wakeAnnotations(lab)).isEqualTo(before);
        // kube-scheduler retried the Pending pod at each of these creations and deletions, up to a backoff of a minute.
        namespace.delete("other");
        namespace.awaitRunning("pending", PROMPTLY);
    }

    private static Map<String, String> wakeAnnotations(Lab lab) {
        var wakeAnnotations = new HashMap<String, String>();
        for (String node : lab.nodes()) {
            wakeAnnotations.put(
                    node,
                    lab.client()
                            .nodes()
                            .withName(node)
                            .get()
                            .getMetadata()
                            .getAnnotations()
                            .getOrDefault(Annotations.WAKE, "never"));
        }
        return wakeAnnotations;
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
