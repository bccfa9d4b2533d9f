package io.aliquot.scheduler.server;

import java.util.Optional;

/** A part of the process that can tell that only a restart helps; {@code /livez} asks every bean of this type. */
@FunctionalInterface
public interface Liveness {
    /** What is broken beyond repair, in a few words; empty while all is well. */
    Optional<String> broken();
}
