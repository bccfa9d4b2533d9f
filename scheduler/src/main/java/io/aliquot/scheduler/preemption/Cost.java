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
public record Cost(int priority, int violations, int pods, Instant oldest) implements Comparable<Cost> {
    public static final Cost NOTHING = new Cost(Integer.MIN_VALUE, 0, 0, Instant.MAX);

    private static final Comparator<Cost> ORDER = Comparator.comparingInt(Cost::priority)
            .thenComparingInt(Cost::violations)
            .thenComparingInt(Cost::pods)
            .thenComparing(Cost::oldest, Comparator.reverseOrder());

    static Cost of(Collection<Victim> victims) {
        Cost cost = NOTHING;
        var counts = new HashMap<Budget, Integer>();
        int violations = 0;
        for (Victim victim : victims) {
            for (Budget budget : victim.budgets()) {
                if (counts.merge(budget, 1, Integer::sum) > Math.max(0, budget.allowed())) {
                    violations++;
                }
            }
            cost = new Cost(
                    Math.max(cost.priority, victim.priority()),
                    violations,
                    cost.pods + 1,
                    victim.since().isBefore(cost.oldest) ? victim.since() : cost.oldest);
        }
        return cost;
    }

    @Override
    public int compareTo(Cost other) {
        return ORDER.compare(this, other);
    }
}
