package io.aliquot.scheduler.ledger;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Predicate;
import org.jspecify.annotations.Nullable;

/** Which node has a pod's claim, by the pod's uid. Operations on one pod are serialized. Thread-safe. */
final class ClaimIndex {
    private final Map<String, String> nodeByPod = new ConcurrentHashMap<>();
    private final NodeAccounts accounts;
    private final LedgerListener listener;

    ClaimIndex(NodeAccounts accounts, LedgerListener listener) {
        this.accounts = accounts;
        this.listener = listener;
    }

    /** An operation on one pod. */
    interface Transition {
        /**
         * Changes the pod's claim.
         *
         * @param node of the pod's claim; null if it has none
         * @param freed nodes where the operation frees capacity are added
         * @return the node of the pod's claim afterwards; null if it has none
         */
        @Nullable
        String apply(@Nullable String node, List<String> freed);
    }

    /** Runs an operation with the pod locked, then reports the capacity that it freed. */
    void compute(String uid, Transition transition) {
        var freed = new ArrayList<String>();
        nodeByPod.compute(uid, (key, node) -> transition.apply(node, freed));
        freed.forEach(listener::capacityFreed);
    }

    /** Like {@link #compute}, if the pod has a claim. */
    void computeIfPresent(String uid, Transition transition) {
        var freed = new ArrayList<String>();
        nodeByPod.computeIfPresent(uid, (key, node) -> transition.apply(node, freed));
        freed.forEach(listener::capacityFreed);
    }

    Optional<String> nodeOf(String uid) {
        return Optional.ofNullable(nodeByPod.get(uid));
    }

    Optional<Claim> find(String uid) {
        return nodeOf(uid).flatMap(node -> at(node, uid));
    }

    /** The pod's claim on this node; {@code node} is null if there is none. */
    Optional<Claim> at(@Nullable String node, String uid) {
        return node == null ? Optional.empty() : accounts.withAccount(node, account -> account.claim(uid));
    }

    /** Removes the pod's claim if it is one of these. */
    void removeIf(String uid, Predicate<Claim> condition) {
        computeIfPresent(uid, (node, freed) -> {
            if (at(node, uid).filter(condition).isEmpty()) {
                return node;
            }
            remove(node, uid, freed);
            return null;
        });
    }

    /** Removes a pod's claim; to be called with the pod locked. */
    void remove(@Nullable String node, String uid, List<String> freed) {
        if (node != null
                && accounts.withAccount(node, account -> account.remove(uid))
                        .filter(claim -> !claim.perGpu.isEmpty())
                        .isPresent()) {
            freed.add(node);
        }
    }

    /** The pods whose claims meet a condition. */
    List<PodId> podsWhere(Predicate<Claim> condition) {
        var pods = new ArrayList<PodId>();
        for (NodeAccount account : accounts.all()) {
            synchronized (account) {
                for (Claim claim : account.claims()) {
                    if (condition.test(claim)) {
                        pods.add(claim.pod);
                    }
                }
            }
        }
        return pods;
    }
}
