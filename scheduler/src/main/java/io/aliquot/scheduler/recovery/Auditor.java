package io.aliquot.scheduler.recovery;

import io.aliquot.api.Fence;
import io.aliquot.api.FormatException;
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

/**
 * Looks into GPUs that the ledger believes to be oversold: what it was told may be old, so the pods are read. Where they
 * do hold it all, two leaders have sold the same part: somebody got past the fence. The youngest are told to leave, until
 * the others fit.
 *
 * <p>A leader knows of all that was bound before it became one. Where each leader's pods were bound after those of the
 * leaders before it, none sold anything twice: an admin has made the GPU's capacity smaller since. That is told, and
 * nobody has to leave; nor where the Lease was made anew in between. Resizes don't count here, since nobody can tell when one was: what got past the fence by one is
 * told only, too.
 */
final class Auditor {
    private static final Logger LOG = LoggerFactory.getLogger(Auditor.class);
    private static final Comparator<BoundPod> OLDEST_FIRST = Comparator.comparing(BoundPod::bound)
            .thenComparing(BoundPod::created)
            .thenComparing(pod -> pod.id().uid());

    private final Ledger ledger;
    private final LedgerEvents news;
    private final Cluster cluster;
    private final Counter oversold;
    /** What earlier audits counted and logged, by GPU, until an audit finds the GPU in order. */
    private final Map<LedgerEvents.Oversold, Finding> findings = new HashMap<>();

    /**
     * A GPU of which pods hold more than it has.
     *
     * @param holders uids of the pods
     * @param evictions the outcome of each eviction that was tried last, by uid
     */
    private record Finding(Set<String> holders, Map<String, EvictOutcome> evictions) {}

    Auditor(Ledger ledger, LedgerEvents news, Cluster cluster, MeterRegistry metrics) {
        this.ledger = ledger;
        this.news = news;
        this.cluster = cluster;
        this.oversold = Counter.builder("aliquot.ledger.oversold")
                .description("Times that pods were found to hold more of a GPU than it has")
                .register(metrics);
    }

    /** Whoever doesn't lead leaves it until he does. */
    void audit() {
        if (!(cluster.leadership() instanceof Leads leads)) {
            news.keepOnly(Set.copyOf(ledger.nodeNames()));
            findings.clear();
            return;
        }
        Set<String> nodes = findings.isEmpty() ? Set.of() : Set.copyOf(ledger.nodeNames());
        findings.keySet().removeIf(gpu -> !nodes.contains(gpu.node()));
        for (LedgerEvents.Oversold suspect : news.takeOverallocated()) {
            if (!decided(suspect, leads.fence())) {
                news.overallocated(suspect.node(), suspect.gpu()); // next time
            }
        }
    }

    private boolean decided(LedgerEvents.Oversold suspect, Fence present) {
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
        if (eachLeaderInTurn(holders) || leaseRecreated(present, holders)) {
            cluster.warn(
                    youngest(holders).id(),
                    "GpuOversold",
                    "pods hold more of " + what + " than its capacity is now; delete this pod, or another one there");
            return true;
        }
        return evictUntilTheRestFits(suspect, what, holders, finding);
    }

    /** Counts and logs the GPU once, and again when a further pod holds a part of it. */
    private Finding report(LedgerEvents.Oversold suspect, List<BoundPod> holders) {
        Set<String> uids = holders.stream().map(pod -> pod.id().uid()).collect(Collectors.toSet());
        Finding before = findings.get(suspect);
        if (before != null && before.holders().containsAll(uids)) {
            return before;
        }
        var finding = new Finding(uids, new HashMap<>());
        findings.put(suspect, finding);
        oversold.increment();
        for (BoundPod holder : holders) {
            LOG.error(
                    "oversold {} node={} gpu={} holds={}",
                    holder.id(),
                    suspect.node(),
                    suspect.gpu(),
                    holder.perGpu().get(suspect.gpu()));
        }
        return finding;
    }

    /** Whether each leader's pods were bound after those of the leaders before it. */
    static boolean eachLeaderInTurn(List<BoundPod> oldestFirst) {
        for (int i = 1; i < oldestFirst.size(); i++) {
            BoundPod before = oldestFirst.get(i - 1);
            BoundPod after = oldestFirst.get(i);
            // Times are told in whole seconds, and a new leader waits longer than one.
            if (!after.fence().equals(before.fence())
                    && !(after.bound().isAfter(before.bound()) && transitions(after) > transitions(before))) {
                return false;
            }
        }
        return true;
    }

    /** Whether the Lease has been since then: its transitions count from 0 again, and say nothing of who came first. */
    private static boolean leaseRecreated(Fence present, List<BoundPod> holders) {
        return holders.stream().anyMatch(holder -> transitions(holder) > present.transitions());
    }

    /** Of the Lease when the pod was bound; -1 where nobody can tell. */
    private static int transitions(BoundPod pod) {
        try {
            return Fence.parse(pod.fence()).transitions();
        } catch (FormatException e) {
            return -1;
        }
    }

    private boolean evictUntilTheRestFits(LedgerEvents.Oversold suspect, String what, List<BoundPod> holders, Finding finding) {
        boolean all = true;
        while (ledger.overallocated(suspect.node(), suspect.gpu(), holders)) {
            BoundPod youngest = youngest(holders);
            holders.remove(youngest);
            cluster.warn(
                    youngest.id(),
                    "GpuOversold",
                    "two leaders of the scheduler gave away the same part of " + what + "; this pod, the younger, "
                            + "is evicted, and those before it stay");
            EvictOutcome outcome = cluster.evict(youngest.id(), false);
            EvictOutcome before = finding.evictions().put(youngest.id().uid(), outcome);
            if (before == null || before.getClass() != outcome.getClass()) {
                LOG.error(
                        "evicted {} node={} gpu={} outcome={}", youngest.id(), suspect.node(), suspect.gpu(), outcome);
            }
            all &= outcome instanceof EvictOutcome.Done || outcome instanceof EvictOutcome.Gone;
        }
        return all;
    }

    private static BoundPod youngest(List<BoundPod> oldestFirst) {
        return oldestFirst.get(oldestFirst.size() - 1);
    }
}
