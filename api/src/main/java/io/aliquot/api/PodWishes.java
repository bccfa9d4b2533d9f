package io.aliquot.api;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.BiFunction;
import org.jspecify.annotations.Nullable;

/** All that a user may wish by annotations of a pod. Immutable. */
public final class PodWishes {
    /** The annotations that are read. */
    public static final List<String> NAMES = List.of(
            Annotations.NODE_PLACEMENT,
            Annotations.GPU_PLACEMENT,
            Annotations.USE_GPU_MODEL,
            Annotations.AVOID_GPU_MODEL,
            Annotations.USE_GPU_UUID,
            Annotations.AVOID_GPU_UUID,
            Annotations.NUMA,
            Annotations.CORE_POLICY,
            Annotations.PRIORITY);

    private final @Nullable Placement nodePlacement;
    private final @Nullable Placement gpuPlacement;
    private final @Nullable List<ModelPattern> useModels;
    private final @Nullable List<ModelPattern> avoidModels;
    private final @Nullable Set<String> useUuids;
    private final @Nullable Set<String> avoidUuids;
    private final @Nullable Numa numa;
    private final @Nullable CorePolicy corePolicy;
    private final @Nullable Integer priority;

    private PodWishes(Map<String, String> annotations) {
        nodePlacement = read(annotations, Annotations.NODE_PLACEMENT, Placement::parse);
        gpuPlacement = read(annotations, Annotations.GPU_PLACEMENT, Placement::parse);
        useModels = read(annotations, Annotations.USE_GPU_MODEL, ModelPattern::parseList);
        avoidModels = read(annotations, Annotations.AVOID_GPU_MODEL, ModelPattern::parseList);
        useUuids = read(annotations, Annotations.USE_GPU_UUID, Uuids::parseList);
        avoidUuids = read(annotations, Annotations.AVOID_GPU_UUID, Uuids::parseList);
        numa = read(annotations, Annotations.NUMA, Numa::parse);
        corePolicy = read(annotations, Annotations.CORE_POLICY, CorePolicy::parse);
        priority = read(annotations, Annotations.PRIORITY, Priority::parse);
    }

    /**
     * Reads a pod's annotations; others are passed over.
     *
     * @throws FormatException where a value is unknown, with those that are allowed
     */
    public static PodWishes parse(Map<String, String> annotations) {
        return new PodWishes(annotations);
    }

    private static <T> @Nullable T read(
            Map<String, String> annotations, String name, BiFunction<String, String, T> parse) {
        String text = annotations.get(name);
        return text == null ? null : parse.apply("annotation " + name, text);
    }

    /** How it wants its node chosen, if it says. */
    public Optional<Placement> nodePlacement() {
        return Optional.ofNullable(nodePlacement);
    }

    /** How it wants its GPUs chosen within the node, if it says. */
    public Optional<Placement> gpuPlacement() {
        return Optional.ofNullable(gpuPlacement);
    }

    /** Whether it takes or avoids some GPUs only. */
    public boolean choosesGpus() {
        return useModels != null || avoidModels != null || useUuids != null || avoidUuids != null;
    }

    /** Whether it takes a GPU of this name. */
    public boolean takesModel(String model) {
        return (useModels == null || anyMatches(useModels, model))
                && (avoidModels == null || !anyMatches(avoidModels, model));
    }

    /** Whether it takes this GPU, whatever its model. */
    public boolean takesUuid(String uuid) {
        return (useUuids == null || useUuids.contains(uuid)) && (avoidUuids == null || !avoidUuids.contains(uuid));
    }

    /** Whether it wants a container's GPUs on one NUMA domain, if it says. */
    public Optional<Numa> numa() {
        return Optional.ofNullable(numa);
    }

    /** What its share of compute means; {@link CorePolicy#FIXED} where it doesn't say. */
    public CorePolicy corePolicy() {
        return corePolicy == null ? CorePolicy.FIXED : corePolicy;
    }

    /** {@link Priority#LOWEST} where it doesn't say. */
    public int priority() {
        return priority == null ? Priority.LOWEST : priority;
    }

    private static boolean anyMatches(List<ModelPattern> patterns, String model) {
        for (ModelPattern pattern : patterns) {
            if (pattern.matches(model)) {
                return true;
            }
        }
        return false;
    }
}
