package io.aliquot.api.foreign;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.format.GpuUuids;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Resources;
import io.aliquot.api.pods.ModelPattern;
import io.aliquot.api.pods.Numa;
import io.aliquot.api.pods.Placement;
import io.aliquot.api.pods.PlacementPreferences;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.function.BiFunction;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * Translates HAMi's annotations on pods into Aliquot's. HAMi defines them in github.com/Project-HAMi/HAMi,
 * pkg/device/nvidia/device.go (names, checkGPUtype, assertNuma) and pkg/util/util.go (scheduler policies); its folder
 * examples/nvidia shows their use.
 */
public final class HamiAnnotations {
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

    /** Those that become another annotation, in their order. */
    private static final Map<String, String> EQUIVALENTS = equivalents();
    /** The annotations that are translated or checked. */
    static final List<String> NAMES = Stream.concat(EQUIVALENTS.keySet().stream(), Stream.of(MODE, VULKAN))
            .toList();

    /**
     * Variables by which a container changes its limits or its priority in HAMi (pkg/util/types.go,
     * pkg/device-plugin/nvidiadevice/nvinternal/plugin/server.go at 4707fb02).
     */
    private static final Set<String> VARIABLES = Set.of(
            "CUDA_DISABLE_CONTROL",
            "CUDA_DEVICE_SM_LIMIT",
            "CUDA_OVERSUBSCRIBE",
            "CUDA_TASK_PRIORITY",
            "GPU_CORE_UTILIZATION_POLICY");

    private static final String MEMORY_LIMIT_VARIABLES = "CUDA_DEVICE_MEMORY_LIMIT";

    private static final String WEBHOOK_LABEL = "hami.io/webhook";
    private static final int MOST_NAMED = 3;

    private static final List<String> UNSUPPORTED =
            List.of("nvidia.com/mig-profile-preference", "hami.io/numa-alignment");
    /** Precedes NVML's model name in HAMi's. */
    private static final String TYPE_PREFIX = "NVIDIA-";
    // The texts that Go's strconv.ParseBool accepts.
    private static final Set<String> TRUE = Set.of("1", "t", "T", "TRUE", "true", "True");
    private static final Set<String> FALSE = Set.of("0", "f", "F", "FALSE", "false", "False");

    private HamiAnnotations() {}

    private static Map<String, String> equivalents() {
        var equivalents = new LinkedHashMap<String, String>();
        equivalents.put(USE_TYPE, Annotations.USE_GPU_MODEL);
        equivalents.put(NO_TYPE, Annotations.AVOID_GPU_MODEL);
        equivalents.put(USE_UUID, Annotations.USE_GPU_UUID);
        equivalents.put(NO_UUID, Annotations.AVOID_GPU_UUID);
        equivalents.put(USE_INDEX, Annotations.USE_GPU_INDEX);
        equivalents.put(NO_INDEX, Annotations.AVOID_GPU_INDEX);
        equivalents.put(NUMA_BIND, Annotations.NUMA);
        equivalents.put(NODE_POLICY, Annotations.NODE_PLACEMENT);
        equivalents.put(GPU_POLICY, Annotations.GPU_PLACEMENT);
        return Collections.unmodifiableMap(equivalents);
    }

    /**
     * What a pod's author should know of its annotations and labels for HAMi, a sentence each: which are read as
     * Aliquot's, and which have no effect.
     */
    public static List<String> warnings(Map<String, String> annotations, Map<String, String> labels) {
        var warnings = new ArrayList<String>();
        List<String> read = EQUIVALENTS.entrySet().stream()
                .filter(entry -> annotations.containsKey(entry.getKey()))
                .map(entry -> entry.getKey() + " as " + entry.getValue())
                .toList();
        if (!read.isEmpty()) {
            warnings.add("Aliquot reads the annotation " + several(read));
        }
        List<String> others = annotations.keySet().stream()
                .filter(name -> name.startsWith("hami.io/") || name.startsWith("nvidia.com/"))
                .filter(name -> !EQUIVALENTS.containsKey(name))
                .sorted()
                .toList();
        if (!others.isEmpty()) {
            warnings.add("no effect in Aliquot has the annotation " + several(others));
        }
        if ("ignore".equals(labels.get(WEBHOOK_LABEL))) {
            warnings.add("no effect in Aliquot has the label " + WEBHOOK_LABEL
                    + ": ignore; the namespace's label aliquot.io/webhook=ignore leaves its pods alone");
        }
        return warnings;
    }

    private static String several(List<String> names) {
        String first = String.join(", ", names.subList(0, Math.min(MOST_NAMED, names.size())));
        return names.size() <= MOST_NAMED ? first : first + " and " + (names.size() - MOST_NAMED) + " more";
    }

    /** Whether a container changes its limits in HAMi by this environment variable. It has no effect in Aliquot. */
    public static boolean isVariable(String name) {
        return VARIABLES.contains(name) || name.startsWith(MEMORY_LIMIT_VARIABLES);
    }

    /**
     * Reads a pod's annotations, Aliquot's and HAMi's. If a pod has one of each with the same meaning, Aliquot's counts.
     *
     * @throws FormatException if a value is unknown or not supported, with the allowed ones
     */
    public static PlacementPreferences preferences(Map<String, String> annotations) {
        return PlacementPreferences.parse(toAliquot(annotations));
    }

    /**
     * The pod's annotations and, for each of HAMi's, Aliquot's with the same meaning. A pod's own annotation of Aliquot
     * stays as it is.
     *
     * @throws FormatException if a value is unknown or not supported
     */
    private static Map<String, String> toAliquot(Map<String, String> annotations) {
        for (String name : UNSUPPORTED) {
            if (annotations.containsKey(name)) {
                throw new FormatException("annotation " + name + " is not supported yet; remove it");
            }
        }
        if (Collections.disjoint(annotations.keySet(), NAMES)) {
            return annotations;
        }
        var translated = new HashMap<String, String>();
        annotations.forEach((name, value) -> {
            switch (name) {
                case USE_TYPE -> translated.put(Annotations.USE_GPU_MODEL, models(name, value));
                case NO_TYPE -> translated.put(Annotations.AVOID_GPU_MODEL, models(name, value));
                case USE_UUID -> translated.put(Annotations.USE_GPU_UUID, checked(name, value, GpuUuids::parseList));
                case NO_UUID -> translated.put(Annotations.AVOID_GPU_UUID, checked(name, value, GpuUuids::parseList));
                case USE_INDEX ->
                    translated.put(Annotations.USE_GPU_INDEX, checked(name, value, PlacementPreferences::indexes));
                case NO_INDEX ->
                    translated.put(Annotations.AVOID_GPU_INDEX, checked(name, value, PlacementPreferences::indexes));
                case NODE_POLICY -> translated.put(Annotations.NODE_PLACEMENT, nodePolicy(value));
                case GPU_POLICY -> translateGpuPolicies(value, translated);
                case MODE -> checkMode(value);
                case VULKAN -> checkVulkan(value);
                default -> {}
            }
        });
        // After the GPU policies: numa-bind is stricter than the policy numa.
        String numaBind = annotations.get(NUMA_BIND);
        if (numaBind != null && isTrue(NUMA_BIND, numaBind)) {
            translated.put(Annotations.NUMA, Numa.REQUIRED.print());
        }
        translated.putAll(annotations);
        return translated;
    }

    /** Parses the value here, so that the message names the annotation that the user wrote. */
    private static String checked(String name, String value, BiFunction<String, String, ?> parse) {
        var unused = parse.apply("annotation " + name, value);
        return value;
    }

    /** In HAMi a type matches any part of the model's name. */
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

    private static void translateGpuPolicies(String value, Map<String, String> translated) {
        var policies = new LinkedHashSet<String>();
        for (String policy : value.split(",", -1)) {
            policies.add(policy.strip());
        }
        for (String policy : policies) {
            switch (policy) {
                // In HAMi it filters GPUs, so it takes precedence over the policies that only sort them.
                case "topology-aware" -> translated.put(Annotations.GPU_PLACEMENT, PlacementPreferences.TOPOLOGY);
                case "binpack", "spread" -> translated.putIfAbsent(Annotations.GPU_PLACEMENT, policy);
                case "numa" -> translated.put(Annotations.NUMA, Numa.PREFERRED.print());
                case "mutex" ->
                    throw new FormatException("annotation " + GPU_POLICY
                            + ": \"mutex\" is not supported; for a whole card request only " + Resources.VGPU);
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
            throw new FormatException("annotation " + VULKAN + ": Aliquot does not limit Vulkan's memory yet; remove"
                    + " it, and request a whole card if the program uses Vulkan");
        }
    }

    private static boolean isTrue(String name, String value) {
        if (!TRUE.contains(value) && !FALSE.contains(value)) {
            throw new FormatException(
                    "annotation " + name + ": " + FormatException.quote(value) + " is unknown; allowed: true, false");
        }
        return TRUE.contains(value);
    }
}
