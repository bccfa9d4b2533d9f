package io.aliquot.scheduler.placement;

/**
 * A pod's request in the units of {@link FreeCapacity}.
 *
 * @param gpus how many different GPUs of one node; may be 0
 * @param whole whether it requests whole cards
 * @param gpuMiB of each, unless whole
 * @param gpuCores of each, in percent, unless whole
 * @param models bits of the GPU models that it accepts, see {@link FreeCapacity.Shape#model}
 */
public record DemandVector(
        int cpuMillis, int memoryMiB, int gpus, boolean whole, int gpuMiB, int gpuCores, long models) {
    /** Accepts all models. */
    public static final long ANY = -1;

    public DemandVector {
        if (cpuMillis < 0 || memoryMiB < 0 || gpus < 0 || gpuMiB < 0 || gpuCores < 0) {
            throw new IllegalArgumentException("expected amounts of 0 or more, found " + cpuMillis + " mCPU, "
                    + memoryMiB + " MiB, " + gpus + " GPUs of " + gpuMiB + " MiB and " + gpuCores + " %");
        }
        if (gpus > 0 && !whole && gpuMiB == 0 && gpuCores == 0) {
            throw new IllegalArgumentException("expected memory or cores of a GPU, found neither");
        }
    }

    /** Whether the model of a node's GPUs is accepted. */
    public boolean takes(FreeCapacity.Shape node) {
        return (models >> node.model() & 1) != 0;
    }

    /** The same demand without host memory. */
    public DemandVector withoutHostMemory() {
        return new DemandVector(cpuMillis, 0, gpus, whole, gpuMiB, gpuCores, models);
    }
}
