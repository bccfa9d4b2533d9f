package io.aliquot.scheduler.settings;

import io.aliquot.api.Compatibility;
import io.aliquot.api.FormatException;
import io.aliquot.api.Placement;
import java.util.List;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/**
 * The settings of the scheduler's process, read from environment variables that the chart sets. An empty variable
 * counts as not set. Names are names of Kubernetes objects.
 *
 * @param podName {@code POD_NAME}, required: this pod; its kube-scheduler holds the Lease as {@code <podName>_<uuid>}
 * @param namespace {@code POD_NAMESPACE}, required: the namespace of the release
 * @param schedulerName {@code ALIQUOT_SCHEDULER_NAME}, default {@code aliquot-scheduler}: {@code spec.schedulerName} of
 *     the pods that this scheduler binds
 * @param leaseName {@code ALIQUOT_LEASE_NAME}, default {@code aliquot-scheduler}: the Lease of kube-scheduler's leader
 *     election, in {@code namespace}
 * @param nodePlacement {@code ALIQUOT_NODE_PLACEMENT}, default {@code fragmentation}: the policy that selects the node
 *     of a pod that sets none
 * @param gpuPlacement {@code ALIQUOT_GPU_PLACEMENT}, default {@code fragmentation}: the policy that selects GPUs if
 *     neither the pod nor the node sets one
 * @param compatibility {@code ALIQUOT_COMPATIBILITY}, default {@code none}: what resources mean on a pod that does not
 *     set it
 * @param nodesPerFilter {@code ALIQUOT_NODES_PER_FILTER}, 0 to 100,000, default 100: the maximum number of nodes in an
 *     answer to Filter; 0 for all that fit
 * @param runtimeClass {@code ALIQUOT_RUNTIME_CLASS}, default none: the RuntimeClass that the webhook sets on pods that
 *     request GPUs
 * @param webhookService {@code ALIQUOT_WEBHOOK_SERVICE}, default {@code aliquot-webhook}: the Service through which the
 *     API server calls the webhooks
 * @param webhookSecret {@code ALIQUOT_WEBHOOK_SECRET}, default {@code aliquot-webhook-tls}: the Secret with the
 *     webhooks' certificate
 * @param webhookConfiguration {@code ALIQUOT_WEBHOOK_CONFIGURATION}, default {@code aliquot}: the webhook
 *     configurations whose {@code caBundle} the scheduler writes
 * @param apiService {@code ALIQUOT_API_SERVICE}, default none: the Service through which users reach {@code /api/v1};
 *     the port is closed without it
 * @param logFormat {@code ALIQUOT_LOG_FORMAT}, default text: one of {@link #LOG_FORMATS}. Spring Boot reads the
 *     variable before this class ({@code application.properties})
 */
public record Settings(
        String podName,
        String namespace,
        String schedulerName,
        String leaseName,
        Placement nodePlacement,
        Placement gpuPlacement,
        Compatibility compatibility,
        int nodesPerFilter,
        String runtimeClass,
        String webhookService,
        String webhookSecret,
        String webhookConfiguration,
        String apiService,
        String logFormat) {
    private static final String OBJECT_NAME = "[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?";
    /** Spring Boot's structured formats. */
    private static final List<String> LOG_FORMATS = List.of("ecs", "logstash", "gelf");

    private static final int MAX_NODES_PER_FILTER = 100_000;

    /**
     * Reads and checks all settings.
     *
     * @param environment the value of a variable; null if it is not set
     * @throws FormatException that names the variable, its value and the values allowed
     */
    public static Settings read(Function<String, @Nullable String> environment) {
        return new Settings(
                requiredName(environment, "POD_NAME"),
                requiredName(environment, "POD_NAMESPACE"),
                name(environment, "ALIQUOT_SCHEDULER_NAME", "aliquot-scheduler"),
                name(environment, "ALIQUOT_LEASE_NAME", "aliquot-scheduler"),
                placement(environment, "ALIQUOT_NODE_PLACEMENT"),
                placement(environment, "ALIQUOT_GPU_PLACEMENT"),
                compatibility(environment, "ALIQUOT_COMPATIBILITY"),
                number(environment, "ALIQUOT_NODES_PER_FILTER", 100, 0, MAX_NODES_PER_FILTER),
                name(environment, "ALIQUOT_RUNTIME_CLASS", ""),
                name(environment, "ALIQUOT_WEBHOOK_SERVICE", "aliquot-webhook"),
                name(environment, "ALIQUOT_WEBHOOK_SECRET", "aliquot-webhook-tls"),
                name(environment, "ALIQUOT_WEBHOOK_CONFIGURATION", "aliquot"),
                name(environment, "ALIQUOT_API_SERVICE", ""),
                logFormat(environment, "ALIQUOT_LOG_FORMAT"));
    }

    private static String requiredName(Function<String, @Nullable String> environment, String variable) {
        String value = name(environment, variable, "");
        if (value.isEmpty()) {
            throw new FormatException(variable + " is not set; the chart sets it");
        }
        return value;
    }

    private static String name(Function<String, @Nullable String> environment, String variable, String defaultValue) {
        String value = environment.apply(variable);
        if (value == null || value.isEmpty()) {
            return defaultValue;
        }
        if (!value.matches(OBJECT_NAME)) {
            throw new FormatException(variable + ": \"" + value + "\" is not the name of a Kubernetes object");
        }
        return value;
    }

    private static String logFormat(Function<String, @Nullable String> environment, String variable) {
        String value = environment.apply(variable);
        if (value == null || value.isEmpty()) {
            return "";
        }
        if (!LOG_FORMATS.contains(value)) {
            throw new FormatException(variable + ": \"" + value + "\" is unknown; allowed: empty for text, "
                    + String.join(", ", LOG_FORMATS));
        }
        return value;
    }

    private static Placement placement(Function<String, @Nullable String> environment, String variable) {
        String value = environment.apply(variable);
        return value == null || value.isEmpty() ? Placement.FRAGMENTATION : Placement.parse(variable, value);
    }

    private static Compatibility compatibility(Function<String, @Nullable String> environment, String variable) {
        String value = environment.apply(variable);
        return value == null || value.isEmpty() ? Compatibility.NONE : Compatibility.parse(variable, value);
    }

    private static int number(
            Function<String, @Nullable String> environment, String variable, int defaultValue, int min, int max) {
        String value = environment.apply(variable);
        if (value == null || value.isEmpty()) {
            return defaultValue;
        }
        if (value.matches("[0-9]{1,9}")) {
            int number = Integer.parseInt(value);
            if (number >= min && number <= max) {
                return number;
            }
        }
        throw new FormatException(variable + ": \"" + value + "\" is not a whole number from " + min + " to " + max);
    }
}
