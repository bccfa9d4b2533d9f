package io.aliquot.deviceplugin.node;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.io.IOException;
import java.io.InputStream;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Consumer;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.MappingIterator;
import tools.jackson.databind.json.JsonMapper;

/**
 * The events of the watch that one thread follows, and that others close. A watch is short, and a list comes before each one:
 * a watch may have lost its server, or its server its data, without a word. Thread-safe.
 */
final class WatchStream implements AutoCloseable {
    private static final Logger LOG = System.getLogger(WatchStream.class.getName());
    private static final JsonMapper JSON = new JsonMapper();

    /** From the time at which the API server ends a watch until a watch that lasts has lost its server. */
    private static final Duration SLACK = Duration.ofSeconds(5);

    private final Duration shortest;
    private final LongSupplier nanoTime;

    @GuardedBy("this")
    private @Nullable InputStream watch;

    @GuardedBy("this")
    private long deadline;

    /** For watches that the API server ends after {@code shortest} to twice that time: those of all nodes begin together. */
    WatchStream(Duration shortest, LongSupplier nanoTime) {
        this.shortest = shortest;
        this.nanoTime = nanoTime;
    }

    /** Watches what the list of this version does not show; gives the events to {@code reader}, and closes when it returns. */
    void follow(ApiServerClient server, String path, JsonNode list, Consumer<MappingIterator<JsonNode>> reader)
            throws IOException, InterruptedException {
        Duration timeout = shortest.plusSeconds(ThreadLocalRandom.current().nextLong(shortest.toSeconds() + 1));
        InputStream events =
                server.watch(path + "&watch=true&timeoutSeconds=" + timeout.toSeconds() + "&resourceVersion="
                        + list.path("metadata").path("resourceVersion").asString(""));
        synchronized (this) {
            watch = events;
            deadline = nanoTime.getAsLong() + timeout.plus(SLACK).toNanos();
        }
        try (events;
                MappingIterator<JsonNode> each = JSON.readerFor(JsonNode.class).readValues(events)) {
            reader.accept(each);
        } finally {
            synchronized (this) {
                watch = null;
            }
        }
    }

    /** Closes a watch that lasts too long: a network that drops packets ends none. */
    synchronized void closeIfOverdue() {
        if (watch != null && nanoTime.getAsLong() - deadline > 0) {
            close();
        }
    }

    /** Waits before the next list, half the pause or more, since a server that restarts ends the watches of all nodes. */
    static void pause(Duration longest) throws InterruptedException {
        long millis = longest.toMillis();
        Thread.sleep(millis - ThreadLocalRandom.current().nextLong(millis / 2 + 1));
    }

    @Override
    public synchronized void close() {
        try {
            if (watch != null) {
                watch.close();
            }
        } catch (IOException e) {
            LOG.log(Level.DEBUG, "Cannot close the watch", e);
        }
        watch = null;
    }
}
