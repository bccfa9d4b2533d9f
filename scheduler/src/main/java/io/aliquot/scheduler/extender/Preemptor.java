package io.aliquot.scheduler.extender;

import io.aliquot.api.FormatException;
import io.aliquot.scheduler.extender.Cluster.LeaderStatus.Leads;
import io.aliquot.scheduler.extender.Wire.MetaPod;
import io.aliquot.scheduler.extender.Wire.MetaVictims;
import io.aliquot.scheduler.ledger.Feasibility;
import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeFacts;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.preemption.Budgets;
import io.aliquot.scheduler.preemption.EvictionCost;
import io.aliquot.scheduler.preemption.EvictionPlan;
import io.aliquot.scheduler.preemption.Victim;
import io.aliquot.scheduler.preemption.VictimSearch;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/*
 * kube-scheduler (1.35, framework/preemption) proposes for each node the pods whose leaving makes the node's totals
 * suffice; which GPU they leave it cannot know. So on each node we choose anew among those of lower priority. Our choice
 * must leave enough CPU and memory, too; where it doesn't, its proposal stands and we only add to it.
 *
 * Ports, affinities, the number of pods we don't count. So of its proposal we keep the pods that hold no GPU, and each
 * beside which, without the others, the pod would fit by all that we count: it spares whom it can, so that one is in the
 * way of something else. One that is in the way of a GPU, too, cannot be told from those that are in a GPU's way only: a
 * cheaper pod may go instead, and it itself at the next try, when a GPU is free.
 *
 * It is answered one node: the cheapest by our order. It would choose among several by its own, in which budgets come
 * before priority.
 */
/** The verb preempt. */
final class Preemptor {
    private static final Logger LOG = LoggerFactory.getLogger(Preemptor.class);

    private final Ledger ledger;
    private final Cluster cluster;
    private final PendingPods pending;
    private final Budgets budgets;
    private final PreemptionReservations kept;

    Preemptor(Ledger ledger, Cluster cluster, PendingPods pending, Budgets budgets, PreemptionReservations kept) {
        this.ledger = ledger;
        this.cluster = cluster;
        this.pending = pending;
        this.budgets = budgets;
        this.kept = kept;
    }

    private record Found(String node, List<Victim> victims, EvictionCost cost, int violations) {}

    /** Whom to evict from which node; from none where it wouldn't help. */
    Map<String, MetaVictims> preempt(Wire.Pod pod, Map<String, MetaVictims> proposed) {
        if (!(cluster.leadership() instanceof Leads)) {
            return Map.of();
        }
        PodGpuRequest ask;
        try {
            ask = pod.template().ask();
        } catch (FormatException e) {
            return Map.of();
        }
        if (ask.containers().isEmpty()) {
            return proposed;
        }
        if (!pod.rank().preempts()) {
            return Map.of();
        }
        Optional<Found> best = Optional.empty();
        for (var entry : new TreeMap<>(proposed).entrySet()) { // equal costs: the same node every time
            Optional<EvictionCost> below = best.map(Found::cost);
            Optional<Found> found = ledger.view(entry.getKey())
                    .flatMap(node -> new OnNode(pod, ask, node, entry.getValue()).find(below));
            if (found.isPresent() && (below.isEmpty() || found.get().cost().compareTo(below.get()) < 0)) {
                best = found;
            }
        }
        if (best.isEmpty()) {
            LOG.info("preempt {}: no victims on {} nodes would make room", pod.id(), proposed.size());
            return Map.of();
        }
        Found found = best.get();
        Set<String> uids = uids(found.victims());
        LOG.info("preempt {} node={} victims={}", pod.id(), found.node(), found.victims());
        if (cluster.version(pod.id()).isPresent()) { // or nobody would say again that it is gone
            pending.holdsCapacity(pod, ask);
        }
        kept.reserve(pod.id(), ask, found.node(), uids);
        return Map.of(
                found.node(),
                new MetaVictims(uids.stream().sorted().map(MetaPod::new).toList(), found.violations()));
    }

    private static Set<String> uids(List<Victim> victims) {
        return victims.stream().map(victim -> victim.pod().uid()).collect(Collectors.toSet());
    }

    /** One node that kube-scheduler would make room on. */
    private final class OnNode {
        private final Wire.Pod pod;
        private final PodGpuRequest ask;
        private final NodeView node;
        private final List<Victim> proposedForGpus = new ArrayList<>();
        private final List<Victim> proposedForOthers = new ArrayList<>();
        private final int proposedViolations;

        OnNode(Wire.Pod pod, PodGpuRequest ask, NodeView node, MetaVictims proposed) {
            this.pod = pod;
            this.ask = ask;
            this.node = node;
            this.proposedViolations = proposed.numPdbViolations();
            List<Victim> victims = victims(proposed);
            for (Victim victim : victims) {
                Set<String> others = new HashSet<>(uids(victims));
                others.remove(victim.pod().uid());
                boolean ours = !victim.perGpu().isEmpty() && !(fits(others) && hostFits(others, List.of()));
                (ours ? proposedForGpus : proposedForOthers).add(victim);
            }
        }

        private List<Victim> victims(MetaVictims proposed) {
            Map<String, Holding> holdings = new HashMap<>();
            node.holdings().forEach(holding -> holdings.put(holding.pod().uid(), holding));
            List<Victim> victims = new ArrayList<>();
            for (MetaPod victim : proposed.pods()) {
                Holding holding = holdings.get(victim.uid());
                // One that is unknown to the ledger is without a GPU as far as anybody knows.
                victims.add(
                        holding == null
                                ? new Victim(
                                        new PodId("", "", victim.uid()), lower(), Instant.EPOCH, Map.of(), List.of())
                                : Victim.of(holding, budgets));
            }
            return victims;
        }

        private int lower() {
            return pod.rank().priority() - 1;
        }

        private boolean fits(Set<String> without) {
            return ledger.feasibilityWithout(node.name(), pod.id().uid(), ask, without) instanceof Feasibility.Fits;
        }

        Optional<Found> find(Optional<EvictionCost> below) {
            Set<String> leaving = kept.leaving(node);
            Set<String> gone = new HashSet<>(leaving);
            gone.addAll(uids(proposedForOthers));
            List<Victim> candidates = node.holdings().stream()
                    .filter(holding -> Victim.mayBe(holding, pod.rank().priority())
                            && !gone.contains(holding.pod().uid()))
                    .map(holding -> Victim.of(holding, budgets))
                    .toList();
            boolean oneGpu = ask.requestsOneVgpu();
            Optional<EvictionPlan> plan = VictimSearch.cheapest(candidates, this::fits, gone, oneGpu, below);
            if (plan.isEmpty()) {
                return Optional.empty();
            }
            if (hostFits(gone, plan.get().victims())) {
                return found(plan.get().victims(), leaving);
            }
            gone.addAll(uids(proposedForGpus));
            return VictimSearch.cheapest(candidates, this::fits, gone, oneGpu, Optional.empty())
                    .flatMap(more -> {
                        List<Victim> all = new ArrayList<>(proposedForGpus);
                        all.addAll(more.victims());
                        return found(all, leaving);
                    });
        }

        private Optional<Found> found(List<Victim> forGpus, Set<String> leaving) {
            List<Victim> victims = new ArrayList<>(forGpus);
            victims.addAll(proposedForOthers);
            EvictionPlan plan = new EvictionPlan(victims);
            // Of those without a GPU the budgets aren't known.
            int unknown = (int)
                    victims.stream().filter(victim -> victim.perGpu().isEmpty()).count();
            int violations = plan.cost().violations() + Math.min(proposedViolations, unknown);
            if (victims.isEmpty()) {
                // It wants at least one, and leaves alone those that are leaving.
                node.holdings().stream()
                        .filter(holding -> leaving.contains(holding.pod().uid())
                                && holding.state() == Holding.State.HELD
                                && holding.priority() < pod.rank().priority())
                        .min(Comparator.comparing(holding -> holding.pod().uid()))
                        .ifPresent(holding -> victims.add(Victim.of(holding, budgets)));
            }
            return victims.isEmpty()
                    ? Optional.empty()
                    : Optional.of(new Found(node.name(), victims, plan.cost(), violations));
        }

        /** Whether CPU and memory suffice without these. */
        private boolean hostFits(Set<String> gone, List<Victim> victims) {
            Set<String> without = new HashSet<>(gone);
            without.addAll(uids(victims));
            if (!(node.facts() instanceof NodeFacts.Sharing sharing)) {
                return false;
            }
            long cpuMillis = ask.requests().cpuMillis();
            long memoryBytes = ask.requests().memoryBytes();
            for (Holding holding : node.holdings()) {
                if (!without.contains(holding.pod().uid())) {
                    cpuMillis += holding.requests().cpuMillis();
                    memoryBytes += holding.requests().memoryBytes();
                }
            }
            return cpuMillis <= sharing.allocatable().cpuMillis()
                    && memoryBytes <= sharing.allocatable().memoryBytes();
        }
    }
}
