package io.aliquot.scheduler.autoscaler;

import java.util.Set;

/** A node autoscaler, and the annotation that keeps it from removing a node. */
public enum Autoscaler {
    /**
     * Cluster Autoscaler computes the utilization of a node with a GPU label from the GPU resource alone, which shares do not
     * request, so a node full of shares looks empty to it. It tests the annotation before the utilization
     * (core/scaledown/eligibility/eligibility.go, all releases from 1.31 on).
     */
    CLUSTER_AUTOSCALER("cluster-autoscaler.kubernetes.io/scale-down-disabled", "aliquot.io/scale-down-disabled") {
        @Override
        boolean mayRemove(Set<String> labels) {
            return ClusterAutoscaler.gpuLabel(labels).isPresent();
        }
    },
    /**
     * Karpenter sums up the requests of pods itself, so it needs the annotation only where shares must not be moved
     * (github.com/kubernetes-sigs/karpenter, pkg/controllers/state/statenode.go, ValidateNodeDisruptable).
     */
    KARPENTER("karpenter.sh/do-not-disrupt", "aliquot.io/do-not-disrupt") {
        @Override
        boolean mayRemove(Set<String> labels) {
            return labels.contains("karpenter.sh/nodepool");
        }
    };

    /** With this value an annotation keeps the node. */
    static final String KEEP = "true";

    /** The autoscaler's annotation. */
    final String annotation;
    /** Tells that Aliquot wrote {@link #annotation}, so that the next leader knows. */
    final String mark;

    Autoscaler(String annotation, String mark) {
        this.annotation = annotation;
        this.mark = mark;
    }

    /** Whether the autoscaler may remove a node with these labels although it has shares. */
    abstract boolean mayRemove(Set<String> labels);
}
