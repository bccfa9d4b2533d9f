package io.aliquot.deviceplugin.inventory;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Resources;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.retry.Backoff;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import io.aliquot.deviceplugin.metrics.AgentMetrics.PatchTarget;
import io.aliquot.deviceplugin.node.MetadataPatch;
import io.aliquot.deviceplugin.node.NodeClient;
import io.aliquot.deviceplugin.node.NodeCondition;
import io.aliquot.deviceplugin.node.NodeView;
import io.aliquot.deviceplugin.node.NodeWriteException;
import io.aliquot.deviceplugin.problem.Problem;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.time.InstantSource;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.LongSupplier;
import java.util.stream.Collectors;

/**
 * Publishes the inventory to the Node: the annotation {@code aliquot.io/gpus}, which the scheduler reads, and the
 * extended resources in the status, which kube-scheduler and the kubelet count, and the condition AliquotGPUsHealthy. Writes only what differs, and repeats a
 * failed write with exponential backoff.
 *
 * <p>Not thread-safe.
 */
public final class InventoryPublisher {
    private static final Logger LOG = System.getLogger(InventoryPublisher.class.getName());
    private static final Duration FIRST_PAUSE = Duration.ofSeconds(2);
    private static final Duration LONGEST_PAUSE = Duration.ofSeconds(60);

    private final AgentMetrics metrics;
    private final InstantSource clock;
    private final ExtendedResources extendedResources = new ExtendedResources();
    private final Backoff backoff;
    private final Problem failure = new Problem(LOG, Level.WARNING);

    /** Whether this agent, or an earlier one, has written the Node's extended resources. */
    private boolean ownsResources;

    public InventoryPublisher(AgentMetrics metrics, InstantSource clock, LongSupplier nanoTime) {
        this.metrics = metrics;
        this.clock = clock;
        backoff = new Backoff(nanoTime, FIRST_PAUSE, LONGEST_PAUSE);
    }

    /**
     * Publishes the inventory, its extended resources and the agent's labels; returns why it could not.
     *
     * @param labels of the Node that are to have these values
     */
    public Optional<String> publish(NodeClient client, NodeView node, Inventory inventory, Map<String, String> labels) {
        if (inventory.withheld()) {
            return withhold(client, node, metadata(node, inventory, labels));
        }
        Map<String, Long> resources = extendedResources.of(inventory, node);
        MetadataPatch metadata =
                metadata(node, inventory.withTotals(extendedResources.beyond(inventory, node)), labels);
        boolean writeResources = !has(node, resources);
        Optional<NodeCondition> condition = GpusHealthyCondition.differing(
                inventory, node.conditions().get(GpusHealthyCondition.TYPE), clock.instant());
        if (metadata.isEmpty() && !writeResources && condition.isEmpty()) {
            return Optional.empty();
        }
        return attempt(() -> {
            patch(client, metadata);
            ownsResources = true;
            if (writeResources) {
                client.setExtendedResources(resources);
                metrics.nodePatched(PatchTarget.EXTENDED_RESOURCES);
            }
            if (condition.isPresent()) {
                client.setCondition(condition.get());
                metrics.nodePatched(PatchTarget.CONDITION);
            }
        });
    }

    /** What of the annotation and of the labels the Node does not have yet. */
    private static MetadataPatch metadata(NodeView node, Inventory inventory, Map<String, String> labels) {
        return MetadataPatch.set(
                differing(labels, node.labels()),
                differing(Map.of(Annotations.GPUS, inventory.print()), node.annotations()));
    }

    /**
     * Publishes the inventory and the labels, and removes from the status what this agent wrote there. Amounts that the agent
     * did not write are another owner's and stay.
     */
    private Optional<String> withhold(NodeClient client, NodeView node, MetadataPatch metadata) {
        extendedResources.clear();
        boolean hasCondition = node.conditions().containsKey(GpusHealthyCondition.TYPE);
        if (metadata.isEmpty() && !ownsResources && !hasCondition) {
            return Optional.empty();
        }
        return attempt(() -> {
            // Before the inventory says so: an agent that starts takes no amounts for its own then.
            removeStatus(client, node);
            patch(client, metadata);
        });
    }

    private void patch(NodeClient client, MetadataPatch metadata) throws NodeWriteException {
        if (!metadata.isEmpty()) {
            client.patchMetadata(metadata);
            metrics.nodePatched(PatchTarget.INVENTORY);
        }
    }

    private void removeStatus(NodeClient client, NodeView node) throws NodeWriteException {
        if (ownsResources) {
            Set<String> totals = Resources.NODE_STATUS.stream()
                    .filter(name -> node.capacity().containsKey(name)
                            || node.allocatable().containsKey(name))
                    .collect(Collectors.toSet());
            if (!totals.isEmpty()) {
                client.removeExtendedResources(totals);
                metrics.nodePatched(PatchTarget.EXTENDED_RESOURCES);
            }
            ownsResources = false;
        }
        if (node.conditions().containsKey(GpusHealthyCondition.TYPE)) {
            client.removeCondition(GpusHealthyCondition.TYPE);
            metrics.nodePatched(PatchTarget.CONDITION);
        }
    }

    /**
     * Removes what this agent has published; the labels in a last write of their own, because without them the
     * DaemonSet's controller ends this process. Returns why it could not; empty also if nothing was left to remove.
     */
    public Optional<String> withdraw(NodeClient client, NodeView node, Map<String, String> labels) {
        Set<String> annotations =
                node.annotations().containsKey(Annotations.GPUS) ? Set.of(Annotations.GPUS) : Set.of();
        Set<String> set = labels.entrySet().stream()
                .filter(label -> label.getValue().equals(node.labels().get(label.getKey())))
                .map(Map.Entry::getKey)
                .collect(Collectors.toSet());
        extendedResources.clear();
        return attempt(() -> {
            // Before the inventory, which tells an agent that starts that the amounts are its own.
            removeStatus(client, node);
            patch(client, MetadataPatch.remove(Set.of(), annotations));
            patch(client, MetadataPatch.remove(set, Set.of()));
        });
    }

    /** Lets the extended resources shrink to those of the next inventory, because no pod holds a vGPU of the node. */
    public void shrinkExtendedResources() {
        extendedResources.shrink();
    }

    /** Takes over what an earlier agent has published. */
    public void restore(Inventory published) {
        extendedResources.restore(published.totals());
        ownsResources = !published.withheld();
    }

    /** Forgets the extended resources published so far, because the Node object is gone. */
    public void nodeDeleted() {
        extendedResources.clear();
        ownsResources = false;
    }

    private interface Writes {
        void run() throws NodeWriteException;
    }

    /** Makes the writes, unless the pause after a failure is not over. */
    private Optional<String> attempt(Writes writes) {
        if (!backoff.isOver()) {
            return failure.message();
        }
        try {
            writes.run();
            backoff.reset();
            failure.resolve();
            return Optional.empty();
        } catch (NodeWriteException e) {
            backoff.start();
            return Optional.of(failure.report(String.valueOf(e.getMessage())));
        }
    }

    private static Map<String, String> differing(Map<String, String> wanted, Map<String, String> present) {
        return wanted.entrySet().stream()
                .filter(entry -> !entry.getValue().equals(present.get(entry.getKey())))
                .collect(Collectors.toMap(Map.Entry::getKey, Map.Entry::getValue));
    }

    private static boolean has(NodeView node, Map<String, Long> resources) {
        return resources.entrySet().stream()
                .allMatch(entry -> entry.getValue().equals(node.capacity().getOrDefault(entry.getKey(), 0L))
                        && entry.getValue().equals(node.allocatable().getOrDefault(entry.getKey(), 0L)));
    }
}
