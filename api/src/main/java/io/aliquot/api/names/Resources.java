package io.aliquot.api.names;

import java.util.List;

/** The extended resources that a container requests under {@code resources.limits}. */
public final class Resources {
    /**
     * The number of vGPUs, each on another physical GPU. No other device plugin advertises this name, so a slot never
     * goes to a pod that Aliquot does not place, and none of Aliquot's pods runs where another plugin serves the GPUs.
     */
    public static final String VGPU = "aliquot.io/vgpu";
    /** Device memory of each vGPU, in MiB. */
    public static final String MEMORY = "nvidia.com/gpumem";
    /** Device memory of each vGPU, in percent of its GPU's memory. */
    public static final String MEMORY_PERCENTAGE = "nvidia.com/gpumem-percentage";
    /** Compute of each vGPU, in percent of one GPU. */
    public static final String CORES = "nvidia.com/gpucores";

    /** All resources that Aliquot allocates. */
    public static final List<String> SUPPORTED = List.of(VGPU, MEMORY, MEMORY_PERCENTAGE, CORES);

    /** The resources that the node agent writes to the node's status; the kubelet writes {@link #VGPU}. */
    public static final List<String> NODE_STATUS = List.of(MEMORY, MEMORY_PERCENTAGE, CORES);

    private Resources() {}
}
