package io.aliquot.scheduler.autoscaler;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;

/*
 * The source of the rules is github.com/kubernetes/autoscaler, branches cluster-autoscaler-release-1.31 to 1.37, and
 * github.com/kubernetes-sigs/cluster-autoscaler, where it has moved. A node with the GPU label of its cloud and without an
 * allocatable amount of a GPU resource counts as one whose driver is still being installed
 * (processors/customresources/gpu_processor.go, FilterOutNodesWithUnreadyResources). Nodes that stay so stop autoscaling of
 * their group, and too many of them that of the cluster. ClusterAutoscalerTest has the rules row by row.
 */
/** How Cluster Autoscaler judges a node's GPUs, by the node's labels and allocatable resources. */
public final class ClusterAutoscaler {
    private static final String NVIDIA = "nvidia.com/gpu";

    /** Each cloud provider's {@code GPULabel()}; kwok's and those of an external gRPC provider are settings of theirs. */
    static final Set<String> GPU_LABELS = Set.of(
            "accelerator", // cloudstack
            "aliyun.accelerator/nvidia_name",
            "baidu/nvidia_name",
            "bke.bizflycloud.vn/gpu-node",
            "cherryservers.com/gpu",
            "civo.com/gpu-node",
            "cloud.brightbox.com/gpu-node",
            "cloud.digitalocean.com/gpu-node",
            "cloud.google.com/gke-accelerator", // also equinixmetal, huaweicloud, kubemark
            "cloud.tencent.com/tke-accelerator",
            "cluster-api/accelerator",
            "hcloud/gpu-node",
            "k8s.amazonaws.com/accelerator",
            "k8s.scaleway.com/gpu", // 1.31
            "k8s.scw.cloud/gpu",
            "kubernetes.azure.com/accelerator",
            "magnum.openstack.org/gpu",
            "node.kubernetes.ovhcloud.com/gpu");

    /** Releases that judge alike. */
    enum Release {
        UP_TO_1_33("1.33 and earlier"),
        V1_34("1.34"),
        FROM_1_35("1.35 and later");

        private final String print;

        Release(String print) {
            this.print = print;
        }

        /** The GPU resources that it knows (utils/gpu/gpu.go). */
        private List<String> resources() {
            return switch (this) {
                case UP_TO_1_33 -> List.of(NVIDIA, "microsoft.com/directx");
                case V1_34 -> List.of(NVIDIA, "habana.ai/gaudi", "amd.com/gpu", "microsoft.com/directx");
                case FROM_1_35 ->
                    List.of(NVIDIA, "habana.ai/gaudi", "gpu.intel.com/xe", "amd.com/gpu", "microsoft.com/directx");
            };
        }

        /** FilterOutNodesWithUnreadyResources, of a node with a GPU label. */
        boolean takesForReady(Set<String> allocatable) {
            return resources().stream().anyMatch(allocatable::contains);
        }

        /** Whether GetNodeGpuTarget tells the number of GPUs of such a node if it is in no autoscaled group. */
        boolean counts(Set<String> allocatable) {
            return this == UP_TO_1_33 ? allocatable.contains(NVIDIA) : takesForReady(allocatable);
        }
    }

    /**
     * A verdict on a node.
     *
     * @param ready whether every release takes the node for ready
     * @param reason one CamelCase word
     * @param message for the administrator
     */
    public record Readiness(boolean ready, String reason, String message) {}

    private ClusterAutoscaler() {}

    /** The label by which the autoscaler takes a node for one with GPUs; empty if it has none. */
    static Optional<String> gpuLabel(Set<String> labels) {
        return GPU_LABELS.stream().filter(labels::contains).sorted().findFirst();
    }

    /**
     * Whether the autoscaler takes the node for ready; empty for a node without a GPU label, whose GPUs it does not look for.
     *
     * @param labels the node's
     * @param allocatable the node's resources of which there is more than nothing
     */
    public static Optional<Readiness> readiness(Map<String, String> labels, Set<String> allocatable) {
        return gpuLabel(labels.keySet()).map(label -> readiness(label, allocatable));
    }

    private static Readiness readiness(String label, Set<String> allocatable) {
        List<Release> unready = Arrays.stream(Release.values())
                .filter(release -> !release.takesForReady(allocatable))
                .toList();
        if (!unready.isEmpty()) {
            return new Readiness(
                    false,
                    "NoKnownGpuResource",
                    "Cluster Autoscaler " + print(unready) + " takes this node for unready: it has the label " + label
                            + " and nothing allocatable of "
                            + String.join(", ", new TreeSet<>(unready.getLast().resources()))
                            + ". Remove the label where you set it yourself; where the cloud sets it, set the chart's value"
                            + " autoscaler.readyResource=microsoft.com/directx (docs/autoscalers.md)");
        }
        List<Release> uncounted = Arrays.stream(Release.values())
                .filter(release -> !release.counts(allocatable))
                .toList();
        String has = "the node has the label " + label + " and an allocatable amount of a GPU resource";
        return uncounted.isEmpty()
                ? new Readiness(true, "KnownGpuResource", has)
                : new Readiness(
                        true,
                        "KnownGpuResource",
                        has + ". Cluster Autoscaler " + print(uncounted)
                                + " cannot count its GPUs, and adds no node to any group while this one is in no autoscaled"
                                + " group");
    }

    /** Nothing for all releases. */
    private static String print(List<Release> releases) {
        return releases.size() == Release.values().length
                ? "of every version"
                : releases.stream().map(release -> release.print).collect(Collectors.joining(" and "));
    }
}
