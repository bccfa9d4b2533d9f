package io.aliquot.scheduler.extender;

import io.aliquot.api.Fence;
import io.aliquot.scheduler.ledger.PodId;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** An API server that answers what a test tells it to, and remembers what it was asked. */
final class FakeCluster implements Cluster {
    record Sent(PodId pod, String node, Map<String, String> annotations) {}

    final List<Sent> sent = new ArrayList<>();
    final List<String> woken = new ArrayList<>();
    final Deque<BindOutcome> outcomes = new ArrayDeque<>();
    volatile Standing standing = new Standing.Leads(new Fence("aliquot-1_uuid", 3));
    PodState state = new PodState.Unreadable("nobody told the test's cluster");
    final List<String> warnings = new ArrayList<>();
    final List<String> notes = new ArrayList<>();
    final List<String> evicted = new ArrayList<>();
    final List<String> rehearsed = new ArrayList<>();
    final Map<String, EvictOutcome> evictions = new HashMap<>();
    boolean wakes = true;

    @Override
    public Standing standing() {
        return standing;
    }

    @Override
    public synchronized BindOutcome bind(PodId pod, String node, Map<String, String> annotations) {
        sent.add(new Sent(pod, node, annotations));
        BindOutcome outcome = outcomes.poll();
        return outcome == null ? new BindOutcome.Done() : outcome;
    }

    @Override
    public PodState read(PodId pod) {
        return state;
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
    public void note(PodId pod, String reason, String message) {
        notes.add(pod.name() + " " + reason + ": " + message);
    }

    @Override
    public void warn(PodId pod, String reason, String message) {
        warnings.add(pod.name() + " " + reason + ": " + message);
    }
}
