package io.aliquot.deviceplugin.node;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.io.IOException;
import java.time.Duration;
import java.util.Optional;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;
import tools.jackson.databind.JsonNode;

/** Keeps the latest state of one Node, by list and watch with a field selector. Thread-safe. */
final class NodeInformer implements Reflector.Store, AutoCloseable {
    /** A list at least every 45 s: 333 requests a second, lists and watches, by 5,000 nodes. */
    private static final Duration SHORTEST_WATCH = Duration.ofSeconds(20);

    private final ApiServerClient server;
    private final Runnable onChange;
    private final Reflector reflector;

    @GuardedBy("this")
    private @Nullable JsonNode latest;

    /**
     * Starts to list and watch, until {@link #close}.
     *
     * @param onChange called at each change of the Node
     */
    NodeInformer(ApiServerClient server, String name, Runnable onChange, LongSupplier nanoTime) {
        this.server = server;
        this.onChange = onChange;
        String path = "/api/v1/nodes?fieldSelector=metadata.name%3D" + name;
        reflector = new Reflector(server, "node " + name, path, SHORTEST_WATCH, this, nanoTime);
        reflector.start();
    }

    /** The latest state; empty before the first list and while there is no Node of this name. */
    Optional<NodeView> latest() {
        reflector.closeIfOverdue();
        return stored().map(NodeView::parse);
    }

    /** What is stored, for {@link #store} of the answer to a request that is sent now. */
    synchronized Optional<JsonNode> stored() {
        return Optional.ofNullable(latest);
    }

    /**
     * Stores the Node of an answer or an event, unless a newer one is stored. But an older version in an answer is the state of an
     * etcd that was restored from a backup, unless something was stored since the request.
     *
     * @param before what was stored when the request was sent; empty for an event
     * @param node empty if there is none
     */
    void store(Optional<JsonNode> before, Optional<JsonNode> node) {
        synchronized (this) {
            JsonNode stored = latest;
            boolean unchanged = Optional.ofNullable(stored).equals(before);
            if (!unchanged
                    && stored != null
                    && node.filter(now -> isOlder(now, stored)).isPresent()) {
                return;
            }
            latest = node.orElse(null);
        }
        onChange.run();
    }

    @Override
    public Optional<JsonNode> list(String path) throws IOException, InterruptedException {
        Optional<JsonNode> before = stored();
        JsonNode list = server.get(path);
        store(before, list.path("items").valueStream().findFirst());
        return Optional.of(list);
    }

    @Override
    public boolean handle(String type, JsonNode node) {
        switch (type) {
            case "ADDED", "MODIFIED" -> store(Optional.empty(), Optional.of(node));
            case "DELETED" -> store(Optional.empty(), Optional.empty());
            default -> {
                return false; // an error: the resourceVersion is too old
            }
        }
        return true;
    }

    private static boolean isOlder(JsonNode node, JsonNode stored) {
        return node.path("metadata").path("uid").equals(stored.path("metadata").path("uid"))
                && version(node) < version(stored);
    }

    private static long version(JsonNode node) {
        return node.path("metadata").path("resourceVersion").asLong(Long.MAX_VALUE);
    }

    @Override
    public void close() {
        reflector.close();
    }
}
