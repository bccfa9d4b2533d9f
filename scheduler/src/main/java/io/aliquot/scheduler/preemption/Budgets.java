package io.aliquot.scheduler.preemption;

import com.github.benmanes.caffeine.cache.Interner;
import io.aliquot.scheduler.cluster.LabelSelector;
import io.aliquot.scheduler.ledger.PodId;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.springframework.stereotype.Component;

/**
 * The disruption budgets of the cluster, and the labels of the pods that hold GPUs. The Kubernetes adapter updates
 * them. Thread-safe.
 */
@Component
public final class Budgets {
    /**
     * A disruption budget.
     *
     * @param allowed pods that may be evicted now
     * @param counted names of the pods whose eviction the budget has already counted
     */
    public record Budget(String namespace, String name, LabelSelector selector, int allowed, Set<String> counted) {
        public Budget {
            counted = Set.copyOf(counted);
        }
    }

    private final Map<String, Map<String, Budget>> byNamespace = new ConcurrentHashMap<>();
    private final Map<String, Map<String, String>> labels = new ConcurrentHashMap<>();
    /** Pods of one template have the same labels. */
    private final Interner<Map<String, String>> known = Interner.newWeakInterner();

    /** Records the labels of a pod that holds GPUs. */
    public void putPod(String uid, Map<String, String> labels) {
        this.labels.put(uid, known.intern(Map.copyOf(labels)));
    }

    public void removePod(String uid) {
        labels.remove(uid);
    }

    public void putBudget(Budget budget) {
        // In one step, or removeBudget could remove the namespace's map in between.
        byNamespace.compute(budget.namespace(), (namespace, before) -> {
            Map<String, Budget> budgets = before == null ? new ConcurrentHashMap<>() : before;
            budgets.put(budget.name(), budget);
            return budgets;
        });
    }

    public void removeBudget(String namespace, String name) {
        byNamespace.computeIfPresent(namespace, (key, budgets) -> {
            budgets.remove(name);
            return budgets.isEmpty() ? null : budgets;
        });
    }

    /** The budgets that an eviction of this pod would count against. */
    List<Budget> of(PodId pod) {
        Map<String, Budget> here = byNamespace.getOrDefault(pod.namespace(), Map.of());
        if (here.isEmpty()) {
            return List.of();
        }
        Map<String, String> labels = this.labels.getOrDefault(pod.uid(), Map.of());
        return here.values().stream()
                .filter(budget -> !budget.counted().contains(pod.name())
                        && budget.selector().matches(labels))
                .toList();
    }
}
