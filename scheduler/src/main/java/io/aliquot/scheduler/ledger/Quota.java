package io.aliquot.scheduler.ledger;

import io.aliquot.scheduler.placement.PodScopes;
import java.util.List;
import java.util.Map;

/**
 * What the pods of a namespace may hold of GPUs together, as a ResourceQuota says.
 *
 * @param name of the ResourceQuota
 * @param uid of the ResourceQuota
 * @param hard the most of each resource; one that is missing is not limited
 * @param scopes a pod counts if it is in all of them
 */
public record Quota(String namespace, String name, String uid, Map<QuotaResource, Long> hard, List<QuotaScope> scopes) {
    public Quota {
        hard = Map.copyOf(hard);
        scopes = List.copyOf(scopes);
    }

    boolean counts(PodScopes pod) {
        return scopes.isEmpty() || scopes.stream().allMatch(scope -> scope.contains(pod));
    }
}
