package io.aliquot.scheduler.pending;

import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.PodGpuRequest;

/**
 * A pod without a node, as kube-scheduler sent it.
 *
 * @param version of the object that kube-scheduler looked at, which may be an old one
 */
public record UnboundPod(PodId id, long version, PreemptionRank rank, PodGpuRequest request) {}
