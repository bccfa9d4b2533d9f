package io.aliquot.scheduler.preemption;

import io.aliquot.scheduler.preemption.Budgets.Budget;
import java.time.Instant;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;

/**
 * What it costs to evict some pods: a lower cost is better. First comes the priority of the most important one, then
 * how often a disruption budget is overdrawn, then how many they are, then how long the oldest one has run, the shorter
 * the better. To evict one more pod never costs less.
 *
 * @param oldest when the oldest got its node; {@link Instant#MAX} where nobody is evicted
 */
public record EvictionCost(int priority, int violations, int pods, Instant oldest) implements Comparable<EvictionCost> {
    public static final EvictionCost NOTHING = new EvictionCost(Integer.MIN_VALUE, 0, 0, Instant.MAX);

    private static final Comparator<EvictionCost> ORDER = Comparator.comparingInt(EvictionCost::priority)
            .thenComparingInt(EvictionCost::violations)
            .thenComparingInt(EvictionCost::pods)
            .thenComparing(EvictionCost::oldest, Comparator.reverseOrder());

    static EvictionCost of(Collection<Victim> victims) {
        EvictionCost cost = NOTHING;
        var counts = new HashMap<Budget, Integer>();
        int violations = 0;
        for (Victim victim : victims) {
            for (Budget budget : victim.budgets()) {
                if (counts.merge(budget, 1, Integer::sum) > Math.max(0, budget.allowed())) {
                    violations++;
                }
            }
            cost = new EvictionCost(
                    Math.max(cost.priority, victim.priority()),
                    violations,
                    cost.pods + 1,
                    victim.since().isBefore(cost.oldest) ? victim.since() : cost.oldest);
        }
        return cost;
    }

    @Override
    public int compareTo(EvictionCost other) {
        return ORDER.compare(this, other);
    }
}
