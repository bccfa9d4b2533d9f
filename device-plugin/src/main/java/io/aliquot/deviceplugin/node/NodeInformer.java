package io.aliquot.deviceplugin.node;

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

    /** The API server ends a watch after this time. */
    private static final Duration WATCH_TIMEOUT = Duration.ofMinutes(4);

    private static final Duration FIRST_PAUSE = Duration.ofMillis(500);
    private static final Duration LONGEST_PAUSE = Duration.ofSeconds(30);

    private final ApiServerClient server;
    private final String name;
    private final Runnable onChange;
    private final LongSupplier nanoTime;
    private final WatchStream watch;
    private final Thread thread;
    private volatile boolean closed;

    /** Guarded by this. */
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
        watch = new WatchStream(WATCH_TIMEOUT, nanoTime);
        thread = new Thread(this::run, "node");
        thread.setDaemon(true);
        thread.start();
    }

    /** The latest state; empty before the first list and while there is no Node of this name. */
    synchronized Optional<NodeView> latest() {
        watch.closeIfOverdue();
        return Optional.ofNullable(latest).map(NodeView::parse);
    }

    /** Stores a state unless a newer one is stored: the watch may deliver one from before the agent's own write. */
    void store(JsonNode node) {
        synchronized (this) {
            JsonNode stored = latest;
            if (stored != null && sameUid(stored, node) && version(node) < version(stored)) {
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
                JsonNode list = server.get(path);
                storeList(list);
                failure.resolve();
                backoff.reset();
                String version = list.path("metadata").path("resourceVersion").asString("");
                watch.follow(
                        server.watch(path + "&watch=true&allowWatchBookmarks=true&timeoutSeconds="
                                + WATCH_TIMEOUT.toSeconds() + "&resourceVersion=" + version),
                        this::storeEvents);
            } catch (IOException | JacksonException e) {
                if (!closed) {
                    failure.report("cannot watch node " + name + ", retrying: " + e);
                }
            } catch (InterruptedException e) {
                return; // closed
            }
            try {
                Thread.sleep(backoff.start().toMillis());
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
                default -> {} // a bookmark
            }
        }
    }

    private void storeList(JsonNode list) {
        JsonNode items = list.path("items");
        if (items.isEmpty()) {
            delete();
        } else {
            store(items.get(0));
        }
    }

    private void delete() {
        synchronized (this) {
            latest = null;
        }
        onChange.run();
    }

    private static boolean sameUid(JsonNode one, JsonNode other) {
        return one.path("metadata").path("uid").equals(other.path("metadata").path("uid"));
    }

    private static long version(JsonNode node) {
        return node.path("metadata").path("resourceVersion").asLong(Long.MAX_VALUE);
    }
}
