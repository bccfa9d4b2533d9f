package io.aliquot.deviceplugin.node;

import io.aliquot.api.Annotations;
import io.aliquot.api.FormatException;
import io.aliquot.api.Share;
import io.aliquot.api.Slots;
import java.util.ArrayList;
import java.util.List;

/**
 * What the node's admin asks of the agent by labels and annotations.
 *
 * @param slots vGPUs per GPU at most
 */
public record NodeWishes(int slots) {
    /**
     * Reads the Node.
     *
     * @param slotsByDefault where the Node doesn't say
     * @throws FormatException that names everything on the Node that we refuse, and what is allowed
     */
    public static NodeWishes parse(NodeView node, int slotsByDefault) {
        List<String> refused = new ArrayList<>();
        for (String key : Annotations.NOT_YET_ON_NODES) {
            if (node.annotations().containsKey(key)) {
                refused.add(key + " is not supported yet; allowed on a node: " + Annotations.SLOTS);
            }
        }
        try {
            Share.of(node.labels());
        } catch (FormatException e) {
            refused.add(e.getMessage());
        }
        int slots = slotsByDefault;
        String text = node.annotations().get(Annotations.SLOTS);
        if (text != null) {
            try {
                slots = Slots.parse(Annotations.SLOTS, text);
            } catch (FormatException e) {
                refused.add(e.getMessage());
            }
        }
        if (!refused.isEmpty()) {
            throw new FormatException(String.join("; ", refused));
        }
        return new NodeWishes(slots);
    }
}
