package io.aliquot.scheduler.cluster;

import io.aliquot.api.pods.Fence;
import io.aliquot.scheduler.ledger.PodId;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;

/** An API server that gives the answers set by the test and records its requests. */
public final class FakeCluster implements Cluster {
    /** {@code node} is empty for annotations only. */
    public record Sent(PodId pod, long version, String node, Map<String, String> annotations) {}

    public record NodeWrite(String node, long version, Map<String, Optional<String>> annotations) {}

    public final List<Sent> sent = new ArrayList<>();
    public final List<NodeWrite> nodeWrites = new ArrayList<>();
    public final List<String> woken = new ArrayList<>();
    public final Deque<WriteOutcome> outcomes = new ArrayDeque<>();
    public volatile Cluster.LeaderStatus leaderStatus = new Cluster.LeaderStatus.Leads(new Fence("aliquot-1_uuid", 3));
    public PodState state = new PodState.Unreadable("the test set no state");
    public OptionalLong version = OptionalLong.of(1);
    /** States by pod name; {@link #state} is that of all other pods. */
    public final Map<String, PodState> states = new HashMap<>();

    public final List<Long> movedOn = new ArrayList<>();
    public PodState movedOnTo = new PodState.Unreadable("the test set no state");
    public final List<String> warnings = new ArrayList<>();
    private final Set<String> occasions = new HashSet<>();
    public final List<String> notes = new ArrayList<>();
    public final List<String> evicted = new ArrayList<>();
    public final List<String> ended = new ArrayList<>();
    public final List<String> rehearsed = new ArrayList<>();
    /** Grace periods that evictions named. */
    public final Map<String, Duration> graces = new HashMap<>();

    public final Map<String, EvictOutcome> evictions = new HashMap<>();
    public boolean wakes = true;
    /** Runs while the leader status is read; simulates other processes. */
    public Runnable meanwhile = () -> {};
    /** Runs while a pod's version is read; simulates other processes. */
    public Runnable versionAsked = () -> {};
    /** Runs before a Binding is answered. */
    public Runnable whileBinding = () -> {};

    /** From now on another replica leads. */
    public void stopLeading() {
        leaderStatus = new Cluster.LeaderStatus.NotLeading("another one holds the Lease");
    }

    @Override
    public Cluster.LeaderStatus leadership() {
        meanwhile.run();
        return leaderStatus;
    }

    @Override
    public synchronized WriteOutcome bind(PodId pod, long version, String node, Map<String, String> annotations) {
        sent.add(new Sent(pod, version, node, annotations));
        whileBinding.run();
        WriteOutcome outcome = outcomes.poll();
        return outcome == null ? new WriteOutcome.Done() : outcome;
    }

    @Override
    public WriteOutcome resize(PodId pod, long version, Map<String, String> annotations) {
        return bind(pod, version, "", annotations);
    }

    @Override
    public WriteOutcome annotate(String node, long version, Map<String, Optional<String>> annotations) {
        nodeWrites.add(new NodeWrite(node, version, annotations));
        WriteOutcome outcome = outcomes.poll();
        return outcome == null ? new WriteOutcome.Done() : outcome;
    }

    @Override
    public OptionalLong version(PodId pod) {
        versionAsked.run();
        return version;
    }

    @Override
    public PodState read(PodId pod) {
        return states.getOrDefault(pod.name(), state);
    }

    @Override
    public PodState bumpVersion(PodId pod, long version) {
        movedOn.add(version);
        return movedOnTo;
    }

    @Override
    public boolean wake(String node) {
        woken.add(node);
        return wakes;
    }

    @Override
    public EvictOutcome evict(PodId pod, boolean dryRun) {
        (dryRun ? rehearsed : evicted).add(pod.name());
        return evictions.getOrDefault(pod.name(), new EvictOutcome.Done());
    }

    @Override
    public EvictOutcome evict(PodId pod, Duration grace) {
        graces.put(pod.name(), grace);
        return evict(pod, false);
    }

    @Override
    public EvictOutcome end(PodId pod, Duration grace) {
        ended.add(pod.name() + " within " + grace.toSeconds() + " s");
        return evictions.getOrDefault(pod.name(), new EvictOutcome.Done());
    }

    @Override
    public void note(PodId pod, String reason, String message) {
        notes.add(pod.name() + " " + reason + ": " + message);
    }

    @Override
    public void warn(PodId pod, String reason, String what, String message) {
        if (occasions.add(pod.uid() + " " + reason + " " + what)) {
            warnings.add(pod.name() + " " + reason + ": " + message);
        }
    }

    @Override
    public void note(NodeId node, String reason, String message) {
        notes.add(node.name() + " " + reason + ": " + message);
    }

    @Override
    public void warn(NodeId node, String reason, String message) {
        warnings.add(node.name() + " " + reason + ": " + message);
    }

    @Override
    public void warnOnce(NodeId node, String reason, String occasion, String message) {
        if (occasions.add(node.name() + " " + reason + " " + occasion)) {
            warn(node, reason, message);
        }
    }
}
