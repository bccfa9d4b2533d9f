package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.Annotations;
import io.aliquot.api.Inventory;
import io.aliquot.api.Labels;
import io.aliquot.api.Resources;
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

/** What nodes say about their GPUs. */
@ExtendWith(LabExtension.class)
class InventoryIT {
    private static final String STRANGE = "strange-node";
    private static final PatchContext MERGE = PatchContext.of(PatchType.JSON_MERGE);

    @Test
    void everyNodeTellsItsGpusAndTheirTotals(Lab lab) {
        for (String node : lab.nodes()) {
            assertThat(Allocations.inventory(lab, node).gpus()).hasSize(2).allSatisfy(gpu -> {
                assertThat(gpu.model()).isEqualTo("NVIDIA A100-SXM4-80GB");
                assertThat(gpu.memoryMiB()).isEqualTo(81920);
                assertThat(gpu.healthy()).isTrue();
            });
            assertThat(lab.allocatable(node, Resources.GPU)).isEqualTo(20);
            assertThat(lab.allocatable(node, Resources.MEMORY)).isEqualTo(2 * 81920);
            assertThat(lab.allocatable(node, Resources.CORES)).isEqualTo(200);
            assertThat(lab.allocatable(node, Resources.MEMORY_PERCENTAGE)).isEqualTo(200);
        }
    }

    @Test
    void aNodeWhoseInventoryIsUnreadableIsLeftOutWithAnEventAndTheOthersServe(Lab lab, TestNamespace space) {
        Node node = new NodeBuilder()
                .withNewMetadata()
                .withName(STRANGE)
                .addToLabels(Labels.GPU, Labels.GPU_ON)
                .addToLabels("kubernetes.io/hostname", STRANGE)
                .endMetadata()
                .build();
        try (KubernetesClient agent = lab.as(
                        "system:serviceaccount:" + Lab.NAMESPACE + ":aliquot-device-plugin",
                        Map.of("authentication.kubernetes.io%2Fnode-name", List.of(STRANGE)));
                KubernetesClient kubelet = lab.as("system:node:" + STRANGE, Map.of())) {
            lab.client().resource(node).create();
            // a kubelet that has GPUs, as far as Kubernetes itself can see
            Inventory real = Allocations.inventory(lab, lab.nodes().get(0));
            HollowNodes.report(kubelet, STRANGE, new HollowNodes.Kind(8, real.gpus()), real.slots());
            agent.nodes()
                    .withName(STRANGE)
                    .patch(
                            MERGE,
                            "{\"metadata\":{\"annotations\":{\"" + Annotations.GPUS + "\":\"{\\\"version\\\":\"}}}");

            awaitTrue(
                    "an event that tells of the inventory",
                    EVENTUALLY,
                    () -> lab
                            .client()
                            .v1()
                            .events()
                            .inAnyNamespace()
                            .withField("involvedObject.name", STRANGE)
                            .list()
                            .getItems()
                            .stream()
                            .anyMatch(event -> event.getMessage().contains(Annotations.GPUS)));

            space.create(HollowNodes.too(Pods.onNode(Pods.memory(lab, "there", 1000), STRANGE)));
            assertThat(space.awaitUnschedulable("there")).contains("inventory");
            Pod elsewhere = space.run(HollowNodes.too(Pods.memory(lab, "elsewhere", 1000)));
            assertThat(elsewhere.getSpec().getNodeName()).isIn(lab.nodes());
        } finally {
            lab.client().nodes().withName(STRANGE).delete();
        }
    }

    @Test
    void aNodeWithoutTheLabelTakesNoNewSharesAndKeepsItsOwn(Lab lab, TestNamespace space) {
        String node = lab.nodes().get(1);
        space.run(Pods.onNode(Pods.memory(lab, "before", 1000), node));
        lab.kubectl("label", "node", node, "gpu-").expectSuccess();
        try {
            space.create(Pods.onNode(Pods.memory(lab, "after", 1000), node));
            space.awaitUnschedulable("after");

            assertThat(space.exec("before", "vgpu-sample", "alloc", "1000", "alloc", "1")
                            .expectSuccess())
                    .contains("alloc 1000 MiB: CUDA_SUCCESS", "alloc 1 MiB: CUDA_ERROR_OUT_OF_MEMORY");
            // The kubelet notices within 10 s that the agent, which runs on labelled nodes only, has gone.
            awaitTrue("no GPUs offered on " + node, EVENTUALLY, () -> lab.allocatable(node, Resources.GPU) == 0);
        } finally {
            lab.kubectl("label", "--overwrite", "node", node, Labels.GPU + "=" + Labels.GPU_ON)
                    .expectSuccess();
        }
        space.await("after", "is bound", EVENTUALLY, TestNamespace::bound);
        space.awaitRunning("after", EVENTUALLY);
    }
}
