package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Labels;
import io.aliquot.api.names.Resources;
import io.aliquot.api.nodes.Inventory;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.NodeBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;

/** The inventories of GPUs that agents write to their nodes. */
@ExtendWith(LabExtension.class)
@Isolated
class InventoryIT {
    private static final String MALFORMED = "malformed-inventory";
    private static final String KEPT = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
    private static final String KEPT_MARK = "aliquot.io/scale-down-disabled";
    private static final PatchContext MERGE = PatchContext.of(PatchType.JSON_MERGE);

    @Test
    void everyNodeListsItsGpusAndTheirTotals(Lab lab) {
        for (String node : lab.nodes()) {
            assertThat(Allocations.inventory(lab, node).gpus()).hasSize(2).allSatisfy(gpu -> {
                assertThat(gpu.model()).isEqualTo("NVIDIA A100-SXM4-80GB");
                assertThat(gpu.memoryMiB()).isEqualTo(81920);
                assertThat(gpu.healthy()).isTrue();
            });
            assertThat(lab.allocatable(node, Resources.VGPU)).isEqualTo(20);
            assertThat(lab.allocatable(node, Resources.MEMORY)).isEqualTo(2 * 81920);
            assertThat(lab.allocatable(node, Resources.CORES)).isEqualTo(200);
            assertThat(lab.allocatable(node, Resources.MEMORY_PERCENTAGE)).isEqualTo(200);
        }
    }

    @Test
    @LongTier.Only
    void aNodeWithAMalformedInventoryIsSkippedWithAnEventAndOtherNodesGetPods(Lab lab, TestNamespace namespace) {
        Node node = new NodeBuilder()
                .withNewMetadata()
                .withName(MALFORMED)
                .addToLabels(Labels.GPU, Labels.GPU_ON)
                .addToLabels("kubernetes.io/hostname", MALFORMED)
                .endMetadata()
                .build();
        try (KubernetesClient agent = lab.impersonate(
                        "system:serviceaccount:" + Lab.NAMESPACE + ":aliquot-device-plugin",
                        Map.of("authentication.kubernetes.io%2Fnode-name", List.of(MALFORMED)));
                KubernetesClient kubelet = lab.impersonate("system:node:" + MALFORMED, Map.of())) {
            lab.client().resource(node).create();
            // by its status the node has GPUs, so that Kubernetes itself would allow it
            Inventory real = Allocations.inventory(lab, lab.nodes().get(0));
            HollowNodes.reportResources(kubelet, MALFORMED, new HollowNodes.Hardware(8, real.gpus()), real.slots());
            agent.nodes()
                    .withName(MALFORMED)
                    .patch(
                            MERGE,
                            "{\"metadata\":{\"annotations\":{\"" + Annotations.GPUS + "\":\"{\\\"version\\\":\"}}}");

            awaitTrue(
                    "an event about the inventory",
                    EVENTUALLY,
                    () -> lab.nodeEvents(MALFORMED).stream()
                            .anyMatch(event -> event.getMessage().contains(Annotations.GPUS)));

            namespace.create(HollowNodes.tolerate(Pods.onNode(Pods.withGpuMemory(lab, "there", 1000), MALFORMED)));
            assertThat(namespace.awaitUnschedulable("there")).contains("inventory");
            Pod elsewhere = namespace.run(HollowNodes.tolerate(Pods.withGpuMemory(lab, "elsewhere", 1000)));
            assertThat(elsewhere.getSpec().getNodeName()).isIn(lab.nodes());
        } finally {
            lab.client().nodes().withName(MALFORMED).delete();
        }
    }

    /** AWS' label. The annotation and its mark are in one write, so the first one that is seen has both. */
    @Test
    @LongTier.Only
    void aNodeThatClusterAutoscalerMayTakeForEmptyIsKeptWhilePodsHoldShares(Lab lab, TestNamespace namespace) {
        String node = lab.nodes().get(1);
        namespace.run(Pods.onNode(Pods.withGpuMemory(lab, "holds", 1000), node));
        lab.kubectl("label", "node", node, "k8s.amazonaws.com/accelerator=nvidia-a100")
                .expectSuccess();
        try {
            awaitTrue("the annotation", EVENTUALLY, () -> annotations(lab, node).containsKey(KEPT));
            assertThat(annotations(lab, node)).containsEntry(KEPT, "true").containsEntry(KEPT_MARK, "true");
            assertThat(lab.kubectl("get", "gpunode", node, "--output", "jsonpath={.status.conditions}")
                            .expectSuccess())
                    .contains("ClusterAutoscalerReady", "False", "k8s.amazonaws.com/accelerator");
        } finally {
            lab.kubectl("label", "node", node, "k8s.amazonaws.com/accelerator-").expectSuccess();
        }
        awaitTrue("no annotation", EVENTUALLY, () -> !annotations(lab, node).containsKey(KEPT));
        assertThat(annotations(lab, node)).doesNotContainKey(KEPT_MARK);
    }

    private static Map<String, String> annotations(Lab lab, String node) {
        return lab.client().nodes().withName(node).get().getMetadata().getAnnotations();
    }

    @Test
    void aNodeWithoutTheGpuLabelGetsNoNewSharesAndItsPodsKeepTheirs(Lab lab, TestNamespace namespace) {
        String node = lab.nodes().get(1);
        namespace.run(Pods.onNode(Pods.withGpuMemory(lab, "before", 1000), node));
        lab.kubectl("label", "node", node, "gpu-").expectSuccess();
        try {
            namespace.create(Pods.onNode(Pods.withGpuMemory(lab, "after", 1000), node));
            assertThat(namespace.awaitUnschedulable("after")).contains("no longer labelled gpu=on");

            assertThat(namespace
                            .exec("before", "vgpu-sample", "alloc", "700", "alloc", "100")
                            .expectSuccess())
                    .contains("alloc 700 MiB: CUDA_SUCCESS", "alloc 100 MiB: CUDA_ERROR_OUT_OF_MEMORY");
            // CoexistenceIT: with its last vGPU the node leaves.
            assertThat(lab.allocatable(node, Resources.VGPU)).isPositive();
        } finally {
            lab.kubectl("label", "--overwrite", "node", node, Labels.GPU + "=" + Labels.GPU_ON)
                    .expectSuccess();
        }
        namespace.await("after", "is bound", EVENTUALLY, TestNamespace::isBound);
        namespace.awaitRunning("after", EVENTUALLY);
    }
}
