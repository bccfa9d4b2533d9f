package io.aliquot.deviceplugin.usage;

import io.aliquot.api.usage.NodeAllocation;
import io.aliquot.api.usage.NodeAllocation.Limit;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;

/** What the scheduler lets the containers of this node use. Immutable. */
public final class Limits {
    private final Map<Key, Limit> limits = new HashMap<>();

    private record Key(ContainerName container, String gpu) {}

    /** Creates them from what the scheduler said last; none if that is empty. */
    public Limits(Optional<NodeAllocation> allocation) {
        allocation.ifPresent(said -> said.limits()
                .forEach(limit -> limits.put(new Key(ContainerName.of(limit.container()), limit.gpu()), limit)));
    }

    /** The limit of a container on a GPU, perhaps of a former pod of this name; empty if the scheduler has not said it. */
    public Optional<Limit> find(ContainerName container, String gpu) {
        return Optional.ofNullable(limits.get(new Key(container, gpu)));
    }

    /** The limit of a container that uses a GPU; empty if the scheduler has not said that of this pod. */
    public Optional<Limit> find(NodeUsage.OfContainer use) {
        return find(use.container(), use.uuid())
                .filter(limit -> use.podUid().isEmpty()
                        || use.podUid().equals(limit.container().uid()));
    }
}
