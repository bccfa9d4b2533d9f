package io.aliquot.deviceplugin.inventory;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.NodeSharing;
import io.aliquot.api.nodes.SharingMode;
import io.aliquot.deviceplugin.node.NodeView;
import java.util.HashMap;
import java.util.Map;

/**
 * The Node's extended resources: the sums of memory and of compute of its GPUs. A sum does not shrink while pods may hold
 * vGPUs. After an admin lowers a scaling, pods may hold more than the new sum, and a kubelet that restarts would reject
 * running pods. The scheduler applies the lower scaling at once, since it counts each GPU by the inventory. A kubelet that
 * has lost its checkpoint sets the Node's amounts to 0, so the larger ones are also in the inventory.
 *
 * <p>Not thread-safe.
 */
final class ExtendedResources {
    private final Map<String, Long> largest = new HashMap<>();

    /** Whether the Node's amounts are to become smaller; ends when the Node has the smaller ones. */
    private boolean shrinking;

    /** The amounts for this inventory, or those that the Node had before where they are larger. */
    Map<String, Long> of(Inventory inventory, NodeView node) {
        Map<String, Long> amounts = inventory.extendedResources(sharing(node));
        shrinking &= !amounts.entrySet().stream()
                .allMatch(entry -> entry.getValue().equals(node.capacity().getOrDefault(entry.getKey(), 0L)));
        if (shrinking) {
            largest.clear();
        }
        amounts.forEach((resource, amount) -> {
            largest.merge(resource, amount, Math::max);
            if (!shrinking) {
                largest.merge(resource, node.capacity().getOrDefault(resource, 0L), Math::max);
            }
        });
        return Map.copyOf(largest);
    }

    /** Those of the Node's amounts that are larger than the inventory's. */
    Map<String, Long> beyond(Inventory inventory, NodeView node) {
        Map<String, Long> amounts = inventory.extendedResources(sharing(node));
        Map<String, Long> larger = new HashMap<>(largest);
        larger.entrySet().removeIf(entry -> entry.getValue() <= amounts.getOrDefault(entry.getKey(), 0L));
        return larger;
    }

    /** Takes over what an earlier agent kept in the inventory. */
    void restore(Map<String, Long> amounts) {
        amounts.forEach((resource, amount) -> largest.merge(resource, amount, Math::max));
    }

    /** Lets the amounts shrink to those of the inventory, because no pod holds a vGPU of the node. */
    void shrink() {
        shrinking = true;
    }

    /** Forgets the earlier amounts, because the Node object is gone. */
    void clear() {
        largest.clear();
    }

    /** Any mode if the Node's label or annotation is invalid: the amounts cannot shrink, so they stay. */
    private static NodeSharing sharing(NodeView node) {
        try {
            return NodeSharing.of(node.labels(), node.annotations());
        } catch (FormatException e) {
            return NodeSharing.all(SharingMode.CORE_MEMORY);
        }
    }
}
