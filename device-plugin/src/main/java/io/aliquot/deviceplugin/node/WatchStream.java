package io.aliquot.deviceplugin.node;

import java.io.IOException;
import java.io.InputStream;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.function.Consumer;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.MappingIterator;
import tools.jackson.databind.json.JsonMapper;

/** The events of the watch that one thread follows, and that others close. Thread-safe. */
final class WatchStream implements AutoCloseable {
    private static final Logger LOG = System.getLogger(WatchStream.class.getName());
    private static final JsonMapper JSON = new JsonMapper();

    /** From the time at which the API server ends a watch until a watch that lasts has lost its server. */
    private static final Duration SLACK = Duration.ofSeconds(30);

    private final Duration deadline;
    private final LongSupplier nanoTime;
    private @Nullable InputStream watch;
    private long openedAt;

    /** For watches that the API server ends after {@code timeout}. */
    WatchStream(Duration timeout, LongSupplier nanoTime) {
        this.deadline = timeout.plus(SLACK);
        this.nanoTime = nanoTime;
    }

    /** Gives the events to {@code reader}, and closes the watch when it returns. */
    void follow(InputStream events, Consumer<MappingIterator<JsonNode>> reader) throws IOException {
        synchronized (this) {
            watch = events;
            openedAt = nanoTime.getAsLong();
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
        if (watch != null && nanoTime.getAsLong() - openedAt > deadline.toNanos()) {
            close();
        }
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
