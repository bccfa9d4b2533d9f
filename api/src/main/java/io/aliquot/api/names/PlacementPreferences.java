package io.aliquot.api.names;

import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.BiFunction;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * What a pod's annotations, Aliquot's or HAMi's, say about its node, its GPUs and the use of them. Immutable; two are
 * equal if all values are equal.
 */
public final class PlacementPreferences {
    /** Value of {@link Annotations#GPU_PLACEMENT}: the GPUs with the best links. */
    public static final String TOPOLOGY = "topology";

    /** Aliquot's annotations that are read. */
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

    /** Shared by all pods without such annotations. */
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
    private final @Nullable Priority priority;
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
        priority = read(annotations, Annotations.PRIORITY, Priority::parseAdmitted);
        compatibility = read(annotations, Annotations.COMPATIBILITY, Compatibility::parse);
        hash = values().hashCode();
    }

    /**
     * Reads Aliquot's annotations of a pod and ignores all others, HAMi's included.
     *
     * @throws FormatException if a value is unknown, with the allowed ones
     */
    public static PlacementPreferences parse(Map<String, String> annotations) {
        return Collections.disjoint(annotations.keySet(), NAMES) ? NONE : new PlacementPreferences(annotations);
    }

    private static <T> @Nullable T read(
            Map<String, String> annotations, String name, BiFunction<String, String, T> parse) {
        String text = annotations.get(name);
        return text == null ? null : parse.apply("annotation " + name, text);
    }

    private static Placement gpuPlacement(String where, String text) {
        return Keywords.parse(where, text, List.of(Placement.values()), Placement::print, TOPOLOGY);
    }

    public static Set<Integer> indexes(String where, String text) {
        return Set.copyOf(CommaSeparated.parse(where, text, element -> {
            if (!element.matches("[0-9]{1,3}")) {
                throw FormatException.expected("a GPU's index on its node such as 0", element);
            }
            return Integer.valueOf(element);
        }));
    }

    /** The policy that selects the pod's node; empty: the scheduler's default. */
    public Optional<Placement> nodePlacement() {
        return Optional.ofNullable(nodePlacement);
    }

    /** The policy that selects GPUs within the node; empty: the node's, or {@link #topology}. */
    public Optional<Placement> gpuPlacement() {
        return Optional.ofNullable(gpuPlacement);
    }

    /** Whether the pod prefers the GPUs with the best links. */
    public boolean topology() {
        return topology;
    }

    /** Whether the pod accepts only some GPUs, by model, UUID or index. */
    public boolean choosesGpus() {
        return useModels != null
                || avoidModels != null
                || useUuids != null
                || avoidUuids != null
                || useIndexes != null
                || avoidIndexes != null;
    }

    /** Whether the pod accepts the GPU's model, UUID and index. */
    public boolean takes(Gpu gpu) {
        return takesUuid(gpu.uuid())
                && (useIndexes == null || useIndexes.contains(gpu.index()))
                && (avoidIndexes == null || !avoidIndexes.contains(gpu.index()))
                && takesModel(gpu.model());
    }

    /** Whether the pod accepts a model, given by NVML's product name. */
    public boolean takesModel(String model) {
        return (useModels == null || anyMatches(useModels, model))
                && (avoidModels == null || !anyMatches(avoidModels, model));
    }

    public boolean takesUuid(String uuid) {
        return (useUuids == null || useUuids.contains(uuid)) && (avoidUuids == null || !avoidUuids.contains(uuid));
    }

    /** Whether a container's GPUs must be in one NUMA domain; empty: not considered. */
    public Optional<Numa> numa() {
        return Optional.ofNullable(numa);
    }

    /** {@link CorePolicy#FIXED} if no annotation says otherwise. */
    public CorePolicy corePolicy() {
        return corePolicy == null ? CorePolicy.FIXED : corePolicy;
    }

    /** The product whose meaning the pod's resources have; empty: not annotated. */
    public Optional<Compatibility> compatibility() {
        return Optional.ofNullable(compatibility);
    }

    /** {@link Priority#NORMAL} if no annotation says otherwise. */
    public Priority priority() {
        return priority == null ? Priority.NORMAL : priority;
    }

    @Override
    public boolean equals(@Nullable Object other) {
        return other == this || (other instanceof PlacementPreferences that && values().equals(that.values()));
    }

    @Override
    public int hashCode() {
        return hash;
    }

    private List<Object> values() {
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
                .map(value -> value == null ? "" : value)
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
