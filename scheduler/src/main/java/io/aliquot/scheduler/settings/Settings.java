package io.aliquot.scheduler.settings;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.format.Keywords;
import io.aliquot.api.nodes.NodeLabel;
import io.aliquot.api.pods.Compatibility;
import io.aliquot.api.pods.Placement;
import io.aliquot.api.pods.PodDefaults;
import io.aliquot.api.ports.ApiServers;
import io.aliquot.scheduler.autoscaler.Autoscaler;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.function.BiFunction;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * The settings of the scheduler's process, read from environment variables that the chart sets. An empty variable
 * counts as not set. Names are names of Kubernetes objects.
 *
 * @param podName {@code POD_NAME}, required: this pod; its kube-scheduler holds the Lease as {@code <podName>_<uuid>}
 * @param namespace {@code POD_NAMESPACE}, required: the namespace of the release
 * @param podUid {@code POD_UID}, default none: the uid of this pod, for events about it
 * @param nodeLabel {@code ALIQUOT_NODE_LABEL}, default {@code gpu=on}: the label of the nodes whose GPUs are shared
 * @param nodePlacement {@code ALIQUOT_NODE_PLACEMENT}, default {@code fragmentation}: the policy that selects the node
 *     of a pod that sets none
 * @param gpuPlacement {@code ALIQUOT_GPU_PLACEMENT}, default {@code fragmentation}: the policy that selects GPUs if
 *     neither the pod nor the node sets one
 * @param compatibility {@code ALIQUOT_COMPATIBILITY}, default {@code none}: what resources mean on a pod that does not
 *     set it
 * @param podDefaults {@code ALIQUOT_DEFAULT_GPU}, {@code ALIQUOT_DEFAULT_MEMORY},
 *     {@code ALIQUOT_DEFAULT_MEMORY_PERCENTAGE} and {@code ALIQUOT_DEFAULT_CORES}, default none: the size of slices, and
 *     {@code ALIQUOT_DEFAULT_CORE_POLICY}, default that of {@code compatibility}, in namespaces that set none;
 *     {@code ALIQUOT_ALLOWED_CORE_POLICIES}, {@code ALIQUOT_ALLOWED_PRIORITIES} and {@code ALIQUOT_REQUIRE_CORES}, default all,
 *     all and {@code false}, likewise
 * @param nodesPerFilter {@code ALIQUOT_NODES_PER_FILTER}, 0 to 100,000, default 100: the maximum number of nodes in an
 *     answer to Filter; 0 for all that fit
 * @param plannedNodes {@code ALIQUOT_PLANNED_NODES}, 0 to 100,000, default 0: the number of nodes that the memory limits of this
 *     pod's containers are for; 0 if they do not follow from one
 * @param overuse {@code ALIQUOT_OVERUSE}, default {@code report}: what happens to pods that use more GPU memory than
 *     their limit
 * @param unlimitedContainers {@code ALIQUOT_UNLIMITED_CONTAINERS}, default {@code end}: what happens to pods with a
 *     container that does not see the files that limit it, or in which a program without the shim uses a GPU
 * @param runtimeClass {@code ALIQUOT_RUNTIME_CLASS}, default none: the RuntimeClass that the webhook sets on pods that
 *     request GPUs
 * @param apiGroupService {@code ALIQUOT_API_GROUP_SERVICE}, default none: the Service through which the API server
 *     reaches the API group {@code gpu.aliquot.io}; the scheduler then serves the group
 * @param keepsNodesFrom {@code ALIQUOT_KEEPS_NODES_FROM}, default none: the autoscalers that must not remove a node while
 *     pods hold shares of it, comma-separated, such as {@code cluster_autoscaler,karpenter}
 * @param apiServers {@code ALIQUOT_API_SERVERS}, default not known: the addresses from which the API servers connect,
 *     comma-separated ranges such as {@code 10.0.0.0/24}
 * @param logFormat {@code ALIQUOT_LOG_FORMAT}, default text: one of {@link #LOG_FORMATS}. Spring Boot reads the
 *     variable before this class ({@code application.properties})
 */
public record Settings(
        String podName,
        String namespace,
        String podUid,
        NodeLabel nodeLabel,
        Placement nodePlacement,
        Placement gpuPlacement,
        Compatibility compatibility,
        PodDefaults podDefaults,
        int nodesPerFilter,
        int plannedNodes,
        OverusePolicy overuse,
        OverusePolicy unlimitedContainers,
        String runtimeClass,
        String apiGroupService,
        Set<Autoscaler> keepsNodesFrom,
        ApiServers apiServers,
        String logFormat) {
    /** {@code spec.schedulerName} of the pods that this scheduler binds. */
    public static final String SCHEDULER_NAME = "aliquot-scheduler";

    private static final String OBJECT_NAME = "[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?";
    /** Spring Boot's structured formats. */
    private static final List<String> LOG_FORMATS = List.of("ecs", "logstash", "gelf");

    private static final int MAX_NODES = 100_000;

    /**
     * Reads and checks all settings.
     *
     * @param environment the value of a variable; null if it is not set
     * @throws FormatException that names the variable, its value and the values allowed
     */
    public static Settings read(Function<String, @Nullable String> environment) {
        return new Settings(
                required(environment, "POD_NAME"),
                required(environment, "POD_NAMESPACE"),
                setting(environment, "POD_UID", "", Settings::objectName),
                setting(environment, "ALIQUOT_NODE_LABEL", NodeLabel.DEFAULT, (name, text) -> NodeLabel.parse(text)),
                setting(environment, "ALIQUOT_NODE_PLACEMENT", Placement.FRAGMENTATION, Placement::parse),
                setting(environment, "ALIQUOT_GPU_PLACEMENT", Placement.FRAGMENTATION, Placement::parse),
                setting(environment, "ALIQUOT_COMPATIBILITY", Compatibility.NONE, Compatibility::parse),
                PodDefaults.NONE.with(Settings::defaultVariable, environment),
                setting(environment, "ALIQUOT_NODES_PER_FILTER", 100, Settings::nodes),
                setting(environment, "ALIQUOT_PLANNED_NODES", 0, Settings::nodes),
                setting(environment, "ALIQUOT_OVERUSE", OverusePolicy.REPORT, Settings::reportOrEvict),
                setting(
                        environment,
                        "ALIQUOT_UNLIMITED_CONTAINERS",
                        OverusePolicy.EVICT,
                        (name, text) -> OverusePolicy.parse(name, text, "end")),
                setting(environment, "ALIQUOT_RUNTIME_CLASS", "", Settings::objectName),
                setting(environment, "ALIQUOT_API_GROUP_SERVICE", "", Settings::objectName),
                setting(environment, "ALIQUOT_KEEPS_NODES_FROM", Set.of(), Settings::autoscalers),
                setting(environment, ApiServers.VARIABLE, ApiServers.UNKNOWN, ApiServers::parse),
                setting(environment, "ALIQUOT_LOG_FORMAT", "", Settings::logFormat));
    }

    private static String defaultVariable(String value) {
        return switch (value) {
            case "gpu" -> "ALIQUOT_DEFAULT_GPU";
            case "memory" -> "ALIQUOT_DEFAULT_MEMORY";
            case "memory-percentage" -> "ALIQUOT_DEFAULT_MEMORY_PERCENTAGE";
            case "cores" -> "ALIQUOT_DEFAULT_CORES";
            case "core-policy" -> "ALIQUOT_DEFAULT_CORE_POLICY";
            case "allowed-core-policies" -> "ALIQUOT_ALLOWED_CORE_POLICIES";
            case "allowed-priorities" -> "ALIQUOT_ALLOWED_PRIORITIES";
            case "require-cores" -> "ALIQUOT_REQUIRE_CORES";
            default -> throw new IllegalArgumentException(value);
        };
    }

    private static <T> T setting(
            Function<String, @Nullable String> environment,
            String variable,
            T defaultValue,
            BiFunction<String, String, T> parser) {
        String value = environment.apply(variable);
        return value == null || value.isEmpty() ? defaultValue : parser.apply(variable, value);
    }

    private static String required(Function<String, @Nullable String> environment, String variable) {
        String value = setting(environment, variable, "", Settings::objectName);
        if (value.isEmpty()) {
            throw new FormatException(variable + " is not set; the chart sets it");
        }
        return value;
    }

    private static OverusePolicy reportOrEvict(String variable, String text) {
        return OverusePolicy.parse(variable, text, "evict");
    }

    private static String objectName(String variable, String value) {
        if (!value.matches(OBJECT_NAME)) {
            throw new FormatException(variable + ": \"" + value + "\" is not the name of a Kubernetes object");
        }
        return value;
    }

    private static Set<Autoscaler> autoscalers(String variable, String value) {
        return Arrays.stream(value.split(",", -1))
                .map(name -> Keywords.parse(
                        variable,
                        name,
                        List.of(Autoscaler.values()),
                        one -> one.name().toLowerCase(Locale.ROOT)))
                .collect(Collectors.toSet());
    }

    private static String logFormat(String variable, String value) {
        if (!LOG_FORMATS.contains(value)) {
            throw new FormatException(variable + ": \"" + value + "\" is unknown; allowed: empty for text, "
                    + String.join(", ", LOG_FORMATS));
        }
        return value;
    }

    private static int nodes(String variable, String value) {
        if (!value.matches("[0-9]{1,9}") || Integer.parseInt(value) > MAX_NODES) {
            throw new FormatException(variable + ": \"" + value + "\" is not a whole number from 0 to " + MAX_NODES);
        }
        return Integer.parseInt(value);
    }
}
