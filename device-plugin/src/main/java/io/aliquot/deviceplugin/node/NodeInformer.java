package io.aliquot.deviceplugin.node;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import io.aliquot.deviceplugin.problem.Backoff;
import io.aliquot.deviceplugin.problem.Problem;
import java.io.IOException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.Optional;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.MappingIterator;

/** Keeps the latest state of one Node, by list and watch with a field selector, on a thread of its own. Thread-safe. */
final class NodeInformer implements AutoCloseable {
    private static final Logger LOG = System.getLogger(NodeInformer.class.getName());

    /** A list at least every 45 s: 333 requests a second, lists and watches, by 5,000 nodes. */
    private static final Duration SHORTEST_WATCH = Duration.ofSeconds(20);

    private static final Duration FIRST_PAUSE = Duration.ofMillis(500);
    private static final Duration LONGEST_PAUSE = Duration.ofSeconds(30);

    private final ApiServerClient server;
    private final String name;
    private final Runnable onChange;
    private final LongSupplier nanoTime;
    private final WatchStream watch;
    private final Thread thread;
    private volatile boolean closed;

    @GuardedBy("this")
    private @Nullable JsonNode latest;

    /**
     * Starts to list and watch, until {@link #close}.
     *
     * @param onChange called at each change of the Node
     */
    NodeInformer(ApiServerClient server, String name, Runnable onChange, LongSupplier nanoTime) {
        this.server = server;
        this.name = name;
        this.onChange = onChange;
        this.nanoTime = nanoTime;
        watch = new WatchStream(SHORTEST_WATCH, nanoTime);
        thread = new Thread(this::run, "node");
        thread.setDaemon(true);
        thread.start();
    }

    /** The latest state; empty before the first list and while there is no Node of this name. */
    synchronized Optional<NodeView> latest() {
        watch.closeIfOverdue();
        return Optional.ofNullable(latest).map(NodeView::parse);
    }

    /** What is stored, for {@link #answered} of a request that is sent now. */
    synchronized Optional<JsonNode> stored() {
        return Optional.ofNullable(latest);
    }

    /**
     * Stores the API server's answer to a request. An older version than the stored one is no stale answer but the state of
     * an etcd that was restored from a backup, unless something was stored since the request.
     *
     * @param before what was stored when the request was sent
     * @param node empty if there is none
     */
    void answered(Optional<JsonNode> before, Optional<JsonNode> node) {
        synchronized (this) {
            JsonNode stored = latest;
            boolean unchanged = Optional.ofNullable(stored).equals(before);
            if (!unchanged
                    && stored != null
                    && node.filter(answer -> isOlder(answer, stored)).isPresent()) {
                return;
            }
            latest = node.orElse(null);
        }
        onChange.run();
    }

    /** Stores an event's state unless a newer one is stored, as by the agent's own write. */
    private void store(JsonNode node) {
        synchronized (this) {
            if (latest != null && isOlder(node, latest)) {
                return;
            }
            latest = node;
        }
        onChange.run();
    }

    @Override
    public void close() {
        closed = true;
        watch.close();
        thread.interrupt();
    }

    private void run() {
        String path = "/api/v1/nodes?fieldSelector=metadata.name%3D" + name;
        var backoff = new Backoff(nanoTime, FIRST_PAUSE, LONGEST_PAUSE);
        var failure = new Problem(LOG, Level.WARNING);
        while (!closed) {
            try {
                Optional<JsonNode> before = stored();
                JsonNode list = server.get(path);
                answered(before, list.path("items").valueStream().findFirst());
                failure.resolve();
                backoff.reset();
                watch.follow(server, path, list, this::storeEvents);
            } catch (IOException | JacksonException e) {
                if (!closed) {
                    failure.report("cannot watch node " + name + ", retrying: " + e);
                }
            } catch (InterruptedException e) {
                return; // closed
            }
            try {
                WatchStream.pause(backoff.start());
            } catch (InterruptedException e) {
                return; // closed
            }
        }
    }

    /** Reads events until the stream ends. The next list contains whatever the watch missed. */
    private void storeEvents(MappingIterator<JsonNode> events) {
        while (!closed && events.hasNextValue()) {
            JsonNode event = events.nextValue();
            switch (event.path("type").asString("")) {
                case "ADDED", "MODIFIED" -> store(event.path("object"));
                case "DELETED" -> delete();
                case "ERROR" -> {
                    return; // the resourceVersion is too old: list again
                }
                default -> {} // none that this watch asks for
            }
        }
    }

    private void delete() {
        synchronized (this) {
            latest = null;
        }
        onChange.run();
    }

    private static boolean isOlder(JsonNode node, JsonNode stored) {
        return node.path("metadata").path("uid").equals(stored.path("metadata").path("uid"))
                && version(node) < version(stored);
    }

    private static long version(JsonNode node) {
        return node.path("metadata").path("resourceVersion").asLong(Long.MAX_VALUE);
    }
}
