package io.aliquot.simulator;

import io.aliquot.scheduler.simulation.PodRequest;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;

/**
 * A pod of a workload.
 *
 * @param request pods with equal requests have the same object
 * @param created {@link Instant#EPOCH} if unknown
 * @param ended {@link Instant#MAX} if unknown
 */
record TracePod(String name, PodRequest request, Instant created, Instant ended) {
    /** From its creation to its end, if both are known. */
    Optional<Duration> lifetime() {
        return ended.equals(Instant.MAX) ? Optional.empty() : Optional.of(Duration.between(created, ended));
    }
}
