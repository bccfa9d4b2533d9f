package io.aliquot.simulator;

import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;

/**
 * A pod of a workload.
 *
 * @param ask what it wants of GPUs; pods that want the same have the same object
 * @param requests of CPU and memory
 * @param created when it was; {@link Instant#EPOCH} where that is not known
 * @param ends when it ended; {@link Instant#MAX} where that is not known
 */
record TracePod(String name, PodGpuRequest ask, HostResources requests, Instant created, Instant ends) {
    /** From its creation to its end, if both are known. */
    Optional<Duration> lifetime() {
        return ends.equals(Instant.MAX) ? Optional.empty() : Optional.of(Duration.between(created, ends));
    }
}
