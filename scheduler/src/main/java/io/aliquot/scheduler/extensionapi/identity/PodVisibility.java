package io.aliquot.scheduler.extensionapi.identity;

/**
 * Whether the cluster's RBAC shows a user the pods of a namespace: the API server has authorized the user for gpushares,
 * but an explanation may name pods of other namespaces. Calls return within seconds and never throw; without an answer of
 * the API server the pods stay hidden.
 */
@FunctionalInterface
public interface PodVisibility {
    boolean mayListPods(RequestUser user, String namespace);
}
