package io.aliquot.deviceplugin.node;

import io.aliquot.deviceplugin.problem.Problem;
import java.io.IOException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.Consumer;
import java.util.function.LongSupplier;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.ObjectNode;

/** Reads the Node from an informer and writes it with merge patches that contain only what changes. Thread-safe. */
public final class ApiServerNodeClient implements NodeClient {
    private static final Logger LOG = System.getLogger(ApiServerNodeClient.class.getName());
    private static final JsonNodeFactory JSON = JsonNodeFactory.instance;

    /** What makes the GPU Operator handle nodes (NVIDIA/gpu-operator, controllers/nodelabeling_controller.go). */
    private static final List<String> OPERATOR_SETTINGS =
            List.of("/apis/nvidia.com/v1/clusterpolicies", "/apis/nvidia.com/v1alpha1/gpuclusters");

    private final ApiServerClient server;
    private final String name;
    private final NodeInformer informer;
    private final ResourceSlices slices;
    private final Problem noOperatorAnswer = new Problem(LOG, Level.WARNING);

    /**
     * Starts to watch the Node.
     *
     * @param name a valid Node name
     * @param onChange called at each change of the Node
     * @param nanoTime a clock such as {@link System#nanoTime}
     */
    public ApiServerNodeClient(ApiServerClient server, String name, Runnable onChange, LongSupplier nanoTime) {
        this.server = server;
        this.name = name;
        informer = new NodeInformer(server, name, onChange, nanoTime);
        slices = new ResourceSlices(server, name, onChange, nanoTime);
    }

    @Override
    public Optional<NodeView> latest() {
        return informer.latest();
    }

    @Override
    public Optional<List<DraDevice>> draDevices() {
        return slices.devices();
    }

    @Override
    public synchronized Optional<Boolean> hasGpuOperator() {
        try {
            for (String path : OPERATOR_SETTINGS) {
                if (hasItems(path)) {
                    return Optional.of(true);
                }
            }
            noOperatorAnswer.resolve();
            return Optional.of(false);
        } catch (IOException e) {
            noOperatorAnswer.report("cannot tell whether the GPU Operator is installed: " + e.getMessage());
            return Optional.empty();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return Optional.empty();
        }
    }

    private boolean hasItems(String path) throws IOException, InterruptedException {
        try {
            return !server.get(path + "?limit=1").path("items").isEmpty();
        } catch (ApiServerClient.RefusedException e) {
            if (e.status() == 404) {
                return false; // the cluster does not have the kind
            }
            throw e;
        }
    }

    @Override
    public void patchMetadata(MetadataPatch change) throws NodeWriteException {
        ObjectNode patch = JSON.objectNode();
        ObjectNode metadata = patch.putObject("metadata");
        put(metadata, "labels", change.labels(), change.removedLabels());
        put(metadata, "annotations", change.annotations(), change.removedAnnotations());
        write(() -> server.mergePatch("/api/v1/nodes/" + name, patch));
    }

    /** A null removes a key (RFC 7386). */
    private static void put(ObjectNode metadata, String field, Map<String, String> values, Set<String> removed) {
        if (!values.isEmpty() || !removed.isEmpty()) {
            ObjectNode object = metadata.putObject(field);
            new TreeMap<>(values).forEach(object::put);
            removed.forEach(object::putNull);
        }
    }

    @Override
    public void setExtendedResources(Map<String, Long> resources) throws NodeWriteException {
        patchAmounts(amounts ->
                new TreeMap<>(resources).forEach((resource, amount) -> amounts.put(resource, Long.toString(amount))));
    }

    @Override
    public void removeExtendedResources(Collection<String> resources) throws NodeWriteException {
        patchAmounts(amounts -> resources.forEach(amounts::putNull));
    }

    private void patchAmounts(Consumer<ObjectNode> change) throws NodeWriteException {
        ObjectNode patch = JSON.objectNode();
        ObjectNode status = patch.putObject("status");
        for (String field : List.of("capacity", "allocatable")) {
            change.accept(status.putObject(field));
        }
        write(() -> server.mergePatch("/api/v1/nodes/" + name + "/status", patch));
    }

    @Override
    public void setCondition(NodeCondition condition) throws NodeWriteException {
        patchCondition(JSON.objectNode()
                .put("type", condition.type())
                .put("status", condition.status() ? "True" : "False")
                .put("reason", condition.reason())
                .put("message", condition.message())
                .put("lastTransitionTime", condition.since().toString()));
    }

    @Override
    public void removeCondition(String type) throws NodeWriteException {
        patchCondition(JSON.objectNode().put("$patch", "delete").put("type", type));
    }

    /** A merge patch would replace the list; a strategic one merges it by type (k8s.io/api, core/v1, NodeStatus). */
    private void patchCondition(ObjectNode condition) throws NodeWriteException {
        ObjectNode patch = JSON.objectNode();
        patch.putObject("status").putArray("conditions").add(condition);
        write(() -> server.strategicMergePatch("/api/v1/nodes/" + name + "/status", patch));
    }

    @Override
    public void close() {
        informer.close();
        slices.close();
    }

    private interface Request {
        JsonNode send() throws IOException, InterruptedException;
    }

    private void write(Request request) throws NodeWriteException {
        try {
            Optional<JsonNode> before = informer.stored();
            informer.store(before, Optional.of(request.send()));
        } catch (IOException e) {
            throw new NodeWriteException("cannot write to node " + name + ": " + e.getMessage(), e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new NodeWriteException("interrupted while writing to node " + name, e);
        }
    }
}
