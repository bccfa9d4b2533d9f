package io.aliquot.deviceplugin.node;

import io.aliquot.deviceplugin.problem.Backoff;
import io.aliquot.deviceplugin.problem.Problem;
import java.io.IOException;
import java.io.InputStream;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.Optional;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.MappingIterator;
import tools.jackson.databind.json.JsonMapper;

/** Keeps the latest state of one Node, by list and watch with a field selector, on a thread of its own. Thread-safe. */
final class NodeInformer implements AutoCloseable {
    private static final Logger LOG = System.getLogger(NodeInformer.class.getName());
    private static final JsonMapper JSON = new JsonMapper();

    /** The API server ends a watch after this time. */
    private static final Duration WATCH_TIMEOUT = Duration.ofMinutes(4);

    /** A watch that lasts longer than this has lost its server. */
    private static final Duration WATCH_DEADLINE = WATCH_TIMEOUT.plusSeconds(30);

    private static final Duration FIRST_PAUSE = Duration.ofMillis(500);
    private static final Duration LONGEST_PAUSE = Duration.ofSeconds(30);

    private final ApiServerClient server;
    private final String name;
    private final Runnable onChange;
    private final LongSupplier nanoTime;
    private final Thread thread;
    private volatile boolean closed;

    // Guarded by this.
    private @Nullable JsonNode latest;
    private @Nullable InputStream watch;
    private long watchOpenedAt;

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
        thread = new Thread(this::run, "node");
        thread.setDaemon(true);
        thread.start();
    }

    /** The latest state; empty before the first list and while there is no Node of this name. */
    synchronized Optional<NodeView> latest() {
        if (watch != null && nanoTime.getAsLong() - watchOpenedAt > WATCH_DEADLINE.toNanos()) {
            closeWatch();
        }
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
        synchronized (this) {
            closeWatch();
        }
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
                follow(server.watch(path + "&watch=true&allowWatchBookmarks=true&timeoutSeconds="
                        + WATCH_TIMEOUT.toSeconds() + "&resourceVersion=" + version));
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
    private void follow(InputStream events) throws IOException {
        synchronized (this) {
            watch = events;
            watchOpenedAt = nanoTime.getAsLong();
        }
        try (events;
                MappingIterator<JsonNode> each = JSON.readerFor(JsonNode.class).readValues(events)) {
            while (!closed && each.hasNextValue()) {
                JsonNode event = each.nextValue();
                switch (event.path("type").asString("")) {
                    case "ADDED", "MODIFIED" -> store(event.path("object"));
                    case "DELETED" -> delete();
                    case "ERROR" -> {
                        return; // the resourceVersion is too old: list again
                    }
                    default -> {} // a bookmark
                }
            }
        } finally {
            synchronized (this) {
                watch = null;
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

    private synchronized void closeWatch() {
        try {
            if (watch != null) {
                watch.close();
            }
        } catch (IOException e) {
            LOG.log(Level.DEBUG, "Cannot close the watch", e);
        }
        watch = null;
    }

    private static boolean sameUid(JsonNode one, JsonNode other) {
        return one.path("metadata").path("uid").equals(other.path("metadata").path("uid"));
    }

    private static long version(JsonNode node) {
        return node.path("metadata").path("resourceVersion").asLong(Long.MAX_VALUE);
    }
}
