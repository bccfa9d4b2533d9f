package io.aliquot.scheduler.server.health;

import java.util.Optional;

/** A component that is not ready from the start; {@code /readyz} asks each bean of this type. */
@FunctionalInterface
public interface Readiness {
    /** Returns what the component waits for, in a few words; empty once it is ready. */
    Optional<String> waitsFor();

    /** Returns one more line for the answer, which does not affect readiness; empty for none. */
    default Optional<String> remark() {
        return Optional.empty();
    }
}
