package io.aliquot.scheduler.apiserver.reader;

import io.aliquot.api.foreign.FeatureDiscovery;
import io.aliquot.api.foreign.ForeignResources;
import io.aliquot.api.foreign.HamiRegistration;
import io.aliquot.api.format.FormatException;
import io.aliquot.api.format.GpuUuids;
import io.aliquot.api.format.Quantity;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Labels;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.NodeLabel;
import io.aliquot.api.nodes.NodeSharing;
import io.aliquot.api.nodes.Scaling;
import io.aliquot.api.nodes.SharingMode;
import io.aliquot.api.nodes.SlotCount;
import io.aliquot.api.pods.Placement;
import io.aliquot.scheduler.autoscaler.ClusterAutoscaler;
import io.aliquot.scheduler.cluster.NodeId;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.Condition;
import io.aliquot.scheduler.extensionapi.objects.GpuNodes.NodeMetadata;
import io.aliquot.scheduler.ledger.NodeFacts;
import io.aliquot.scheduler.ledger.NodeFacts.Sharing;
import io.aliquot.scheduler.ledger.NodeFacts.Unavailable;
import io.aliquot.scheduler.nodeagent.NodeReport;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.NodeGpus;
import io.aliquot.scheduler.placement.NodeRuntime;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.ObjectMeta;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.BiFunction;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Reads from a Node object what the ledger needs. */
public final class NodeReader {
    private static final Unavailable NOT_SHARED = new Unavailable("gives no GPUs (label aliquot.io/share=none)");
    private static final Unavailable NO_INVENTORY =
            new Unavailable("no GPU inventory from the node's device plugin yet");
    private static final Unavailable CONFLICT =
            new Unavailable("another device plugin uses the node's GPUs, see the node's events");
    private static final Unavailable HAMI =
            new Unavailable("HAMi serves the node's GPUs, see the node's events", true, true);
    private static final Unavailable KUBELET_GONE =
            new Unavailable("the node's kubelet has ended or restarted, and does not have the vGPUs yet");
    private static final Unavailable DRIVER_UPGRADE =
            new Unavailable("the node's driver is being upgraded, see the node's events");
    private static final Unavailable MISCONFIGURED =
            new Unavailable("GPU settings of the node have an error, see its events");
    private static final Unavailable UNREADABLE =
            new Unavailable("GPU inventory of the node cannot be read, see its events");

    private static final String CLUSTER_AUTOSCALER_READY = "ClusterAutoscalerReady";

    /** A condition of nodes whose GPUs another owner serves. */
    private static final String SOLE_GPU_OWNER = "SoleGpuOwner";

    private final Placement gpuPlacement;
    private final NodeLabel nodeLabel;
    private final String runtimeClass;
    private final Unavailable notLabeled;
    private final Unavailable withdrawing;

    /** Reads nodes of a cluster with the default label. */
    public NodeReader(Placement gpuPlacement) {
        this(gpuPlacement, NodeLabel.DEFAULT, "");
    }

    /**
     * Reads nodes with this label.
     *
     * @param gpuPlacement applies to nodes without a placement label
     * @param runtimeClass the RuntimeClass of pods on nodes that do not inject GPUs by CDI; empty: pods need none
     */
    public NodeReader(Placement gpuPlacement, NodeLabel nodeLabel, String runtimeClass) {
        this.gpuPlacement = gpuPlacement;
        this.nodeLabel = nodeLabel;
        this.runtimeClass = runtimeClass;
        notLabeled = Unavailable.notLabeled(nodeLabel);
        withdrawing = new Unavailable("no longer labelled " + nodeLabel + "; its agent ends with the last vGPU");
    }

    /**
     * The result of reading a node.
     *
     * @param problem an error in its settings or inventory, for its administrator; empty if there is none
     * @param report what its agent found, also if the node takes no pods; empty if it has no readable inventory
     */
    public record Reading(NodeFacts facts, String problem, Optional<NodeReport> report) {}

    /** The settings that the administrator made in labels and annotations. */
    private record Settings(Placement placement, NodeSharing share, Set<String> cordoned) {}

    /** The text of the inventory, read; an error if it is not readable; neither if there is none. */
    private record InventoryText(Optional<Inventory> inventory, String error) {
        static InventoryText read(Map<String, String> annotations) {
            try {
                return new InventoryText(
                        Optional.ofNullable(annotations.get(Annotations.GPUS)).map(Inventory::parse), "");
            } catch (FormatException e) {
                return new InventoryText(Optional.empty(), Annotations.GPUS + ": " + e.getMessage());
            }
        }
    }

    /** Whether HAMi serves the GPUs of a node with Aliquot's label. */
    public boolean isHamis(Node node) {
        return nodeLabel.isOn(labels(node)) && HamiRegistration.isOn(annotations(node));
    }

    public Reading read(Node node) {
        Map<String, String> labels = labels(node);
        Map<String, String> annotations = annotations(node);
        InventoryText text = InventoryText.read(annotations);
        var id = new NodeId(node.getMetadata().getName(), node.getMetadata().getUid());
        Optional<NodeReport> report = text.inventory().map(inventory -> NodeReport.of(id, inventory));
        if (!nodeLabel.isOn(labels)) {
            boolean leaves = Labels.NODE_AGENT_ON.equals(labels.get(Labels.NODE_AGENT));
            return new Reading(leaves ? withdrawing : notLabeled, "", report);
        }
        if (HamiRegistration.isOn(annotations)) {
            String conflict = text.inventory().map(Inventory::conflict).orElse("");
            return new Reading(HAMI, conflict.startsWith(Inventory.HAMI) ? conflict : "", report);
        }
        Settings settings;
        try {
            settings = settings(labels, annotations);
        } catch (FormatException e) {
            return new Reading(MISCONFIGURED, String.valueOf(e.getMessage()), report);
        }
        if (settings.share().mode() == SharingMode.NONE) {
            return new Reading(NOT_SHARED, "", report);
        }
        if (!text.error().isEmpty()) {
            return new Reading(UNREADABLE, text.error(), report);
        }
        if (text.inventory().isEmpty()) {
            return new Reading(NO_INVENTORY, "", report);
        }
        Inventory inventory = text.inventory().get();
        if (inventory.conflict().equals(Inventory.KUBELET_GONE)) {
            return new Reading(KUBELET_GONE, "", report); // usually for a second, so it is no problem of the node
        }
        if (inventory.conflict().startsWith(Inventory.DRIVER_UPGRADE)) {
            return new Reading(DRIVER_UPGRADE, inventory.conflict(), report);
        }
        if (!inventory.conflict().isEmpty() || otherPluginAdvertises(node)) {
            return new Reading(CONFLICT, inventory.conflict(), report); // if it is empty, the agent is about to say why
        }
        // Without what no placement depends on, so that its changes do not count as changes of the node's capacity.
        Inventory placeable = inventory
                .withDriver("", "")
                .withCgroups("")
                .withMps(false)
                .withTotals(Map.of())
                .withCertificate("");
        var gpus = new NodeGpus(placeable, settings.share(), settings.cordoned());
        return new Reading(
                new Sharing(gpus, settings.placement(), allocatable(node), runtime(node, inventory)),
                unknownGpus(inventory, settings),
                report);
    }

    /** What the node's objects of the aggregated API show of its metadata. */
    public static NodeMetadata metadata(Node node, Reading reading) {
        ObjectMeta metadata = node.getMetadata();
        return new NodeMetadata(
                metadata.getName(),
                metadata.getUid(),
                Long.parseLong(metadata.getResourceVersion()),
                metadata.getCreationTimestamp() == null
                        ? Instant.EPOCH
                        : Instant.parse(metadata.getCreationTimestamp()),
                labels(node),
                conditions(node, reading));
    }

    /**
     * Why a node has no labels of GPU feature discovery, although its agent leaves them to others; empty if they are there.
     */
    public static Optional<String> missingGpuLabels(Node node) {
        return Optional.ofNullable(annotations(node).get(Annotations.GPU_LABELS))
                .filter(text -> text.startsWith(Annotations.NO_GPU_LABELS)
                        && !labels(node).containsKey(FeatureDiscovery.PRODUCT))
                .map(text -> "the node has no label " + FeatureDiscovery.PRODUCT + ": "
                        + text.substring(Annotations.NO_GPU_LABELS.length()));
    }

    public static Map<String, String> annotations(Node node) {
        return Objects.requireNonNullElse(node.getMetadata().getAnnotations(), Map.of());
    }

    private static Map<String, String> labels(Node node) {
        return Objects.requireNonNullElse(node.getMetadata().getLabels(), Map.of());
    }

    private static List<Condition> conditions(Node node, Reading reading) {
        Stream<Condition> ready = ClusterAutoscaler.readiness(labels(node), namesOfAllocatable(node)).stream()
                .map(readiness -> new Condition(
                        CLUSTER_AUTOSCALER_READY,
                        readiness.ready() ? "True" : "False",
                        readiness.reason(),
                        readiness.message()));
        return Stream.concat(ready, otherOwner(reading).stream()).toList();
    }

    /** Present only while it is false: other nodes need none. */
    private static Optional<Condition> otherOwner(Reading reading) {
        if (!(reading.facts() instanceof Unavailable node) || !(node.equals(HAMI) || node.equals(CONFLICT))) {
            return Optional.empty();
        }
        return Optional.of(new Condition(
                SOLE_GPU_OWNER,
                "False",
                node.equals(HAMI) ? "HAMi" : "OtherOwner",
                reading.problem().isEmpty() ? node.reason() : reading.problem()));
    }

    /** The other GPUs stay available: a mistyped cordon must not stop them. */
    private static String unknownGpus(Inventory inventory, Settings settings) {
        return Stream.concat(
                        unknownGpus(Annotations.CORDON_GPUS, NodeGpus.unknown(inventory, settings.cordoned())),
                        unknownGpus(Annotations.GPU_SHARE, settings.share().unknown(inventory.gpus())))
                .collect(Collectors.joining("; "));
    }

    private static Stream<String> unknownGpus(String annotation, Set<String> unknown) {
        return unknown.isEmpty()
                ? Stream.of()
                : Stream.of(annotation + ": the node has no GPU " + String.join(", ", new TreeSet<>(unknown))
                        + "; its GPUs are in its annotation " + Annotations.GPUS);
    }

    private Settings settings(Map<String, String> labels, Map<String, String> annotations) {
        // Slots and scaling arrive with the inventory; if they are malformed, the node agent keeps the old inventory.
        check(annotations, Annotations.SLOTS, SlotCount::parse);
        check(annotations, Annotations.MEMORY_SCALING, Scaling::parse);
        check(annotations, Annotations.CORE_SCALING, Scaling::parse);
        String cordoned = annotations.get(Annotations.CORDON_GPUS);
        return new Settings(
                placement(labels),
                NodeSharing.of(labels, annotations),
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
        return namesOfAllocatable(node).stream().anyMatch(ForeignResources::servedByOtherPlugins);
    }

    /** The extended resources of which the node has some. */
    private static Set<String> namesOfAllocatable(Node node) {
        return node.getStatus() == null || node.getStatus().getAllocatable() == null
                ? Set.of()
                : node.getStatus().getAllocatable().entrySet().stream()
                        .filter(entry -> entry.getKey().contains("/")
                                && Quantity.parse(entry.getValue().toString()).scaled(0) > 0)
                        .map(Map.Entry::getKey)
                        .collect(Collectors.toSet());
    }

    private NodeRuntime runtime(Node node, Inventory inventory) {
        return new NodeRuntime(userNamespaces(node), inventory.injectsByCdi() ? "" : runtimeClass);
    }

    private static Map<String, Boolean> userNamespaces(Node node) {
        return Stream.ofNullable(node.getStatus())
                .flatMap(status -> status.getRuntimeHandlers().stream())
                .collect(Collectors.toMap(
                        handler -> Objects.requireNonNullElse(handler.getName(), ""),
                        handler -> handler.getFeatures() != null
                                && Boolean.TRUE.equals(handler.getFeatures().getUserNamespaces()),
                        Boolean::logicalOr));
    }

    private static HostResources allocatable(Node node) {
        return node.getStatus() == null || node.getStatus().getAllocatable() == null
                ? HostResources.NONE
                : HostResources.parse(node.getStatus().getAllocatable());
    }
}
