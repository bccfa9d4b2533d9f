package io.aliquot.scheduler.kubernetes;

import io.aliquot.api.Annotations;
import io.aliquot.api.FormatException;
import io.aliquot.api.GpuUuids;
import io.aliquot.api.Inventory;
import io.aliquot.api.Labels;
import io.aliquot.api.Placement;
import io.aliquot.api.Scaling;
import io.aliquot.api.SharingMode;
import io.aliquot.api.SlotCount;
import io.aliquot.scheduler.ledger.NodeFacts;
import io.aliquot.scheduler.ledger.NodeFacts.LeftOut;
import io.aliquot.scheduler.ledger.NodeFacts.Sharing;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.NodeGpus;
import io.fabric8.kubernetes.api.model.Node;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.jspecify.annotations.Nullable;

/** What the ledger wants to know of a node, from the API's object. */
public final class NodeReader {
    private static final LeftOut NOT_LABELLED = new LeftOut("not labelled gpu=on");
    private static final LeftOut NOT_SHARED = new LeftOut("gives no GPUs (label aliquot.io/share=none)");
    private static final LeftOut NO_INVENTORY = new LeftOut("no GPU inventory from the node's device plugin yet");
    private static final LeftOut MISCONFIGURED = new LeftOut("GPU settings of the node have an error, see its events");
    private static final LeftOut UNREADABLE = new LeftOut("GPU inventory of the node cannot be read, see its events");

    private final Placement gpuPlacement;

    /** For nodes without a label that says how to choose among their GPUs. */
    public NodeReader(Placement gpuPlacement) {
        this.gpuPlacement = gpuPlacement;
    }

    /**
     * A node.
     *
     * @param problem what is wrong on it, for its admin; empty where that is as it should be
     */
    public record Reading(NodeFacts facts, String problem) {
        private Reading(NodeFacts facts) {
            this(facts, "");
        }
    }

    /** What its admin asks for. */
    private record Settings(Placement placement, SharingMode share, Set<String> cordoned) {}

    public Reading read(Node node) {
        Map<String, String> labels = orEmpty(node.getMetadata().getLabels());
        Map<String, String> annotations = orEmpty(node.getMetadata().getAnnotations());
        if (!Labels.GPU_ON.equals(labels.get(Labels.GPU))) {
            return new Reading(NOT_LABELLED);
        }
        Settings settings;
        try {
            settings = settings(labels, annotations);
        } catch (FormatException e) {
            return new Reading(MISCONFIGURED, String.valueOf(e.getMessage()));
        }
        if (settings.share() == SharingMode.NONE) {
            return new Reading(NOT_SHARED);
        }
        String text = annotations.get(Annotations.GPUS);
        if (text == null) {
            return new Reading(NO_INVENTORY);
        }
        Inventory inventory;
        try {
            inventory = Inventory.parse(text);
        } catch (FormatException e) {
            return new Reading(UNREADABLE, Annotations.GPUS + ": " + e.getMessage());
        }
        var cards = new NodeGpus(inventory, settings.share(), settings.cordoned());
        return new Reading(
                new Sharing(cards, settings.placement(), allocatable(node)), notThere(inventory, settings.cordoned()));
    }

    /** The node shares the rest all the same: a cordon mistyped must not stop its other GPUs. */
    private static String notThere(Inventory inventory, Set<String> cordoned) {
        Set<String> unknown = NodeGpus.unknown(inventory, cordoned);
        return unknown.isEmpty()
                ? ""
                : Annotations.CORDON_GPUS + ": the node has no GPU " + String.join(", ", new TreeSet<>(unknown))
                        + "; its GPUs are in its annotation " + Annotations.GPUS;
    }

    private Settings settings(Map<String, String> labels, Map<String, String> annotations) {
        // Slots and scaling come with the inventory; the node's agent keeps the old one where they make no sense.
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

    private interface Parser {
        Object parse(String where, String text);
    }

    private static void check(Map<String, String> annotations, String name, Parser parser) {
        String text = annotations.get(name);
        if (text != null) {
            parser.parse(name, text);
        }
    }

    private static HostResources allocatable(Node node) {
        return node.getStatus() == null || node.getStatus().getAllocatable() == null
                ? HostResources.NONE
                : PodReader.load(node.getStatus().getAllocatable());
    }

    private static Map<String, String> orEmpty(@Nullable Map<String, String> map) {
        return map == null ? Map.of() : map;
    }
}
