package io.aliquot.scheduler.extender;

/**
 * Whom a pod may push aside.
 *
 * @param priority Kubernetes' own, higher is more important
 * @param preempts whether it may evict pods of lower priority ({@code preemptionPolicy})
 */
record Rank(int priority, boolean preempts) {
    static final Rank LOWEST = new Rank(Integer.MIN_VALUE, false);
}
