package io.aliquot.deviceplugin.inventory;

import io.aliquot.api.foreign.FeatureDiscovery;
import io.aliquot.api.foreign.GpuOperator;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.retry.Backoff;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import io.aliquot.deviceplugin.metrics.AgentMetrics.PatchTarget;
import io.aliquot.deviceplugin.node.MetadataPatch;
import io.aliquot.deviceplugin.node.NodeClient;
import io.aliquot.deviceplugin.node.NodeView;
import io.aliquot.deviceplugin.node.NodeWriteException;
import io.aliquot.deviceplugin.nvml.NodeFeatures;
import io.aliquot.deviceplugin.problem.Problem;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.LongSupplier;
import java.util.stream.Collectors;

/**
 * Publishes the labels of GPU feature discovery (GFD) on a node that GFD does not label and the GPU Operator does not handle.
 * The Operator decides by {@code mig.capable} and {@code gpu.product} whether it runs its MIG manager on a node, which may
 * destroy MIG instances (NVIDIA/gpu-operator, controllers/state_manager.go, hasMIGCapableGPU).
 *
 * <p>The annotation {@value Annotations#GPU_LABELS} lists the labels that the agent has written, and is written together with
 * them. Other labels, and those that NFD has taken over for GFD, are never changed.
 *
 * <p>Writes what differs in patches of its own, because a refused label must not stop the inventory. Not thread-safe.
 */
public final class FeatureLabelPublisher {
    private static final Logger LOG = System.getLogger(FeatureLabelPublisher.class.getName());
    private static final Duration FIRST_PAUSE = Duration.ofSeconds(2);
    private static final Duration LONGEST_PAUSE = Duration.ofMinutes(5);

    private final AgentMetrics metrics;

    private final Backoff backoff;

    /** Between two questions whether the Operator is installed. */
    private final Backoff questions;

    private final Problem failure = new Problem(LOG, Level.WARNING);
    private final Problem notPublished = new Problem(LOG, Level.INFO);

    public FeatureLabelPublisher(AgentMetrics metrics, LongSupplier nanoTime) {
        this.metrics = metrics;
        backoff = new Backoff(nanoTime, FIRST_PAUSE, LONGEST_PAUSE);
        questions = new Backoff(nanoTime, FIRST_PAUSE, LONGEST_PAUSE);
    }

    /**
     * Publishes the labels, or removes those that this agent has written if others describe the node. The annotation then says
     * who does, except on a node of another device plugin, where nothing is left.
     *
     * @param features of all GPUs; while they are unknown, the labels stay as they are
     * @param soleOwner whether no other device plugin serves the node's GPUs
     */
    public void publish(NodeClient client, NodeView node, NodeFeatures features, boolean soleOwner) {
        Optional<String> reason = reason(node);
        if (!soleOwner) {
            var unused = withdraw(client, node);
        } else if (reason.isPresent()) {
            publishNone(client, node, reason.get());
        } else if (!features.gpus().isEmpty() && (hasLabels(node) || mayBegin(client, node))) {
            notPublished.resolve();
            Set<String> written = written(node);
            Map<String, String> labels = new TreeMap<>(FeatureLabels.of(features));
            labels.keySet().removeIf(name -> node.labels().containsKey(name) && !written.contains(name));
            write(client, node, labels, String.join(",", labels.keySet()));
        }
    }

    /**
     * Whether the first labels may be written: not if the Operator is installed, which may not have labeled the node yet. Once
     * labels of this agent are there, those of the Operator say that it has come.
     */
    private boolean mayBegin(NodeClient client, NodeView node) {
        if (!questions.isOver()) {
            return false;
        }
        Optional<Boolean> operator = client.hasGpuOperator();
        if (operator.isPresent() && !operator.get()) {
            questions.reset();
            return true;
        }
        questions.start();
        if (operator.isPresent()) {
            publishNone(
                    client,
                    node,
                    "the GPU Operator is installed; its GPU feature discovery labels the nodes that it handles");
        }
        return false;
    }

    private void publishNone(NodeClient client, NodeView node, String reason) {
        notPublished.report("this agent writes no labels of GPU feature discovery: " + reason);
        write(client, node, Map.of(), Annotations.NO_GPU_LABELS + reason);
    }

    /** Removes what this agent has written; returns why it could not. Empty also if there was nothing. */
    public Optional<String> withdraw(NodeClient client, NodeView node) {
        return node.annotations().containsKey(Annotations.GPU_LABELS)
                ? patch(
                        client,
                        new MetadataPatch(
                                Map.of(), Map.of(), removable(node, Set.of()), Set.of(Annotations.GPU_LABELS)))
                : Optional.empty();
    }

    private static Optional<String> reason(NodeView node) {
        if (FeatureDiscovery.labels(node.labels(), node.annotations())) {
            return Optional.of("GPU feature discovery labels this node");
        }
        return GpuOperator.handles(node.labels())
                .map(label -> "the GPU Operator handles this node, which has the label " + label
                        + "; its GPU feature discovery should run here");
    }

    private void write(NodeClient client, NodeView node, Map<String, String> labels, String record) {
        Map<String, String> changed = new HashMap<>(labels);
        changed.entrySet().removeAll(node.labels().entrySet());
        Map<String, String> annotations = record.equals(node.annotations().get(Annotations.GPU_LABELS))
                ? Map.of()
                : Map.of(Annotations.GPU_LABELS, record);
        var unused = patch(client, new MetadataPatch(changed, annotations, removable(node, labels.keySet()), Set.of()));
    }

    private Optional<String> patch(NodeClient client, MetadataPatch patch) {
        if (patch.isEmpty()) {
            failure.resolve();
            return Optional.empty();
        }
        if (!backoff.isOver()) {
            return failure.message();
        }
        try {
            client.patchMetadata(patch);
            metrics.nodePatched(PatchTarget.GPU_LABELS);
            backoff.reset();
            failure.resolve();
            return Optional.empty();
        } catch (NodeWriteException e) {
            backoff.start();
            return Optional.of(failure.report("labels of GPU feature discovery: " + e.getMessage()));
        }
    }

    /** The labels that this agent has written and that are there without being wanted. */
    private static Set<String> removable(NodeView node, Set<String> wanted) {
        Set<String> ofNfd = FeatureDiscovery.ofNfd(node.annotations()).collect(Collectors.toSet());
        return written(node).stream()
                .filter(name -> node.labels().containsKey(name) && !wanted.contains(name) && !ofNfd.contains(name))
                .collect(Collectors.toSet());
    }

    private static boolean hasLabels(NodeView node) {
        return node.labels().keySet().stream().anyMatch(written(node)::contains);
    }

    /** The labels that the annotation lists; it may be edited, so only labels of GFD count. */
    private static Set<String> written(NodeView node) {
        return Arrays.stream(node.annotations()
                        .getOrDefault(Annotations.GPU_LABELS, "")
                        .split(",", -1))
                .filter(FeatureDiscovery.LABELS::contains)
                .collect(Collectors.toSet());
    }
}
