package io.aliquot.api.nodes;

import static io.aliquot.api.format.FormatException.expect;

import java.util.regex.Pattern;

/**
 * A running pod that got a physical GPU, or a part of it, from another device plugin.
 *
 * @param pod its namespace and name, such as {@code team/train}
 * @param resource the resource by which it got the GPU, such as {@code nvidia.com/gpu}
 * @param hami whether the pod is HAMi's by the form of its device IDs. HAMi's device plugin ignores the IDs that the
 *     kubelet chose, so such a pod may hold any GPU of the node; its annotation tells which
 */
public record ForeignHolder(String pod, String resource, boolean hami) implements Comparable<ForeignHolder> {
    // Names of namespaces and pods (Kubernetes: object names) and of extended resources.
    private static final Pattern POD = Pattern.compile("[a-z0-9-]{1,63}/[a-z0-9.-]{1,253}");
    private static final Pattern RESOURCE = Pattern.compile("[A-Za-z0-9./_-]{1,317}");

    /** A pod of another device plugin than HAMi's. */
    public ForeignHolder(String pod, String resource) {
        this(pod, resource, false);
    }

    public ForeignHolder {
        expect(POD.matcher(pod).matches(), "a pod's namespace/name", pod);
        expect(RESOURCE.matcher(resource).matches(), "an extended resource's name", resource);
    }

    /** As users read it: {@code held by pod team/train through nvidia.com/gpu}. */
    public String print() {
        return "held by pod " + pod + " through " + resource;
    }

    @Override
    public int compareTo(ForeignHolder other) {
        int byPod = pod.compareTo(other.pod);
        int byResource = byPod != 0 ? byPod : resource.compareTo(other.resource);
        return byResource != 0 ? byResource : Boolean.compare(hami, other.hami);
    }
}
