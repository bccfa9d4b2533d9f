package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.apps.Deployment;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;

/** One manifest works on nodes of all {@linkplain NodeKind kinds}. */
@ExtendWith(LabExtension.class)
@Isolated
class NodeKindsIT {
    private static final int CORES = 30;
    private static final Map<String, String> LIMITS =
            Map.of(Resources.MEMORY, "3000", Resources.CORES, Integer.toString(CORES));

    @Test
    void theNodesHaveDifferentRuntimes(Lab lab) {
        assertThat(version(lab, NodeKind.DEFAULT_RUNTIME)).startsWith("containerd://1.");
        assertThat(version(lab, NodeKind.CDI)).isEqualTo("containerd://2.2.0");
    }

    /** As the node's kubelet reports it. */
    private static String version(Lab lab, NodeKind kind) {
        return lab.client()
                .nodes()
                .withName(lab.node(kind))
                .get()
                .getStatus()
                .getNodeInfo()
                .getContainerRuntimeVersion();
    }

    @Test
    void thePodsOfADeploymentAreLimitedOnEachNode(Lab lab, TestNamespace namespace) {
        assertADeploymentIsLimited(lab, namespace, 4, lab.nodes());
    }

    @Test
    @LongTier.Only
    void ninePodsOfADeploymentAreLimitedOnNodesOfThreeKinds(Lab lab, RuntimeClassNode third, TestNamespace namespace) {
        var nodes = new ArrayList<>(lab.nodes());
        nodes.add(third.name());

        assertADeploymentIsLimited(lab, namespace, 9, nodes);
    }

    private static void assertADeploymentIsLimited(Lab lab, TestNamespace namespace, int replicas, List<String> nodes) {
        Pod pod = Pods.withAnnotations(
                Pods.withLimits(lab, "share", LIMITS), Map.of(Annotations.NODE_PLACEMENT, "spread"));
        pod.getSpec().getContainers().getFirst().setCommand(List.of("sh", "-c", "vgpu-sample busy 600 > /tmp/busy"));
        Deployment share = lab.client()
                .resource(Pods.deployment(pod, replicas))
                .inNamespace(namespace.name())
                .create();
        try {
            awaitTrue(
                    "the pods run",
                    EVENTUALLY,
                    () -> pods(namespace).filter(TestNamespace::isReady).count() == replicas);

            assertThat(pods(namespace).map(each -> each.getSpec().getNodeName()))
                    .containsAll(nodes);
            pods(namespace).map(each -> each.getMetadata().getName()).forEach(name -> assertIsLimited(namespace, name));
        } finally {
            lab.client().resource(share).delete();
        }
    }

    private static Stream<Pod> pods(TestNamespace namespace) {
        return namespace.client().pods().inNamespace(namespace.name()).list().getItems().stream();
    }

    private static void assertIsLimited(TestNamespace namespace, String pod) {
        assertThat(namespace.exec(pod, "nvidia-smi").expectSuccess()).as(pod).contains("MiB / 3000MiB");
        assertThat(namespace
                        .exec(pod, "vgpu-sample", "alloc", "2000", "alloc", "800")
                        .expectSuccess())
                .as(pod)
                .contains("alloc 2000 MiB: CUDA_SUCCESS", "alloc 800 MiB: CUDA_ERROR_OUT_OF_MEMORY");
        ComputeIT.awaitUtilization(namespace, pod, CORES);
    }
}
