package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Labels;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.node.v1.RuntimeClass;
import io.fabric8.kubernetes.api.model.node.v1.RuntimeClassBuilder;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;

/**
 * Pods go only where the container runtime can start them. containerd 1 does not report its handlers, containerd 2 reports
 * {@code runc}, the default, and {@code nvidia}.
 */
@ExtendWith(LabExtension.class)
@Isolated
@LongTier.Only
class RuntimeHandlersIT {
    private static final String NO_REPORT =
            "1 the node's container runtime does not report user namespaces, which hostUsers: false needs";

    @Test
    void aPodWithAUserNamespaceStaysPendingOnContainerd1(Lab lab, TestNamespace namespace) {
        Pod pod = share(lab, "user", NodeKind.DEFAULT_RUNTIME);
        pod.getSpec().setHostUsers(false);

        namespace.create(pod);

        assertThat(namespace.awaitUnschedulable("user")).contains(NO_REPORT);
        awaitTrue(
                "the event says it too",
                EVENTUALLY,
                () -> namespace.events("user").stream()
                        .anyMatch(event -> event.getReason().equals("WaitingForGPU")
                                && event.getMessage().contains(NO_REPORT)));
    }

    /** Whether the container then runs is the node's matter: on cgroup v1 and an old kernel it may not. */
    @Test
    void aPodWithAUserNamespaceGoesWhereItsHandlerReportsThem(Lab lab, TestNamespace namespace) {
        assertThat(lab.client().nodes().withName(lab.node(NodeKind.CDI)).get().getStatus().getRuntimeHandlers().stream()
                        .filter(handler -> "nvidia".equals(handler.getName()))
                        .map(handler -> handler.getFeatures().getUserNamespaces()))
                .containsExactly(true);
        Pod pod = share(lab, "user", NodeKind.CDI);
        pod.getSpec().setHostUsers(false);

        namespace.create(pod);

        namespace.await("user", "is bound", EVENTUALLY, TestNamespace::isBound);
    }

    @Test
    void aPodStaysPendingWhereTheHandlerOfItsRuntimeClassIsMissing(Lab lab, TestNamespace namespace) {
        withRuntimeClass(lab, "missing", () -> {
            Pod pod = share(lab, "share", NodeKind.CDI);
            pod.getSpec().setRuntimeClassName("missing");

            namespace.create(pod);

            assertThat(namespace.awaitUnschedulable("share"))
                    .contains(
                            "1 the node's container runtime has no handler missing, which the pod's RuntimeClass missing"
                                    + " names: configure it in containerd or CRI-O");
        });
    }

    @Test
    void runcStartsAShareWhereGpusComeByCdi(Lab lab, TestNamespace namespace) {
        withRuntimeClass(lab, "runc", () -> {
            Pod pod = share(lab, "share", NodeKind.CDI);
            pod.getSpec().setRuntimeClassName("runc");

            namespace.run(pod);

            assertIsLimited(namespace);
            namespace.deleteAllPods();
        });
    }

    /** The node that does not inject by CDI leaves, and comes back while a pod without a RuntimeClass waits for it. */
    @Test
    void whereAllNodesInjectByCdiPodsGetNoRuntimeClassAndGoToNoOtherNode(Lab lab, TestNamespace namespace) {
        String other = lab.node(NodeKind.DEFAULT_RUNTIME);
        lab.kubectl("label", "node", other, Labels.GPU + "-").expectSuccess();
        try {
            awaitInventory(lab, other, false);

            assertThat(namespace
                            .run(share(lab, "share", NodeKind.CDI))
                            .getSpec()
                            .getRuntimeClassName())
                    .isNull();
            assertIsLimited(namespace);
            namespace.create(share(lab, "waits", NodeKind.DEFAULT_RUNTIME));
        } finally {
            lab.kubectl("label", "--overwrite", "node", other, Labels.GPU + "=" + Labels.GPU_ON)
                    .expectSuccess();
        }
        awaitInventory(lab, other, true);
        assertThat(namespace.create(share(lab, "new", NodeKind.CDI)).getSpec().getRuntimeClassName())
                .isEqualTo("nvidia");
        awaitTrue(
                "the pod without a RuntimeClass says why it waits",
                EVENTUALLY.plus(EVENTUALLY),
                () -> namespace
                        .awaitUnschedulable("waits")
                        .contains(
                                "1 the node's GPUs come by the RuntimeClass nvidia, which the pod was created without"));
    }

    private static Pod share(Lab lab, String name, NodeKind kind) {
        return Pods.onNode(Pods.withGpuMemory(lab, name, 3000), lab.node(kind));
    }

    private static void assertIsLimited(TestNamespace namespace) {
        assertThat(namespace.exec("share", "nvidia-smi").expectSuccess()).contains("MiB / 3000MiB");
        assertThat(namespace
                        .exec("share", "vgpu-sample", "alloc", "2000", "alloc", "800")
                        .expectSuccess())
                .contains("alloc 2000 MiB: CUDA_SUCCESS", "alloc 800 MiB: CUDA_ERROR_OUT_OF_MEMORY");
    }

    /** Runs this while there is a RuntimeClass of the same name as its handler. */
    private static void withRuntimeClass(Lab lab, String handler, Runnable test) {
        RuntimeClass runtimeClass = lab.client()
                .resource(new RuntimeClassBuilder()
                        .withNewMetadata()
                        .withName(handler)
                        .endMetadata()
                        .withHandler(handler)
                        .build())
                .create();
        try {
            test.run();
        } finally {
            lab.client().resource(runtimeClass).delete();
        }
    }

    private static void awaitInventory(Lab lab, String node, boolean there) {
        awaitTrue(
                "the inventory of " + node + (there ? " is there" : " is gone"),
                EVENTUALLY.plus(EVENTUALLY),
                () -> lab.client()
                                .nodes()
                                .withName(node)
                                .get()
                                .getMetadata()
                                .getAnnotations()
                                .containsKey(Annotations.GPUS)
                        == there);
    }
}
