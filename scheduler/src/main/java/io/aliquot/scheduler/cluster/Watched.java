package io.aliquot.scheduler.cluster;

import io.aliquot.scheduler.server.Liveness;
import io.aliquot.scheduler.server.Readiness;
import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import io.fabric8.kubernetes.client.informers.SharedIndexInformer;
import io.fabric8.kubernetes.client.informers.cache.ItemStore;
import java.util.Optional;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A watch on all objects of a kind, which lists them first and whenever it lost track, and never gives up.
 *
 * <p>An object that was deleted and made again under its name while nobody watched arrives as gone, then as present.
 */
final class Watched<T extends HasMetadata> implements ResourceEventHandler<T>, Readiness, Liveness, AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Watched.class);
    /** Objects a page of a list, which bounds what is in memory at once. */
    static final long PAGE = 250;

    private final String what;
    private final SharedIndexInformer<T> informer;
    private final Consumer<T> present;
    private final Consumer<T> gone;
    private volatile boolean complete;

    private Watched(String what, SharedIndexInformer<T> informer, Consumer<T> present, Consumer<T> gone) {
        this.what = what;
        this.informer = informer;
        this.present = present;
        this.gone = gone;
    }

    /**
     * Starts to watch.
     *
     * @param what the kind's name, plural, for messages
     * @param present is told of each object, whole, when it is new or has changed
     * @param gone is told of each object that is no more; it has metadata, perhaps nothing else
     */
    static <T extends HasMetadata> Watched<T> start(
            String what, SharedIndexInformer<T> informer, ItemStore<T> store, Consumer<T> present, Consumer<T> gone) {
        var watched = new Watched<>(what, informer, present, gone);
        informer.itemStore(store)
                .removeNamespaceIndex()
                .exceptionHandler((started, error) -> {
                    LOG.warn("watching {} failed, trying again: {}", what, String.valueOf(error));
                    return true;
                })
                .addEventHandler(watched);
        var unused = informer.start();
        return watched;
    }

    @Override
    public void onAdd(T object) {
        tell(present, object);
    }

    @Override
    public void onUpdate(T before, T object) {
        if (!before.getMetadata().getUid().equals(object.getMetadata().getUid())) {
            tell(gone, before);
        }
        tell(present, object);
    }

    @Override
    public void onDelete(T object, boolean finalStateUnknown) {
        tell(gone, object);
    }

    @Override
    public void onList(String resourceVersion, boolean remainedEmpty) {
        complete = true;
    }

    /** An object that we fail on must not keep the others from being told of. */
    private void tell(Consumer<T> listener, T object) {
        try {
            listener.accept(object);
        } catch (RuntimeException e) {
            LOG.error("cannot take note of {} {}", what, object.getMetadata().getName(), e);
        }
    }

    @Override
    public Optional<String> waitsFor() {
        return complete ? Optional.empty() : Optional.of("the list of " + what);
    }

    @Override
    public Optional<String> broken() {
        return complete && !informer.isRunning()
                ? Optional.of("the watch on " + what + " has ended")
                : Optional.empty();
    }

    @Override
    public void close() {
        informer.stop();
    }
}
