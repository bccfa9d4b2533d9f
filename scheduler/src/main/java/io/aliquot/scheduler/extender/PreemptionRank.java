package io.aliquot.scheduler.extender;

/**
 * Whom a pod may push aside.
 *
 * @param priority Kubernetes' own, higher is more important
 * @param preempts whether it may evict pods of lower priority ({@code preemptionPolicy})
 */
record PreemptionRank(int priority, boolean preempts) {
    static final PreemptionRank LOWEST = new PreemptionRank(Integer.MIN_VALUE, false);
}
