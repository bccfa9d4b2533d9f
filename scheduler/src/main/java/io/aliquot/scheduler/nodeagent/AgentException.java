package io.aliquot.scheduler.nodeagent;

import java.util.Locale;

/** A node agent did not give the answer asked for; the message is a sentence for users without the node's name. */
public final class AgentException extends Exception {
    private static final long serialVersionUID = 1;

    private final Outcome outcome;

    /** What became of a request. */
    public enum Outcome {
        /** The agent answered. */
        DONE,
        /** The node has no ready agent or names no certificate of it, or this replica has no certificate yet. */
        NO_AGENT,
        /** No complete answer in time. */
        TIMEOUT,
        /** No connection: nothing listens there, or no packet comes back. */
        UNREACHABLE,
        /** The connection ended before the answer. */
        BROKEN,
        /** One of the two refuses the other's certificate. */
        UNTRUSTED,
        /** The agent answered with an error, such as that it does not know a GPU. */
        REFUSED,
        /** The answer is too long or not what was expected, for example of another version. */
        INVALID;

        String tag() {
            return name().toLowerCase(Locale.ROOT).replace('_', '-');
        }
    }

    AgentException(Outcome outcome, String message) {
        super(message);
        this.outcome = outcome;
    }

    public Outcome outcome() {
        return outcome;
    }
}
