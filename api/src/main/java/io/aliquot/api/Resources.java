package io.aliquot.api;

import java.util.List;

/** The extended resources that a container requests under {@code resources.limits}. */
public final class Resources {
    /** The number of vGPUs, each on another physical GPU. */
    public static final String GPU = "nvidia.com/gpu";
    /** Device memory of each vGPU, in MiB. */
    public static final String MEMORY = "nvidia.com/gpumem";
    /** Device memory of each vGPU, in percent of its GPU's memory. */
    public static final String MEMORY_PERCENTAGE = "nvidia.com/gpumem-percentage";
    /** Compute of each vGPU, in percent of one GPU. */
    public static final String CORES = "nvidia.com/gpucores";

    /** All resources that Aliquot allocates. */
    public static final List<String> SUPPORTED = List.of(GPU, MEMORY, MEMORY_PERCENTAGE, CORES);

    /** The resources that the node agent writes to the node's status; the kubelet writes {@link #GPU}. */
    public static final List<String> NODE_STATUS = List.of(MEMORY, MEMORY_PERCENTAGE, CORES);

    private Resources() {}
}
