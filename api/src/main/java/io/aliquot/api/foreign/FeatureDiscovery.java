package io.aliquot.api.foreign;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/**
 * NVIDIA's GPU feature discovery (GFD), which describes a node's GPUs in the node's labels. It hands them to Node Feature
 * Discovery (NFD), whose master writes them and lists all labels of its own in the annotation {@value #NFD_LABELS}, for an
 * instance with a name in {@code INSTANCE.}{@value #NFD_LABELS} (kubernetes-sigs/node-feature-discovery,
 * pkg/nfd-master/nfd-master.go, updateNodeObject).
 */
public final class FeatureDiscovery {
    public static final String NFD_LABELS = "nfd.node.kubernetes.io/feature-labels";

    /** The model of a node's GPUs. */
    public static final String PRODUCT = "nvidia.com/gpu.product";

    /**
     * The labels that the agent publishes where GFD does not run: those of GFD 0.19.0 for whole GPUs without sharing
     * (NVIDIA/k8s-device-plugin, internal/lm). Not among them: {@code gfd.timestamp}, which is GFD's mark; labels of MIG
     * instances and of IMEX; and {@code vgpu.host-driver-*}, which NVML does not tell.
     */
    public static final List<String> LABELS = List.of(
            "nvidia.com/cuda.driver-version.full",
            "nvidia.com/cuda.driver-version.major",
            "nvidia.com/cuda.driver-version.minor",
            "nvidia.com/cuda.driver-version.revision",
            "nvidia.com/cuda.driver.major",
            "nvidia.com/cuda.driver.minor",
            "nvidia.com/cuda.driver.rev",
            "nvidia.com/cuda.runtime-version.full",
            "nvidia.com/cuda.runtime-version.major",
            "nvidia.com/cuda.runtime-version.minor",
            "nvidia.com/cuda.runtime.major",
            "nvidia.com/cuda.runtime.minor",
            "nvidia.com/gpu.compute.major",
            "nvidia.com/gpu.compute.minor",
            "nvidia.com/gpu.count",
            "nvidia.com/gpu.family",
            "nvidia.com/gpu.machine",
            "nvidia.com/gpu.memory",
            "nvidia.com/gpu.mode",
            PRODUCT,
            "nvidia.com/gpu.replicas",
            "nvidia.com/gpu.sharing-strategy",
            "nvidia.com/mig.capable",
            "nvidia.com/mps.capable",
            "nvidia.com/vgpu.present");

    private static final String TIMESTAMP = "nvidia.com/gfd.timestamp";

    private FeatureDiscovery() {}

    /** Whether GFD has labeled the node: it is NFD that has one of {@link #LABELS}, or the node has GFD's timestamp. */
    public static boolean labels(Map<String, String> nodeLabels, Map<String, String> nodeAnnotations) {
        return nodeLabels.containsKey(TIMESTAMP) || ofNfd(nodeAnnotations).anyMatch(LABELS::contains);
    }

    /** The labels outside of its own namespace that NFD has written and will write again. */
    public static Stream<String> ofNfd(Map<String, String> nodeAnnotations) {
        return nodeAnnotations.entrySet().stream()
                .filter(entry ->
                        entry.getKey().equals(NFD_LABELS) || entry.getKey().endsWith("." + NFD_LABELS))
                .flatMap(entry -> Arrays.stream(entry.getValue().split(",", -1)))
                .map(String::strip);
    }
}
