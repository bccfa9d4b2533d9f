package io.aliquot.scheduler.ledger;

import java.util.List;
import java.util.Optional;
import java.util.function.LongSupplier;

/** Prepares and rolls back changes of what bound pods hold. Thread-safe. */
final class Resizes {
    private final NodeAccounts accounts;
    private final ClaimIndex claims;
    private final LongSupplier nanoTime;

    Resizes(NodeAccounts accounts, ClaimIndex claims, LongSupplier nanoTime) {
        this.accounts = accounts;
        this.claims = claims;
        this.nanoTime = nanoTime;
    }

    Resizing prepare(String uid, List<ContainerShareChange> changes) {
        return prepare(uid, changes, true);
    }

    /** The result that {@link #prepare} would have; changes nothing. */
    Resizing check(String uid, List<ContainerShareChange> changes) {
        return prepare(uid, changes, false);
    }

    private Resizing prepare(String uid, List<ContainerShareChange> changes, boolean apply) {
        var result = new Resizing[] {new Resizing.Unknown()};
        claims.computeIfPresent(uid, (node, freed) -> {
            if (node != null) {
                result[0] = accounts.withAccount(node, account -> prepare(account, uid, node, changes, apply));
            }
            return node;
        });
        return result[0];
    }

    private Resizing prepare(
            NodeAccount account, String uid, String node, List<ContainerShareChange> changes, boolean apply) {
        Claim claim = account.claim(uid).orElseThrow();
        Optional<BoundPod> observed = claim.observed();
        if (observed.isEmpty() || claim.state == Holding.State.LINGERING) {
            return new Resizing.Unknown();
        }
        if (claim.isResizing()) {
            return new Resizing.Unresolved();
        }
        BoundPod pod = observed.get();
        List<ContainerShare> wanted = ContainerShareChange.apply(changes, pod.shares());
        if (wanted.equals(pod.shares())) {
            return new Resizing.Unchanged();
        }
        Claim resizing = claim.resizing(pod, wanted, nanoTime.getAsLong());
        Optional<String> obstacle = account.unsuitable(pod.shares(), wanted)
                .or(() -> account.lacking(pod, ContainerShare.larger(pod.perGpu(), ContainerShare.perGpu(wanted))))
                .or(() -> apply
                        ? account.admit(resizing)
                        : accounts.quotas.lacking(pod.id(), pod.scopes(), resizing.quotaAmount()));
        if (obstacle.isPresent()) {
            return new Resizing.Refused(obstacle.get());
        }
        return new Resizing.Prepared(pod.id(), node, pod.version(), wanted);
    }

    void rollback(String uid, long version) {
        claims.computeIfPresent(uid, (node, freed) -> {
            if (node != null && accounts.withAccount(node, account -> rollback(account, uid, version))) {
                freed.add(node);
            }
            return node;
        });
    }

    private static boolean rollback(NodeAccount account, String uid, long version) {
        Optional<Claim> resizing = account.claim(uid).filter(claim -> claim.isResizing() && claim.base() == version);
        resizing.ifPresent(claim -> account.put(claim.withExcess(claim.excess())));
        return resizing.isPresent();
    }
}
