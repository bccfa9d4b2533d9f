package io.aliquot.scheduler.recovery;

import io.aliquot.api.names.Fence;
import io.aliquot.api.names.FormatException;
import io.aliquot.scheduler.apiserver.Cluster;
import io.aliquot.scheduler.apiserver.Cluster.EvictOutcome;
import io.aliquot.scheduler.apiserver.Cluster.LeaderStatus.Leads;
import io.aliquot.scheduler.apiserver.Cluster.PodState;
import io.aliquot.scheduler.ledger.BoundPod;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerEvents;
import io.aliquot.scheduler.ledger.PodId;
import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.MeterRegistry;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.stereotype.Component;

/**
 * Checks GPUs that the ledger reports as over-allocated. The ledger may be behind, so the auditor reads the pods. If
 * they do hold more than the GPU has, two leaders allocated the same part: a write got past the fence. The auditor then
 * evicts the youngest pods until the others fit.
 *
 * <p>It evicts no pod if each leader's pods were bound after those of the leaders before it. A leader knows of
 * everything that was bound before it became leader, so none of them allocated anything twice: an administrator has
 * reduced the GPU's capacity. The auditor writes an event instead. It does the same if the Lease was recreated in
 * between. Resizes do not count, since the API does not record when they happened; a resize that got past the fence
 * leads to an event only.
 */
@Component
public final class Auditor {
    private static final Logger LOG = LoggerFactory.getLogger(Auditor.class);
    private static final Comparator<BoundPod> OLDEST_FIRST = Comparator.comparing(BoundPod::bound)
            .thenComparing(BoundPod::created)
            .thenComparing(pod -> pod.id().uid());

    private final Ledger ledger;
    private final LedgerEvents events;
    private final Cluster cluster;
    private final Counter overallocated;
    /** What earlier audits counted and logged, by GPU, until an audit finds the GPU in order. */
    private final Map<LedgerEvents.OverallocatedGpu, Finding> findings = new HashMap<>();

    /**
     * A GPU of which pods hold more than it has.
     *
     * @param holders uids of the pods
     * @param evictions the outcome of each eviction that was tried last, by uid
     */
    private record Finding(Set<String> holders, Map<String, EvictOutcome> evictions) {}

    public Auditor(Ledger ledger, LedgerEvents events, Cluster cluster, MeterRegistry metrics) {
        this.ledger = ledger;
        this.events = events;
        this.cluster = cluster;
        this.overallocated = Counter.builder("aliquot.ledger.overallocated")
                .description("Times that pods were found to hold more of a GPU than it has")
                .register(metrics);
    }

    /** One run; a replica that does not lead does nothing. */
    public void audit() {
        if (!(cluster.leadership() instanceof Leads leads)) {
            events.keepOnly(Set.copyOf(ledger.nodeNames()));
            findings.clear();
            return;
        }
        Set<String> nodes = findings.isEmpty() ? Set.of() : Set.copyOf(ledger.nodeNames());
        findings.keySet().removeIf(gpu -> !nodes.contains(gpu.node()));
        for (LedgerEvents.OverallocatedGpu suspect : events.takeOverallocated()) {
            if (!check(suspect, leads.fence())) {
                events.overallocated(suspect.node(), suspect.gpu()); // the next run tries again
            }
        }
    }

    /** Returns false if a pod could not be read or an eviction failed; the next run checks the GPU again. */
    private boolean check(LedgerEvents.OverallocatedGpu suspect, Fence current) {
        var holders = new ArrayList<BoundPod>();
        for (PodId pod : ledger.holders(suspect.node(), suspect.gpu())) {
            PodState state = cluster.read(pod);
            if (state instanceof PodState.Unreadable) {
                return false;
            }
            if (state instanceof PodState.Bound bound
                    && !bound.pod().leaves()
                    && bound.pod().node().equals(suspect.node())
                    && bound.pod().perGpu().containsKey(suspect.gpu())) {
                holders.add(bound.pod());
            }
        }
        holders.sort(OLDEST_FIRST);
        if (!ledger.overallocated(suspect.node(), suspect.gpu(), holders)) {
            findings.remove(suspect);
            return true;
        }
        Finding finding = report(suspect, holders);
        String what = suspect.gpu() + " of node " + suspect.node();
        if (leadersDidNotOverlap(holders) || leaseRecreated(current, holders)) {
            cluster.warn(
                    youngest(holders).id(),
                    "GpuOverallocated",
                    "pods hold more of " + what + " than its capacity is now; delete this pod, or another one there");
            return true;
        }
        return evictUntilTheRestFits(suspect, what, holders, finding);
    }

    /** Counts and logs the GPU once, and again when a further pod holds a part of it. */
    private Finding report(LedgerEvents.OverallocatedGpu suspect, List<BoundPod> holders) {
        Set<String> uids = holders.stream().map(pod -> pod.id().uid()).collect(Collectors.toSet());
        Finding before = findings.get(suspect);
        if (before != null && before.holders().containsAll(uids)) {
            return before;
        }
        var finding = new Finding(uids, new HashMap<>());
        findings.put(suspect, finding);
        overallocated.increment();
        for (BoundPod holder : holders) {
            LOG.error(
                    "over-allocated {} node={} gpu={} holds={}",
                    holder.id(),
                    suspect.node(),
                    suspect.gpu(),
                    holder.perGpu().get(suspect.gpu()));
        }
        return finding;
    }

    /** Whether each leader's pods were bound after those of the leaders before it. */
    static boolean leadersDidNotOverlap(List<BoundPod> oldestFirst) {
        for (int i = 1; i < oldestFirst.size(); i++) {
            BoundPod before = oldestFirst.get(i - 1);
            BoundPod after = oldestFirst.get(i);
            // The API server records whole seconds, and a new leader waits longer than one.
            if (!after.fence().equals(before.fence())
                    && !(after.bound().isAfter(before.bound()) && transitions(after) > transitions(before))) {
                return false;
            }
        }
        return true;
    }

    /** Whether the Lease was recreated since: its transitions then start at 0 and do not order the leaders. */
    private static boolean leaseRecreated(Fence current, List<BoundPod> holders) {
        return holders.stream().anyMatch(holder -> transitions(holder) > current.transitions());
    }

    /** The transitions of the Lease when the pod was bound; -1 if the fence is unreadable. */
    private static int transitions(BoundPod pod) {
        try {
            return Fence.parse(pod.fence()).transitions();
        } catch (FormatException e) {
            return -1;
        }
    }

    private boolean evictUntilTheRestFits(
            LedgerEvents.OverallocatedGpu suspect, String what, List<BoundPod> holders, Finding finding) {
        boolean all = true;
        while (ledger.overallocated(suspect.node(), suspect.gpu(), holders)) {
            BoundPod youngest = youngest(holders);
            holders.remove(youngest);
            cluster.warn(
                    youngest.id(),
                    "GpuOverallocated",
                    "two leaders of the scheduler allocated the same part of " + what + "; this pod, the younger, "
                            + "is evicted, and the older ones stay");
            EvictOutcome outcome = cluster.evict(youngest.id(), false);
            EvictOutcome before = finding.evictions().put(youngest.id().uid(), outcome);
            if (before == null || before.getClass() != outcome.getClass()) {
                LOG.error(
                        "evicted {} node={} gpu={} outcome={}", youngest.id(), suspect.node(), suspect.gpu(), outcome);
            }
            all &= outcome.succeeded();
        }
        return all;
    }

    private static BoundPod youngest(List<BoundPod> oldestFirst) {
        return oldestFirst.get(oldestFirst.size() - 1);
    }
}
