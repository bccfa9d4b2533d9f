package io.aliquot.scheduler.placement;

/**
 * What decides which scopes of ResourceQuotas a pod is in.
 *
 * @param priorityClass name of its PriorityClass; empty for none
 * @param terminating whether it has an {@code activeDeadlineSeconds}
 */
public record PodScopes(String priorityClass, boolean terminating) {
    public static final PodScopes NONE = new PodScopes("", false);
}
