package io.aliquot.scheduler.doctor;

import io.aliquot.api.format.JsonFields;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.GpuKind;
import io.aliquot.api.nodes.Inventory;
import io.fabric8.kubernetes.api.model.Node;
import java.util.Optional;
import tools.jackson.databind.node.ObjectNode;

/** What a node is, as its kubelet and its agent tell it, whether or not anything is wrong; for programs. */
final class NodeFacts {
    private NodeFacts() {}

    /** Without what is not known. */
    static ObjectNode of(Node node) {
        ObjectNode facts = JsonFields.JSON
                .createObjectNode()
                .put("node", node.getMetadata().getName());
        Optional.ofNullable(node.getStatus().getNodeInfo()).ifPresent(info -> {
            put(facts, "kernel", info.getKernelVersion());
            put(facts, "kubelet", info.getKubeletVersion());
            put(facts, "containerRuntime", info.getContainerRuntimeVersion());
        });
        NodeChecks.readable(node).ifPresent(inventory -> put(facts, inventory));
        return facts;
    }

    private static void put(ObjectNode facts, Inventory inventory) {
        put(facts, "cgroups", inventory.cgroups());
        put(facts, "driver", inventory.driverVersion());
        facts.put("deviceInjection", inventory.injectsByCdi() ? "cdi" : "runtime");
        facts.put("gpus", inventory.gpus().size());
        facts.put(
                "migInstances",
                inventory.gpus().stream()
                        .map(Gpu::kind)
                        .filter(GpuKind.MigInstance.class::isInstance)
                        .count());
        facts.put("mps", inventory.mps());
    }

    private static void put(ObjectNode facts, String name, String value) {
        if (value != null && !value.isEmpty()) {
            facts.put(name, value);
        }
    }
}
