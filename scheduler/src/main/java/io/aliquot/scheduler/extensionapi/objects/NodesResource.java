package io.aliquot.scheduler.extensionapi.objects;

import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.Column;
import io.aliquot.scheduler.extensionapi.machinery.Resource;
import io.aliquot.scheduler.extensionapi.machinery.WatchCache;
import io.aliquot.scheduler.extensionapi.objects.GpuNodes.Stored;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/**
 * A resource whose objects {@link GpuNodes} makes on demand. They have their nodes' labels.
 *
 * @param <T> an object as the API shows it
 */
abstract class NodesResource<T> extends Resource<Stored<T>> {
    final GpuNodes nodes;

    NodesResource(
            String kind,
            List<Column> columns,
            Map<String, Function<Stored<T>, String>> fields,
            WatchCache<Stored<T>> store,
            GpuNodes nodes) {
        super(kind, columns, fields, store);
        this.nodes = nodes;
    }

    @Override
    public final void refresh() {
        nodes.refresh();
    }

    @Override
    public final void refreshForWatchers() {
        nodes.refreshIfOld();
    }

    @Override
    public final boolean isMadeOnDemand() {
        return true;
    }

    @Override
    public final Map<String, String> labels(Stored<T> object) {
        return object.node().labels();
    }
}
