package io.aliquot.scheduler.simulate;

/**
 * What a pod asks for. Pods that ask alike share one.
 *
 * @param number of no other demand of the trace; they are counted from 0
 * @param gpus 0 for none
 * @param share of each GPU, in thousandths; {@value #WHOLE} for whole GPUs, and below that for part of one
 * @param models bits of the models that it takes, see {@link Trace#models}
 */
record Demand(int number, int cpuMillis, int memoryMiB, int gpus, int share, long models) {
    static final int WHOLE = 1000;

    Demand {
        if (cpuMillis < 0 || memoryMiB < 0) {
            throw new IllegalArgumentException("CPU and memory are at least 0");
        }
        if (gpus < 0 || (gpus > 0 && (share < 1 || share > WHOLE)) || (gpus > 1 && share < WHOLE)) {
            throw new IllegalArgumentException(gpus + " GPUs with " + share
                    + " thousandths of each; expected none, 1 with 1 to 1000, or several with" + " 1000");
        }
    }

    /** Of all its GPUs together, in thousandths of one. */
    int total() {
        return gpus * share;
    }

    boolean takes(NodeModel node) {
        return (models >> node.model() & 1) != 0;
    }
}
