package io.aliquot.deviceplugin.nvml;

/**
 * A lower bound of the device memory that a CUDA context takes, known before one exists: CUDA reserves the default stack of
 * 1 KiB ({@code CU_LIMIT_STACK_SIZE}) for each thread that can be resident. A context takes 1.9 to 2.6 times as much where
 * figures have been published: 107 MiB on 34 multiprocessors and 555 MiB on 188 (github.com/ggml-org/llama.cpp/pull/23604).
 */
final class ContextMemory {
    private static final int STACK_KIB = 1;
    private static final int KIB_PER_MIB = 1024;

    private ContextMemory() {}

    /**
     * The lower bound in MiB; 0 for an architecture that is not known.
     *
     * <p>Both figures of each architecture are those of the CUDA C++ Programming Guide, "Compute Capabilities": resident
     * threads for each multiprocessor, and its FP32 cores.
     *
     * @param major of the compute capability
     * @param minor of the compute capability
     * @param cores of the GPU, as NVML counts them
     */
    static int leastMiB(int major, int minor, int cores) {
        int residentThreads = switch (10 * major + minor) {
            case 60, 70, 80 -> cores / 64 * 2048;
            case 75 -> cores / 64 * 1024;
            case 50, 52, 61, 90, 100, 103 -> cores / 128 * 2048;
            case 86, 87, 89, 110, 120, 121 -> cores / 128 * 1536;
            default -> 0;
        };
        return residentThreads * STACK_KIB / KIB_PER_MIB;
    }
}
