package io.aliquot.scheduler.kubernetes;

import io.aliquot.scheduler.preemption.Budgets.Budget;
import io.aliquot.scheduler.preemption.Selector;
import io.fabric8.kubernetes.api.model.LabelSelector;
import io.fabric8.kubernetes.api.model.LabelSelectorRequirement;
import io.fabric8.kubernetes.api.model.policy.v1.PodDisruptionBudget;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** Reads a PodDisruptionBudget. */
final class BudgetReader {
    private BudgetReader() {}

    /** Empty if the object has no selector and so applies to no pod. */
    static Optional<Budget> read(PodDisruptionBudget object) {
        LabelSelector selector =
                object.getSpec() == null ? null : object.getSpec().getSelector();
        if (selector == null) {
            return Optional.empty();
        }
        var status = object.getStatus();
        return Optional.of(new Budget(
                object.getMetadata().getNamespace(),
                object.getMetadata().getName(),
                new Selector(
                        orEmpty(selector.getMatchLabels()),
                        selector.getMatchExpressions().stream()
                                .map(BudgetReader::condition)
                                .toList()),
                status == null || status.getDisruptionsAllowed() == null ? 0 : status.getDisruptionsAllowed(),
                status == null || status.getDisruptedPods() == null
                        ? Set.of()
                        : status.getDisruptedPods().keySet()));
    }

    private static Selector.Condition condition(LabelSelectorRequirement requirement) {
        return new Selector.Condition(
                requirement.getKey(), requirement.getOperator(), Set.copyOf(requirement.getValues()));
    }

    private static Map<String, String> orEmpty(@Nullable Map<String, String> map) {
        return map == null ? Map.of() : map;
    }
}
