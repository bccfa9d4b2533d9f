package io.aliquot.scheduler.preemption;

import io.aliquot.scheduler.preemption.Budgets.Budget;
import java.time.Instant;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;

/**
 * The cost of evicting a set of pods; lower is better. Ordered by the highest priority among them, then by the number
 * of disruption budget violations, then by the number of pods, then by the age of the oldest pod, younger first. Adding
 * a pod never lowers the cost.
 *
 * @param oldest when the oldest pod was bound; {@link Instant#MAX} for no pod
 */
public record EvictionCost(int priority, int violations, int pods, Instant oldest) implements Comparable<EvictionCost> {
    public static final EvictionCost NOTHING = new EvictionCost(Integer.MIN_VALUE, 0, 0, Instant.MAX);

    /** More than any set of pods costs. */
    public static final EvictionCost MAX =
            new EvictionCost(Integer.MAX_VALUE, Integer.MAX_VALUE, Integer.MAX_VALUE, Instant.MIN);

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
