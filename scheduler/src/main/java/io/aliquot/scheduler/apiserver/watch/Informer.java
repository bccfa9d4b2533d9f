package io.aliquot.scheduler.apiserver.watch;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import io.aliquot.api.retry.Backoff;
import io.aliquot.scheduler.apiserver.client.ListWatchClient;
import io.aliquot.scheduler.apiserver.client.ListWatchClient.ListAgainException;
import io.aliquot.scheduler.apiserver.client.ListWatchClient.Watch;
import io.aliquot.scheduler.apiserver.client.ResourceType;
import io.aliquot.scheduler.apiserver.reader.LogReference;
import io.aliquot.scheduler.server.health.Liveness;
import io.aliquot.scheduler.server.health.Readiness;
import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.ObjectMeta;
import io.fabric8.kubernetes.api.model.ObjectMetaBuilder;
import io.fabric8.kubernetes.api.model.WatchEvent;
import java.io.IOException;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.Consumer;
import java.util.function.LongConsumer;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A reflector as in client-go: lists all objects of a type, then watches them, and lists again after 410 Gone and
 * whenever else the watch cannot be continued. It retries until it is closed.
 *
 * <p>If an object is deleted and created again under its name while no watch is open, the listeners see a deletion,
 * then a new object; likewise if an object becomes older, because etcd was restored from a backup. Thread-safe; listeners
 * are called one at a time.
 *
 * <p>Hand-written, because fabric8's informers read JSON only, keep a copy of each object and cannot be told to list again
 * over a new connection.
 */
public final class Informer<T extends HasMetadata> implements Readiness, Liveness, AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Informer.class);
    private static final Duration FIRST_PAUSE = Duration.ofMillis(50);
    private static final Duration LONGEST_PAUSE = Duration.ofSeconds(3);

    /** The identity and version of an object; {@code namespace} is null for a cluster-scoped one. */
    private record Known(@Nullable String namespace, String name, String uid, String version) {
        boolean isOlderThan(Known other) {
            return Long.parseLong(version) < Long.parseLong(other.version);
        }
    }

    /**
     * Learns how far the listeners have come. Called after the listeners, one call at a time.
     *
     * @param listed a list of this resourceVersion is complete. What changed before it may have been reported in any order
     * @param reached every change up to this version was reported
     */
    public record Progress(LongConsumer listed, LongConsumer reached) {}

    private final ListWatchClient client;
    private final ResourceType<T> type;
    private final Consumer<T> onPresent;
    private final Consumer<T> onGone;
    private final List<Progress> progress;
    private final LongSupplier nanoTime;
    private final Backoff backoff;
    private final Thread thread;
    /** The objects that the listeners know to exist, by namespace and name. */
    @GuardedBy("this")
    private final Map<String, Known> known = new HashMap<>();
    /** The resource version from which to watch; empty if a list comes first. */
    private Optional<String> version = Optional.empty();

    @GuardedBy("this")
    private Optional<Watch> open = Optional.empty();

    private volatile boolean complete;
    /** Set until the thread lists again. */
    private volatile boolean restarted;

    private volatile boolean closed;

    @GuardedBy("this")
    private long lastHeard;

    private Informer(
            ListWatchClient client,
            ResourceType<T> type,
            Consumer<T> onPresent,
            Consumer<T> onGone,
            List<Progress> progress,
            LongSupplier nanoTime) {
        this.client = client;
        this.type = type;
        this.onPresent = onPresent;
        this.onGone = onGone;
        this.progress = progress;
        this.nanoTime = nanoTime;
        this.backoff = new Backoff(nanoTime, FIRST_PAUSE, LONGEST_PAUSE);
        this.lastHeard = nanoTime.getAsLong();
        this.thread =
                Thread.ofPlatform().name("watch of " + type.what()).daemon().unstarted(this::run);
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
        return start(client, type, onPresent, onGone, List.of(), nanoTime);
    }

    /** As {@link #start(ListWatchClient, ResourceType, Consumer, Consumer, LongSupplier)}. */
    public static <T extends HasMetadata> Informer<T> start(
            ListWatchClient client,
            ResourceType<T> type,
            Consumer<T> onPresent,
            Consumer<T> onGone,
            List<Progress> progress,
            LongSupplier nanoTime) {
        var informer = new Informer<>(client, type, onPresent, onGone, progress, nanoTime);
        informer.thread.start();
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
        restarted = true;
        lastHeard = nanoTime.getAsLong();
        closeWatch();
    }

    private void run() {
        while (!closed) {
            try {
                listAndWatch();
            } catch (ListAgainException | RuntimeException e) {
                version = Optional.empty(); // or the same event would come again
                warn(e);
            } catch (IOException e) {
                warn(e);
            }
            if (!restarted) {
                pause();
            }
        }
    }

    private void warn(Exception why) {
        if (!closed && !restarted) {
            LOG.warn("watching {} failed, trying again: {}", type.what(), String.valueOf(why));
        }
    }

    private void pause() {
        try {
            Thread.sleep(backoff.start());
        } catch (InterruptedException e) {
            closed = true;
        }
    }

    @GuardedBy("this")
    private void closeWatch() {
        open.ifPresent(watch -> {
            try {
                watch.close();
            } catch (IOException e) {
                LOG.debug("closing a watch of {}", type.what(), e);
            }
        });
        open = Optional.empty();
    }

    private void listAndWatch() throws IOException {
        if (restarted) {
            restarted = false;
            version = Optional.empty();
            backoff.reset();
        }
        if (version.isEmpty()) {
            version = Optional.of(list());
        }
        try (Watch watch = client.watch(type, version.get())) {
            if (!opened(watch)) {
                return;
            }
            for (var event = watch.next(); event.isPresent() && !closed && !restarted; event = watch.next()) {
                handle(event.get());
            }
        }
    }

    /** Lets {@link #restart} and {@link #close} close the watch; false if one of them was called before. */
    private synchronized boolean opened(Watch watch) {
        open = Optional.of(watch);
        return !closed && !restarted;
    }

    private String list() throws IOException {
        Set<String> before;
        synchronized (this) {
            before = new HashSet<>(known.keySet());
        }
        String listed = client.list(type, object -> {
            synchronized (this) {
                before.remove(key(object));
                present(object);
            }
        });
        synchronized (this) {
            lastHeard = nanoTime.getAsLong();
            before.forEach(this::gone);
            progress.forEach(one -> one.listed().accept(Long.parseLong(listed)));
            complete = true;
        }
        return listed;
    }

    @SuppressWarnings("unchecked") // the watch is on this type
    private synchronized void handle(WatchEvent event) {
        var object = (T) event.getObject();
        lastHeard = nanoTime.getAsLong();
        switch (event.getType()) {
            case "ADDED", "MODIFIED" -> present(object);
            case "DELETED" -> {
                known.remove(key(object));
                deliver(onGone, object);
            }
            default -> {
                // a bookmark
            }
        }
        String reached = object.getMetadata().getResourceVersion();
        version = Optional.of(reached);
        progress.forEach(one -> one.reached().accept(Long.parseLong(reached)));
    }

    @GuardedBy("this")
    private void present(T object) {
        ObjectMeta metadata = object.getMetadata();
        var now = new Known(
                metadata.getNamespace(), metadata.getName(), metadata.getUid(), metadata.getResourceVersion());
        Known before = known.put(key(object), now);
        if (before != null && (!before.uid().equals(now.uid()) || now.isOlderThan(before))) {
            deliver(onGone, metadataOnly(before));
        }
        deliver(onPresent, object);
    }

    @GuardedBy("this")
    private void gone(String key) {
        Known object = known.remove(key);
        if (object != null) {
            deliver(onGone, metadataOnly(object));
        }
    }

    private String key(T object) {
        return object.getMetadata().getNamespace() + "/" + object.getMetadata().getName();
    }

    private T metadataOnly(Known last) {
        T object = type.empty().get();
        object.setMetadata(new ObjectMetaBuilder()
                .withNamespace(last.namespace())
                .withName(last.name())
                .withUid(last.uid())
                .withResourceVersion(last.version())
                .build());
        return object;
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
        return complete && !thread.isAlive()
                ? Optional.of("the watch on " + type.what() + " has ended")
                : Optional.empty();
    }

    @Override
    public String toString() {
        return type.what();
    }

    @Override
    public synchronized void close() {
        closed = true;
        thread.interrupt();
        closeWatch();
    }
}
