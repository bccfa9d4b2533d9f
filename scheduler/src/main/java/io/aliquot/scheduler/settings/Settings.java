package io.aliquot.scheduler.settings;

import io.aliquot.api.Compatibility;
import io.aliquot.api.FormatException;
import io.aliquot.api.Placement;
import java.util.List;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/**
 * What the chart sets through environment variables.
 *
 * @param podName {@code POD_NAME}: this pod; the kube-scheduler beside us leads as {@code <podName>_<uuid>}
 * @param namespace {@code POD_NAMESPACE}: the release's
 * @param schedulerName {@code ALIQUOT_SCHEDULER_NAME}: of pods that are ours to place
 * @param leaseName {@code ALIQUOT_LEASE_NAME}: the Lease that kube-scheduler leads by, in {@code namespace}
 * @param nodePlacement {@code ALIQUOT_NODE_PLACEMENT}: how to choose a node for pods that don't say
 * @param gpuPlacement {@code ALIQUOT_GPU_PLACEMENT}: how to choose GPUs where neither pod nor node says
 * @param compatibility {@code ALIQUOT_COMPATIBILITY}: whose meaning resources have on pods that don't say
 * @param nodesPerFilter {@code ALIQUOT_NODES_PER_FILTER}: nodes answered to a Filter at most; 0 for all that fit
 * @param runtimeClass {@code ALIQUOT_RUNTIME_CLASS}: put on pods that ask for GPUs; empty for none
 * @param webhookService {@code ALIQUOT_WEBHOOK_SERVICE}: by which the API server reaches the webhooks
 * @param webhookSecret {@code ALIQUOT_WEBHOOK_SECRET}: holds the webhooks' certificate
 * @param webhookConfiguration {@code ALIQUOT_WEBHOOK_CONFIGURATION}: whose {@code caBundle} we keep right
 * @param apiService {@code ALIQUOT_API_SERVICE}: by which users reach {@code /api/v1}; empty: nobody listens there
 * @param logFormat {@code ALIQUOT_LOG_FORMAT}: empty for text, or one of {@link #LOG_FORMATS}; Spring Boot reads it before
 *     us, too ({@code application.properties})
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
    /** Spring Boot's structured ones. */
    private static final List<String> LOG_FORMATS = List.of("ecs", "logstash", "gelf");

    private static final int MOST_NODES = 100_000;

    /**
     * Reads and checks them all.
     *
     * @throws FormatException naming the variable, what it should be and what it is
     */
    public static Settings read(Function<String, @Nullable String> environment) {
        return new Settings(
                name(environment, "POD_NAME", null),
                name(environment, "POD_NAMESPACE", null),
                name(environment, "ALIQUOT_SCHEDULER_NAME", "aliquot-scheduler"),
                name(environment, "ALIQUOT_LEASE_NAME", "aliquot-scheduler"),
                placement(environment, "ALIQUOT_NODE_PLACEMENT"),
                placement(environment, "ALIQUOT_GPU_PLACEMENT"),
                compatibility(environment, "ALIQUOT_COMPATIBILITY"),
                number(environment, "ALIQUOT_NODES_PER_FILTER", 100, 0, MOST_NODES),
                optionalName(environment, "ALIQUOT_RUNTIME_CLASS"),
                name(environment, "ALIQUOT_WEBHOOK_SERVICE", "aliquot-webhook"),
                name(environment, "ALIQUOT_WEBHOOK_SECRET", "aliquot-webhook-tls"),
                name(environment, "ALIQUOT_WEBHOOK_CONFIGURATION", "aliquot"),
                optionalName(environment, "ALIQUOT_API_SERVICE"),
                logFormat(environment, "ALIQUOT_LOG_FORMAT"));
    }

    private static String optionalName(Function<String, @Nullable String> environment, String variable) {
        String value = environment.apply(variable);
        return value == null || value.isEmpty() ? "" : name(environment, variable, null);
    }

    private static String name(
            Function<String, @Nullable String> environment, String variable, @Nullable String absent) {
        String value = environment.apply(variable);
        if (value == null || value.isEmpty()) {
            if (absent == null) {
                throw new FormatException(variable + " is not set; the chart sets it");
            }
            return absent;
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
            throw new FormatException(variable + ": \"" + value + "\" is unknown; allowed: nothing for text, "
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
            Function<String, @Nullable String> environment, String variable, int absent, int least, int most) {
        String value = environment.apply(variable);
        if (value == null || value.isEmpty()) {
            return absent;
        }
        if (value.matches("[0-9]{1,9}")) {
            int number = Integer.parseInt(value);
            if (number >= least && number <= most) {
                return number;
            }
        }
        throw new FormatException(variable + ": \"" + value + "\" is not a whole number from " + least + " to " + most);
    }
}
