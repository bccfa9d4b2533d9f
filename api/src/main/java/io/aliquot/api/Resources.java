package io.aliquot.api;

import java.util.List;

/** The extended resources that a container asks for, all under {@code limits}. */
public final class Resources {
    /** vGPUs, each on a different physical GPU. */
    public static final String GPU = "nvidia.com/gpu";
    /** Device memory of each vGPU, in MiB. */
    public static final String MEMORY = "nvidia.com/gpumem";
    /** Device memory of each vGPU, in percent of its card. */
    public static final String MEMORY_PERCENTAGE = "nvidia.com/gpumem-percentage";
    /** Compute of each vGPU, in percent of its card. */
    public static final String CORES = "nvidia.com/gpucores";

    /** What a container may ask for. */
    public static final List<String> SUPPORTED = List.of(GPU, MEMORY, MEMORY_PERCENTAGE, CORES);

    /** The node's totals, which its agent keeps in the node's status; the kubelet owns {@link #GPU}. */
    public static final List<String> TOTALS = List.of(MEMORY, MEMORY_PERCENTAGE, CORES);

    private Resources() {}
}
