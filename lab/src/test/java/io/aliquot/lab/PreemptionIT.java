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
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Pods of higher priority preempt others, on a node with two GPUs of 81920 MiB. */
@ExtendWith(LabExtension.class)
class PreemptionIT {
    private static final Map<String, String> PROTECTED = Map.of("lab", "protected");

    @Test
    void onePodIsPreemptedWhereTheNodesTotalIsShort(Lab lab, TestNamespace namespace) throws InterruptedException {
        String node = namespace.node();
        runOneAfterAnother(namespace, low(lab, "old", 81920, node), low(lab, "young", 81920, node));

        Pod high = preemptor(lab, namespace, "high", 40000, node);

        assertThat(high.getSpec().getNodeName()).isEqualTo(node);
        assertThat(names(namespace)).containsExactlyInAnyOrder("old", "high");
        Allocations.expectNoGpuOverCapacity(lab);
    }

    @Test
    void onePodIsEvictedWithAReasonWhereOnlySingleGpusAreShort(Lab lab, TestNamespace namespace)
            throws InterruptedException {
        String node = namespace.node();
        runOneAfterAnother(namespace, low(lab, "old", 50000, node), low(lab, "young", 60000, node));

        Pod high = preemptor(lab, namespace, "high", 40000, node);

        assertThat(high.getSpec().getNodeName()).isEqualTo(node);
        assertThat(names(namespace)).containsExactlyInAnyOrder("old", "high");
        assertThat(messages(namespace, "young", "Preempted"))
                .singleElement()
                .asString()
                .startsWith("Preempted by pod " + namespace.name() + "/high of priority 1000");
        assertThat(messages(namespace, "high", "Preempting"))
                .containsExactly("on node " + node + " a GPU is made free by evicting " + namespace.name() + "/young");
        Allocations.expectNoGpuOverCapacity(lab);
    }

    @Test
    @LongTier.Only
    void aPodUnderADisruptionBudgetIsEvictedOnlyOnceTheBudgetAllowsIt(Lab lab, TestNamespace namespace)
            throws InterruptedException {
        String node = namespace.node();
        runOneAfterAnother(
                namespace,
                protectedByBudget(low(lab, "old", 50000, node)),
                protectedByBudget(low(lab, "young", 60000, node)));
        var budget = namespace
                .client()
                .resource(new PodDisruptionBudgetBuilder()
                        .withNewMetadata()
                        .withName("budget")
                        .withNamespace(namespace.name())
                        .endMetadata()
                        .withNewSpec()
                        .withMinAvailable(new IntOrString(2))
                        .withNewSelector()
                        .withMatchLabels(PROTECTED)
                        .endSelector()
                        .endSpec()
                        .build());
        budget.create();
        try (TestPriorityClass high = new TestPriorityClass(lab, namespace, "PreemptLowerPriority")) {
            namespace.create(high.of(Pods.onNode(Pods.withGpuMemory(lab, "high", 40000), node)));
            namespace.awaitUnschedulable("high");
            awaitThreeMoreAttempts(lab, namespace, "high", node);
            assertThat(names(namespace)).containsExactlyInAnyOrder("old", "young", "high");
            assertThat(namespace.get("young").getMetadata().getDeletionTimestamp())
                    .isNull();

            budget.delete();

            namespace.awaitRunning("high", EVENTUALLY);
            assertThat(names(namespace)).containsExactlyInAnyOrder("old", "high");
        }
    }

    @Test
    @LongTier.Only
    void aPodWithPreemptionPolicyNeverStaysPending(Lab lab, TestNamespace namespace) throws InterruptedException {
        String node = namespace.node();
        runOneAfterAnother(namespace, low(lab, "old", 50000, node), low(lab, "young", 60000, node));
        try (TestPriorityClass never = new TestPriorityClass(lab, namespace, "Never")) {
            namespace.create(never.of(Pods.onNode(Pods.withGpuMemory(lab, "never", 40000), node)));

            assertThat(namespace.awaitUnschedulable("never")).contains("no GPU with 40000 MiB free");
            awaitThreeMoreAttempts(lab, namespace, "never", node);
            assertThat(names(namespace)).containsExactlyInAnyOrder("old", "young", "never");
        }
    }

    /** kube-scheduler retries a Pending pod when a pod on the node ends, after the Pending pod's backoff. */
    private static void awaitThreeMoreAttempts(Lab lab, TestNamespace namespace, String pod, String node) {
        var replicas = new SchedulerReplicas(lab);
        for (int i = 0; i < 3; i++) {
            long before = replicas.failedAttempts(namespace.name(), pod);
            namespace.run(low(lab, "small-" + i, 1000, node));
            namespace.delete("small-" + i);
            TestNamespace.awaitTrue(
                    "another attempt to schedule " + pod,
                    EVENTUALLY,
                    () -> replicas.failedAttempts(namespace.name(), pod) > before);
        }
    }

    private static Pod preemptor(Lab lab, TestNamespace namespace, String name, int mebibytes, String node) {
        try (TestPriorityClass high = new TestPriorityClass(lab, namespace, "PreemptLowerPriority")) {
            return namespace.run(high.of(Pods.onNode(Pods.withGpuMemory(lab, name, mebibytes), node)));
        }
    }

    /** Kubernetes' times are whole seconds: of two pods that are bound in the same second neither is the younger. */
    private static void runOneAfterAnother(TestNamespace namespace, Pod old, Pod young) throws InterruptedException {
        namespace.run(old);
        TimeUnit.SECONDS.sleep(1);
        namespace.run(young);
    }

    private static Pod low(Lab lab, String name, int mebibytes, String node) {
        return Pods.onNode(Pods.withGpuMemory(lab, name, mebibytes), node);
    }

    private static Pod protectedByBudget(Pod pod) {
        return pod.edit().editMetadata().addToLabels(PROTECTED).endMetadata().build();
    }

    /** Of the pods that stay: the share of a victim is free a moment before the API server removes it. */
    private static List<String> names(TestNamespace namespace) {
        return namespace.client().pods().inNamespace(namespace.name()).list().getItems().stream()
                .filter(pod -> pod.getMetadata().getDeletionTimestamp() == null)
                .map(pod -> pod.getMetadata().getName())
                .toList();
    }

    private static List<String> messages(TestNamespace namespace, String pod, String reason) {
        return namespace.events(pod).stream()
                .filter(event -> reason.equals(event.getReason()))
                .map(Event::getMessage)
                .toList();
    }

    /** A PriorityClass of value 1000, deleted on close. */
    private static final class TestPriorityClass implements AutoCloseable {
        private final KubernetesClient client;
        private final String name;

        TestPriorityClass(Lab lab, TestNamespace namespace, String policy) {
            client = lab.client();
            name = namespace.name(); // unique, as the API server's cache may still have a deleted class
            client.resource(new PriorityClassBuilder()
                            .withNewMetadata()
                            .withName(name)
                            .endMetadata()
                            .withValue(1000)
                            .withPreemptionPolicy(policy)
                            .build())
                    .create();
            // The API server's admission sees a new class a moment after it is stored.
            TestNamespace.awaitTrue("a pod of priority class " + name + " is admitted", EVENTUALLY, () -> {
                try {
                    client.resource(of(Pods.withoutGpu(lab, "probe")))
                            .inNamespace(namespace.name())
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
