package io.aliquot.deviceplugin.node;

import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.Quantity;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import io.fabric8.kubernetes.client.informers.SharedIndexInformer;
import io.fabric8.kubernetes.client.utils.Serialization;
import java.math.BigDecimal;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.jspecify.annotations.Nullable;

/** The Node through a watch on it alone, and merge patches that name nothing but what changes. */
public final class KubernetesNode implements NodeApi {
    private static final PatchContext MERGE = PatchContext.of(PatchType.JSON_MERGE);

    private final KubernetesClient client;
    private final String name;
    private final SharedIndexInformer<Node> informer;
    private volatile Optional<Node> latest = Optional.empty();

    /** Starts watching, for ever and through failures; {@code changed} is called at each change. */
    public KubernetesNode(KubernetesClient client, String name, Runnable changed) {
        this.client = client;
        this.name = name;
        informer = client.nodes().withName(name).runnableInformer(0);
        informer.exceptionHandler((started, failure) -> true); // try again, whatever it is
        informer.addEventHandler(new ResourceEventHandler<>() {
            @Override
            public void onAdd(Node node) {
                seen(node);
            }

            @Override
            public void onUpdate(Node old, Node node) {
                seen(node);
            }

            @Override
            public void onDelete(Node node, boolean unknownState) {
                // Without the Node there is nothing to write to; the kubelet makes it anew.
                latest = Optional.empty();
                changed.run();
            }

            private void seen(Node node) {
                see(node);
                changed.run();
            }
        });
        var unused = informer.start();
    }

    @Override
    public Optional<NodeView> latest() {
        return latest.map(KubernetesNode::view);
    }

    @Override
    public void annotate(String key, String value) throws NodeWriteException {
        patch(Map.of("metadata", Map.of("annotations", Map.of(key, value))), false);
    }

    @Override
    public void putResources(Map<String, Long> resources) throws NodeWriteException {
        Map<String, String> amounts = new TreeMap<>();
        resources.forEach((resource, amount) -> amounts.put(resource, Long.toString(amount)));
        patch(Map.of("status", Map.of("capacity", amounts, "allocatable", amounts)), true);
    }

    @Override
    public void close() {
        informer.close();
        client.close();
    }

    private void patch(Map<String, ?> patch, boolean status) throws NodeWriteException {
        try {
            var node = client.nodes().withName(name);
            String text = Serialization.asJson(patch);
            see(status ? node.subresource("status").patch(MERGE, text) : node.patch(MERGE, text));
        } catch (KubernetesClientException e) {
            throw new NodeWriteException("cannot write to node " + name + ": " + e.getMessage(), e);
        }
    }

    /** The watch may tell of a state that was before our own write. */
    private synchronized void see(Node node) {
        if (latest.isEmpty() || version(node) >= version(latest.get())) {
            latest = Optional.of(node);
        }
    }

    private static long version(Node node) {
        try {
            return Long.parseLong(node.getMetadata().getResourceVersion());
        } catch (NumberFormatException e) {
            return Long.MAX_VALUE; // opaque: believe whoever speaks last
        }
    }

    private static NodeView view(Node node) {
        return new NodeView(
                orEmpty(node.getMetadata().getLabels()),
                orEmpty(node.getMetadata().getAnnotations()),
                amounts(
                        node.getStatus() == null
                                ? Map.of()
                                : orEmpty(node.getStatus().getCapacity())),
                amounts(
                        node.getStatus() == null
                                ? Map.of()
                                : orEmpty(node.getStatus().getAllocatable())));
    }

    private static <V> Map<String, V> orEmpty(@Nullable Map<String, V> map) {
        return map == null ? Map.of() : map;
    }

    private static Map<String, Long> amounts(Map<String, Quantity> quantities) {
        Map<String, Long> amounts = new HashMap<>();
        quantities.forEach((resource, quantity) -> {
            if (resource.contains("/")) {
                BigDecimal amount = quantity.getNumericalAmount();
                if (amount.stripTrailingZeros().scale() <= 0 && amount.precision() - amount.scale() <= 18) {
                    amounts.put(resource, amount.longValueExact());
                }
            }
        });
        return amounts;
    }
}
