package io.aliquot.api;

import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.BiFunction;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/** All that a user may wish by annotations of a pod, in our names or in HAMi's. Immutable; equal if they wish the same. */
public final class PlacementPreferences {
    /** As how to choose the GPUs: those that are linked best. */
    public static final String TOPOLOGY = "topology";

    /** Our annotations that are read. */
    public static final List<String> NAMES = List.of(
            Annotations.NODE_PLACEMENT,
            Annotations.GPU_PLACEMENT,
            Annotations.USE_GPU_MODEL,
            Annotations.AVOID_GPU_MODEL,
            Annotations.USE_GPU_UUID,
            Annotations.AVOID_GPU_UUID,
            Annotations.USE_GPU_INDEX,
            Annotations.AVOID_GPU_INDEX,
            Annotations.NUMA,
            Annotations.CORE_POLICY,
            Annotations.PRIORITY,
            Annotations.COMPATIBILITY);

    /** Most pods'. */
    private static final PlacementPreferences NONE = new PlacementPreferences(Map.of());

    private final @Nullable Placement nodePlacement;
    private final @Nullable Placement gpuPlacement;
    private final @Nullable List<ModelPattern> useModels;
    private final @Nullable List<ModelPattern> avoidModels;
    private final @Nullable Set<String> useUuids;
    private final @Nullable Set<String> avoidUuids;
    private final @Nullable Set<Integer> useIndexes;
    private final @Nullable Set<Integer> avoidIndexes;
    private final boolean topology;
    private final @Nullable Numa numa;
    private final @Nullable CorePolicy corePolicy;
    private final @Nullable Integer priority;
    private final @Nullable Compatibility compatibility;
    private final int hash;

    private PlacementPreferences(Map<String, String> annotations) {
        nodePlacement = read(annotations, Annotations.NODE_PLACEMENT, Placement::parse);
        topology = TOPOLOGY.equals(annotations.get(Annotations.GPU_PLACEMENT));
        gpuPlacement =
                topology ? null : read(annotations, Annotations.GPU_PLACEMENT, PlacementPreferences::gpuPlacement);
        useModels = read(annotations, Annotations.USE_GPU_MODEL, ModelPattern::parseList);
        avoidModels = read(annotations, Annotations.AVOID_GPU_MODEL, ModelPattern::parseList);
        useUuids = read(annotations, Annotations.USE_GPU_UUID, GpuUuids::parseList);
        avoidUuids = read(annotations, Annotations.AVOID_GPU_UUID, GpuUuids::parseList);
        useIndexes = read(annotations, Annotations.USE_GPU_INDEX, PlacementPreferences::indexes);
        avoidIndexes = read(annotations, Annotations.AVOID_GPU_INDEX, PlacementPreferences::indexes);
        numa = read(annotations, Annotations.NUMA, Numa::parse);
        corePolicy = read(annotations, Annotations.CORE_POLICY, CorePolicy::parse);
        priority = read(annotations, Annotations.PRIORITY, Priority::parse);
        compatibility = read(annotations, Annotations.COMPATIBILITY, Compatibility::parse);
        hash = all().hashCode();
    }

    /**
     * Reads a pod's annotations; others are passed over. Where a wish stands there in our name and in HAMi's, ours goes
     * first.
     *
     * @throws FormatException where a value is unknown, with those that are allowed
     */
    public static PlacementPreferences parse(Map<String, String> annotations) {
        Map<String, String> ours = HamiAnnotations.asOurs(annotations);
        return Collections.disjoint(ours.keySet(), NAMES) ? NONE : new PlacementPreferences(ours);
    }

    private static <T> @Nullable T read(
            Map<String, String> annotations, String name, BiFunction<String, String, T> parse) {
        String text = annotations.get(name);
        return text == null ? null : parse.apply("annotation " + name, text);
    }

    private static Placement gpuPlacement(String where, String text) {
        return Keywords.parse(where, text, List.of(Placement.values()), Placement::print, TOPOLOGY);
    }

    static Set<Integer> indexes(String where, String text) {
        return Set.copyOf(CommaSeparated.parse(where, text, element -> {
            if (!element.matches("[0-9]{1,3}")) {
                throw FormatException.expected("a GPU's index on its node such as 0", element);
            }
            return Integer.valueOf(element);
        }));
    }

    /** How it wants its node chosen, if it says. */
    public Optional<Placement> nodePlacement() {
        return Optional.ofNullable(nodePlacement);
    }

    /** How it wants its GPUs chosen within the node, if it says so by a placement. */
    public Optional<Placement> gpuPlacement() {
        return Optional.ofNullable(gpuPlacement);
    }

    /** Whether it wants, of the GPUs that it may have, those that are linked best. */
    public boolean topology() {
        return topology;
    }

    /** Whether it takes or avoids some GPUs only. */
    public boolean choosesGpus() {
        return useModels != null
                || avoidModels != null
                || useUuids != null
                || avoidUuids != null
                || useIndexes != null
                || avoidIndexes != null;
    }

    /** Whether it takes this GPU: its model, its UUID and its index. */
    public boolean takes(Gpu gpu) {
        return takesUuid(gpu.uuid())
                && (useIndexes == null || useIndexes.contains(gpu.index()))
                && (avoidIndexes == null || !avoidIndexes.contains(gpu.index()))
                && takesModel(gpu.model());
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

    /** Whose meaning its resources have, if it says. */
    public Optional<Compatibility> compatibility() {
        return Optional.ofNullable(compatibility);
    }

    /** {@link Priority#LOWEST} where it doesn't say. */
    public int priority() {
        return priority == null ? Priority.LOWEST : priority;
    }

    @Override
    public boolean equals(@Nullable Object other) {
        return other == this || (other instanceof PlacementPreferences wishes && all().equals(wishes.all()));
    }

    @Override
    public int hashCode() {
        return hash;
    }

    private List<Object> all() {
        return Stream.of(
                        nodePlacement,
                        gpuPlacement,
                        topology,
                        useModels,
                        avoidModels,
                        useUuids,
                        avoidUuids,
                        useIndexes,
                        avoidIndexes,
                        numa,
                        corePolicy,
                        priority,
                        compatibility)
                .map(wish -> wish == null ? "" : wish)
                .toList();
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
