package io.aliquot.scheduler.cluster;

import io.aliquot.api.Annotations;
import io.aliquot.api.FormatException;
import io.aliquot.api.Inventory;
import io.aliquot.api.Labels;
import io.aliquot.api.Placement;
import io.aliquot.api.Slots;
import io.aliquot.scheduler.ledger.HostLoad;
import io.aliquot.scheduler.ledger.NodeFacts;
import io.aliquot.scheduler.ledger.NodeFacts.LeftOut;
import io.aliquot.scheduler.ledger.NodeFacts.Sharing;
import io.fabric8.kubernetes.api.model.Node;
import java.util.Map;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/** What the ledger wants to know of a node, from the API's object. */
final class NodeReader {
    private static final LeftOut NOT_LABELLED = new LeftOut("not labelled gpu=on");
    private static final LeftOut NO_INVENTORY = new LeftOut("no GPU inventory from the node's device plugin yet");
    private static final LeftOut MISCONFIGURED = new LeftOut("GPU settings of the node have an error, see its events");
    private static final LeftOut UNREADABLE = new LeftOut("GPU inventory of the node cannot be read, see its events");

    private final Placement gpuPlacement;

    /** For nodes without a label that says how to choose among their GPUs. */
    NodeReader(Placement gpuPlacement) {
        this.gpuPlacement = gpuPlacement;
    }

    /**
     * A node.
     *
     * @param problem why it is left out, for its admin; empty where that is as it should be
     */
    record Reading(NodeFacts facts, String problem) {
        private Reading(NodeFacts facts) {
            this(facts, "");
        }
    }

    Reading read(Node node) {
        Map<String, String> labels = orEmpty(node.getMetadata().getLabels());
        Map<String, String> annotations = orEmpty(node.getMetadata().getAnnotations());
        if (!Labels.GPU_ON.equals(labels.get(Labels.GPU))) {
            return new Reading(NOT_LABELLED);
        }
        Placement placement;
        try {
            placement = settings(labels, annotations);
        } catch (FormatException e) {
            return new Reading(MISCONFIGURED, String.valueOf(e.getMessage()));
        }
        String inventory = annotations.get(Annotations.GPUS);
        if (inventory == null) {
            return new Reading(NO_INVENTORY);
        }
        try {
            return new Reading(new Sharing(Inventory.parse(inventory), placement, allocatable(node)));
        } catch (FormatException e) {
            return new Reading(UNREADABLE, Annotations.GPUS + ": " + e.getMessage());
        }
    }

    private Placement settings(Map<String, String> labels, Map<String, String> annotations) {
        for (String name : Annotations.NOT_YET_ON_NODES) {
            if (annotations.containsKey(name)) {
                throw new FormatException(
                        "annotation " + name + " is not supported yet; allowed: " + Annotations.SLOTS);
            }
        }
        Optional.ofNullable(labels.get(Labels.SHARE)).ifPresent(Labels::checkShare);
        Optional.ofNullable(annotations.get(Annotations.SLOTS)).ifPresent(text -> Slots.parse(Annotations.SLOTS, text));
        return Optional.ofNullable(labels.get(Labels.PLACEMENT))
                .map(text -> Placement.parse(Labels.PLACEMENT, text))
                .orElse(gpuPlacement);
    }

    private static HostLoad allocatable(Node node) {
        return node.getStatus() == null || node.getStatus().getAllocatable() == null
                ? HostLoad.NONE
                : PodReader.load(node.getStatus().getAllocatable());
    }

    private static Map<String, String> orEmpty(@Nullable Map<String, String> map) {
        return map == null ? Map.of() : map;
    }
}
