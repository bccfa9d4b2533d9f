package io.aliquot.deviceplugin.problem;

import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * A problem that a periodic task may find at every pass. Its message is logged once, and again when it changes.
 *
 * <p>Not thread-safe.
 */
public final class Problem {
    private final Logger log;
    private final Level level;
    private @Nullable String message;

    public Problem(Logger log, Level level) {
        this.log = log;
        this.level = level;
    }

    /** Records that the problem exists; returns {@code message}. */
    public String report(String message) {
        if (!message.equals(this.message)) {
            log.log(level, message);
            this.message = message;
        }
        return message;
    }

    /** Records that the problem does not exist; returns whether it did. */
    public boolean resolve() {
        boolean existed = message != null;
        message = null;
        return existed;
    }

    /** The message reported last; empty while the problem does not exist. */
    public Optional<String> message() {
        return Optional.ofNullable(message);
    }
}
