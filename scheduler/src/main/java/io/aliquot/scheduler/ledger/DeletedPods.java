package io.aliquot.scheduler.ledger;

import io.aliquot.scheduler.ledger.Holding.State;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/*
 * Why not by time. How long the containers of a deleted pod run is up to its grace period, which may be years, to its
 * kubelet, which may be down, and to the programs, which may not react to signals. The kubelet makes a pod's cgroup before
 * anything else of the pod, and the kernel keeps it as long as a process is in it, so a pod without a cgroup has no process
 * that uses a GPU. That must be so for a while, since a kubelet that learns of the deletion late may be about to make it.
 */
/**
 * Ends the claims of pods that were force-deleted, or deleted before their end was seen, by what their nodes report.
 * Thread-safe.
 */
final class DeletedPods {
    /** For how long a node must not have had a pod. */
    static final Duration ABSENT = Duration.ofSeconds(30);

    /** Between two reports of a node; after a longer gap {@link #ABSENT} begins again. Two of three requests may fail. */
    static final Duration LONGEST_GAP = Duration.ofSeconds(29);

    private final NodeAccounts accounts;
    private final ClaimIndex claims;
    /** By node and uid. */
    private final Map<String, Map<String, Absence>> absences = new HashMap<>();

    DeletedPods(NodeAccounts accounts, ClaimIndex claims) {
        this.accounts = accounts;
        this.claims = claims;
    }

    /** Since when a pod is not on its node, and when that was last seen. */
    private record Absence(long since, long until) {
        boolean isLong() {
            return until - since >= ABSENT.toNanos();
        }
    }

    /** The claims of deleted pods on a node. */
    List<Claim> of(String node) {
        NodeAccount account = accounts.find(node);
        if (account == null) {
            return List.of();
        }
        var deleted = new ArrayList<Claim>();
        synchronized (account) {
            for (Claim claim : account.claims()) {
                if (claim.state == State.LINGERING) {
                    deleted.add(claim);
                }
            }
        }
        return deleted;
    }

    /** See {@link Ledger#observe}. */
    List<PodId> observe(String node, Set<String> uids, long askedAt) {
        List<PodId> ended = absent(node, uids, askedAt);
        ended.forEach(pod -> claims.removeIf(pod.uid(), claim -> claim.state == State.LINGERING));
        return ended;
    }

    /** Takes note of a report; returns the pods that have been absent for long. */
    private synchronized List<PodId> absent(String node, Set<String> uids, long askedAt) {
        Map<String, Absence> before = absences.getOrDefault(node, Map.of());
        Map<String, Absence> absent = new HashMap<>();
        var ended = new ArrayList<PodId>();
        for (Claim claim : of(node)) {
            String uid = claim.pod.uid();
            if (askedAt - claim.since >= 0 && !uids.contains(uid)) {
                Absence known = before.getOrDefault(uid, new Absence(askedAt, askedAt));
                boolean goesOn = askedAt - known.until <= LONGEST_GAP.toNanos();
                var absence = new Absence(goesOn ? known.since : askedAt, askedAt);
                if (absence.isLong()) {
                    ended.add(claim.pod);
                } else {
                    absent.put(uid, absence);
                }
            }
        }
        if (absent.isEmpty()) {
            absences.remove(node);
        } else {
            absences.put(node, absent);
        }
        return ended;
    }
}
