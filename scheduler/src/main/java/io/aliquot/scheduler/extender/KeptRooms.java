package io.aliquot.scheduler.extender;

import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.PodAsk;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongSupplier;
import java.util.stream.Collectors;

/**
 * Room that pods were made to leave, for whom they were made to: kept until that pod is bound or gone, or may go
 * elsewhere. Not remembered beyond this process: who takes over finds the victims leaving and keeps their room again.
 * Thread-safe.
 */
final class KeptRooms {
    /** Until the watch must have told that a victim was told to leave. */
    private static final Duration LAG = Duration.ofSeconds(15);

    /** How long after it should be gone a pod is still expected to go. */
    private static final Duration OVERDUE = Duration.ofSeconds(30);

    record Kept(PodId pod, PodAsk ask, String node, Set<String> victims, long since) {}

    private final Ledger ledger;
    private final PendingPods pending;
    private final LongSupplier nanoTime;
    private final InstantSource clock;
    private final Map<String, Kept> byPod = new ConcurrentHashMap<>();

    KeptRooms(Ledger ledger, PendingPods pending, LongSupplier nanoTime, InstantSource clock) {
        this.ledger = ledger;
        this.pending = pending;
        this.nanoTime = nanoTime;
        this.clock = clock;
    }

    /** Keeps the room that these, and whoever leaves the node anyway, will have left; whether that is enough. */
    boolean keep(PodId pod, PodAsk ask, String node, Set<String> victims) {
        return keep(new Kept(pod, ask, node, Set.copyOf(victims), nanoTime.getAsLong()));
    }

    private boolean keep(Kept kept) {
        Set<String> without = leaving(kept.node());
        if (nanoTime.getAsLong() - kept.since() < LAG.toNanos()) {
            without.addAll(kept.victims());
        }
        boolean done = ledger.keepFor(kept.pod(), kept.node(), kept.ask(), without);
        if (done) {
            byPod.put(kept.pod().uid(), kept);
        } else {
            letGo(kept.pod().uid());
        }
        return done;
    }

    void letGo(String uid) {
        byPod.remove(uid);
        ledger.letGo(uid);
    }

    /** Whether room is kept for this pod. */
    boolean holds(String uid) {
        return byPod.containsKey(uid);
    }

    Collection<Kept> all() {
        return List.copyOf(byPod.values());
    }

    /** To be called often enough that the ledger doesn't forget. */
    void renew() {
        for (Kept kept : all()) {
            String uid = kept.pod().uid();
            boolean stays = ledger.place(uid).map(kept.node()::equals).orElse(true);
            if (pending.ask(uid).isEmpty() || !stays) {
                letGo(uid);
            } else {
                keep(kept);
            }
        }
    }

    /** Uids of pods that were told to leave a node, or are being told, and still have parts of its GPUs. */
    Set<String> leaving(String node) {
        return ledger.view(node).map(this::leaving).orElseGet(HashSet::new);
    }

    Set<String> leaving(NodeView node) {
        Set<String> leaving = node.holdings().stream()
                .filter(this::leaves)
                .map(holding -> holding.pod().uid())
                .collect(Collectors.toCollection(HashSet::new));
        long now = nanoTime.getAsLong();
        for (Kept kept : byPod.values()) {
            if (kept.node().equals(node.name()) && now - kept.since() < LAG.toNanos()) {
                leaving.addAll(kept.victims());
            }
        }
        return leaving;
    }

    /** One that should be gone and isn't, on a node that doesn't answer perhaps, is not waited for. */
    private boolean leaves(Holding holding) {
        return holding.leavesBy().isBefore(Instant.MAX)
                && holding.leavesBy().isAfter(clock.instant().minus(OVERDUE));
    }
}
