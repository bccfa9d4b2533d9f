package io.aliquot.deviceplugin;

import io.aliquot.api.Annotations;
import io.aliquot.api.FormatException;
import io.aliquot.api.Gpu;
import io.aliquot.api.Inventory;
import io.aliquot.api.Labels;
import io.aliquot.api.Resources;
import io.aliquot.deviceplugin.inventory.GpuHealthReporter;
import io.aliquot.deviceplugin.inventory.InventoryBuilder;
import io.aliquot.deviceplugin.inventory.InventoryPublisher;
import io.aliquot.deviceplugin.inventory.OtherDevicePlugins;
import io.aliquot.deviceplugin.kubelet.AdvertisedSlots;
import io.aliquot.deviceplugin.kubelet.DeviceHolders;
import io.aliquot.deviceplugin.kubelet.KubeletRegistrar;
import io.aliquot.deviceplugin.kubelet.PodResourcesClient;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import io.aliquot.deviceplugin.node.NodeClient;
import io.aliquot.deviceplugin.node.NodeSettings;
import io.aliquot.deviceplugin.node.NodeView;
import io.aliquot.deviceplugin.nvml.NvmlReading;
import io.aliquot.deviceplugin.nvml.NvmlSession;
import io.aliquot.deviceplugin.nvml.PhysicalGpu;
import io.aliquot.deviceplugin.problem.Problem;
import io.aliquot.deviceplugin.usage.UsageTracker;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;

/**
 * Makes the kubelet's slots and the Node's inventory and extended resources match the GPUs and the admin's settings.
 * Each pass compares the whole state and corrects what differs, so a missed event or a write by another client does no
 * harm.
 *
 * <p>While a setting on the Node is invalid, the published inventory stays as it is; the scheduler rejects the same
 * setting and leaves the node out.
 *
 * <p>Not thread-safe.
 */
final class Reconciler {
    private static final Logger LOG = System.getLogger(Reconciler.class.getName());

    private final Settings settings;
    private final NvmlSession nvml;
    private final KubeletRegistrar registrar;
    private final PodResourcesClient podResources;
    private final UsageTracker usage;
    private final InventoryPublisher publisher;
    private final GpuHealthReporter healthReporter;
    private final AgentMetrics metrics;

    private final Problem failedPass = new Problem(LOG, Level.ERROR);
    private final Problem unknownNode = new Problem(LOG, Level.INFO);
    private final Problem invalidSettings = new Problem(LOG, Level.ERROR);
    private final Problem noGpu = new Problem(LOG, Level.WARNING);
    private final Problem conflict = new Problem(LOG, Level.ERROR);
    private final Problem noPodResources = new Problem(LOG, Level.WARNING);
    private final Problem leaving = new Problem(LOG, Level.INFO);

    /** The agent's labels while the node takes part. */
    private final Map<String, String> labels;

    private final QuietTime withoutVgpus;

    /** The inventory to publish; null until NVML or the Node's annotation yields one. */
    private @Nullable Inventory inventory;

    Reconciler(
            Settings settings,
            NvmlSession nvml,
            KubeletRegistrar registrar,
            PodResourcesClient podResources,
            UsageTracker usage,
            AgentMetrics metrics,
            Duration quietTime,
            LongSupplier nanoTime) {
        this.settings = settings;
        this.nvml = nvml;
        this.registrar = registrar;
        this.podResources = podResources;
        this.usage = usage;
        this.metrics = metrics;
        labels = settings.labelGpuOperator()
                ? Map.of(Labels.NODE_AGENT, Labels.NODE_AGENT_ON, Labels.OPERATOR_PLUGIN, Labels.OPERATOR_PLUGIN_OFF)
                : Map.of(Labels.NODE_AGENT, Labels.NODE_AGENT_ON);
        withoutVgpus = new QuietTime(nanoTime, quietTime);
        publisher = new InventoryPublisher(metrics, nanoTime);
        healthReporter = new GpuHealthReporter(metrics);
    }

    /** Makes one pass; returns what still keeps the node from taking GPU pods. */
    List<String> reconcile(NodeClient client) {
        try {
            List<String> unmet = pass(client);
            failedPass.resolve();
            return unmet;
        } catch (RuntimeException e) {
            // For example, a GPU with properties out of range. Running pods are not affected; the next pass may
            // succeed.
            return List.of(failedPass.report("cannot reconcile this node's GPUs: " + e));
        }
    }

    private List<String> pass(NodeClient client) {
        List<String> unmet = new ArrayList<>();
        NvmlReading reading = nvml.read();
        if (reading instanceof NvmlReading.Unavailable unavailable) {
            unmet.add(unavailable.reason());
        }
        Optional<NodeView> latest = client.latest();
        if (latest.isEmpty()) {
            // A Node object that is deleted and created again starts without inventory and extended resources.
            inventory = null;
            publisher.nodeDeleted();
            unmet.add(unknownNode.report("the API server has not returned node " + settings.nodeName() + " yet"));
            return unmet;
        }
        unknownNode.resolve();
        NodeView node = latest.get();
        if (inventory == null) {
            inventory = publishedInventory(node).orElse(null);
        }
        DeviceHolders holders = podResources.list();
        if (hasLeft(node, holders, unmet)) {
            inventory = null;
            registrar.withdraw();
            publisher.withdraw(client, node, labels).ifPresent(unmet::add);
        } else {
            reconcile(client, node, reading, holders, unmet);
        }
        return unmet;
    }

    /**
     * Whether the label gpu=on is gone and no pod of Aliquot's needs this node any more. The scheduler gives no new vGPUs on
     * a node without the label, but a pod may be bound already for which the kubelet has not called Allocate yet.
     */
    private boolean hasLeft(NodeView node, DeviceHolders holders, List<String> unmet) {
        if (Labels.GPU_ON.equals(node.labels().get(Labels.GPU))) {
            withoutVgpus.interrupt();
            leaving.resolve();
            return false;
        }
        unmet.add(leaving.report("the node has no label gpu=on: it gets no new vGPUs, and this agent stays until no pod"
                + " holds one any more"));
        if (!(holders instanceof DeviceHolders.Known known)
                || known.list().stream().anyMatch(holder -> holder.resource().equals(Resources.VGPU))) {
            withoutVgpus.interrupt();
            return false;
        }
        return withoutVgpus.isOver();
    }

    private void reconcile(
            NodeClient client, NodeView node, NvmlReading reading, DeviceHolders holders, List<String> unmet) {
        Optional<Inventory> previous = Optional.ofNullable(inventory);
        Optional<NodeSettings> requested = nodeSettings(node);
        if (previous.isEmpty() && requested.isEmpty()) {
            invalidSettings.message().ifPresent(unmet::add);
            return;
        }
        if (previous.isEmpty() && reading instanceof NvmlReading.Unavailable) {
            return;
        }
        if (previous.isEmpty() && holders instanceof DeviceHolders.Unavailable unavailable) {
            // A first inventory without the holders would show GPUs as free that pods of another plugin hold.
            unmet.add(noPodResources.report("cannot tell which pods hold this node's GPUs, and so publishes no"
                    + " inventory yet: " + unavailable.reason()));
            return;
        }
        List<Gpu> previousGpus = previous.map(Inventory::gpus).orElse(List.of());
        List<PhysicalGpu> detected = gpus(reading, previousGpus);
        Inventory built = InventoryBuilder.build(
                detected,
                previousGpus,
                settings.visibleDevices(),
                requested.or(() -> previous.map(NodeSettings::of)).orElseThrow(),
                Instant.now());
        Inventory present =
                OtherDevicePlugins.in(built, previous, node, holders).withUncharged(usage.uncharged());
        report(present, holders, unmet);
        if (present.gpus().isEmpty()) {
            unmet.add(noGpu.report(
                    "NVML lists no GPU on this node; a node without GPUs should not have the label gpu=on"));
        } else {
            noGpu.resolve();
        }
        healthReporter.report(detected, present);
        advertise(present, node);
        Optional<String> failure;
        if (requested.isPresent()) {
            inventory = present;
            failure = publisher.publish(client, node, present, labels);
        } else {
            // The former settings, with what other device plugins do now: when the setting is corrected, the scheduler
            // reads this inventory before the agent can write another one.
            inventory = OtherDevicePlugins.in(previous.orElseThrow(), previous, node, holders);
            failure = publisher.publish(client, node, inventory, labels);
        }
        failure.ifPresent(unmet::add);
    }

    private void report(Inventory present, DeviceHolders holders, List<String> unmet) {
        if (present.conflict().isEmpty()) {
            conflict.resolve();
        } else {
            unmet.add(conflict.report(present.conflict()));
        }
        if (holders instanceof DeviceHolders.Unavailable unavailable) {
            noPodResources.report("cannot tell which pods hold this node's GPUs: " + unavailable.reason());
        } else {
            noPodResources.resolve();
        }
        long held =
                present.gpus().stream().filter(gpu -> !gpu.heldBy().isEmpty()).count();
        metrics.otherDevicePlugins(!present.conflict().isEmpty(), (int) held);
    }

    private static List<PhysicalGpu> gpus(NvmlReading reading, List<Gpu> previous) {
        if (reading instanceof NvmlReading.Unavailable unavailable) {
            return InventoryBuilder.allUnhealthy(previous, unavailable.reason());
        }
        return ((NvmlReading.Gpus) reading).list();
    }

    private void advertise(Inventory present, NodeView node) {
        AdvertisedSlots slots = InventoryBuilder.slots(present);
        registrar.advertise(slots);
        metrics.slots(slots.healthy(), slots.unhealthy());
        registrar.observeAllocatable(node.allocatable().getOrDefault(Resources.VGPU, 0L));
    }

    /** The admin's settings; empty while one of them is invalid. */
    private Optional<NodeSettings> nodeSettings(NodeView node) {
        try {
            NodeSettings parsed = NodeSettings.parse(node, settings.slots());
            metrics.nodeSettingsInvalid(false);
            if (invalidSettings.resolve()) {
                LOG.log(Level.INFO, "The labels and annotations of the Node are valid again");
            }
            return Optional.of(parsed);
        } catch (FormatException e) {
            metrics.nodeSettingsInvalid(true);
            invalidSettings.report("node " + settings.nodeName() + ": " + e.getMessage()
                    + " (until this is corrected, the published inventory stays as it is, and the scheduler leaves the"
                    + " node out)");
            return Optional.empty();
        }
    }

    /** The inventory that the Node's annotation contains; empty if there is none or it is unreadable. */
    private static Optional<Inventory> publishedInventory(NodeView node) {
        String text = node.annotations().get(Annotations.GPUS);
        if (text == null) {
            return Optional.empty();
        }
        try {
            return Optional.of(Inventory.parse(text));
        } catch (FormatException e) {
            LOG.log(
                    Level.WARNING,
                    "The Node''s annotation {0} is unreadable and will be replaced: {1}",
                    Annotations.GPUS,
                    e.getMessage());
            return Optional.empty();
        }
    }
}
