package io.aliquot.scheduler.ledger;

import io.aliquot.scheduler.placement.PodScopes;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;

/*
 * A namespace's claims are known whether or not it has a quota, so that a new quota counts what is held already.
 * ConcurrentHashMap.compute() is the lock of a namespace; it is taken last, after those of the pod and of the node.
 *
 * A reservation counts, so that Filter does not let a second pod pass for what Bind then refuses. Two claims of a pod
 * exist while it moves between nodes: the later one counts, and the removal of the earlier one has no effect.
 */
/** Quotas of namespaces, and the claims that count in them. Thread-safe. */
final class Quotas {
    private static final int MOST_FREED = 10_000;

    private final Map<String, Namespace> namespaces = new ConcurrentHashMap<>();
    /** Namespaces in which a quota has room again. */
    private final Set<String> freed = ConcurrentHashMap.newKeySet();

    private static final class Namespace {
        private final Map<String, Claim> claims = new HashMap<>();
        private final Map<String, Tally> tallies = new TreeMap<>();
        /** Whether there are tallies; read without the lock. */
        private volatile boolean limited;

        boolean isEmpty() {
            return claims.isEmpty() && tallies.isEmpty();
        }

        /** Returns whether less counts than before in some quota. */
        boolean replace(QuotaAmount before, QuotaAmount after, Claim claim) {
            boolean frees = false;
            for (Tally tally : tallies.values()) {
                frees |= tally.replace(before, after, claim);
            }
            return frees;
        }
    }

    /** A quota and the sum over all claims that count in it. */
    private static final class Tally {
        private final Quota quota;
        private QuotaAmount sum = QuotaAmount.NONE;

        Tally(Quota quota) {
            this.quota = quota;
        }

        boolean replace(QuotaAmount before, QuotaAmount after, Claim claim) {
            if (!quota.counts(claim.scopes())) {
                return false;
            }
            sum = sum.plus(after).minus(before);
            return quota.hard().keySet().stream().anyMatch(what -> what.of(after) < what.of(before));
        }
    }

    /** Adds or replaces a quota. */
    void put(Quota quota) {
        change(quota.namespace(), namespace -> {
            Tally known = namespace.tallies.get(quota.name());
            if (known == null || !known.quota.equals(quota)) {
                var tally = new Tally(quota);
                namespace.claims.values().forEach(claim -> tally.replace(QuotaAmount.NONE, claim.quotaAmount(), claim));
                namespace.tallies.put(quota.name(), tally);
                namespace.limited = true;
                freed(quota.namespace());
            }
        });
    }

    void remove(String namespace, String name) {
        change(namespace, one -> {
            if (one.tallies.remove(name) != null) {
                one.limited = !one.tallies.isEmpty();
                freed(namespace);
            }
        });
    }

    /** Counts a claim instead of the pod's former one. */
    void put(Claim claim) {
        if (!claim.quotaAmount().equals(QuotaAmount.NONE)) {
            change(claim.pod.namespace(), namespace -> put(namespace, claim));
        } else {
            namespaces.computeIfPresent(claim.pod.namespace(), (name, namespace) -> {
                put(namespace, claim);
                return namespace.isEmpty() ? null : namespace;
            });
        }
    }

    private void put(Namespace namespace, Claim claim) {
        String uid = claim.pod.uid();
        boolean counts = !claim.quotaAmount().equals(QuotaAmount.NONE);
        Claim before = counts ? namespace.claims.put(uid, claim) : namespace.claims.remove(uid);
        if (before != null && before.scopes().equals(claim.scopes())) {
            note(namespace.replace(before.quotaAmount(), claim.quotaAmount(), claim), claim);
        } else {
            if (before != null) {
                note(namespace.replace(before.quotaAmount(), QuotaAmount.NONE, before), before);
            }
            note(namespace.replace(QuotaAmount.NONE, claim.quotaAmount(), claim), claim);
        }
    }

    /** Removes a claim; no effect if another one of the pod counts. */
    void remove(Claim claim) {
        namespaces.computeIfPresent(claim.pod.namespace(), (name, namespace) -> {
            if (namespace.claims.remove(claim.pod.uid(), claim)) {
                note(namespace.replace(claim.quotaAmount(), QuotaAmount.NONE, claim), claim);
            }
            return namespace.isEmpty() ? null : namespace;
        });
    }

    private void note(boolean frees, Claim claim) {
        if (frees) {
            freed(claim.pod.namespace());
        }
    }

    /** A replica that does not lead takes none of them, so they accumulate, also names of deleted namespaces. */
    void freed(String namespace) {
        if (freed.size() < MOST_FREED) {
            freed.add(namespace);
        }
    }

    private void change(String name, Consumer<Namespace> change) {
        namespaces.compute(name, (any, known) -> {
            Namespace namespace = known == null ? new Namespace() : known;
            change.accept(namespace);
            return namespace.isEmpty() ? null : namespace;
        });
    }

    /** Counts a claim if the quotas of its namespace allow it; returns what is missing if they do not. */
    Optional<String> admit(Claim claim) {
        var lacking = new ArrayList<String>(0);
        change(claim.pod.namespace(), namespace -> {
            lacking(namespace, claim.pod, claim.scopes(), claim.quotaAmount()).ifPresent(lacking::add);
            if (lacking.isEmpty()) {
                put(namespace, claim);
            }
        });
        return lacking.stream().findFirst();
    }

    /** Whether the namespace has a quota. */
    boolean limit(String name) {
        Namespace namespace = namespaces.get(name);
        return namespace != null && namespace.limited;
    }

    /** What is missing in the quotas for a pod to hold this amount; empty if nothing is. */
    Optional<String> lacking(PodId pod, PodScopes scopes, QuotaAmount wanted) {
        var lacking = new ArrayList<String>(0);
        namespaces.computeIfPresent(pod.namespace(), (name, namespace) -> {
            lacking(namespace, pod, scopes, wanted).ifPresent(lacking::add);
            return namespace;
        });
        return lacking.stream().findFirst();
    }

    private static Optional<String> lacking(Namespace namespace, PodId pod, PodScopes scopes, QuotaAmount wanted) {
        if (namespace.tallies.isEmpty()) {
            return Optional.empty();
        }
        Optional<Claim> own = Optional.ofNullable(namespace.claims.get(pod.uid()));
        QuotaAmount held = own.filter(Quotas::isBound).map(Claim::quotaAmount).orElse(QuotaAmount.NONE);
        QuotaAmount more = wanted.minus(held);
        for (Tally tally : namespace.tallies.values()) {
            if (!tally.quota.counts(scopes)) {
                continue;
            }
            QuotaAmount reserved = own.filter(claim -> !isBound(claim) && tally.quota.counts(claim.scopes()))
                    .map(Claim::quotaAmount)
                    .orElse(QuotaAmount.NONE);
            QuotaAmount used = tally.sum.minus(reserved);
            for (QuotaResource what : QuotaResource.values()) {
                Long hard = tally.quota.hard().get(what);
                if (hard != null && what.of(more) > 0 && what.of(more) > hard - what.of(used)) {
                    return Optional.of("namespace %s has %d of %d %s left, the pod needs %d (ResourceQuota %s)"
                            .formatted(
                                    pod.namespace(),
                                    Math.max(0, hard - what.of(used)),
                                    hard,
                                    what.unit(),
                                    what.of(more),
                                    tally.quota.name()));
                }
            }
        }
        return Optional.empty();
    }

    /** Whether the pod holds its amount, so that it needs only what it gets in addition. */
    private static boolean isBound(Claim claim) {
        return claim.observed().isPresent();
    }

    /** Takes the namespaces in which a quota has room again. */
    Set<String> takeFreed() {
        return LedgerEvents.take(freed);
    }

    /** All quotas, in the order of their namespaces and names. */
    List<QuotaUsage> usage() {
        var all = new ArrayList<QuotaUsage>();
        for (String name : namespaces.keySet().stream().sorted().toList()) {
            namespaces.computeIfPresent(name, (any, namespace) -> {
                namespace
                        .tallies
                        .values()
                        .forEach(tally -> all.add(new QuotaUsage(tally.quota, used(namespace, tally.quota))));
                return namespace;
            });
        }
        return all;
    }

    private static QuotaAmount used(Namespace namespace, Quota quota) {
        return namespace.claims.values().stream()
                .filter(claim -> claim.mayBeBound() && quota.counts(claim.scopes()))
                .map(Claim::quotaAmount)
                .reduce(QuotaAmount.NONE, QuotaAmount::plus);
    }
}
