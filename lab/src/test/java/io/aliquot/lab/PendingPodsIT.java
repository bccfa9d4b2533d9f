package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.PROMPT;
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

/** Pods that wait, on a node with two GPUs of 81920 MiB. */
@ExtendWith(LabExtension.class)
class PendingPodsIT {
    @Test
    void aReleaseLetsAPodRunThatOnlyASingleGpuWasTooSmallFor(Lab lab, TestNamespace space) {
        String node = lab.nodes().get(0);
        space.run(on(lab, "one", 50000, node));
        space.run(on(lab, "other", 60000, node));
        space.create(on(lab, "waits", 40000, node));
        assertThat(space.awaitUnschedulable("waits")).contains("no GPU with 40000 MiB free");

        space.delete("other");

        space.awaitRunning("waits", PROMPT);
        Allocations.expectNoGpuOverCapacity(lab);
    }

    @Test
    void whatAPodHeldThatIsDeletedByForceIsFreeAfterItsGracePeriod(Lab lab, TestNamespace space) throws InterruptedException {
        String node = lab.nodes().get(0);
        space.run(on(lab, "one", 50000, node));
        Pod other = space.run(withGrace(on(lab, "other", 60000, node), 15));
        space.create(on(lab, "waits", 40000, node));
        space.awaitUnschedulable("waits");

        space.client().resource(other).withGracePeriod(0).delete();

        TimeUnit.SECONDS.sleep(12);
        assertThat(TestNamespace.bound(space.get("waits")))
                .as("before the grace period is over")
                .isFalse();
        space.awaitRunning("waits", EVENTUALLY);
        Allocations.expectNoGpuOverCapacity(lab);
    }

    @Test
    void aPodThatTakesItsTimeToEndHoldsItsShareUntilThen(Lab lab, TestNamespace space) throws InterruptedException {
        String node = lab.nodes().get(0);
        space.run(on(lab, "one", 50000, node));
        // the first process of a container that does not handle SIGTERM is not ended by it
        Pod other = space.run(withGrace(on(lab, "other", 60000, node), 10));
        space.create(on(lab, "waits", 40000, node));
        space.awaitUnschedulable("waits");

        space.client().resource(other).delete();

        TimeUnit.SECONDS.sleep(8);
        assertThat(TestNamespace.bound(space.get("waits")))
                .as("while the other one ends")
                .isFalse();
        space.awaitRunning("waits", PROMPT.plusSeconds(2));
        Allocations.expectNoGpuOverCapacity(lab);
    }

    @Test
    void aCordonThatIsLiftedLetsAPodRun(Lab lab, TestNamespace space) {
        String node = lab.nodes().get(0);
        String all =
                Allocations.inventory(lab, node).gpus().stream().map(Gpu::uuid).collect(Collectors.joining(","));
        lab.kubectl("annotate", "--overwrite", "node", node, Annotations.CORDON_GPUS + "=" + all)
                .expectSuccess();
        try {
            space.create(on(lab, "waits", 40000, node));
            space.awaitUnschedulable("waits");
        } finally {
            lab.kubectl("annotate", "node", node, Annotations.CORDON_GPUS + "-").expectSuccess();
        }
        space.awaitRunning("waits", PROMPT);
    }

    @Test
    void roomThatHelpsNobodyWritesNothingToAnyNodeAndTriesInVainDelayNobody(Lab lab, TestNamespace space) {
        String node = lab.nodes().get(0);
        space.run(on(lab, "one", 50000, node));
        space.run(on(lab, "other", 60000, node));
        space.create(on(lab, "waits", 40000, node));
        space.awaitUnschedulable("waits");
        Map<String, String> before = woken(lab);

        for (int i = 0; i < 3; i++) {
            space.run(on(lab, "small-" + i, 1000, node));
            space.delete("small-" + i);
        }

        assertThat(woken(lab)).isEqualTo(before);
        // It was tried at each of these pods' beginnings and ends, so that its backoff is a minute by now.
        space.delete("other");
        space.awaitRunning("waits", PROMPT);
    }

    private static Map<String, String> woken(Lab lab) {
        var woken = new HashMap<String, String>();
        for (String node : lab.nodes()) {
            woken.put(
                    node,
                    lab.client()
                            .nodes()
                            .withName(node)
                            .get()
                            .getMetadata()
                            .getAnnotations()
                            .getOrDefault(Annotations.WAKE, "never"));
        }
        return woken;
    }

    private static Pod withGrace(Pod pod, long seconds) {
        return pod.edit()
                .editSpec()
                .withTerminationGracePeriodSeconds(seconds)
                .endSpec()
                .build();
    }

    private static Pod on(Lab lab, String name, int mebibytes, String node) {
        return Pods.onNode(Pods.memory(lab, name, mebibytes), node);
    }
}
