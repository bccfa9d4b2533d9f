package io.aliquot.scheduler.apiserver.reader;

import io.aliquot.scheduler.cluster.LabelSelector;
import io.aliquot.scheduler.cluster.LabelSelector.Requirement;
import io.aliquot.scheduler.preemption.Budgets.Budget;
import io.fabric8.kubernetes.api.model.LabelSelectorRequirement;
import io.fabric8.kubernetes.api.model.policy.v1.PodDisruptionBudget;
import java.util.Optional;
import java.util.Set;

/** Reads a PodDisruptionBudget. */
public final class BudgetReader {
    private BudgetReader() {}

    /** Empty if the object has no selector and so applies to no pod. */
    public static Optional<Budget> read(PodDisruptionBudget object) {
        var selector = object.getSpec() == null ? null : object.getSpec().getSelector();
        if (selector == null) {
            return Optional.empty();
        }
        var status = object.getStatus();
        return Optional.of(new Budget(
                object.getMetadata().getNamespace(),
                object.getMetadata().getName(),
                LabelSelector.of(
                        selector.getMatchLabels(),
                        selector.getMatchExpressions().stream()
                                .map(BudgetReader::requirement)
                                .toList()),
                status == null || status.getDisruptionsAllowed() == null ? 0 : status.getDisruptionsAllowed(),
                status == null ? Set.of() : status.getDisruptedPods().keySet()));
    }

    private static Requirement requirement(LabelSelectorRequirement requirement) {
        return new Requirement(requirement.getKey(), requirement.getOperator(), Set.copyOf(requirement.getValues()));
    }
}
