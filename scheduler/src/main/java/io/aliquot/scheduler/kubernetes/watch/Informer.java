package io.aliquot.scheduler.kubernetes.watch;

import com.google.protobuf.InvalidProtocolBufferException;
import io.aliquot.scheduler.kubernetes.client.ListWatchClient;
import io.aliquot.scheduler.kubernetes.client.ListWatchClient.MalformedException;
import io.aliquot.scheduler.kubernetes.client.ListWatchClient.Watch;
import io.aliquot.scheduler.kubernetes.client.LogReference;
import io.aliquot.scheduler.kubernetes.client.ResourceType;
import io.aliquot.scheduler.server.Liveness;
import io.aliquot.scheduler.server.Readiness;
import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.ObjectMeta;
import io.fabric8.kubernetes.api.model.ObjectMetaBuilder;
import io.fabric8.kubernetes.api.model.Status;
import io.fabric8.kubernetes.api.model.WatchEvent;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.io.Closeable;
import java.io.IOException;
import java.net.HttpURLConnection;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A watch on all objects of a kind, which lists them first and whenever it lost track, and never gives up.
 *
 * <p>An object that was deleted and made again under its name while nobody watched arrives as gone, then as present.
 * Thread-safe; listeners are called one at a time.
 */
public final class Informer<T extends HasMetadata> implements Readiness, Liveness, AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Informer.class);
    private static final long SHORTEST_PAUSE_MS = 50;
    private static final long LONGEST_PAUSE_MS = 3000;

    /** Of an object what tells changes; {@code namespace} is null where its kind has none. */
    private record Known(@Nullable String namespace, String name, String uid, String version) {}

    private final ListWatchClient client;
    private final ResourceType<T> kind;
    private final Consumer<T> present;
    private final Consumer<T> gone;
    private final LongSupplier nanoTime;
    /** By namespace and name, what was told to be present and not to be gone. */
    private final Map<String, Informer.Known> told = new HashMap<>();

    private volatile boolean complete;
    private Session session;
    private long heard;

    private Informer(
            ListWatchClient client,
            ResourceType<T> kind,
            Consumer<T> present,
            Consumer<T> gone,
            LongSupplier nanoTime) {
        this.client = client;
        this.kind = kind;
        this.present = present;
        this.gone = gone;
        this.nanoTime = nanoTime;
        this.heard = nanoTime.getAsLong();
        this.session = new Session();
    }

    /**
     * Starts to watch.
     *
     * @param present is told of each object, whole, when it is new or has changed; perhaps again when it has not
     * @param gone is told of each object that is no more; it has metadata, perhaps nothing else
     */
    public static <T extends HasMetadata> Informer<T> start(
            ListWatchClient client,
            ResourceType<T> kind,
            Consumer<T> present,
            Consumer<T> gone,
            LongSupplier nanoTime) {
        var watched = new Informer<>(client, kind, present, gone, nanoTime);
        watched.session.thread.start();
        return watched;
    }

    /** For how long the server has said nothing. */
    public synchronized Duration idleTime() {
        return Duration.ofNanos(nanoTime.getAsLong() - heard);
    }

    /** Whether this is an object's latest version that we were told of. */
    synchronized boolean knows(String resourceVersion) {
        return told.values().stream().anyMatch(object -> resourceVersion.equals(object.version()));
    }

    /** Lists and watches afresh, on a connection of its own; what has gone in the meantime is told of then. */
    synchronized void restart() {
        session.end();
        session = new Session();
        heard = nanoTime.getAsLong();
        session.thread.start();
    }

    /**
     * One thread's work. Once another session has taken its place nobody listens to it, whatever is still on its way: an
     * old word after a newer one would bring back what is gone.
     */
    private final class Session implements Runnable {
        private final Thread thread = new Thread(this, "watch of " + kind.what());
        private volatile boolean ended;
        private volatile @Nullable Closeable open;
        /** What to go on from; empty where everything is to be listed first. */
        private Optional<String> version = Optional.empty();

        private long pauseMs = SHORTEST_PAUSE_MS;

        Session() {
            thread.setDaemon(true);
        }

        @Override
        public void run() {
            while (!ended) {
                try {
                    listAndWatch();
                } catch (InvalidProtocolBufferException | MalformedException | RuntimeException e) {
                    boolean busy = e instanceof KubernetesClientException refusal
                            && refusal.getCode() > 0
                            && refusal.getCode() != HttpURLConnection.HTTP_GONE;
                    if (!busy) { // or the same would come again
                        version = Optional.empty();
                    }
                    warn(e);
                } catch (IOException e) {
                    warn(e);
                }
                pause();
            }
        }

        private void warn(Exception why) {
            if (!ended) {
                LOG.warn("watching {} failed, trying again: {}", kind.what(), String.valueOf(why));
            }
        }

        private void pause() {
            try {
                TimeUnit.MILLISECONDS.sleep(pauseMs);
            } catch (InterruptedException e) {
                ended = true;
            }
            pauseMs = Math.min(LONGEST_PAUSE_MS, pauseMs * 2);
        }

        void end() {
            ended = true;
            thread.interrupt();
            Closeable watch = open;
            if (watch != null) {
                try {
                    watch.close();
                } catch (IOException e) {
                    LOG.debug("closing a watch of {}", kind.what(), e);
                }
            }
        }

        private void listAndWatch() throws IOException {
            if (version.isEmpty()) {
                version = Optional.of(list());
            }
            try (Watch watch = client.watch(kind, version.get())) {
                open = watch;
                if (ended) {
                    return;
                }
                for (var event = watch.next(); event.isPresent() && !ended; event = watch.next()) {
                    take(event.get());
                    pauseMs = SHORTEST_PAUSE_MS;
                }
            }
        }

        private String list() throws IOException {
            Set<String> before;
            synchronized (Informer.this) {
                before = new HashSet<>(told.keySet());
            }
            String listed = client.list(kind, object -> {
                synchronized (Informer.this) {
                    if (session == this) {
                        before.remove(key(object));
                        isThere(object);
                    }
                }
            });
            synchronized (Informer.this) {
                if (session == this) {
                    heard = nanoTime.getAsLong();
                    before.forEach(this::isGone);
                    complete = true;
                }
            }
            return listed;
        }

        @SuppressWarnings("unchecked") // of a watch on this kind
        private void take(WatchEvent event) {
            if (event.getObject() instanceof Status refusal) {
                throw new KubernetesClientException(refusal);
            }
            var object = (T) event.getObject();
            synchronized (Informer.this) {
                if (session != this) {
                    return;
                }
                heard = nanoTime.getAsLong();
                switch (event.getType()) {
                    case "ADDED", "MODIFIED" -> isThere(object);
                    case "DELETED" -> {
                        told.remove(key(object));
                        deliver(gone, object);
                    }
                    default -> {
                        // a bookmark
                    }
                }
                version = Optional.of(object.getMetadata().getResourceVersion());
            }
        }

        private void isThere(T object) {
            ObjectMeta metadata = object.getMetadata();
            var now = new Informer.Known(
                    metadata.getNamespace(), metadata.getName(), metadata.getUid(), metadata.getResourceVersion());
            Informer.Known before = told.put(key(object), now);
            if (before != null && !before.uid().equals(now.uid())) {
                deliver(gone, slim(before));
            }
            deliver(present, object);
        }

        private void isGone(String key) {
            Informer.Known object = told.remove(key);
            if (object != null) {
                deliver(gone, slim(object));
            }
        }
    }

    private String key(T object) {
        return object.getMetadata().getNamespace() + "/" + object.getMetadata().getName();
    }

    private T slim(Informer.Known object) {
        return kind.slim()
                .apply(new ObjectMetaBuilder()
                        .withNamespace(object.namespace())
                        .withName(object.name())
                        .withUid(object.uid())
                        .withResourceVersion(object.version())
                        .build());
    }

    /** An object that we fail on must not keep the others from being told of. */
    private void deliver(Consumer<T> listener, T object) {
        try {
            listener.accept(object);
        } catch (RuntimeException e) {
            LOG.error("cannot take note of {}", LogReference.of(object), e);
        }
    }

    @Override
    public Optional<String> waitsFor() {
        return complete ? Optional.empty() : Optional.of("the list of " + kind.what());
    }

    @Override
    public synchronized Optional<String> broken() {
        return complete && !session.thread.isAlive()
                ? Optional.of("the watch on " + kind.what() + " has ended")
                : Optional.empty();
    }

    @Override
    public String toString() {
        return kind.what();
    }

    @Override
    public synchronized void close() {
        session.end();
    }
}
