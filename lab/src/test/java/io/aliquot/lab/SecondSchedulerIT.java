package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.PROMPTLY;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.Quantity;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** The default scheduler and Aliquot's decide at the same time, each by what it has seen: a pod of each races for CPU. */
@ExtendWith(LabExtension.class)
@LongTier.Only
class SecondSchedulerIT {
    private static final int MOST_RACES = 40;

    @Test
    void theKubeletRejectsThePodThatDoesNotFitAndItsShareIsFree(Lab lab, TestNamespace namespace)
            throws InterruptedException {
        String node = namespace.node();
        Quantity cpu = new Quantity(freeMillis(lab, node) * 2 / 3 + "m");
        Optional<Pod> rejected = Optional.empty();
        for (int i = 0; i < MOST_RACES && rejected.isEmpty(); i++) {
            rejected = race(lab, namespace, cpu, i);
        }

        assertThat(rejected).as("a share that lost its race").isPresent();
        assertThat(rejected.get().getStatus().getPhase()).isEqualTo("Failed");
        assertThat(rejected.get().getStatus().getReason()).isEqualTo("OutOfcpu");
        namespace.client().pods().inNamespace(namespace.name()).list().getItems().stream()
                .filter(pod -> !"Failed".equals(pod.getStatus().getPhase()))
                .forEach(namespace::requestDeletion);
        Pod whole = Pods.withLimits(lab, "whole", Map.of(Resources.VGPU, "2"));
        namespace.create(whole);
        namespace.awaitRunning("whole", PROMPTLY);
    }

    /** Returns the pod with the share if the kubelet has rejected it. */
    private static Optional<Pod> race(Lab lab, TestNamespace namespace, Quantity cpu, int number)
            throws InterruptedException {
        String share = "share-" + number;
        String plain = "plain-" + number;
        namespace.create(withCpu(Pods.withGpuMemory(lab, share, 1000), cpu));
        // The default scheduler is to bind after Aliquot's has decided and before its Binding has arrived.
        TimeUnit.MILLISECONDS.sleep(number * 5L);
        namespace.create(withCpu(Pods.withoutGpu(lab, plain), cpu));
        for (String name : new String[] {share, plain}) {
            namespace.await(
                    name,
                    "is decided",
                    EVENTUALLY,
                    pod -> TestNamespace.isRunning(pod)
                            || TestNamespace.isUnschedulable(pod)
                            || "Failed".equals(pod.getStatus().getPhase()));
        }
        Pod decided = namespace.get(share);
        if ("Failed".equals(decided.getStatus().getPhase())) {
            return Optional.of(decided);
        }
        namespace.deleteAllPods();
        return Optional.empty();
    }

    private static Pod withCpu(Pod pod, Quantity cpu) {
        return pod.edit()
                .editSpec()
                .editFirstContainer()
                .editResources()
                .addToRequests("cpu", cpu)
                .endResources()
                .endContainer()
                .endSpec()
                .build();
    }

    /** The CPU that the pods of a node leave. */
    private static long freeMillis(Lab lab, String node) {
        long requested =
                lab.client().pods().inAnyNamespace().withField("spec.nodeName", node).list().getItems().stream()
                        .flatMap(pod -> pod.getSpec().getContainers().stream())
                        .map(container -> container.getResources().getRequests())
                        .filter(requests -> requests != null && requests.containsKey("cpu"))
                        .mapToLong(requests -> millis(requests.get("cpu")))
                        .sum();
        return millis(lab.client()
                        .nodes()
                        .withName(node)
                        .get()
                        .getStatus()
                        .getAllocatable()
                        .get("cpu"))
                - requested;
    }

    private static long millis(@Nullable Quantity quantity) {
        return Objects.requireNonNull(quantity)
                .getNumericalAmount()
                .movePointRight(3)
                .longValue();
    }
}
