package io.aliquot.scheduler.autoscaler;

import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.Cluster.LeaderStatus.Leads;
import io.aliquot.scheduler.cluster.Cluster.WriteOutcome;
import io.aliquot.scheduler.ledger.Ledger;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongSupplier;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/*
 * Why there is a mark. The annotations belong to the autoscalers, and administrators set them too. Both are written and
 * removed in one request, so an annotation without the mark is an administrator's, and a mark without the annotation says
 * that an administrator removed it. Neither is touched until the node has lost its last share; then the mark goes.
 */
/**
 * Keeps autoscalers from removing nodes while pods hold shares of them, by the autoscalers' own annotations; leader only.
 * Thread-safe.
 */
public final class ScaleDownProtection {
    /** How long a node is kept after its last share, so that nodes whose shares follow each other are written once. */
    static final Duration KEPT = Duration.ofMinutes(5);

    /** Every write is an event of all watches on nodes. */
    static final int MAX_WRITES_PER_RUN = 20;

    /** After a write that was refused, or of which it is not known whether it had an effect. */
    private static final Duration RETRY = Duration.ofMinutes(1);

    private static final Logger LOG = LoggerFactory.getLogger(ScaleDownProtection.class);
    private static final Set<String> KEYS = Arrays.stream(Autoscaler.values())
            .flatMap(one -> Stream.of(one.annotation, one.mark))
            .collect(Collectors.toSet());

    private final Set<Autoscaler> enabled;
    private final Ledger ledger;
    private final Cluster cluster;
    private final LongSupplier nanoTime;
    /** The nodes that an autoscaler may remove, and those that have a mark. */
    private final Map<String, Watched> nodes = new ConcurrentHashMap<>();
    /** When this leader last knew of shares of a node; its first sight of the node counts. */
    private final Map<String, Long> lastHeld = new HashMap<>();

    private final Map<String, Attempt> attempts = new HashMap<>();

    /** A node as the watch shows it. */
    private record Watched(long version, boolean stays, Set<Autoscaler> removable, Map<String, String> annotations) {}

    /**
     * The last write to a node.
     *
     * @param version of the node on which it was conditional
     * @param known whether its outcome is: then the watch is about to show a later version, and decides
     */
    private record Attempt(long version, boolean known, long at) {}

    /** What to do with the annotation of an autoscaler and the mark. */
    enum Change {
        NONE,
        SET,
        REMOVE,
        REMOVE_MARK
    }

    /** Protects from the autoscalers that are {@code enabled}; of the others it removes what is marked. */
    public ScaleDownProtection(Set<Autoscaler> enabled, Ledger ledger, Cluster cluster, LongSupplier nanoTime) {
        this.enabled = Set.copyOf(enabled);
        this.ledger = ledger;
        this.cluster = cluster;
        this.nanoTime = nanoTime;
    }

    /**
     * Adds or updates a node.
     *
     * @param stays whether it is to be Aliquot's after its last share
     */
    public void put(
            String node, long version, boolean stays, Map<String, String> labels, Map<String, String> annotations) {
        Map<String, String> relevant = new HashMap<>(annotations);
        relevant.keySet().retainAll(KEYS);
        Set<Autoscaler> removable =
                enabled.stream().filter(one -> one.mayRemove(labels.keySet())).collect(Collectors.toSet());
        boolean marked = Arrays.stream(Autoscaler.values()).anyMatch(one -> relevant.containsKey(one.mark));
        if (marked || !removable.isEmpty()) {
            nodes.put(node, new Watched(version, stays, removable, Map.copyOf(relevant)));
        } else {
            nodes.remove(node);
        }
    }

    public void remove(String node) {
        nodes.remove(node);
    }

    /** One run, every few seconds. */
    public synchronized void update() {
        lastHeld.keySet().retainAll(nodes.keySet());
        attempts.keySet().retainAll(nodes.keySet());
        if (!(cluster.leadership() instanceof Leads)) {
            lastHeld.clear();
            return;
        }
        int writes = 0;
        for (Map.Entry<String, Watched> entry : nodes.entrySet()) {
            if (writes < MAX_WRITES_PER_RUN && update(entry.getKey(), entry.getValue())) {
                writes++;
            }
        }
    }

    /** Returns whether it wrote. */
    private boolean update(String name, Watched node) {
        long now = nanoTime.getAsLong();
        boolean held = ledger.holdsShares(name);
        if (held) {
            lastHeld.put(name, now);
        }
        boolean keptLong = now - lastHeld.computeIfAbsent(name, unseen -> now) >= KEPT.toNanos();
        boolean empty = !held && (keptLong || !node.stays());
        var patch = new LinkedHashMap<String, Optional<String>>();
        for (Autoscaler autoscaler : Autoscaler.values()) {
            boolean removable = node.removable().contains(autoscaler);
            Change change = decide(
                    removable && held,
                    !removable || empty,
                    Optional.ofNullable(node.annotations().get(autoscaler.annotation)),
                    node.annotations().containsKey(autoscaler.mark));
            switch (change) {
                case NONE -> {}
                case SET -> {
                    patch.put(autoscaler.annotation, Optional.of(Autoscaler.KEEP));
                    patch.put(autoscaler.mark, Optional.of(Autoscaler.KEEP));
                }
                case REMOVE -> {
                    patch.put(autoscaler.annotation, Optional.empty());
                    patch.put(autoscaler.mark, Optional.empty());
                }
                case REMOVE_MARK -> patch.put(autoscaler.mark, Optional.empty());
            }
        }
        return !patch.isEmpty() && write(name, node.version(), patch, now);
    }

    /**
     * Decides on one annotation.
     *
     * @param keep the autoscaler may remove the node, and pods hold shares of it
     * @param release nothing has been held for long, or the autoscaler may not remove the node
     * @param value of the autoscaler's annotation
     * @param marked whether Aliquot wrote it
     */
    static Change decide(boolean keep, boolean release, Optional<String> value, boolean marked) {
        if (keep && value.isEmpty() && !marked) {
            return Change.SET;
        }
        if (release && marked) {
            return value.filter(Autoscaler.KEEP::equals).isPresent() ? Change.REMOVE : Change.REMOVE_MARK;
        }
        return Change.NONE;
    }

    private boolean write(String name, long version, Map<String, Optional<String>> patch, long now) {
        Attempt last = attempts.get(name);
        if (last != null && last.version() == version && (last.known() || now - last.at() < RETRY.toNanos())) {
            return false;
        }
        WriteOutcome outcome = cluster.annotate(name, version, patch);
        boolean known = outcome instanceof WriteOutcome.Done || outcome instanceof WriteOutcome.Conflicts;
        attempts.put(name, new Attempt(version, known, now));
        if (outcome instanceof WriteOutcome.Done) {
            LOG.info("node={} annotations={}", name, patch);
        } else if (!known) {
            LOG.warn("cannot annotate, trying again in {} s node={} outcome={}", RETRY.toSeconds(), name, outcome);
        }
        return true;
    }
}
