package io.aliquot.api.usage;

import static io.aliquot.api.format.FormatException.expect;

import com.fasterxml.jackson.annotation.JsonUnwrapped;
import io.aliquot.api.format.JsonFields;
import java.time.Instant;
import java.util.List;
import java.util.OptionalInt;

/**
 * The use of a GPU in the last minutes and its health, as its node's agent measured it: {@code GET /v1/history?gpu=UUID} of
 * the agent's port 9092, JSON. All series have the same length and end together. Unknown JSON fields are ignored.
 *
 * @param end the time of the last value of each series
 * @param stepSeconds between two values
 * @param gpu of all processes
 * @param containers that used the GPU in this time, those that did so last first if there are more than
 *     {@value #MOST_CONTAINERS}
 * @param health the changes of the GPU's health since the agent's start, oldest first
 */
public record UsageHistory(
        Instant end, int stepSeconds, OfGpu gpu, List<OfContainer> containers, List<HealthChange> health) {
    /** The path of a history; the parameter {@code gpu} is the GPU's UUID. */
    public static final String PATH = "/v1/history";

    public static final int MOST_VALUES = 900;

    /** With seven series each, as many as the scheduler reads: {@link JsonFields} allows 300,000 tokens. */
    public static final int MOST_CONTAINERS = 40;

    public static final int MOST_HEALTH_CHANGES = 100;

    private static final int LONGEST_STEP = 3600;

    /** Memory in MiB and utilization in percent, oldest first; empty where there is no figure. */
    public record OfGpu(List<OptionalInt> usedMiB, List<OptionalInt> utilizationPercent) {
        public OfGpu {
            usedMiB = series(usedMiB);
            utilizationPercent = series(utilizationPercent);
        }
    }

    /**
     * The same for a container; its memory is what the shim has charged, and what NVML reports beyond that.
     *
     * @param grantedMiB memory that it might use; empty while the agent did not know it
     * @param grantedPercent cores of its own; empty also without a limit
     * @param lentPercent of its cores, to others; empty while its limit was not known
     * @param borrowedPercent part of the utilization that was beyond its cores, of time that others left
     */
    public record OfContainer(
            @JsonUnwrapped PodContainer container,
            List<OptionalInt> chargedMiB,
            List<OptionalInt> unattributedMiB,
            List<OptionalInt> utilizationPercent,
            List<OptionalInt> grantedMiB,
            List<OptionalInt> grantedPercent,
            List<OptionalInt> lentPercent,
            List<OptionalInt> borrowedPercent) {
        public OfContainer {
            chargedMiB = series(chargedMiB);
            unattributedMiB = series(unattributedMiB);
            utilizationPercent = series(utilizationPercent);
            grantedMiB = series(grantedMiB);
            grantedPercent = series(grantedPercent);
            lentPercent = series(lentPercent);
            borrowedPercent = series(borrowedPercent);
        }
    }

    /**
     * A GPU became healthy or unhealthy.
     *
     * @param reason empty for a healthy GPU
     */
    public record HealthChange(Instant at, boolean healthy, String reason) {}

    public UsageHistory {
        expect(stepSeconds >= 1 && stepSeconds <= LONGEST_STEP, "a step of 1 to " + LONGEST_STEP + " s", stepSeconds);
        containers = List.copyOf(containers);
        health = List.copyOf(health);
        expect(containers.size() <= MOST_CONTAINERS, "at most " + MOST_CONTAINERS + " containers", containers.size());
        expect(
                health.size() <= MOST_HEALTH_CHANGES,
                "at most " + MOST_HEALTH_CHANGES + " changes of health",
                health.size());
    }

    private static List<OptionalInt> series(List<OptionalInt> values) {
        expect(values.size() <= MOST_VALUES, "at most " + MOST_VALUES + " values", values.size());
        return List.copyOf(values);
    }

    /** Throws a {@link io.aliquot.api.format.FormatException} that names the field which is wrong. */
    public static UsageHistory parse(String text) {
        return AgentJson.parse(UsageHistory.class, text);
    }

    public String print() {
        return AgentJson.print(this);
    }
}
