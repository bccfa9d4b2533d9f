package io.aliquot.scheduler.preemption;

import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.preemption.Budgets.Budget;
import io.aliquot.scheduler.preemption.VictimSearch.StepLimit;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/*
 * Branch and bound over the sets of the GPU's candidates, depth first, the least important first. The candidates of the
 * lowest priorities that suffice together come first; their last priority is that of every set that suffices. A branch
 * ends if all remaining candidates do not give back enough, or if the fewest further victims that could, by the largest
 * amounts among them, make it more expensive than the best set so far. The first of these is what kube-scheduler's
 * reprieve leaves; so there is a result when the steps are used up.
 */
/** The pods of one GPU that may be evicted, and the search for the cheapest set of them. Not thread-safe. */
final class GpuVictims {
    private final GpuAmount lacking;
    private final List<Victim> victims;
    private final boolean withinBudgets;
    private final StepLimit steps;

    private final long[] memoryMiB;
    private final int[] cores;
    private final int[] slots;
    /** The sums of the candidates before an index. */
    private final long[] memoryBefore;

    private final long[] coresBefore;
    private final long[] slotsBefore;
    /** The largest amounts from an index on. */
    private final long[] mostMemory;

    private final long[] mostCores;
    private final long[] mostSlots;
    /** Indexes of each candidate's budgets, how many evictions each of them allows, and how many the current set has. */
    private final int[][] budgets;

    private final int[] allowed;
    private final int[] counts;

    private final boolean[] current;
    private final boolean[] best;
    private EvictionCost bestCost = EvictionCost.MAX;
    private boolean found;
    private int priority;

    /**
     * Prepares a search.
     *
     * @param gpu the UUID of the GPU
     * @param lacking what must be given back
     * @param victims that hold a part of the GPU, the least important first
     * @param withinBudgets whether no set may violate a disruption budget
     */
    GpuVictims(String gpu, GpuAmount lacking, List<Victim> victims, boolean withinBudgets, StepLimit steps) {
        this.lacking = lacking;
        this.victims = victims;
        this.withinBudgets = withinBudgets;
        this.steps = steps;
        int n = victims.size();
        memoryMiB = new long[n];
        cores = new int[n];
        slots = new int[n];
        memoryBefore = new long[n + 1];
        coresBefore = new long[n + 1];
        slotsBefore = new long[n + 1];
        mostMemory = new long[n + 1];
        mostCores = new long[n + 1];
        mostSlots = new long[n + 1];
        budgets = new int[n][];
        current = new boolean[n];
        best = new boolean[n];
        Map<Budget, Integer> numbers = new HashMap<>();
        for (int i = 0; i < n; i++) {
            Victim victim = victims.get(i);
            GpuAmount amount = victim.perGpu().getOrDefault(gpu, GpuAmount.NOTHING);
            memoryMiB[i] = amount.memoryMiB();
            cores[i] = amount.cores();
            slots[i] = amount.slots();
            memoryBefore[i + 1] = memoryBefore[i] + memoryMiB[i];
            coresBefore[i + 1] = coresBefore[i] + cores[i];
            slotsBefore[i + 1] = slotsBefore[i] + slots[i];
            budgets[i] = victim.budgets().stream()
                    .mapToInt(budget -> numbers.computeIfAbsent(budget, any -> numbers.size()))
                    .toArray();
        }
        for (int i = n - 1; i >= 0; i--) {
            mostMemory[i] = Math.max(mostMemory[i + 1], memoryMiB[i]);
            mostCores[i] = Math.max(mostCores[i + 1], cores[i]);
            mostSlots[i] = Math.max(mostSlots[i + 1], slots[i]);
        }
        allowed = new int[numbers.size()];
        numbers.forEach((budget, number) -> allowed[number] = Math.max(0, budget.allowed()));
        counts = new int[allowed.length];
    }

    /** The cheapest set that gives back what is lacking; empty if there is none that costs less than {@code bound}. */
    Optional<EvictionPlan> cheapest(EvictionCost bound) {
        if (lacking.equals(GpuAmount.NOTHING)) {
            return EvictionCost.NOTHING.compareTo(bound) < 0 ? Optional.of(EvictionPlan.NONE) : Optional.empty();
        }
        bestCost = bound;
        found = false;
        for (int end : VictimSearch.ends(victims)) {
            priority = victims.get(end - 1).priority();
            if (found || priority > bound.priority()) {
                break;
            }
            if (suffices(0, end, lacking.memoryMiB(), lacking.cores(), lacking.slots())) {
                reprieve(end);
                extend(0, end, lacking.memoryMiB(), lacking.cores(), lacking.slots(), 0, 0, Instant.MAX);
            }
        }
        return found ? Optional.of(new EvictionPlan(chosen(best))) : Optional.empty();
    }

    private List<Victim> chosen(boolean[] set) {
        var chosen = new ArrayList<Victim>();
        for (int i = 0; i < set.length; i++) {
            if (set[i]) {
                chosen.add(victims.get(i));
            }
        }
        return chosen;
    }

    /** Whether the candidates from one index to before another give back this much. */
    private boolean suffices(int from, int end, long memory, long core, long slot) {
        return memoryBefore[end] - memoryBefore[from] >= memory
                && coresBefore[end] - coresBefore[from] >= core
                && slotsBefore[end] - slotsBefore[from] >= slot;
    }

    /** Takes the candidates before an index but for those, the most important first, without which they suffice too. */
    private void reprieve(int end) {
        Arrays.fill(current, 0, end, true);
        long memory = memoryBefore[end] - lacking.memoryMiB();
        long core = coresBefore[end] - lacking.cores();
        long slot = slotsBefore[end] - lacking.slots();
        for (int i = end - 1; i >= 0; i--) {
            if (memoryMiB[i] <= memory && cores[i] <= core && slots[i] <= slot) {
                current[i] = false;
                memory -= memoryMiB[i];
                core -= cores[i];
                slot -= slots[i];
            }
        }
        EvictionCost cost = EvictionCost.of(chosen(current));
        if (cost.compareTo(bestCost) < 0 && !(withinBudgets && cost.violations() > 0)) {
            record(cost);
        }
        Arrays.fill(current, false);
    }

    private void record(EvictionCost cost) {
        bestCost = cost;
        found = true;
        System.arraycopy(current, 0, best, 0, best.length);
    }

    /**
     * Tries all sets that extend the current one.
     *
     * @param from the first candidate that may be added
     * @param end the first one that may not
     * @param memory still lacking; 0 or less if it suffices, likewise cores and slots
     */
    private void extend(
            int from, int end, long memory, long core, long slot, int violations, int pods, Instant oldest) {
        if (memory <= 0 && core <= 0 && slot <= 0) {
            if (isCheaper(violations, pods, oldest)) {
                record(new EvictionCost(priority, violations, pods, oldest));
            }
            return;
        }
        for (int i = from; i < end && suffices(i, end, memory, core, slot) && steps.next(); i++) {
            if (!isCheaper(violations, pods + fewest(i, memory, core, slot), oldest)) {
                return;
            }
            int more = 0;
            for (int budget : budgets[i]) {
                more += ++counts[budget] > allowed[budget] ? 1 : 0;
            }
            if (!(withinBudgets && more > 0)) {
                Instant since = victims.get(i).since();
                current[i] = true;
                extend(
                        i + 1,
                        end,
                        memory - memoryMiB[i],
                        core - cores[i],
                        slot - slots[i],
                        violations + more,
                        pods + 1,
                        since.isBefore(oldest) ? since : oldest);
                current[i] = false;
            }
            for (int budget : budgets[i]) {
                counts[budget]--;
            }
        }
    }

    /** A lower bound of the number of victims, from an index on, that give back this much. */
    private int fewest(int from, long memory, long core, long slot) {
        return (int) Math.max(
                fewest(memory, mostMemory[from]),
                Math.max(fewest(core, mostCores[from]), fewest(slot, mostSlots[from])));
    }

    private static long fewest(long lacking, long most) {
        return lacking <= 0 ? 0 : most == 0 ? Integer.MAX_VALUE / 2 : (lacking + most - 1) / most;
    }

    private boolean isCheaper(int violations, int pods, Instant oldest) {
        if (priority != bestCost.priority()) {
            return priority < bestCost.priority();
        }
        if (violations != bestCost.violations()) {
            return violations < bestCost.violations();
        }
        return pods != bestCost.pods() ? pods < bestCost.pods() : oldest.isAfter(bestCost.oldest());
    }
}
