package io.aliquot.scheduler.kubernetes;

import io.aliquot.api.Annotations;
import io.aliquot.api.ForeignResources;
import io.aliquot.api.FormatException;
import io.aliquot.api.GpuUuids;
import io.aliquot.api.Inventory;
import io.aliquot.api.Labels;
import io.aliquot.api.Placement;
import io.aliquot.api.Scaling;
import io.aliquot.api.SharingMode;
import io.aliquot.api.SlotCount;
import io.aliquot.scheduler.kubernetes.client.Quantities;
import io.aliquot.scheduler.ledger.NodeFacts;
import io.aliquot.scheduler.ledger.NodeFacts.Sharing;
import io.aliquot.scheduler.ledger.NodeFacts.Unavailable;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.NodeGpus;
import io.fabric8.kubernetes.api.model.Node;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.BiFunction;
import org.jspecify.annotations.Nullable;

/** Reads from a Node object what the ledger needs. */
public final class NodeReader {
    private static final Unavailable NOT_SHARED = new Unavailable("gives no GPUs (label aliquot.io/share=none)");
    private static final Unavailable NO_INVENTORY =
            new Unavailable("no GPU inventory from the node's device plugin yet");
    private static final Unavailable CONFLICT =
            new Unavailable("another device plugin uses the node's GPUs, see the node's events");
    private static final Unavailable WITHDRAWING =
            new Unavailable("no longer labelled gpu=on; its agent ends with the last vGPU");
    private static final Unavailable MISCONFIGURED =
            new Unavailable("GPU settings of the node have an error, see its events");
    private static final Unavailable UNREADABLE =
            new Unavailable("GPU inventory of the node cannot be read, see its events");

    private final Placement gpuPlacement;

    /** {@code gpuPlacement} applies to nodes without a placement label. */
    public NodeReader(Placement gpuPlacement) {
        this.gpuPlacement = gpuPlacement;
    }

    /**
     * The result of reading a node.
     *
     * @param problem an error in its settings or inventory, for its administrator; empty if there is none
     */
    public record Reading(NodeFacts facts, String problem) {}

    /** The settings that the administrator made in labels and annotations. */
    private record Settings(Placement placement, SharingMode share, Set<String> cordoned) {}

    public Reading read(Node node) {
        Map<String, String> labels = orEmpty(node.getMetadata().getLabels());
        Map<String, String> annotations = orEmpty(node.getMetadata().getAnnotations());
        if (!Labels.GPU_ON.equals(labels.get(Labels.GPU))) {
            boolean withdrawing = Labels.NODE_AGENT_ON.equals(labels.get(Labels.NODE_AGENT));
            return new Reading(withdrawing ? WITHDRAWING : NodeFacts.NOT_LABELED, "");
        }
        Settings settings;
        try {
            settings = settings(labels, annotations);
        } catch (FormatException e) {
            return new Reading(MISCONFIGURED, String.valueOf(e.getMessage()));
        }
        if (settings.share() == SharingMode.NONE) {
            return new Reading(NOT_SHARED, "");
        }
        String text = annotations.get(Annotations.GPUS);
        if (text == null) {
            return new Reading(NO_INVENTORY, "");
        }
        Inventory inventory;
        try {
            inventory = Inventory.parse(text);
        } catch (FormatException e) {
            return new Reading(UNREADABLE, Annotations.GPUS + ": " + e.getMessage());
        }
        if (!inventory.conflict().isEmpty() || otherPluginAdvertises(node)) {
            return new Reading(CONFLICT, inventory.conflict()); // if it is empty, the agent is about to say why
        }
        var gpus = new NodeGpus(inventory, settings.share(), settings.cordoned());
        return new Reading(
                new Sharing(gpus, settings.placement(), allocatable(node)),
                unknownGpus(inventory, settings.cordoned()));
    }

    /** The other GPUs stay available: a mistyped cordon must not stop them. */
    private static String unknownGpus(Inventory inventory, Set<String> cordoned) {
        Set<String> unknown = NodeGpus.unknown(inventory, cordoned);
        return unknown.isEmpty()
                ? ""
                : Annotations.CORDON_GPUS + ": the node has no GPU " + String.join(", ", new TreeSet<>(unknown))
                        + "; its GPUs are in its annotation " + Annotations.GPUS;
    }

    private Settings settings(Map<String, String> labels, Map<String, String> annotations) {
        // Slots and scaling arrive with the inventory; if they are malformed, the node agent keeps the old inventory.
        check(annotations, Annotations.SLOTS, SlotCount::parse);
        check(annotations, Annotations.MEMORY_SCALING, Scaling::parse);
        check(annotations, Annotations.CORE_SCALING, Scaling::parse);
        String cordoned = annotations.get(Annotations.CORDON_GPUS);
        return new Settings(
                placement(labels),
                SharingMode.of(labels),
                cordoned == null || cordoned.isBlank()
                        ? Set.of()
                        : GpuUuids.parseList(Annotations.CORDON_GPUS, cordoned));
    }

    private Placement placement(Map<String, String> labels) {
        for (String name : new String[] {Labels.PLACEMENT, Labels.ACK_PLACEMENT}) {
            String text = labels.get(name);
            if (text != null) {
                return Placement.parse(name, text);
            }
        }
        return gpuPlacement;
    }

    private static void check(Map<String, String> annotations, String name, BiFunction<String, String, ?> parser) {
        String text = annotations.get(name);
        if (text != null) {
            var unused = parser.apply(name, text);
        }
    }

    /** Without waiting for the agent: pods of the other device plugin may come as soon as the Node has the resource. */
    private static boolean otherPluginAdvertises(Node node) {
        return node.getStatus() != null
                && node.getStatus().getAllocatable() != null
                && node.getStatus().getAllocatable().entrySet().stream()
                        .anyMatch(entry -> ForeignResources.servedByOtherPlugins(entry.getKey())
                                && Quantities.whole(entry.getValue()) > 0);
    }

    private static HostResources allocatable(Node node) {
        return node.getStatus() == null || node.getStatus().getAllocatable() == null
                ? HostResources.NONE
                : PodReader.hostResources(node.getStatus().getAllocatable());
    }

    private static Map<String, String> orEmpty(@Nullable Map<String, String> map) {
        return map == null ? Map.of() : map;
    }
}
