package io.aliquot.deviceplugin;

import io.aliquot.api.foreign.HamiRegistration;
import io.aliquot.api.format.FormatException;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Labels;
import io.aliquot.api.names.Resources;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.GpuHealth;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.VisibleDevices;
import io.aliquot.deviceplugin.attribution.Limits;
import io.aliquot.deviceplugin.attribution.PodCgroups;
import io.aliquot.deviceplugin.cdi.DeviceInjection;
import io.aliquot.deviceplugin.cdi.NvidiaDevices;
import io.aliquot.deviceplugin.health.HealthTracker;
import io.aliquot.deviceplugin.inventory.FeatureLabelPublisher;
import io.aliquot.deviceplugin.inventory.GpuHealthReporter;
import io.aliquot.deviceplugin.inventory.InventoryBuilder;
import io.aliquot.deviceplugin.inventory.InventoryPublisher;
import io.aliquot.deviceplugin.inventory.OtherDevicePlugins;
import io.aliquot.deviceplugin.kubelet.AdvertisedSlots;
import io.aliquot.deviceplugin.kubelet.DeviceHolders;
import io.aliquot.deviceplugin.kubelet.KubeletRegistrar;
import io.aliquot.deviceplugin.kubelet.PodResourcesClient;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import io.aliquot.deviceplugin.node.DraDevice;
import io.aliquot.deviceplugin.node.DriverRelease;
import io.aliquot.deviceplugin.node.NodeClient;
import io.aliquot.deviceplugin.node.NodeSettings;
import io.aliquot.deviceplugin.node.NodeView;
import io.aliquot.deviceplugin.nvml.NodeFeatures;
import io.aliquot.deviceplugin.nvml.NvmlReading;
import io.aliquot.deviceplugin.nvml.NvmlSession;
import io.aliquot.deviceplugin.nvml.PhysicalGpu;
import io.aliquot.deviceplugin.problem.Problem;
import io.aliquot.deviceplugin.usage.ContextMeasurement;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.time.InstantSource;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * Makes the kubelet's slots and the Node's inventory and extended resources match the GPUs and the admin's settings.
 * Each pass compares the whole state and corrects what differs, so a missed event or a write by another client does no
 * harm.
 *
 * <p>While a setting on the Node is invalid, the former settings apply to the published inventory; the scheduler rejects
 * the same setting and leaves the node out.
 *
 * <p>Not thread-safe.
 */
final class Reconciler {
    private static final Logger LOG = System.getLogger(Reconciler.class.getName());

    private final Settings settings;
    private final NvmlSession nvml;
    private final KubeletRegistrar registrar;

    /** Of the devices by which Cluster Autoscaler takes the node for ready. */
    private final Optional<KubeletRegistrar> readyRegistrar;

    private final PodResourcesClient podResources;
    private final InventoryPublisher publisher;
    private final FeatureLabelPublisher featureLabels;
    private final GpuHealthReporter healthReporter;
    private final AgentMetrics metrics;
    private final HealthTracker healthTracker;
    private final ContextMeasurement contexts;
    private final Supplier<Limits> limits;
    private final NvidiaDevices nvidiaDevices;
    private final PodCgroups podCgroups;
    private final String bootId;
    private final String certificate;

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

    /** How long no pod has held a vGPU of the node while another owner serves the GPUs. */
    private final QuietTime contested;

    /** How long GPUs of the inventory have been missing while no pod held a vGPU of the node. */
    private final QuietTime unlisted;

    /** Whether the Node's amounts are those of more GPUs than the inventory has. */
    private boolean excess;

    /** Whether the kubelet has told, since this agent started, which pods hold the node's GPUs. */
    private boolean counted;

    /** The inventory to publish; null until NVML or the Node's annotation yields one. */
    private @Nullable Inventory inventory;

    Reconciler(
            Settings settings,
            NvmlSession nvml,
            KubeletRegistrar registrar,
            Optional<KubeletRegistrar> readyRegistrar,
            PodResourcesClient podResources,
            AgentMetrics metrics,
            HealthTracker healthTracker,
            ContextMeasurement contexts,
            Supplier<Limits> limits,
            NvidiaDevices nvidiaDevices,
            PodCgroups podCgroups,
            String bootId,
            String certificate,
            Duration quietTime,
            InstantSource clock,
            LongSupplier nanoTime) {
        this.settings = settings;
        this.nvml = nvml;
        this.registrar = registrar;
        this.readyRegistrar = readyRegistrar;
        this.podResources = podResources;
        this.metrics = metrics;
        this.healthTracker = healthTracker;
        this.contexts = contexts;
        this.limits = limits;
        this.nvidiaDevices = nvidiaDevices;
        this.podCgroups = podCgroups;
        this.bootId = bootId;
        this.certificate = certificate;
        labels = settings.labelGpuOperator()
                ? Map.of(
                        Labels.NODE_AGENT,
                        Labels.NODE_AGENT_ON,
                        Labels.OPERATOR_PLUGIN,
                        Labels.OPERATOR_PLUGIN_OFF,
                        Labels.OPERATOR_DRA_DRIVER,
                        Labels.OPERATOR_PLUGIN_OFF)
                : Map.of(Labels.NODE_AGENT, Labels.NODE_AGENT_ON);
        withoutVgpus = new QuietTime(nanoTime, quietTime);
        contested = new QuietTime(nanoTime, quietTime);
        unlisted = new QuietTime(nanoTime, quietTime);
        publisher = new InventoryPublisher(metrics, clock, nanoTime);
        featureLabels = new FeatureLabelPublisher(metrics, nanoTime);
        healthReporter = new GpuHealthReporter(metrics, settings.nodeName());
    }

    /** Makes one pass; returns what still keeps the node from taking GPU pods. */
    List<String> reconcile(NodeClient client) {
        try {
            List<String> unmet = pass(client);
            failedPass.resolve();
            LOG.log(Level.DEBUG, () -> "pass: " + describe(inventory) + "; unmet: " + unmet);
            return unmet;
        } catch (RuntimeException e) {
            // For example, a GPU with properties out of range. Running pods are not affected; the next pass may
            // succeed.
            return List.of(failedPass.report("cannot reconcile this node's GPUs: " + e));
        }
    }

    private static String describe(@Nullable Inventory inventory) {
        if (inventory == null) {
            return "no inventory";
        }
        AdvertisedSlots slots = InventoryBuilder.slots(inventory);
        return inventory.gpus().size() + " GPUs, " + slots.healthy() + " of " + slots.total() + " slots healthy, "
                + (inventory.withheld() ? "withheld" : "advertised");
    }

    /** Whether the last pass found that another owner has the node's GPUs, or an upgrade of the driver. */
    boolean isInConflict() {
        return conflict.message().isPresent();
    }

    private List<String> pass(NodeClient client) {
        List<String> unmet = new ArrayList<>();
        NvmlReading reading = nvml.latest();
        Optional<NodeView> latest = client.latest();
        if (latest.isEmpty()) {
            // A Node object that is deleted and created again starts without inventory and extended resources.
            inventory = null;
            publisher.nodeDeleted();
            problem(reading).ifPresent(unmet::add);
            unmet.add(unknownNode.report("the API server has not returned node " + settings.nodeName() + " yet"));
            return unmet;
        }
        unknownNode.resolve();
        NodeView node = latest.get();
        if (inventory == null) {
            Optional<Inventory> published = publishedInventory(node);
            published.ifPresent(publisher::restore);
            inventory = published.orElse(null);
        }
        Optional<String> release = DriverRelease.of(node);
        nvml.release(release.orElse(""));
        if (release.isPresent()) {
            reading = new NvmlReading.NotAsked(release.get());
        } else {
            problem(reading).ifPresent(unmet::add);
        }
        DeviceHolders holders = podResources.list();
        if (hasLeft(node, holders, unmet)) {
            inventory = null;
            registrar.withdraw("the node has left");
            readyRegistrar.ifPresent(ready -> ready.withdraw("the node has left"));
            // Before the agent's labels, without which the DaemonSet's controller ends this process.
            Optional<String> kept = featureLabels.withdraw(client, node);
            kept.or(() -> publisher.withdraw(client, node, labels)).ifPresent(unmet::add);
        } else {
            reconcile(client, node, reading, holders, unmet);
        }
        return unmet;
    }

    /** Why NVML does not tell how the GPUs are; empty if it does. */
    private static Optional<String> problem(NvmlReading reading) {
        return switch (reading) {
            case NvmlReading.Gpus gpus -> Optional.empty();
            case NvmlReading.NotAsked(String reason) -> Optional.of(reason);
            case NvmlReading.Unavailable(String reason) -> Optional.of(reason);
        };
    }

    /**
     * Whether the {@link Settings#nodeLabel} is gone and no pod of Aliquot's needs this node any more. The scheduler gives no new vGPUs on
     * a node without the label, but a pod may be bound already for which the kubelet has not called Allocate yet.
     */
    private boolean hasLeft(NodeView node, DeviceHolders holders, List<String> unmet) {
        if (settings.nodeLabel().isOn(node.labels())) {
            withoutVgpus.interrupt();
            leaving.resolve();
            return false;
        }
        unmet.add(leaving.report("the node has no label " + settings.nodeLabel()
                + ": it gets no new vGPUs, and this agent stays until no pod holds one any more"));
        if (holdsVgpus(holders)) {
            withoutVgpus.interrupt();
            return false;
        }
        return withoutVgpus.isOver();
    }

    private void reconcile(
            NodeClient client, NodeView node, NvmlReading reading, DeviceHolders holders, List<String> unmet) {
        Optional<Inventory> previous = Optional.ofNullable(inventory)
                .map(former -> former.withGpus(withoutReconfigured(former.gpus(), reading, holders)));
        Optional<NodeSettings> requested = nodeSettings(node);
        if (previous.isEmpty() && requested.isEmpty()) {
            invalidSettings.message().ifPresent(unmet::add);
            return;
        }
        if (previous.isEmpty() && !(reading instanceof NvmlReading.Gpus)) {
            DriverRelease.of(node).ifPresent(unmet::add);
            return;
        }
        if (previous.isEmpty() && holders instanceof DeviceHolders.Unavailable unavailable) {
            // A first inventory without the holders would show GPUs as free that pods of another plugin hold.
            unmet.add(noPodResources.report("cannot tell which pods hold this node's GPUs, and so publishes no"
                    + " inventory yet: " + unavailable.reason()));
            return;
        }
        Optional<List<DraDevice>> published = client.draDevices();
        if (published.isEmpty()) {
            unmet.add("the API server has not listed this node's ResourceSlices yet");
            return;
        }
        List<PhysicalGpu> detected =
                reading instanceof NvmlReading.Gpus gpus ? gpus.listing().gpus() : List.of();
        Map<String, GpuHealth> health =
                healthTracker.assess(reading, nvml.readAt(), nvml.takeXids(), previous, node.annotations());
        String driver = driverVersion(reading, previous);
        Optional<Inventory> sameDriver =
                previous.filter(inventory -> inventory.driverVersion().equals(driver));
        List<String> healthy = detected.stream()
                .map(PhysicalGpu::uuid)
                .filter(uuid ->
                        health.getOrDefault(uuid, Gpu.HEALTHY).unhealthy().isEmpty())
                .toList();
        DeviceInjection injection = injection(node, healthy, previous);
        Inventory built = InventoryBuilder.build(
                        detected,
                        staying(previous.map(Inventory::gpus).orElse(List.of()), health, reading, holders),
                        health,
                        gpu -> contexts.contextMiB(gpu, detected, sameDriver),
                        injection == DeviceInjection.CDI ? VisibleDevices.BY_ALLOCATE : settings.visibleDevices(),
                        // While a setting of the Node is invalid, the former settings apply.
                        requested.or(() -> previous.map(NodeSettings::of)).orElseThrow())
                .withDriver(bootId, driver)
                .withCgroups(podCgroups.kind())
                .withMps(reading instanceof NvmlReading.Gpus gpus
                        && gpus.listing().mps());
        counted |= holders instanceof DeviceHolders.Known;
        Inventory judged = OtherDevicePlugins.in(
                built, previous.map(Reconciler::withoutOwnConflict), node, published.get(), holders, counted);
        Inventory shared = judged.withWithheld(withholds(judged, previous, holders));
        Inventory present = DriverRelease.of(node)
                .map(shared::withConflict)
                .orElseGet(() -> withUnnamed(shared, injection, healthy));
        report(present, holders, unmet);
        if (present.gpus().isEmpty()) {
            unmet.add(noGpu.report("NVML lists no GPU on this node; a node without GPUs should not have the label "
                    + settings.nodeLabel()));
        } else {
            noGpu.resolve();
        }
        healthReporter.report(detected, present);
        registrar.inject(injection);
        advertise(present, node);
        inventory = present;
        publisher
                .publish(client, node, withoutKubelet(present).withCertificate(certificate), labels(node))
                .ifPresent(unmet::add);
        featureLabels.publish(
                client,
                node,
                reading instanceof NvmlReading.Gpus gpus ? gpus.listing().features() : NodeFeatures.UNKNOWN,
                withoutOwnConflict(present).conflict().isEmpty());
    }

    /** HAMi's nodes keep the GPU Operator's labels as they are. */
    private Map<String, String> labels(NodeView node) {
        return HamiRegistration.isOn(node.annotations()) ? Map.of(Labels.NODE_AGENT, Labels.NODE_AGENT_ON) : labels;
    }

    /**
     * Whether the agent keeps totals and slots off the node, because another owner serves its GPUs. A kubelet that restarts
     * rejects pods that request more of a resource than the Node has, so another owner's pods must not meet the agent's
     * totals. It tolerates a resource that the Node lacks (pkg/kubelet/lifecycle/predicate.go,
     * removeMissingExtendedResources), but while pods hold vGPUs, the node keeps what they were admitted with.
     */
    private boolean withholds(Inventory shared, Optional<Inventory> previous, DeviceHolders holders) {
        if (shared.conflict().isEmpty()) {
            contested.interrupt();
            return false;
        }
        if (previous.map(Inventory::withheld).orElse(true)) { // nothing of the agent's is there
            return holders instanceof DeviceHolders.Unavailable || !holdsVgpus(holders);
        }
        if (holdsVgpus(holders)) {
            contested.interrupt();
            return false;
        }
        return contested.isOver();
    }

    /** The inventory to publish: while the kubelet does not have the slots, it would reject the pods of new Bindings. */
    private Inventory withoutKubelet(Inventory inventory) {
        return registrar.kubeletGone() && inventory.conflict().isEmpty()
                ? inventory.withConflict(Inventory.KUBELET_GONE)
                : inventory;
    }

    /**
     * The GPUs of the previous inventory without instances that an administrator has destroyed and cards that are in MIG mode
     * now, which no pod holds. Their amounts stay until no pod holds a vGPU of the node.
     */
    private List<Gpu> withoutReconfigured(List<Gpu> previous, NvmlReading reading, DeviceHolders holders) {
        if (!(reading instanceof NvmlReading.Gpus gpus) || !gpus.listing().complete()) {
            return previous;
        }
        List<Gpu> staying = previous.stream()
                .filter(gpu -> isListed(gpus, gpu)
                        || hasXid(gpu.health())
                        || (gpu.instance().isEmpty()
                                && !gpus.listing().migCards().contains(gpu.uuid()))
                        || limits.get().isHeld(gpu.uuid()).orElseGet(() -> holdsVgpus(holders)))
                .toList();
        excess |= staying.size() < previous.size();
        return staying;
    }

    private static boolean isListed(NvmlReading.Gpus gpus, Gpu gpu) {
        return gpus.listing().gpus().stream().anyMatch(listed -> listed.uuid().equals(gpu.uuid()));
    }

    private static boolean hasXid(GpuHealth health) {
        return health.unhealthy()
                .filter(unhealthy -> unhealthy.xid().isPresent())
                .isPresent();
    }

    /**
     * The GPUs of the previous inventory without those that were removed from the node. A GPU that NVML no longer lists has
     * been removed when no pod holds a vGPU of the node for some time: the kubelet does not tell which GPU a slot belongs
     * to. A GPU whose last error has not ended stays, because it may come back broken.
     */
    private List<Gpu> staying(
            List<Gpu> previous, Map<String, GpuHealth> health, NvmlReading reading, DeviceHolders holders) {
        if (!(reading instanceof NvmlReading.Gpus gpus) || !gpus.listing().complete()) {
            unlisted.interrupt();
            return previous;
        }
        List<Gpu> staying = previous.stream()
                .filter(gpu -> isListed(gpus, gpu) || hasXid(health.getOrDefault(gpu.uuid(), Gpu.HEALTHY)))
                .toList();
        if ((staying.size() == previous.size() && !excess) || holdsVgpus(holders)) {
            unlisted.interrupt();
            return previous;
        }
        if (!unlisted.isOver()) {
            return previous;
        }
        publisher.shrinkExtendedResources();
        excess = false;
        return staying;
    }

    /** Whether a pod holds a slot of the node, or may hold one. */
    private static boolean holdsVgpus(DeviceHolders holders) {
        return !(holders instanceof DeviceHolders.Known known)
                || known.list().stream().anyMatch(holder -> holder.resource().equals(Resources.VGPU));
    }

    private static String driverVersion(NvmlReading reading, Optional<Inventory> previous) {
        return reading instanceof NvmlReading.Gpus gpus
                ? gpus.driver()
                : previous.map(Inventory::driverVersion).orElse("");
    }

    /** Without a conflict that says of no other owner. */
    private static Inventory withoutOwnConflict(Inventory inventory) {
        return DriverRelease.isCauseOf(inventory.conflict())
                        || inventory.conflict().startsWith(Inventory.NOT_IN_CDI)
                ? inventory.withConflict("")
                : inventory;
    }

    /**
     * How containers are to get their GPUs. A node that has once given them by CDI goes on, also while a program replaces NVIDIA's
     * specifications: Bind has written into a pod's annotations which way it is.
     */
    private DeviceInjection injection(NodeView node, List<String> healthy, Optional<Inventory> previous) {
        if (settings.injection().isPresent()) {
            return settings.injection().get();
        }
        if (!DeviceInjection.isResolvedBy(node.containerRuntime())) {
            return DeviceInjection.RUNTIME;
        }
        boolean isCdi = previous.filter(Inventory::injectsByCdi).isPresent()
                || (!healthy.isEmpty() && nvidiaDevices.unnamed(healthy).isEmpty());
        return isCdi ? DeviceInjection.CDI : DeviceInjection.RUNTIME;
    }

    /** Where containers get their GPUs by CDI, and CDI does not name one, the node takes no pods. */
    private Inventory withUnnamed(Inventory shared, DeviceInjection injection, List<String> healthy) {
        return injection == DeviceInjection.CDI && shared.conflict().isEmpty()
                ? nvidiaDevices.unnamed(healthy).stream()
                        .findFirst()
                        .map(nvidiaDevices::advice)
                        .map(shared::withConflict)
                        .orElse(shared)
                : shared;
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

    private void advertise(Inventory present, NodeView node) {
        readyRegistrar.ifPresent(ready -> advertise(ready, present, node));
        if (present.withheld()) {
            registrar.withdraw("another owner serves the node's GPUs");
            metrics.slots(0, 0);
            return;
        }
        AdvertisedSlots slots = InventoryBuilder.slots(present);
        registrar.advertise(slots);
        metrics.slots(slots.healthy(), slots.unhealthy());
        registrar.observeAllocatable(node.allocatable().getOrDefault(Resources.VGPU, 0L));
    }

    /** A node that another device plugin uses is that plugin's, also to an autoscaler; a driver upgrade passes. */
    private void advertise(KubeletRegistrar ready, Inventory present, NodeView node) {
        if (withoutOwnConflict(present).conflict().isEmpty()) {
            ready.advertise(new AdvertisedSlots(present.gpus().size(), 0));
            ready.observeAllocatable(node.allocatable().getOrDefault(ready.resource(), 0L));
        } else {
            ready.withdraw("another owner serves the node's GPUs");
        }
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
                    + " (until this is corrected, the former settings apply, and the scheduler leaves the node out)");
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
            Inventory published = Inventory.parse(text);
            boolean kubeletGone = published.conflict().equals(Inventory.KUBELET_GONE);
            return Optional.of(kubeletGone ? published.withConflict("") : published);
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
