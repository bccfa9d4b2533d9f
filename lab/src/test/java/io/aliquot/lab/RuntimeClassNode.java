package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;

import io.aliquot.api.foreign.ForeignResources;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Labels;
import io.aliquot.api.names.Resources;

/**
 * The node of NVIDIA's device plugin while it is one of Aliquot's, of the kind {@link NodeKind#RUNTIME_CLASS}, which no other
 * node of the lab has. Closing it makes it the node of NVIDIA's device plugin again.
 */
final class RuntimeClassNode implements AutoCloseable {
    private static final String TAINT = ForeignResources.NVIDIA_GPU + "=present:NoSchedule";
    private static final int NVIDIAS_SLICES = 8;

    private final Lab lab;
    private final String node;

    RuntimeClassNode(Lab lab) {
        this.lab = lab;
        this.node = lab.node(NodeKind.RUNTIME_CLASS);
        try {
            lab.setDefaultRuntime(node, "runc");
            lab.kubectl("taint", "node", node, TAINT + "-").expectSuccess();
            lab.label(node, Labels.OPERATOR_PLUGIN + "=" + Labels.OPERATOR_PLUGIN_OFF);
            lab.label(node, Labels.GPU + "=" + Labels.GPU_ON);
            awaitTrue(
                    node + " has shares",
                    EVENTUALLY.multipliedBy(2),
                    () -> lab.allocatable(node, Resources.VGPU) > 0 && lab.allocatable(node, Resources.MEMORY) > 0);
        } catch (RuntimeException | AssertionError e) {
            close();
            throw e;
        }
    }

    String name() {
        return node;
    }

    @Override
    public void close() {
        leave(lab, node);
        lab.setDefaultRuntime(node, "nvidia");
        lab.kubectl("taint", "--overwrite", "node", node, TAINT).expectSuccess();
        lab.label(node, Labels.OPERATOR_PLUGIN + "-");
        awaitTrue(
                "NVIDIA's plugin serves " + node,
                EVENTUALLY,
                () -> lab.allocatable(node, ForeignResources.NVIDIA_GPU) == NVIDIAS_SLICES);
    }

    /** Takes a node from Aliquot, and waits until its agent has left nothing on the Node. */
    static void leave(Lab lab, String node) {
        lab.label(node, Labels.GPU + "-");
        awaitTrue(node + " has left Aliquot", EVENTUALLY.multipliedBy(2), () -> {
            var metadata = lab.client().nodes().withName(node).get().getMetadata();
            return !metadata.getLabels().containsKey(Labels.NODE_AGENT)
                    && !metadata.getAnnotations().containsKey(Annotations.GPUS);
        });
    }
}
