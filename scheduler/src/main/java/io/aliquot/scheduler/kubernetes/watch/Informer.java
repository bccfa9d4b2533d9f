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
 * A reflector as in client-go: lists all objects of a type, then watches them, and lists again whenever the watch
 * cannot be continued. It retries until it is closed.
 *
 * <p>If an object is deleted and created again under its name while no watch is open, the listeners see a deletion,
 * then a new object. Thread-safe; listeners are called one at a time.
 */
public final class Informer<T extends HasMetadata> implements Readiness, Liveness, AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Informer.class);
    private static final long SHORTEST_PAUSE_MS = 50;
    private static final long LONGEST_PAUSE_MS = 3000;

    /** The identity and version of an object; {@code namespace} is null for a cluster-scoped one. */
    private record Known(@Nullable String namespace, String name, String uid, String version) {}

    private final ListWatchClient client;
    private final ResourceType<T> type;
    private final Consumer<T> onPresent;
    private final Consumer<T> onGone;
    private final LongSupplier nanoTime;
    /** The objects that the listeners know to exist, by namespace and name. */
    private final Map<String, Informer.Known> known = new HashMap<>();

    private volatile boolean complete;
    private Session session;
    private long lastHeard;

    private Informer(
            ListWatchClient client,
            ResourceType<T> type,
            Consumer<T> onPresent,
            Consumer<T> onGone,
            LongSupplier nanoTime) {
        this.client = client;
        this.type = type;
        this.onPresent = onPresent;
        this.onGone = onGone;
        this.nanoTime = nanoTime;
        this.lastHeard = nanoTime.getAsLong();
        this.session = new Session();
    }

    /**
     * Starts to watch.
     *
     * @param onPresent receives each new or changed object; sometimes also an unchanged one
     * @param onGone receives each deleted object; only its metadata is certain to be set
     */
    public static <T extends HasMetadata> Informer<T> start(
            ListWatchClient client,
            ResourceType<T> type,
            Consumer<T> onPresent,
            Consumer<T> onGone,
            LongSupplier nanoTime) {
        var informer = new Informer<>(client, type, onPresent, onGone, nanoTime);
        informer.session.thread.start();
        return informer;
    }

    /** The time since the API server last sent anything on this watch. */
    public synchronized Duration idleTime() {
        return Duration.ofNanos(nanoTime.getAsLong() - lastHeard);
    }

    /** Whether {@code resourceVersion} is the latest one that the watch has received of some object. */
    synchronized boolean knows(String resourceVersion) {
        return known.values().stream().anyMatch(object -> resourceVersion.equals(object.version()));
    }

    /** Lists and watches again, over a new connection; the list also finds what was deleted meanwhile. */
    synchronized void restart() {
        session.end();
        session = new Session();
        lastHeard = nanoTime.getAsLong();
        session.thread.start();
    }

    /**
     * One thread that lists and watches. Once another session has replaced it, its events are ignored: an old event
     * after a newer one would bring back a deleted object.
     */
    private final class Session implements Runnable {
        private final Thread thread = new Thread(this, "watch of " + type.what());
        private volatile boolean ended;
        private volatile @Nullable Closeable open;
        /** The resource version from which to watch; empty if a list comes first. */
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
                    if (!busy) { // else the same event would come again
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
                LOG.warn("watching {} failed, trying again: {}", type.what(), String.valueOf(why));
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
                    LOG.debug("closing a watch of {}", type.what(), e);
                }
            }
        }

        private void listAndWatch() throws IOException {
            if (version.isEmpty()) {
                version = Optional.of(list());
            }
            try (Watch watch = client.watch(type, version.get())) {
                open = watch;
                if (ended) {
                    return;
                }
                for (var event = watch.next(); event.isPresent() && !ended; event = watch.next()) {
                    handle(event.get());
                    pauseMs = SHORTEST_PAUSE_MS;
                }
            }
        }

        private String list() throws IOException {
            Set<String> before;
            synchronized (Informer.this) {
                before = new HashSet<>(known.keySet());
            }
            String listed = client.list(type, object -> {
                synchronized (Informer.this) {
                    if (session == this) {
                        before.remove(key(object));
                        onPresent(object);
                    }
                }
            });
            synchronized (Informer.this) {
                if (session == this) {
                    lastHeard = nanoTime.getAsLong();
                    before.forEach(this::onGone);
                    complete = true;
                }
            }
            return listed;
        }

        @SuppressWarnings("unchecked") // the watch is on this type
        private void handle(WatchEvent event) {
            if (event.getObject() instanceof Status refusal) {
                throw new KubernetesClientException(refusal);
            }
            var object = (T) event.getObject();
            synchronized (Informer.this) {
                if (session != this) {
                    return;
                }
                lastHeard = nanoTime.getAsLong();
                switch (event.getType()) {
                    case "ADDED", "MODIFIED" -> onPresent(object);
                    case "DELETED" -> {
                        known.remove(key(object));
                        deliver(onGone, object);
                    }
                    default -> {
                        // a bookmark
                    }
                }
                version = Optional.of(object.getMetadata().getResourceVersion());
            }
        }

        private void onPresent(T object) {
            ObjectMeta metadata = object.getMetadata();
            var now = new Informer.Known(
                    metadata.getNamespace(), metadata.getName(), metadata.getUid(), metadata.getResourceVersion());
            Informer.Known before = known.put(key(object), now);
            if (before != null && !before.uid().equals(now.uid())) {
                deliver(onGone, metadataOnly(before));
            }
            deliver(onPresent, object);
        }

        private void onGone(String key) {
            Informer.Known object = known.remove(key);
            if (object != null) {
                deliver(onGone, metadataOnly(object));
            }
        }
    }

    private String key(T object) {
        return object.getMetadata().getNamespace() + "/" + object.getMetadata().getName();
    }

    private T metadataOnly(Informer.Known object) {
        return type.metadataOnly()
                .apply(new ObjectMetaBuilder()
                        .withNamespace(object.namespace())
                        .withName(object.name())
                        .withUid(object.uid())
                        .withResourceVersion(object.version())
                        .build());
    }

    /** A failure on one object does not keep the others from their listeners. */
    private void deliver(Consumer<T> listener, T object) {
        try {
            listener.accept(object);
        } catch (RuntimeException e) {
            LOG.error("a listener failed on {}", LogReference.of(object), e);
        }
    }

    @Override
    public Optional<String> waitsFor() {
        return complete ? Optional.empty() : Optional.of("the list of " + type.what());
    }

    @Override
    public synchronized Optional<String> broken() {
        return complete && !session.thread.isAlive()
                ? Optional.of("the watch on " + type.what() + " has ended")
                : Optional.empty();
    }

    @Override
    public String toString() {
        return type.what();
    }

    @Override
    public synchronized void close() {
        session.end();
    }
}
