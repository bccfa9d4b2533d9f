package io.aliquot.scheduler.cluster;

import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.ObjectMeta;
import io.fabric8.kubernetes.api.model.ObjectMetaBuilder;
import io.fabric8.kubernetes.client.informers.cache.Cache;
import io.fabric8.kubernetes.client.informers.cache.ItemStore;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/** What an informer must remember of an object to tell changes: its identity and version, not its body. */
final class SlimStore<T extends HasMetadata> implements ItemStore<T> {
    private final Map<String, T> items = new ConcurrentHashMap<>();
    private final Function<ObjectMeta, T> slim;

    /** {@code slim} makes an object that has metadata only. */
    SlimStore(Function<ObjectMeta, T> slim) {
        this.slim = slim;
    }

    @Override
    public String getKey(T object) {
        return Cache.metaNamespaceKeyFunc(object);
    }

    @Override
    public @Nullable T put(String key, T object) {
        ObjectMeta metadata = object.getMetadata();
        return items.put(
                key,
                slim.apply(new ObjectMetaBuilder()
                        .withNamespace(metadata.getNamespace())
                        .withName(metadata.getName())
                        .withUid(metadata.getUid())
                        .withResourceVersion(metadata.getResourceVersion())
                        .build()));
    }

    @Override
    public @Nullable T remove(String key) {
        return items.remove(key);
    }

    @Override
    public Stream<String> keySet() {
        return items.keySet().stream();
    }

    @Override
    public Stream<T> values() {
        return items.values().stream();
    }

    @Override
    public int size() {
        return items.size();
    }

    @Override
    public @Nullable T get(String key) {
        return items.get(key);
    }

    @Override
    public boolean isFullState() {
        return false;
    }
}
