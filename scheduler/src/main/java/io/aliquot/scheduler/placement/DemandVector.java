package io.aliquot.scheduler.placement;

/**
 * What a pod asks of a node, in the units that a node's room is counted in.
 *
 * @param gpus 0 for none; else so many different ones of one node
 * @param whole whether it wants them to itself
 * @param gpuMiB of each, unless whole
 * @param gpuCores of each, in percent, unless whole
 * @param models bits of the GPU models that it takes, see {@link FreeCapacity.Shape#model}
 */
public record DemandVector(
        int cpuMillis, int memoryMiB, int gpus, boolean whole, int gpuMiB, int gpuCores, long models) {
    /** Any model will do. */
    public static final long ANY = -1;

    public DemandVector {
        if (cpuMillis < 0 || memoryMiB < 0 || gpus < 0 || gpuMiB < 0 || gpuCores < 0) {
            throw new IllegalArgumentException("nobody asks for less than nothing");
        }
        if (gpus > 0 && !whole && gpuMiB == 0 && gpuCores == 0) {
            throw new IllegalArgumentException("a part of a GPU without memory and cores; expected either");
        }
    }

    /** Whether a node's GPUs are of a model that will do. */
    public boolean takes(FreeCapacity.Shape node) {
        return (models >> node.model() & 1) != 0;
    }
}
