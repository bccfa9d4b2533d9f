package io.aliquot.api.nodes;

import static io.aliquot.api.format.FormatException.expect;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.format.Keywords;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.OptionalInt;

/** Whether a GPU may get new vGPUs, as the node's agent reports it. Running vGPUs stay on an unhealthy GPU. */
public sealed interface GpuHealth {
    record Healthy() implements GpuHealth {}

    /**
     * The GPU gets no new vGPUs.
     *
     * @param reason what is wrong, for people, 1 to {@value #LONGEST_REASON} printable characters
     * @param since when the agent found it, to the second
     * @param xid the driver's XID error behind it, 1 to {@value #LARGEST_XID}; empty if there was none
     */
    record Unhealthy(String reason, Instant since, OptionalInt xid, Recovery recovery) implements GpuHealth {
        public static final int LONGEST_REASON = 300;
        private static final int LARGEST_XID = 9999;

        public Unhealthy {
            expect(
                    !reason.isBlank()
                            && reason.length() <= LONGEST_REASON
                            && reason.codePoints().noneMatch(Character::isISOControl),
                    "a reason of 1 to " + LONGEST_REASON + " printable characters",
                    reason);
            int number = xid.orElse(1);
            expect(number >= 1 && number <= LARGEST_XID, "an XID from 1 to " + LARGEST_XID, number);
            since = since.truncatedTo(ChronoUnit.SECONDS);
        }

        /** For people: "unhealthy since 2026-11-26T16:00:00Z: " and the reason; without the time if it is not known. */
        public String describe() {
            return "unhealthy" + (isSinceKnown() ? " since " + since : "") + ": " + reason;
        }

        /** Whether {@link #since} is known; the epoch stands for a time that is not. */
        public boolean isSinceKnown() {
            return !since.equals(Instant.EPOCH);
        }

        /** An unhealthy GPU without an XID error, whose health returns with a successful probe. */
        public Unhealthy(String reason, Instant since) {
            this(reason, since, OptionalInt.empty(), Recovery.PROBE);
        }
    }

    /** What must happen before the GPU can be healthy again. In each case a probe through NVML must succeed, too. */
    enum Recovery {
        /** Nothing else. */
        PROBE,
        /** The GPU is reset or the driver is reloaded. */
        RESET,
        /** The node reboots. */
        REBOOT;

        static Recovery parse(String text) {
            return Keywords.find(text, List.of(values()), Recovery::print)
                    .orElseThrow(() -> FormatException.expected("probe, reset or reboot", text));
        }

        public String print() {
            return name().toLowerCase(Locale.ROOT);
        }
    }

    default boolean healthy() {
        return this instanceof Healthy;
    }

    /** What is wrong with the GPU; empty for a healthy one. */
    default Optional<Unhealthy> unhealthy() {
        return this instanceof Unhealthy unhealthy ? Optional.of(unhealthy) : Optional.empty();
    }
}
