package io.aliquot.deviceplugin.node;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import io.aliquot.api.retry.Backoff;
import io.aliquot.deviceplugin.problem.Problem;
import java.io.IOException;
import java.io.InputStream;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.MappingIterator;
import tools.jackson.databind.json.JsonMapper;

/**
 * A reflector as in client-go: lists objects, then watches them, and lists again, on a thread of its own. Each watch is short
 * and follows a list, because a watch may have lost its server, or the server its data, without an error. Thread-safe.
 */
final class Reflector implements AutoCloseable {
    /** Where the reflector puts what it reads. */
    interface Store {
        /** Requests a list and stores it; empty if the API server does not have the API. */
        Optional<JsonNode> list(String path) throws IOException, InterruptedException;

        /** Stores an event of a watch; false if the reflector is to list again. */
        boolean handle(String type, JsonNode object);
    }

    private static final Logger LOG = System.getLogger(Reflector.class.getName());
    private static final JsonMapper JSON = new JsonMapper();
    private static final Duration FIRST_PAUSE = Duration.ofMillis(500);

    /** At most the shortest watch, so that the pause after a watch that lasted its time is the first again. */
    private static final Duration LONGEST_PAUSE = Duration.ofSeconds(20);

    /** The shortest time until the next list if the API server does not have the API; an upgrade may bring it. */
    private static final Duration WITHOUT_API = Duration.ofMinutes(5);

    /** From the time at which the API server ends a watch until a watch that lasts has lost its server. */
    private static final Duration SLACK = Duration.ofSeconds(5);

    private final ApiServerClient server;
    private final String what;
    private final String path;
    private final Duration shortestWatch;
    private final Store store;
    private final LongSupplier nanoTime;
    private final Thread thread;
    private volatile boolean closed;

    @GuardedBy("this")
    private @Nullable InputStream watch;

    @GuardedBy("this")
    private long deadline;

    /**
     * Creates a reflector that {@link #start} starts.
     *
     * @param what is watched, for the log
     * @param path of the list, with a query
     * @param shortestWatch the API server ends watches after this to twice this time
     */
    Reflector(
            ApiServerClient server,
            String what,
            String path,
            Duration shortestWatch,
            Store store,
            LongSupplier nanoTime) {
        this.server = server;
        this.what = what;
        this.path = path;
        this.shortestWatch = shortestWatch;
        this.store = store;
        this.nanoTime = nanoTime;
        thread = Thread.ofPlatform().name("watch of " + what).daemon().unstarted(this::run);
    }

    /** Lists and watches until {@link #close}. */
    void start() {
        thread.start();
    }

    /** Closes a watch that lasts too long: a network that drops packets ends none. */
    synchronized void closeIfOverdue() {
        if (watch != null && nanoTime.getAsLong() - deadline > 0) {
            closeWatch();
        }
    }

    private void run() {
        var backoff = new Backoff(nanoTime, FIRST_PAUSE, LONGEST_PAUSE);
        var failure = new Problem(LOG, Level.WARNING);
        try {
            while (!closed) {
                try {
                    Optional<JsonNode> list = store.list(path);
                    failure.resolve();
                    if (list.isPresent()) {
                        watch(list.get());
                    } else {
                        Thread.sleep(upToTwice(WITHOUT_API));
                    }
                } catch (IOException | JacksonException e) {
                    if (!closed) {
                        failure.report("cannot watch " + what + ", retrying: " + e);
                    }
                }
                Thread.sleep(backoff.start());
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt(); // closed
        }
    }

    /** Gives the events after {@code list} to the store, until the watch ends. */
    private void watch(JsonNode list) throws IOException, InterruptedException {
        Duration timeout = upToTwice(shortestWatch);
        InputStream events =
                server.watch(path + "&watch=true&timeoutSeconds=" + timeout.toSeconds() + "&resourceVersion="
                        + list.path("metadata").path("resourceVersion").asString(""));
        synchronized (this) {
            watch = events;
            deadline = nanoTime.getAsLong() + timeout.plus(SLACK).toNanos();
        }
        try (events;
                MappingIterator<JsonNode> each = JSON.readerFor(JsonNode.class).readValues(events)) {
            boolean goesOn = true;
            while (goesOn && !closed && each.hasNextValue()) {
                JsonNode event = each.nextValue();
                goesOn = store.handle(event.path("type").asString(""), event.path("object"));
            }
        } finally {
            synchronized (this) {
                watch = null;
            }
        }
    }

    /** A random time, so that the agents of all nodes do not come in step. */
    private static Duration upToTwice(Duration shortest) {
        return shortest.plusMillis(ThreadLocalRandom.current().nextLong(shortest.toMillis() + 1));
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

    @Override
    public void close() {
        closed = true;
        closeWatch();
        thread.interrupt();
    }
}
