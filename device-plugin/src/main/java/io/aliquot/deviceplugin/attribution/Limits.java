package io.aliquot.deviceplugin.attribution;

import io.aliquot.api.pods.Held;
import io.aliquot.api.usage.NodeAllocation.Limit;
import io.aliquot.api.usage.PodContainer;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;

/** What the scheduler lets the containers of this node use. Immutable. */
public final class Limits {
    /** The scheduler has said none yet. */
    public static final Limits NONE = new Limits(List.of());

    private final Map<Key, Limit> limits = new HashMap<>();

    /** By the UIDs of the pods that hold vGPUs. */
    private final Map<String, List<Limit>> byPod;

    private record Key(ContainerName container, String gpu) {}

    /** Those that the scheduler has said. */
    public Limits(List<Limit> said) {
        for (Limit limit : said) {
            limits.put(new Key(ContainerName.of(limit.container()), limit.gpu()), limit);
        }
        byPod = said.stream()
                .collect(Collectors.groupingBy(limit -> limit.container().uid()));
    }

    /** The UIDs of the pods that hold vGPUs. */
    public Set<String> pods() {
        return byPod.keySet();
    }

    /** Whether a container of a pod holds a vGPU. */
    public boolean holdsVgpu(String podUid, ContainerName container) {
        return !of(podUid, container.container()).isEmpty();
    }

    /** Whether a pod holds a vGPU of this GPU; empty if the scheduler has said nothing yet. */
    public Optional<Boolean> isHeld(String gpu) {
        return this == NONE
                ? Optional.empty()
                : Optional.of(limits.keySet().stream().anyMatch(key -> key.gpu.equals(gpu)));
    }

    /** The limit of a container on a GPU, perhaps of a former pod of this name; empty if the scheduler has not said it. */
    public Optional<Limit> find(ContainerName container, String gpu) {
        return Optional.ofNullable(limits.get(new Key(container, gpu)));
    }

    /** The limits of a container of this very pod, one for each of its GPUs; none if the scheduler has not said them. */
    public List<Limit> of(String podUid, String container) {
        return byPod.getOrDefault(podUid, List.of()).stream()
                .filter(limit -> limit.container().container().equals(container))
                .toList();
    }

    /** What a container of this very pod holds of its GPUs. */
    public Held held(PodContainer container) {
        return of(container.uid(), container.container()).stream()
                .map(Limit::held)
                .reduce(Held::and)
                .orElse(Held.UNKNOWN);
    }
}
