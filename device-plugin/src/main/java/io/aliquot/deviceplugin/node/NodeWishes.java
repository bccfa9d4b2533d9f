package io.aliquot.deviceplugin.node;

import io.aliquot.api.Annotations;
import io.aliquot.api.FormatException;
import io.aliquot.api.Inventory;
import io.aliquot.api.Scaling;
import io.aliquot.api.SharingMode;
import io.aliquot.api.SlotCount;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.BiFunction;

/**
 * What the node's admin asks of the agent by labels and annotations.
 *
 * @param slots vGPUs per GPU at most
 * @param memoryScaling memory sold per memory there is
 * @param coreScaling compute sold per compute there is
 */
public record NodeWishes(int slots, Scaling memoryScaling, Scaling coreScaling) {
    /** Those that an inventory was made by. */
    public static NodeWishes grantedBy(Inventory inventory) {
        return new NodeWishes(inventory.slots(), inventory.memoryScaling(), inventory.coreScaling());
    }

    /**
     * Reads the Node.
     *
     * @param slotsByDefault where the Node doesn't say
     * @throws FormatException that names everything on the Node that we refuse, and what is allowed
     */
    public static NodeWishes parse(NodeView node, int slotsByDefault) {
        List<String> refused = new ArrayList<>();
        // Cordon, share and placement are the scheduler's to heed; it leaves the node out where it can't read one.
        try {
            SharingMode.of(node.labels());
        } catch (FormatException e) {
            refused.add(e.getMessage());
        }
        Map<String, String> annotations = node.annotations();
        int slots = read(annotations, Annotations.SLOTS, slotsByDefault, SlotCount::parse, refused);
        Scaling memory = read(annotations, Annotations.MEMORY_SCALING, Scaling.ONE, Scaling::parse, refused);
        Scaling cores = read(annotations, Annotations.CORE_SCALING, Scaling.ONE, Scaling::parse, refused);
        if (!refused.isEmpty()) {
            throw new FormatException(String.join("; ", refused));
        }
        return new NodeWishes(slots, memory, cores);
    }

    private static <T> T read(
            Map<String, String> annotations,
            String name,
            T absent,
            BiFunction<String, String, T> parse,
            List<String> refused) {
        String text = annotations.get(name);
        if (text == null) {
            return absent;
        }
        try {
            return parse.apply(name, text);
        } catch (FormatException e) {
            refused.add(e.getMessage());
            return absent;
        }
    }
}
