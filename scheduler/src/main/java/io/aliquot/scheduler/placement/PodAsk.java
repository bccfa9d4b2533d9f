package io.aliquot.scheduler.placement;

import io.aliquot.api.Annotations;
import io.aliquot.api.FormatException;
import io.aliquot.api.Placement;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/** What a pod wants of GPUs and of their placing. Immutable. */
public final class PodAsk {
    private final List<ContainerAsk> containers;
    private final @Nullable Placement nodePlacement;
    private final @Nullable Placement gpuPlacement;
    private final boolean preferences;

    private PodAsk(
            List<ContainerAsk> containers,
            @Nullable Placement nodePlacement,
            @Nullable Placement gpuPlacement,
            boolean preferences) {
        this.containers = List.copyOf(containers);
        this.nodePlacement = nodePlacement;
        this.gpuPlacement = gpuPlacement;
        this.preferences = preferences;
    }

    /**
     * Reads a pod's wishes.
     *
     * @param containers that ask for GPUs, in the order of their declaration, init containers first
     * @param annotations the pod's
     * @param preferences whether the pod states soft preferences that kube-scheduler scores nodes by
     * @throws FormatException where an annotation's value is unknown or its name not supported yet
     */
    public static PodAsk of(List<ContainerAsk> containers, Map<String, String> annotations, boolean preferences) {
        for (String name : Annotations.NOT_YET_ON_PODS) {
            if (annotations.containsKey(name)) {
                throw new FormatException("annotation " + name + " is not supported yet; allowed: "
                        + String.join(", ", Annotations.SUPPORTED_ON_PODS));
            }
        }
        return new PodAsk(
                containers,
                placement(annotations, Annotations.NODE_PLACEMENT),
                placement(annotations, Annotations.GPU_PLACEMENT),
                preferences);
    }

    private static @Nullable Placement placement(Map<String, String> annotations, String name) {
        String value = annotations.get(name);
        return value == null ? null : Placement.parse(name, value);
    }

    public List<ContainerAsk> containers() {
        return containers;
    }

    /** How the pod wants its node chosen, if it says. */
    public Optional<Placement> nodePlacement() {
        return Optional.ofNullable(nodePlacement);
    }

    /** How the pod wants its GPUs chosen, if it says. */
    public Optional<Placement> gpuPlacement() {
        return Optional.ofNullable(gpuPlacement);
    }

    public boolean preferences() {
        return preferences;
    }

    /** The most vGPUs, and so different GPUs, that one container asks for; 0 where none asks. */
    public int mostVgpus() {
        return containers.stream().mapToInt(c -> c.request().vgpus()).max().orElse(0);
    }

    /** Whether both want the same, so that what fits one fits the other. */
    @Override
    public boolean equals(@Nullable Object other) {
        return other instanceof PodAsk that
                && containers.equals(that.containers)
                && nodePlacement == that.nodePlacement
                && gpuPlacement == that.gpuPlacement
                && preferences == that.preferences;
    }

    @Override
    public int hashCode() {
        return Objects.hash(containers, nodePlacement, gpuPlacement, preferences);
    }
}
