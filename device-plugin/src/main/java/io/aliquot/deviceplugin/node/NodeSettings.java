package io.aliquot.deviceplugin.node;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.NodeSharing;
import io.aliquot.api.nodes.Scaling;
import io.aliquot.api.nodes.SlotCount;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.BiFunction;

/**
 * The settings for the agent that the node's admin makes with annotations of the Node.
 *
 * @param slots vGPUs per GPU, at most
 * @param memoryScaling allocatable memory in proportion to physical memory
 * @param coreScaling allocatable compute in proportion to physical compute
 */
public record NodeSettings(int slots, Scaling memoryScaling, Scaling coreScaling) {
    public NodeSettings {
        if (slots < 1 || slots > SlotCount.MOST) {
            throw new FormatException("expected slots from 1 to " + SlotCount.MOST + ", found \"" + slots + "\"");
        }
    }

    /** The settings that an inventory was made with. */
    public static NodeSettings of(Inventory inventory) {
        return new NodeSettings(inventory.slots(), inventory.memoryScaling(), inventory.coreScaling());
    }

    /**
     * Reads the settings from a Node. Also checks its label and annotation for the sharing modes, which the scheduler
     * applies, so that the agent's log and metrics report an invalid one.
     *
     * @param defaultSlots the number of slots if the Node has no annotation for it
     * @throws FormatException with each invalid value of the Node, and what is allowed
     */
    public static NodeSettings parse(NodeView node, int defaultSlots) {
        List<String> errors = new ArrayList<>();
        try {
            var unused = NodeSharing.of(node.labels(), node.annotations());
        } catch (FormatException e) {
            errors.add(e.getMessage());
        }
        Map<String, String> annotations = node.annotations();
        int slots = parse(annotations, Annotations.SLOTS, defaultSlots, SlotCount::parse, errors);
        Scaling memory = parse(annotations, Annotations.MEMORY_SCALING, Scaling.ONE, Scaling::parse, errors);
        Scaling cores = parse(annotations, Annotations.CORE_SCALING, Scaling.ONE, Scaling::parse, errors);
        if (!errors.isEmpty()) {
            throw new FormatException(String.join("; ", errors));
        }
        return new NodeSettings(slots, memory, cores);
    }

    private static <T> T parse(
            Map<String, String> annotations,
            String name,
            T defaultValue,
            BiFunction<String, String, T> parser,
            List<String> errors) {
        String text = annotations.get(name);
        if (text == null) {
            return defaultValue;
        }
        try {
            return parser.apply(name, text);
        } catch (FormatException e) {
            errors.add(e.getMessage());
            return defaultValue;
        }
    }
}
