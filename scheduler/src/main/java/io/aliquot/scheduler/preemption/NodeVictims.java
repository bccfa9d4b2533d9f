package io.aliquot.scheduler.preemption;

import java.util.List;

/**
 * The pods to evict from one node.
 *
 * @param uids of the pods
 * @param budgetViolations how many of the evictions exceed a disruption budget
 */
public record NodeVictims(List<String> uids, int budgetViolations) {
    public NodeVictims {
        uids = List.copyOf(uids);
    }
}
