package io.aliquot.deviceplugin.node;

import java.time.Instant;
import java.time.temporal.ChronoUnit;

/**
 * A condition in a Node's status.
 *
 * @param status whether it holds
 * @param reason one word, for programs
 * @param message for people
 * @param since when {@code status} last changed, to the second
 */
public record NodeCondition(String type, boolean status, String reason, String message, Instant since) {
    public NodeCondition {
        since = since.truncatedTo(ChronoUnit.SECONDS);
    }

    /** Whether another condition says the same, since whenever. */
    public boolean says(NodeCondition other) {
        return type.equals(other.type)
                && status == other.status
                && reason.equals(other.reason)
                && message.equals(other.message);
    }
}
