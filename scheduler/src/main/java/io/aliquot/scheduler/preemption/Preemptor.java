package io.aliquot.scheduler.preemption;

import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.Cluster.LeaderStatus.Leads;
import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeFacts;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.pending.PendingPods;
import io.aliquot.scheduler.pending.UnboundPod;
import io.aliquot.scheduler.placement.FitCheck;
import io.aliquot.scheduler.placement.GpuInfo;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.stereotype.Component;

/*
 * How the victims are chosen. kube-scheduler (1.35, framework/preemption) proposes for each node the pods whose
 * eviction makes the node's totals suffice; it does not know which GPU they hold. So this class selects victims among
 * the pods of lower priority on each node. They must also free enough CPU and memory; if they do not, the proposal is
 * kept and only extended.
 *
 * This class does not count ports, affinities or the number of pods. It therefore keeps two kinds of proposed pods:
 * those that hold no GPU, and those beside which the preemptor would fit by everything that is counted once the other
 * proposed pods are gone. kube-scheduler spares every pod that it can, so such a pod blocks something that is not
 * counted. A pod that blocks both a GPU and something else cannot be recognized: a cheaper pod may be evicted instead,
 * and this one at the next try, when a GPU is free.
 *
 * From 1.37 on it also proposes nodes without a victim, where the totals suffice and only this extender refuses the pod.
 * Their victims are the Evictor's, since kube-scheduler deletes pods without asking the Eviction API about budgets.
 *
 * The answer names one node, the cheapest by EvictionCost. Among several nodes kube-scheduler would choose by its own
 * order, in which budgets come before priority.
 */
/** Chooses the pods that kube-scheduler evicts for a pod of higher priority. */
@Component
public final class Preemptor {
    private static final Logger LOG = LoggerFactory.getLogger(Preemptor.class);

    private final Ledger ledger;
    private final Cluster cluster;
    private final PendingPods pending;
    private final Budgets budgets;
    private final PreemptionReservations reservations;

    Preemptor(
            Ledger ledger, Cluster cluster, PendingPods pending, Budgets budgets, PreemptionReservations reservations) {
        this.ledger = ledger;
        this.cluster = cluster;
        this.pending = pending;
        this.budgets = budgets;
        this.reservations = reservations;
    }

    private record Found(String node, List<Victim> victims, EvictionCost cost, int violations) {}

    /**
     * The pods to evict, by node; empty where no eviction helps.
     *
     * @param proposed what kube-scheduler would evict, by node
     */
    public Map<String, NodeVictims> preempt(UnboundPod pod, Map<String, NodeVictims> proposed) {
        if (!(cluster.leadership() instanceof Leads)) {
            return Map.of();
        }
        PodGpuRequest request = pod.request();
        if (request.containers().isEmpty()) {
            return proposed;
        }
        var nodes = new TreeMap<>(proposed); // sorted: equal costs give the same node every time
        nodes.values().removeIf(victims -> victims.uids().isEmpty());
        if (nodes.isEmpty()
                || !pod.rank().preempts()
                || ledger.overQuota(pod.id(), request).isPresent()) {
            return Map.of();
        }
        Optional<Found> best = Optional.empty();
        for (var entry : nodes.entrySet()) {
            EvictionCost below = best.map(Found::cost).orElse(EvictionCost.MAX);
            Optional<Found> found =
                    ledger.view(entry.getKey()).flatMap(node -> new OnNode(pod, node, entry.getValue()).find(below));
            if (found.isPresent() && found.get().cost().compareTo(below) < 0) {
                best = found;
            }
        }
        if (best.isEmpty()) {
            LOG.info("preempt {}: no victims on {} nodes would free enough capacity", pod.id(), nodes.size());
            return Map.of();
        }
        Found found = best.get();
        Set<String> uids = Victim.uids(found.victims());
        Optional<String> overQuota = ledger.overQuotaOn(found.node(), pod.id(), request, uids);
        if (overQuota.isPresent()) {
            LOG.info("preempt {} node={}: {}", pod.id(), found.node(), overQuota.get());
            return Map.of();
        }
        LOG.info("preempt {} node={} victims={}", pod.id(), found.node(), found.victims());
        if (cluster.version(pod.id())
                .isPresent()) { // a deleted pod would stay in PendingPods, since no further watch event removes it
            pending.holdsCapacity(pod);
        }
        reservations.reserve(pod.id(), request, found.node(), uids);
        return Map.of(found.node(), new NodeVictims(uids.stream().sorted().toList(), found.violations()));
    }

    /** The search for victims on one node that kube-scheduler proposes. */
    private final class OnNode {
        private final UnboundPod pod;
        private final PodGpuRequest request;
        private final NodeView node;
        private final List<Victim> proposedForGpus = new ArrayList<>();
        private final List<Victim> proposedForOthers = new ArrayList<>();
        private final int proposedViolations;

        OnNode(UnboundPod pod, NodeView node, NodeVictims proposed) {
            this.pod = pod;
            this.request = pod.request();
            this.node = node;
            this.proposedViolations = proposed.budgetViolations();
            List<Victim> victims = victims(proposed);
            Set<String> uids = Victim.uids(victims);
            List<GpuInfo> free = gpusWithout(uids);
            HostResources hostFree = hostFree(uids);
            Map<String, HostResources> hostRequests = new HashMap<>();
            node.holdings().forEach(holding -> hostRequests.put(holding.pod().uid(), holding.hostRequests()));
            var check = new FitCheck(request, VictimSearch.ATTEMPTS);
            for (Victim victim : victims) {
                HostResources beside =
                        hostFree.minus(hostRequests.getOrDefault(victim.pod().uid(), HostResources.NONE));
                boolean forGpus =
                        !victim.perGpu().isEmpty() && !(isEnough(beside) && check.fits(Reprieve.with(free, victim)));
                (forGpus ? proposedForGpus : proposedForOthers).add(victim);
            }
        }

        private List<Victim> victims(NodeVictims proposed) {
            Map<String, Victim> known = new HashMap<>();
            node.holdings().forEach(holding -> known.put(holding.pod().uid(), Victim.of(holding, budgets)));
            int lower = pod.rank().priority() - 1;
            return proposed.uids().stream()
                    // A pod that the ledger does not know counts as a pod without a GPU.
                    .map(uid -> known.getOrDefault(
                            uid, new Victim(new PodId("", "", uid), lower, Instant.EPOCH, Map.of(), List.of())))
                    .toList();
        }

        /** Free capacity of the GPUs without these pods and the pod itself; empty if the node does not take the pod at all. */
        private List<GpuInfo> gpusWithout(Set<String> uids) {
            var all = new HashSet<>(uids);
            all.add(pod.id().uid());
            boolean open = node.unavailableReason().isEmpty()
                    && ledger.runtimeRefusal(node.name(), request).isEmpty();
            return open ? node.gpusWithout(all) : List.of();
        }

        Optional<Found> find(EvictionCost below) {
            Set<String> leaving = reservations.leaving(node, pod.id().uid());
            Set<String> gone = new HashSet<>(leaving);
            gone.addAll(Victim.uids(proposedForOthers));
            List<Victim> candidates = Victim.candidates(node, pod.rank().priority(), budgets)
                    .filter(victim -> !gone.contains(victim.pod().uid()))
                    .toList();
            Optional<EvictionPlan> plan = VictimSearch.cheapest(request, gpusWithout(gone), candidates, below);
            if (plan.isEmpty()) {
                return Optional.empty();
            }
            Set<String> goneWithPlan = new HashSet<>(gone);
            goneWithPlan.addAll(Victim.uids(plan.get().victims()));
            if (isEnough(hostFree(goneWithPlan))) {
                return found(plan.get().victims(), leaving);
            }
            gone.addAll(Victim.uids(proposedForGpus));
            return VictimSearch.cheapest(request, gpusWithout(gone), candidates, EvictionCost.MAX)
                    .flatMap(more -> {
                        List<Victim> all = new ArrayList<>(proposedForGpus);
                        all.addAll(more.victims());
                        return found(all, leaving);
                    });
        }

        private Optional<Found> found(List<Victim> forGpus, Set<String> leaving) {
            Set<Victim> evicted = new LinkedHashSet<>(forGpus);
            evicted.addAll(proposedForOthers);
            EvictionCost cost = EvictionCost.of(evicted);
            // Those of the answer before that are not seen to terminate yet: kube-scheduler may ask again.
            Set<String> before = reservations.victims(pod.id().uid(), node.name());
            List<Holding> leavingHere = node.holdings().stream()
                    .filter(holding -> leaving.contains(holding.pod().uid())
                            && holding.state() == Holding.State.HELD
                            && holding.priority() < pod.rank().priority())
                    .sorted(Comparator.comparing(holding -> holding.pod().uid()))
                    .toList();
            leavingHere.stream()
                    .filter(holding -> before.contains(holding.pod().uid()) && !leaves(holding))
                    .forEach(holding -> evicted.add(Victim.of(holding, budgets)));
            List<Victim> victims = new ArrayList<>(evicted);
            if (victims.isEmpty()) {
                // kube-scheduler expects at least one victim and does not evict a terminating pod again.
                leavingHere.stream().limit(1).forEach(holding -> {
                    victims.add(Victim.of(holding, budgets));
                    evicted.addAll(leaves(holding) ? List.of() : victims);
                });
            }
            // The budgets of pods without a GPU are not known.
            int unknown = (int)
                    evicted.stream().filter(victim -> victim.perGpu().isEmpty()).count();
            int violations = EvictionCost.of(evicted).violations() + Math.min(proposedViolations, unknown);
            return victims.isEmpty()
                    ? Optional.empty()
                    : Optional.of(new Found(node.name(), victims, cost, violations));
        }

        private static boolean leaves(Holding holding) {
            return holding.leavesBy().isBefore(Instant.MAX);
        }

        /** CPU and memory that the preemptor leaves free without these pods; below 0 if they do not suffice. */
        private HostResources hostFree(Set<String> without) {
            HostResources needed = node.holdings().stream()
                    .filter(holding -> !without.contains(holding.pod().uid()))
                    .map(Holding::hostRequests)
                    .reduce(request.hostRequests(), HostResources::plus);
            return (node.facts() instanceof NodeFacts.Sharing sharing ? sharing.allocatable() : HostResources.NONE)
                    .minus(needed);
        }

        private static boolean isEnough(HostResources free) {
            return free.cpuMillis() >= 0 && free.memoryBytes() >= 0;
        }
    }
}
