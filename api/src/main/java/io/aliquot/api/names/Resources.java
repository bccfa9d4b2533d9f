package io.aliquot.api.names;

import java.util.List;
import java.util.Optional;

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

    /**
     * How the names of whole MIG instances begin, as NVIDIA's device plugin with the strategy {@code mixed} names them:
     * {@code nvidia.com/mig-1g.10gb}. Admission turns them into {@link #INSTANCE_GROUP}.
     */
    public static final String NVIDIA_INSTANCE_PREFIX = "nvidia.com/mig-";
    /**
     * How the names of whole MIG instances begin in an admitted pod: {@code mig.aliquot.io/1g.10gb}. No node has them.
     * They are a group of their own, so that kube-scheduler can be told to ignore whatever profile there is, and no
     * kubelet that has NVIDIA's name with the amount 0 rejects the pod.
     */
    public static final String INSTANCE_GROUP = "mig.aliquot.io/";

    /** All resources that Aliquot allocates, without those of MIG instances. */
    public static final List<String> SUPPORTED = List.of(VGPU, MEMORY, MEMORY_PERCENTAGE, CORES);

    /** The resources that the node agent writes to the node's status; the kubelet writes {@link #VGPU}. */
    public static final List<String> NODE_STATUS = List.of(MEMORY, MEMORY_PERCENTAGE, CORES);

    private Resources() {}

    /** The profile of Aliquot's MIG instances that a resource names, such as {@code 1g.10gb.me}; empty for other resources. */
    public static Optional<String> instanceProfile(String resource) {
        return resource.startsWith(INSTANCE_GROUP)
                ? Optional.of(resource.substring(INSTANCE_GROUP.length()))
                : Optional.empty();
    }
}
