package io.aliquot.scheduler.extensionapi.objects;

import io.aliquot.api.pods.Vgpu;
import io.aliquot.scheduler.ledger.ContainerShare;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * A pod that holds or requests a GPU of Aliquot and has not ended, in one version: everything that a gpushare shows apart
 * from usage and explanation.
 *
 * @param version resourceVersion
 * @param node empty for a pod without a node
 * @param terminating whether it is being deleted
 * @param priority value of the pod's PriorityClass
 * @param mayPreempt false for {@code preemptionPolicy: Never}
 * @param schedulerMessage why kube-scheduler found no node in its last attempt; empty if it made none or found one
 * @param schedulingGates what keeps kube-scheduler from trying a Pending pod
 * @param shares what its containers hold; empty for a pod without a node
 */
public record GpuPod(
        PodId id,
        long version,
        Instant created,
        Map<String, String> labels,
        String node,
        boolean terminating,
        int priority,
        boolean mayPreempt,
        String schedulerMessage,
        List<String> schedulingGates,
        ParsedRequest request,
        List<ContainerShare> shares) {
    private static final int BYTES = 1000;
    private static final int BYTES_PER_LABEL = 150;
    private static final int BYTES_PER_SHARE = 500;

    public GpuPod {
        labels = Map.copyOf(labels);
        schedulingGates = List.copyOf(schedulingGates);
        shares = List.copyOf(shares);
    }

    /** A pod's GPU requests, as far as they can be parsed. */
    public sealed interface ParsedRequest {
        record Valid(PodGpuRequest request) implements ParsedRequest {}

        /**
         * The pod's resources or annotations contradict each other or have invalid values.
         *
         * @param reason a sentence that says what to write instead
         */
        record Invalid(String reason) implements ParsedRequest {}
    }

    /** What it takes, about: names, labels, the message and shares. */
    long bytes() {
        return BYTES + bytes(labels) + schedulerMessage.length() + (long) BYTES_PER_SHARE * shares.size();
    }

    static long bytes(Map<String, String> labels) {
        return labels.entrySet().stream()
                .mapToLong(label -> BYTES_PER_LABEL
                        + label.getKey().length()
                        + label.getValue().length())
                .sum();
    }

    public boolean isPending() {
        return node.isEmpty();
    }

    /** Why kube-scheduler does not try a Pending pod; empty for a pod without scheduling gates. */
    Optional<String> gated() {
        return schedulingGates.isEmpty()
                ? Optional.empty()
                : Optional.of("kube-scheduler does not try the pod before its scheduling gates are removed: "
                        + String.join(", ", schedulingGates));
    }

    /** The UUIDs of the GPUs of which it holds a share. */
    public List<String> gpus() {
        return shares.stream()
                .flatMap(share -> share.vgpus().list().stream())
                .map(Vgpu::uuid)
                .distinct()
                .toList();
    }

    public String phase() {
        if (isPending()) {
            return "Pending";
        }
        return terminating ? "Terminating" : "Bound";
    }

    /** The same pod with other shares, in a later version. */
    public GpuPod with(List<ContainerShare> changed, long newVersion) {
        return new GpuPod(
                id,
                newVersion,
                created,
                labels,
                node,
                terminating,
                priority,
                mayPreempt,
                schedulerMessage,
                schedulingGates,
                request,
                changed);
    }
}
