package io.aliquot.scheduler.cluster;

import io.aliquot.scheduler.server.Liveness;
import io.aliquot.scheduler.server.Readiness;
import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import io.fabric8.kubernetes.client.informers.SharedIndexInformer;
import io.fabric8.kubernetes.client.informers.cache.ItemStore;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.function.Consumer;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A watch on all objects of a kind, which lists them first and whenever it lost track, and never gives up.
 *
 * <p>An object that was deleted and made again under its name while nobody watched arrives as gone, then as present.
 * Thread-safe; listeners are called one at a time.
 */
final class Watched<T extends HasMetadata> implements Readiness, Liveness, AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Watched.class);
    /** Objects a page of a list, which bounds what is in memory at once. */
    static final long PAGE = 500;

    private final String what;
    private final Source<T> source;
    private final Consumer<T> present;
    private final Consumer<T> gone;
    private final LongSupplier nanoTime;
    /** By key, what was told to be present and not to be gone; by identity, as stores keep it. */
    private final Map<String, T> told = new HashMap<>();

    private volatile boolean complete;
    private Session session;
    private @Nullable String version;
    private long heard;

    /**
     * Where the objects come from.
     *
     * @param what the kind's name, plural, for messages
     * @param informer a new one, not started
     * @param store an empty one, for one informer
     */
    record Source<T extends HasMetadata>(
            String what, Supplier<SharedIndexInformer<T>> informer, Supplier<ItemStore<T>> store) {}

    private Watched(Source<T> source, Consumer<T> present, Consumer<T> gone, LongSupplier nanoTime) {
        this.what = source.what();
        this.source = source;
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
    static <T extends HasMetadata> Watched<T> start(
            Source<T> source, Consumer<T> present, Consumer<T> gone, LongSupplier nanoTime) {
        var watched = new Watched<>(source, present, gone, nanoTime);
        watched.session.start();
        return watched;
    }

    /** For how long the server has said nothing, as far as those who ask now and then can tell. */
    synchronized Duration silence() {
        String now = session.informer.lastSyncResourceVersion();
        if (!Objects.equals(now, version)) {
            version = now;
            heard = nanoTime.getAsLong();
        }
        return Duration.ofNanos(nanoTime.getAsLong() - heard);
    }

    /** Whether this is an object's latest version that we were told of. */
    synchronized boolean knows(String resourceVersion) {
        return session.store
                .values()
                .anyMatch(object -> resourceVersion.equals(object.getMetadata().getResourceVersion()));
    }

    /** Lists and watches afresh, on a connection of its own; what has gone in the meantime is told of then. */
    synchronized void revive() {
        Session before = session;
        session = new Session();
        heard = nanoTime.getAsLong();
        before.informer.stop();
        session.start();
    }

    /**
     * The life of one informer. Once another has taken its place nobody listens to it, whatever is still on its way: an
     * old word after a newer one would bring back what is gone.
     */
    private final class Session implements ResourceEventHandler<T> {
        private final SharedIndexInformer<T> informer = source.informer().get();
        private final ItemStore<T> store = source.store().get();
        /** What the session before has told of and this one has not. */
        private final Set<String> inherited = new HashSet<>(told.keySet());

        void start() {
            informer.itemStore(store)
                    .removeNamespaceIndex()
                    .exceptionHandler((started, error) -> {
                        LOG.warn("watching {} failed, trying again: {}", what, String.valueOf(error));
                        return true;
                    })
                    .addEventHandler(this);
            var unused = informer.start();
        }

        @Override
        public void onAdd(T object) {
            take(() -> isThere(object));
        }

        @Override
        public void onUpdate(T before, T object) {
            take(() -> isThere(object));
        }

        @Override
        public void onDelete(T object, boolean finalStateUnknown) {
            take(() -> {
                told.computeIfPresent(store.getKey(object), (key, known) -> same(known, object) ? null : known);
                tell(gone, object);
            });
        }

        @Override
        public void onList(String resourceVersion, boolean remainedEmpty) {
            take(() -> {
                for (String key : inherited) {
                    T object = told.remove(key);
                    if (object != null) {
                        tell(gone, object);
                    }
                }
                inherited.clear();
                complete = true;
            });
        }

        private void take(Runnable word) {
            synchronized (Watched.this) {
                if (session == this) {
                    word.run();
                }
            }
        }

        private void isThere(T object) {
            String key = store.getKey(object);
            inherited.remove(key);
            T slim = store.get(key);
            T before = told.put(key, slim != null && same(slim, object) ? slim : object);
            if (before != null && !same(before, object)) {
                tell(gone, before);
            }
            tell(present, object);
        }
    }

    private static boolean same(HasMetadata one, HasMetadata other) {
        return one.getMetadata().getUid().equals(other.getMetadata().getUid());
    }

    /** An object that we fail on must not keep the others from being told of. */
    private void tell(Consumer<T> listener, T object) {
        try {
            listener.accept(object);
        } catch (RuntimeException e) {
            LOG.error("cannot take note of {}", LoggedAs.of(object), e);
        }
    }

    @Override
    public Optional<String> waitsFor() {
        return complete ? Optional.empty() : Optional.of("the list of " + what);
    }

    @Override
    public synchronized Optional<String> broken() {
        return complete && !session.informer.isRunning()
                ? Optional.of("the watch on " + what + " has ended")
                : Optional.empty();
    }

    @Override
    public String toString() {
        return what;
    }

    @Override
    public synchronized void close() {
        session.informer.stop();
    }
}
