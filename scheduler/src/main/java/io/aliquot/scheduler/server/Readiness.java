package io.aliquot.scheduler.server;

import java.util.Optional;

/** A part of the process that is not always ready to serve; {@code /readyz} asks every bean of this type. */
@FunctionalInterface
public interface Readiness {
    /** What this part still waits for, in a few words; empty once it is ready. */
    Optional<String> waitsFor();
}
