package io.aliquot.deviceplugin.inventory;

import io.aliquot.api.Annotations;
import io.aliquot.api.Inventory;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import io.aliquot.deviceplugin.metrics.AgentMetrics.PatchTarget;
import io.aliquot.deviceplugin.node.NodeClient;
import io.aliquot.deviceplugin.node.NodeView;
import io.aliquot.deviceplugin.node.NodeWriteException;
import io.aliquot.deviceplugin.problem.Backoff;
import io.aliquot.deviceplugin.problem.Problem;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.function.LongSupplier;

/**
 * Publishes the inventory to the Node: the annotation {@code aliquot.io/gpus}, which the scheduler reads, and the
 * extended resources in the status, which kube-scheduler and the kubelet count. Writes only what differs, and repeats a
 * failed write with exponential backoff.
 *
 * <p>Not thread-safe.
 */
public final class InventoryPublisher {
    private static final Logger LOG = System.getLogger(InventoryPublisher.class.getName());
    private static final Duration FIRST_PAUSE = Duration.ofSeconds(2);
    private static final Duration LONGEST_PAUSE = Duration.ofSeconds(60);

    private final AgentMetrics metrics;
    private final ExtendedResources extendedResources = new ExtendedResources();
    private final Backoff backoff;
    private final Problem failure = new Problem(LOG, Level.WARNING);

    public InventoryPublisher(AgentMetrics metrics, LongSupplier nanoTime) {
        this.metrics = metrics;
        backoff = new Backoff(nanoTime, FIRST_PAUSE, LONGEST_PAUSE);
    }

    /** Publishes the inventory and its extended resources; returns why it could not. */
    public Optional<String> publish(NodeClient client, NodeView node, Inventory inventory) {
        boolean current = inventory.print().equals(node.annotations().get(Annotations.GPUS));
        return write(client, node, inventory, !current);
    }

    /** Publishes the extended resources of an inventory, and leaves the annotation; returns why it could not. */
    public Optional<String> publishExtendedResources(NodeClient client, NodeView node, Inventory inventory) {
        return write(client, node, inventory, false);
    }

    /** Forgets the extended resources published so far, because the Node object is gone. */
    public void nodeDeleted() {
        extendedResources.clear();
    }

    private Optional<String> write(NodeClient client, NodeView node, Inventory inventory, boolean writeInventory) {
        Map<String, Long> resources = extendedResources.of(inventory, node);
        boolean writeResources = !has(node, resources);
        if (!writeInventory && !writeResources) {
            return Optional.empty();
        }
        if (!backoff.isOver()) {
            return failure.message();
        }
        try {
            if (writeInventory) {
                client.setAnnotation(Annotations.GPUS, inventory.print());
                metrics.nodePatched(PatchTarget.INVENTORY);
            }
            if (writeResources) {
                client.setExtendedResources(resources);
                metrics.nodePatched(PatchTarget.EXTENDED_RESOURCES);
            }
            backoff.reset();
            failure.resolve();
            return Optional.empty();
        } catch (NodeWriteException e) {
            backoff.start();
            return Optional.of(failure.report(String.valueOf(e.getMessage())));
        }
    }

    private static boolean has(NodeView node, Map<String, Long> resources) {
        return resources.entrySet().stream()
                .allMatch(entry -> entry.getValue().equals(node.capacity().getOrDefault(entry.getKey(), 0L))
                        && entry.getValue().equals(node.allocatable().getOrDefault(entry.getKey(), 0L)));
    }
}
