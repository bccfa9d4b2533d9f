package io.aliquot.scheduler.ledger;

import io.aliquot.scheduler.placement.PodScopes;
import java.util.Set;

/** A scope of a ResourceQuota (k8s.io/kubernetes 1.35, pkg/quota/v1/evaluator/core/pods.go, podMatchesScopeFunc). */
public sealed interface QuotaScope {
    boolean contains(PodScopes pod);

    /** {@code Terminating}: pods with an {@code activeDeadlineSeconds}; {@code NotTerminating}: the others. */
    record Deadline(boolean terminating) implements QuotaScope {
        @Override
        public boolean contains(PodScopes pod) {
            return pod.terminating() == terminating;
        }
    }

    /** {@code PriorityClass} with the operators {@code Exists}, and {@code DoesNotExist}. */
    record HasPriorityClass(boolean exists) implements QuotaScope {
        @Override
        public boolean contains(PodScopes pod) {
            return pod.priorityClass().isEmpty() != exists;
        }
    }

    /** {@code PriorityClass} with the operators {@code In}, and {@code NotIn}, which a pod without a class meets. */
    record PriorityClassIn(Set<String> names, boolean in) implements QuotaScope {
        public PriorityClassIn {
            names = Set.copyOf(names);
        }

        @Override
        public boolean contains(PodScopes pod) {
            return names.contains(pod.priorityClass()) == in;
        }
    }
}
