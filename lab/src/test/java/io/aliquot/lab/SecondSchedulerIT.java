package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.PROMPTLY;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.Quantity;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;

/** The default scheduler and Aliquot's decide at the same time, each by what it has seen: a pod of each races for CPU. */
@ExtendWith(LabExtension.class)
@Isolated
@LongTier.Only
class SecondSchedulerIT {
    /**
     * The extender is paused while kube-scheduler, which has looked at the node already, waits for its answer; the default
     * scheduler's pod gets the CPU meanwhile.
     */
    @Test
    void theKubeletRejectsThePodThatDoesNotFitAndItsShareIsFree(Lab lab, TestNamespace namespace) {
        String node = lab.nodes().getFirst();
        var cpu = new Quantity(freeMillis(lab, node) * 2 / 3 + "m");
        var replicas = new SchedulerReplicas(lab);
        Pod leader = replicas.get(replicas.leader());
        namespace.create(Pods.onNode(withCpu(Pods.withGpuMemory(lab, "share", 1000), cpu), node)
                .edit()
                .editSpec()
                .addNewSchedulingGate("aliquot.io/test")
                .endSpec()
                .build());
        replicas.signal(leader, SchedulerReplicas.EXTENDER, "SIGSTOP");
        try {
            namespace
                    .client()
                    .pods()
                    .resource(namespace.get("share"))
                    .edit(pod -> pod.edit()
                            .editSpec()
                            .withSchedulingGates()
                            .endSpec()
                            .build());
            namespace.create(Pods.onNode(withCpu(Pods.withoutGpu(lab, "plain"), cpu), node));
            namespace.awaitRunning("plain", PROMPTLY);
        } finally {
            replicas.signal(leader, SchedulerReplicas.EXTENDER, "SIGCONT");
        }

        Pod share = namespace.await(
                "share",
                "is rejected",
                EVENTUALLY,
                pod -> "Failed".equals(pod.getStatus().getPhase()));
        assertThat(share.getStatus().getReason()).isEqualTo("OutOfcpu");
        namespace.delete("plain");
        namespace.create(Pods.onNode(Pods.withLimits(lab, "whole", Map.of(Resources.VGPU, "2")), node));
        namespace.awaitRunning("whole", PROMPTLY);
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
