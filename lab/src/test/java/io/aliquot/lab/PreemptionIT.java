package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static org.assertj.core.api.Assertions.assertThat;

import io.fabric8.kubernetes.api.model.Event;
import io.fabric8.kubernetes.api.model.IntOrString;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.policy.v1.PodDisruptionBudgetBuilder;
import io.fabric8.kubernetes.api.model.scheduling.v1.PriorityClassBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Pods of higher priority get the room of others, on a node with two GPUs of 81920 MiB. */
@ExtendWith(LabExtension.class)
class PreemptionIT {
    private static final Map<String, String> GUARDED = Map.of("lab", "guarded");

    /** Long enough for kube-scheduler to try thrice, and for the evictor to look at each try. */
    private static final Duration A_WHILE = Duration.ofSeconds(8);

    @Test
    void whereTheNodesTotalIsShortOnePodGoesAndOnlyThat(Lab lab, TestNamespace space) throws InterruptedException {
        String node = lab.nodes().get(0);
        runOneAfterAnother(space, low(lab, "old", 81920, node), low(lab, "young", 81920, node));

        Pod high = preemptor(lab, space, "high", 40000, node);

        assertThat(high.getSpec().getNodeName()).isEqualTo(node);
        assertThat(names(space)).containsExactlyInAnyOrder("old", "high");
        Allocations.expectNoGpuOverCapacity(lab);
    }

    @Test
    void whereOnlySingleGpusAreShortOnePodIsEvictedAndToldWhy(Lab lab, TestNamespace space) throws InterruptedException {
        String node = lab.nodes().get(0);
        runOneAfterAnother(space, low(lab, "old", 50000, node), low(lab, "young", 60000, node));

        Pod high = preemptor(lab, space, "high", 40000, node);

        assertThat(high.getSpec().getNodeName()).isEqualTo(node);
        assertThat(names(space)).containsExactlyInAnyOrder("old", "high");
        assertThat(messages(space, "young", "Preempted"))
                .singleElement()
                .asString()
                .startsWith("Preempted by pod " + space.name() + "/high of priority 1000");
        assertThat(messages(space, "high", "Preempting"))
                .containsExactly("on node " + node + " a GPU is made free by evicting " + space.name() + "/young");
        Allocations.expectNoGpuOverCapacity(lab);
    }

    @Test
    void whomABudgetProtectsIsEvictedOnlyWhenItAllowsIt(Lab lab, TestNamespace space) throws InterruptedException {
        String node = lab.nodes().get(0);
        runOneAfterAnother(space, guarded(low(lab, "old", 50000, node)), guarded(low(lab, "young", 60000, node)));
        var budget = space.client()
                .resource(new PodDisruptionBudgetBuilder()
                        .withNewMetadata()
                        .withName("guard")
                        .withNamespace(space.name())
                        .endMetadata()
                        .withNewSpec()
                        .withMinAvailable(new IntOrString(2))
                        .withNewSelector()
                        .withMatchLabels(GUARDED)
                        .endSelector()
                        .endSpec()
                        .build());
        budget.create();
        try (PriorityClass high = new PriorityClass(lab, space, "PreemptLowerPriority")) {
            space.create(high.of(Pods.onNode(Pods.memory(lab, "high", 40000), node)));
            space.awaitUnschedulable("high");
            TimeUnit.MILLISECONDS.sleep(A_WHILE.toMillis());
            assertThat(names(space)).containsExactlyInAnyOrder("old", "young", "high");
            assertThat(space.get("young").getMetadata().getDeletionTimestamp()).isNull();

            budget.delete();

            space.awaitRunning("high", EVENTUALLY);
            assertThat(names(space)).containsExactlyInAnyOrder("old", "high");
        }
    }

    @Test
    void aPodThatMayNotPreemptWaits(Lab lab, TestNamespace space) throws InterruptedException {
        String node = lab.nodes().get(0);
        runOneAfterAnother(space, low(lab, "old", 50000, node), low(lab, "young", 60000, node));
        try (PriorityClass polite = new PriorityClass(lab, space, "Never")) {
            space.create(polite.of(Pods.onNode(Pods.memory(lab, "polite", 40000), node)));

            assertThat(space.awaitUnschedulable("polite")).contains("no GPU with 40000 MiB free");
            TimeUnit.MILLISECONDS.sleep(A_WHILE.toMillis());
            assertThat(names(space)).containsExactlyInAnyOrder("old", "young", "polite");
        }
    }

    private static Pod preemptor(Lab lab, TestNamespace space, String name, int mebibytes, String node) {
        try (PriorityClass high = new PriorityClass(lab, space, "PreemptLowerPriority")) {
            return space.run(high.of(Pods.onNode(Pods.memory(lab, name, mebibytes), node)));
        }
    }

    /** Kubernetes tells times in whole seconds: bound within the same one, neither would be the younger. */
    private static void runOneAfterAnother(TestNamespace space, Pod old, Pod young) throws InterruptedException {
        space.run(old);
        TimeUnit.SECONDS.sleep(1);
        space.run(young);
    }

    private static Pod low(Lab lab, String name, int mebibytes, String node) {
        return Pods.onNode(Pods.memory(lab, name, mebibytes), node);
    }

    private static Pod guarded(Pod pod) {
        return pod.edit().editMetadata().addToLabels(GUARDED).endMetadata().build();
    }

    private static List<String> names(TestNamespace space) {
        return space.client().pods().inNamespace(space.name()).list().getItems().stream()
                .map(pod -> pod.getMetadata().getName())
                .toList();
    }

    private static List<String> messages(TestNamespace space, String pod, String reason) {
        return space.events(pod).stream()
                .filter(event -> reason.equals(event.getReason()))
                .map(Event::getMessage)
                .toList();
    }

    /** One of priority 1000, there while it is open. */
    private static final class PriorityClass implements AutoCloseable {
        private final KubernetesClient client;
        private final String name;

        PriorityClass(Lab lab, TestNamespace space, String policy) {
            client = lab.client();
            name = space.name(); // of a name that comes back the API server may know the end or the beginning
            client.resource(new PriorityClassBuilder()
                            .withNewMetadata()
                            .withName(name)
                            .endMetadata()
                            .withValue(1000)
                            .withPreemptionPolicy(policy)
                            .build())
                    .create();
            // The API server's admission hears of a class a moment after it has stored it.
            TestNamespace.awaitTrue("a pod of priority class " + name + " is admitted", EVENTUALLY, () -> {
                try {
                    client.resource(of(Pods.plain(lab, "tried")))
                            .inNamespace(space.name())
                            .dryRun()
                            .create();
                    return true;
                } catch (KubernetesClientException e) {
                    assertThat(e.getMessage()).contains("no PriorityClass");
                    return false;
                }
            });
        }

        Pod of(Pod pod) {
            return pod.edit().editSpec().withPriorityClassName(name).endSpec().build();
        }

        @Override
        public void close() {
            client.scheduling().v1().priorityClasses().withName(name).delete();
        }
    }
}
