package io.aliquot.api;

import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.function.BiFunction;
import java.util.stream.Collectors;

/**
 * HAMi's annotations on pods, read as ours. What they mean there: github.com/Project-HAMi/HAMi, pkg/device/nvidia/device.go
 * (names, checkGPUtype, assertNuma), pkg/util/util.go (scheduler policies), and its folder examples/nvidia.
 */
final class HamiAnnotations {
    private static final String USE_TYPE = "nvidia.com/use-gputype";
    private static final String NO_TYPE = "nvidia.com/nouse-gputype";
    private static final String USE_UUID = "nvidia.com/use-gpuuuid";
    private static final String NO_UUID = "nvidia.com/nouse-gpuuuid";
    private static final String USE_INDEX = "nvidia.com/use-gpuindexes";
    private static final String NO_INDEX = "nvidia.com/nouse-gpuindexes";
    private static final String NUMA_BIND = "nvidia.com/numa-bind";
    private static final String MODE = "nvidia.com/vgpu-mode";
    private static final String NODE_POLICY = "hami.io/node-scheduler-policy";
    private static final String GPU_POLICY = "hami.io/gpu-scheduler-policy";
    private static final String VULKAN = "hami.io/vulkan";

    /** Those that are understood, at least in part. */
    static final List<String> NAMES = List.of(
            USE_TYPE,
            NO_TYPE,
            USE_UUID,
            NO_UUID,
            USE_INDEX,
            NO_INDEX,
            NUMA_BIND,
            MODE,
            NODE_POLICY,
            GPU_POLICY,
            VULKAN);

    private static final List<String> NOT_YET = List.of("nvidia.com/mig-profile-preference", "hami.io/numa-alignment");
    /** HAMi's models are NVML's with this before them. */
    private static final String TYPE_PREFIX = "NVIDIA-";
    // As strconv.ParseBool reads them.
    private static final Set<String> YES = Set.of("1", "t", "T", "TRUE", "true", "True");
    private static final Set<String> NO = Set.of("0", "f", "F", "FALSE", "false", "False");

    private HamiAnnotations() {}

    /**
     * The annotations with ours in the place of HAMi's; where a pod has both, ours goes first.
     *
     * @throws FormatException where a value is unknown, or asks for what is not supported
     */
    static Map<String, String> asOurs(Map<String, String> annotations) {
        for (String name : NOT_YET) {
            if (annotations.containsKey(name)) {
                throw new FormatException("annotation " + name + " is not supported yet; remove it");
            }
        }
        if (Collections.disjoint(annotations.keySet(), NAMES)) {
            return annotations;
        }
        var ours = new HashMap<String, String>();
        annotations.forEach((name, value) -> {
            switch (name) {
                case USE_TYPE -> ours.put(Annotations.USE_GPU_MODEL, models(name, value));
                case NO_TYPE -> ours.put(Annotations.AVOID_GPU_MODEL, models(name, value));
                case USE_UUID -> ours.put(Annotations.USE_GPU_UUID, checked(name, value, GpuUuids::parseList));
                case NO_UUID -> ours.put(Annotations.AVOID_GPU_UUID, checked(name, value, GpuUuids::parseList));
                case USE_INDEX ->
                    ours.put(Annotations.USE_GPU_INDEX, checked(name, value, PlacementPreferences::indexes));
                case NO_INDEX ->
                    ours.put(Annotations.AVOID_GPU_INDEX, checked(name, value, PlacementPreferences::indexes));
                case NODE_POLICY -> ours.put(Annotations.NODE_PLACEMENT, nodePolicy(value));
                case GPU_POLICY -> gpuPolicies(value, ours);
                case MODE -> checkMode(value);
                case VULKAN -> checkVulkan(value);
                default -> {}
            }
        });
        // The stricter of the two that speak of NUMA.
        String bind = annotations.get(NUMA_BIND);
        if (bind != null && isTrue(NUMA_BIND, bind)) {
            ours.put(Annotations.NUMA, Numa.REQUIRED.print());
        }
        ours.putAll(annotations);
        return ours;
    }

    /** Checked here too, so that the message names what the user wrote. */
    private static String checked(String name, String value, BiFunction<String, String, ?> parse) {
        var unused = parse.apply("annotation " + name, value);
        return value;
    }

    /** There, a type is any part of the model's name. */
    private static String models(String name, String value) {
        String patterns = Arrays.stream(value.split(",", -1))
                .map(String::strip)
                .map(type -> type.toUpperCase(Locale.ROOT).startsWith(TYPE_PREFIX)
                        ? type.substring(TYPE_PREFIX.length())
                        : type)
                .map(type -> "*" + type + "*")
                .collect(Collectors.joining(","));
        return checked(name, patterns, ModelPattern::parseList);
    }

    private static String nodePolicy(String value) {
        return Placement.parse("annotation " + NODE_POLICY, value.strip()).print();
    }

    private static void gpuPolicies(String value, Map<String, String> ours) {
        var policies = new LinkedHashSet<String>();
        for (String policy : value.split(",", -1)) {
            policies.add(policy.strip());
        }
        for (String policy : policies) {
            switch (policy) {
                // A filter there, so before what only sorts.
                case "topology-aware" -> ours.put(Annotations.GPU_PLACEMENT, PlacementPreferences.TOPOLOGY);
                case "binpack", "spread" -> ours.putIfAbsent(Annotations.GPU_PLACEMENT, policy);
                case "numa" -> ours.put(Annotations.NUMA, Numa.PREFERRED.print());
                case "mutex" ->
                    throw new FormatException("annotation " + GPU_POLICY
                            + ": \"mutex\" is not supported; for a GPU without others on it ask for " + Resources.GPU
                            + " alone, the whole card");
                default ->
                    throw new FormatException("annotation " + GPU_POLICY + ": " + FormatException.quote(policy)
                            + " is unknown; allowed: binpack, spread, topology-aware, numa");
            }
        }
    }

    private static void checkMode(String value) {
        if (!value.contains("hami-core")) {
            throw new FormatException("annotation " + MODE + ": " + FormatException.quote(value)
                    + " is not supported yet; allowed: hami-core, which is how Aliquot always shares a GPU");
        }
    }

    private static void checkVulkan(String value) {
        if (isTrue(VULKAN, value)) {
            throw new FormatException("annotation " + VULKAN + ": Aliquot doesn't limit Vulkan's memory yet; remove it,"
                    + " and ask for a whole card if the program draws with Vulkan");
        }
    }

    private static boolean isTrue(String name, String value) {
        if (!YES.contains(value) && !NO.contains(value)) {
            throw new FormatException(
                    "annotation " + name + ": " + FormatException.quote(value) + " is unknown; allowed: true, false");
        }
        return YES.contains(value);
    }
}
