package io.aliquot.scheduler.simulate;

/**
 * What a node has when nothing runs on it.
 *
 * @param model number of its GPUs' model, see {@link Trace#models}
 */
record NodeModel(int cpuMillis, int memoryMiB, int gpus, int model) {
    NodeModel {
        if (cpuMillis < 0 || memoryMiB < 0 || gpus < 0) {
            throw new IllegalArgumentException("CPU, memory and GPUs are at least 0");
        }
    }
}
