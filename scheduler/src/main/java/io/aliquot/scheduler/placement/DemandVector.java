package io.aliquot.scheduler.placement;

/**
 * What a pod requests of a node, in the units of {@link FreeCapacity}.
 *
 * @param gpus number of different GPUs on one node; 0 for none
 * @param whole whether the pod requests whole GPUs
 * @param gpuMiB memory of each GPU; not used if {@code whole}
 * @param gpuCores cores of each GPU, in percent; not used if {@code whole}
 * @param models bit set of the GPU models that the pod accepts, see {@link FreeCapacity.Shape#model}
 */
public record DemandVector(
        int cpuMillis, int memoryMiB, int gpus, boolean whole, int gpuMiB, int gpuCores, long models) {
    /** The pod accepts every GPU model. */
    public static final long ANY = -1;

    public DemandVector {
        if (cpuMillis < 0 || memoryMiB < 0 || gpus < 0 || gpuMiB < 0 || gpuCores < 0) {
            throw new IllegalArgumentException("a demand has a negative amount");
        }
        if (gpus > 0 && !whole && gpuMiB == 0 && gpuCores == 0) {
            throw new IllegalArgumentException("a share of a GPU has neither memory nor cores; expected either");
        }
    }

    /** Whether the demand accepts the GPU model of a node. */
    public boolean takes(FreeCapacity.Shape node) {
        return (models >> node.model() & 1) != 0;
    }
}
