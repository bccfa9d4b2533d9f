package io.aliquot.scheduler.pending;

/**
 * Which pods a pod may preempt.
 *
 * @param priority the Kubernetes priority; higher is more important
 * @param preempts whether it may evict pods of lower priority ({@code preemptionPolicy})
 */
public record PreemptionRank(int priority, boolean preempts) {
    public static final PreemptionRank LOWEST = new PreemptionRank(Integer.MIN_VALUE, false);
}
