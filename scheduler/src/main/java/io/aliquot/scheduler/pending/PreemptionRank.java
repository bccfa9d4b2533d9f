package io.aliquot.scheduler.pending;

/**
 * Whom a pod may push aside.
 *
 * @param priority Kubernetes' own, higher is more important
 * @param preempts whether it may evict pods of lower priority ({@code preemptionPolicy})
 */
public record PreemptionRank(int priority, boolean preempts) {
    public static final PreemptionRank LOWEST = new PreemptionRank(Integer.MIN_VALUE, false);
}
