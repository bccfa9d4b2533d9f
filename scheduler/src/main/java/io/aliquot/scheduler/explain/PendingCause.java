package io.aliquot.scheduler.explain;

/** The main cause for which a pod is Pending: what the node that lacks the least lacks. */
public enum PendingCause {
    /** Device memory, perhaps with other things. */
    MEMORY,
    /** Cores, perhaps with slots; memory suffices. */
    CORES,
    /** Slots only. */
    SLOTS,
    /** A whole card: the pod requests one, or the GPU is allocated as one. */
    WHOLE_CARD,
    /** Each vGPU of the pod fits alone, but not all of them together. */
    TOGETHER,
    /** The quotas of its namespace. */
    QUOTA,
    /** The GPUs that would fit are cordoned or unhealthy, or the node's agent is not ready. */
    CLOSED,
    /** No node would fit the pod even if it were empty and all its GPUs took new vGPUs. */
    IMPOSSIBLE,
    /** Not GPUs: a node has enough free GPU capacity. */
    ELSEWHERE
}
