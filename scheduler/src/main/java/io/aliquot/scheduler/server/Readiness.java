package io.aliquot.scheduler.server;

import java.util.Optional;

/** A part of the process that is not always ready to serve; {@code /readyz} asks every bean of this type. */
@FunctionalInterface
public interface Readiness {
    /** What this part still waits for, in a few words; empty once it is ready. */
    Optional<String> waitsFor();

    /** What whoever looks may want to know of it all the same, in a line; empty for nothing. */
    default Optional<String> remark() {
        return Optional.empty();
    }
}
