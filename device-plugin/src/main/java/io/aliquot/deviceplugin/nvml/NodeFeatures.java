package io.aliquot.deviceplugin.nvml;

import java.util.List;

/**
 * What describes a node's GPUs in labels by which pods select nodes.
 *
 * @param driver the version of the loaded driver
 * @param cuda the newest version of CUDA that the driver supports, 1000 × major + 10 × minor
 * @param machine the product name in the machine's firmware; empty if unknown
 * @param gpus by index; empty if NVML did not describe all that it lists
 */
public record NodeFeatures(String driver, int cuda, String machine, List<Gpu> gpus) {
    public static final NodeFeatures UNKNOWN = new NodeFeatures("", 0, "", List.of());

    /**
     * One GPU.
     *
     * @param memoryMiB all of it, with what the driver reserves for itself
     * @param computeMajor of the CUDA compute capability
     * @param mig whether it can be divided into MIG instances, and is in the mode to be
     * @param pciClass as the kernel prints it, such as {@code 0x030200}; empty if unknown
     * @param virtual whether it is an NVIDIA vGPU in a virtual machine
     */
    public record Gpu(
            String model,
            long memoryMiB,
            int computeMajor,
            int computeMinor,
            Mig mig,
            String pciClass,
            boolean virtual) {}

    /** Multi-instance GPU. */
    public enum Mig {
        NOT_CAPABLE,
        OFF,
        ON
    }

    public NodeFeatures {
        gpus = List.copyOf(gpus);
    }
}
