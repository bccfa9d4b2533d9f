package io.aliquot.scheduler.simulation;

import io.aliquot.scheduler.placement.DemandVector;
import org.jspecify.annotations.Nullable;

/** What a pod requests, in the units of {@link FreeResources}. Immutable; made by {@link SimulatedCluster}. */
public final class PodDemand {
    final DemandVector vector;

    PodDemand(DemandVector vector) {
        this.vector = vector;
    }

    public int cpuMillis() {
        return vector.cpuMillis();
    }

    /** How many different GPUs of one node; 0 for a pod without GPUs. */
    public int gpus() {
        return vector.gpus();
    }

    /** The same demand without host memory. */
    public PodDemand withoutHostMemory() {
        return new PodDemand(new DemandVector(
                vector.cpuMillis(),
                0,
                vector.gpus(),
                vector.whole(),
                vector.gpuMiB(),
                vector.gpuCores(),
                vector.models()));
    }

    @Override
    public boolean equals(@Nullable Object other) {
        return other instanceof PodDemand demand && vector.equals(demand.vector);
    }

    @Override
    public int hashCode() {
        return vector.hashCode();
    }

    @Override
    public String toString() {
        return vector.toString();
    }
}
