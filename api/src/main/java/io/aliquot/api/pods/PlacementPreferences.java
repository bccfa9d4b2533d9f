package io.aliquot.api.pods;

import static io.aliquot.api.format.FormatException.expect;

import io.aliquot.api.format.CommaSeparated;
import io.aliquot.api.format.GpuUuids;
import io.aliquot.api.format.Keywords;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.nodes.Gpu;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.BiFunction;

/**
 * What a pod's annotations, Aliquot's or HAMi's, say about its node, its GPUs and the use of them.
 *
 * @param nodePlacement the policy that selects the pod's node; empty: the scheduler's default
 * @param gpuPlacement the policy that selects GPUs within the node; empty: the node's, or {@code topology}
 * @param topology whether the pod prefers the GPUs with the best links
 * @param useModels the only models that the pod accepts; empty: all. Likewise UUIDs and indexes
 * @param avoidModels models that the pod does not accept. Likewise UUIDs and indexes
 * @param numa whether a container's GPUs must be in one NUMA domain; empty: not considered
 * @param corePolicy {@link CorePolicy#FIXED} if no annotation says otherwise
 * @param priority {@link Priority#NORMAL} if no annotation says otherwise
 * @param compatibility the product whose meaning the pod's resources have; empty: not annotated
 */
public record PlacementPreferences(
        Optional<Placement> nodePlacement,
        Optional<Placement> gpuPlacement,
        boolean topology,
        List<ModelPattern> useModels,
        List<ModelPattern> avoidModels,
        Set<String> useUuids,
        Set<String> avoidUuids,
        Set<Integer> useIndexes,
        Set<Integer> avoidIndexes,
        Optional<Numa> numa,
        CorePolicy corePolicy,
        Priority priority,
        Optional<Compatibility> compatibility) {
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
    private static final PlacementPreferences NONE = read(Map.of());

    /**
     * Reads Aliquot's annotations of a pod and ignores all others, HAMi's included.
     *
     * @throws io.aliquot.api.format.FormatException if a value is unknown, with the allowed ones
     */
    public static PlacementPreferences parse(Map<String, String> annotations) {
        return Collections.disjoint(annotations.keySet(), NAMES) ? NONE : read(annotations);
    }

    private static PlacementPreferences read(Map<String, String> annotations) {
        boolean topology = TOPOLOGY.equals(annotations.get(Annotations.GPU_PLACEMENT));
        return new PlacementPreferences(
                read(annotations, Annotations.NODE_PLACEMENT, Placement::parse),
                topology
                        ? Optional.empty()
                        : read(annotations, Annotations.GPU_PLACEMENT, PlacementPreferences::gpuPlacement),
                topology,
                read(annotations, Annotations.USE_GPU_MODEL, ModelPattern::parseList)
                        .orElse(List.of()),
                read(annotations, Annotations.AVOID_GPU_MODEL, ModelPattern::parseList)
                        .orElse(List.of()),
                read(annotations, Annotations.USE_GPU_UUID, GpuUuids::parseList).orElse(Set.of()),
                read(annotations, Annotations.AVOID_GPU_UUID, GpuUuids::parseList)
                        .orElse(Set.of()),
                read(annotations, Annotations.USE_GPU_INDEX, PlacementPreferences::indexes)
                        .orElse(Set.of()),
                read(annotations, Annotations.AVOID_GPU_INDEX, PlacementPreferences::indexes)
                        .orElse(Set.of()),
                read(annotations, Annotations.NUMA, Numa::parse),
                read(annotations, Annotations.CORE_POLICY, CorePolicy::parse).orElse(CorePolicy.FIXED),
                read(annotations, Annotations.PRIORITY, Priority::parse).orElse(Priority.NORMAL),
                read(annotations, Annotations.COMPATIBILITY, Compatibility::parse));
    }

    private static <T> Optional<T> read(
            Map<String, String> annotations, String name, BiFunction<String, String, T> parse) {
        return Optional.ofNullable(annotations.get(name)).map(text -> parse.apply("annotation " + name, text));
    }

    private static Placement gpuPlacement(String where, String text) {
        return Keywords.parse(where, text, List.of(Placement.values()), Placement::print, TOPOLOGY);
    }

    public static Set<Integer> indexes(String where, String text) {
        return Set.copyOf(CommaSeparated.parse(where, text, element -> {
            expect(element.matches("[0-9]{1,3}"), "a GPU's index on its node such as 0", element);
            return Integer.valueOf(element);
        }));
    }

    /** Whether the pod accepts only some GPUs, by model, UUID or index. */
    public boolean choosesGpus() {
        return !(useModels.isEmpty()
                && avoidModels.isEmpty()
                && useUuids.isEmpty()
                && avoidUuids.isEmpty()
                && useIndexes.isEmpty()
                && avoidIndexes.isEmpty());
    }

    /** Whether the pod accepts the GPU's model, UUID and index. */
    public boolean takes(Gpu gpu) {
        return takesUuid(gpu.uuid())
                && (useIndexes.isEmpty() || useIndexes.contains(gpu.index()))
                && !avoidIndexes.contains(gpu.index())
                && takesModel(gpu.model());
    }

    /** Whether the pod accepts a model, given by NVML's product name. */
    public boolean takesModel(String model) {
        return (useModels.isEmpty() || useModels.stream().anyMatch(pattern -> pattern.matches(model)))
                && avoidModels.stream().noneMatch(pattern -> pattern.matches(model));
    }

    public boolean takesUuid(String uuid) {
        return (useUuids.isEmpty() || useUuids.contains(uuid)) && !avoidUuids.contains(uuid);
    }
}
