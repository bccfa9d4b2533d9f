package io.aliquot.scheduler.explain;

/** What keeps a pod waiting, in a word: what is missing on the node that comes closest. */
public enum PendingCause {
    /** Device memory, perhaps among other things. */
    MEMORY,
    /** Compute, perhaps among other things, but not memory. */
    CORES,
    /** A vGPU's slot alone. */
    SLOTS,
    /** A GPU that nobody else holds. */
    WHOLE_CARD,
    /** Each of its vGPUs would fit, but not all of them together. */
    TOGETHER,
    /** A GPU that takes new shares: those it would fit on are cordoned, unhealthy, or their node's agent isn't ready. */
    CLOSED,
    /** No node would hold it if it were empty and all its GPUs took shares. */
    IMPOSSIBLE,
    /** Nothing about GPUs: there is room. */
    ELSEWHERE
}
