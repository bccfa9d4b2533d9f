package io.aliquot.scheduler.recovery;

import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.Cluster.LeaderStatus.Leads;
import io.aliquot.scheduler.cluster.Cluster.PodState;
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
 * Checks GPUs that the ledger reports as over-allocated. The ledger may be behind, so the auditor reads the pods. If they do
 * hold more than the GPU has, it counts the GPU and writes an event on the youngest one, with the command that ends it. Nothing
 * is evicted: an administrator may have reduced the capacity, and two leaders allocate the same part only if an API server's
 * view of the Lease lags by more than a second.
 */
@Component
public final class Auditor {
    private static final Logger LOG = LoggerFactory.getLogger(Auditor.class);
    private static final Comparator<BoundPod> YOUNGEST_FIRST = Comparator.comparing(BoundPod::bound)
            .thenComparing(BoundPod::created)
            .thenComparing(pod -> pod.id().uid())
            .reversed();

    private final Ledger ledger;
    private final LedgerEvents events;
    private final Cluster cluster;
    private final Counter overallocated;
    /** Uids of the pods that earlier audits counted and logged, by GPU, until an audit finds the GPU in order. */
    private final Map<LedgerEvents.OverallocatedGpu, Set<String>> findings = new HashMap<>();

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
        if (!(cluster.leadership() instanceof Leads)) {
            events.keepOnly(Set.copyOf(ledger.nodeNames()));
            findings.clear();
            return;
        }
        Set<String> nodes = findings.isEmpty() ? Set.of() : Set.copyOf(ledger.nodeNames());
        findings.keySet().removeIf(gpu -> !nodes.contains(gpu.node()));
        for (LedgerEvents.OverallocatedGpu suspect : events.takeOverallocated()) {
            if (!check(suspect)) {
                events.overallocated(suspect.node(), suspect.gpu()); // the next run tries again
            }
        }
    }

    /** Returns false if a pod could not be read. */
    private boolean check(LedgerEvents.OverallocatedGpu suspect) {
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
        if (ledger.overallocated(suspect.node(), suspect.gpu(), holders)) {
            holders.sort(YOUNGEST_FIRST);
            report(suspect, holders);
        } else {
            findings.remove(suspect);
        }
        return true;
    }

    /** Counts and logs the GPU once, and again when a further pod holds a part of it. */
    private void report(LedgerEvents.OverallocatedGpu suspect, List<BoundPod> youngestFirst) {
        PodId youngest = youngestFirst.getFirst().id();
        cluster.warn(
                youngest,
                "GpuOverallocated",
                ("%s of node %s has less than its pods hold; the youngest are %s. Its capacity was reduced, or two leaders of"
                                + " the scheduler allocated the same part. To end one: kubectl delete pod -n %s %s")
                        .formatted(
                                suspect.gpu(),
                                suspect.node(),
                                youngestFirst.stream()
                                        .limit(2)
                                        .map(pod -> pod.id().namespace() + "/"
                                                + pod.id().name())
                                        .collect(Collectors.joining(" and ")),
                                youngest.namespace(),
                                youngest.name()));
        Set<String> uids = youngestFirst.stream().map(pod -> pod.id().uid()).collect(Collectors.toSet());
        if (findings.getOrDefault(suspect, Set.of()).containsAll(uids)) {
            return;
        }
        findings.put(suspect, uids);
        overallocated.increment();
        for (BoundPod holder : youngestFirst) {
            LOG.error(
                    "over-allocated {} node={} gpu={} holds={}",
                    holder.id(),
                    suspect.node(),
                    suspect.gpu(),
                    holder.perGpu().get(suspect.gpu()));
        }
    }
}
