package io.aliquot.scheduler.server.health;

import java.util.Optional;

/** A component that can fail in a way that only a restart repairs; {@code /livez} asks each bean of this type. */
@FunctionalInterface
public interface Liveness {
    /** Returns the failure in a few words; empty if there is none. */
    Optional<String> broken();
}
