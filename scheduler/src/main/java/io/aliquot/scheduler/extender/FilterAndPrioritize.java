package io.aliquot.scheduler.extender;

import io.aliquot.api.FormatException;
import io.aliquot.api.Placement;
import io.aliquot.scheduler.extender.Cluster.LeaderStatus.Waits;
import io.aliquot.scheduler.extender.Wire.FilterResult;
import io.aliquot.scheduler.extender.Wire.HostPriority;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.scoring.FeasibilityCache;
import io.aliquot.scheduler.scoring.NodeScoring;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;

/** Which nodes a pod may go to, and which the policy likes: the verbs filter and prioritize. */
final class FilterAndPrioritize {
    private static final String UNDECIDED = "the outcome of an earlier bind of this pod is not known yet";

    private final GpuRequestCache asks = new GpuRequestCache();
    private final Ledger ledger;
    private final NodeScoring scoring;
    private final Cluster cluster;
    private final PendingPods pending;
    private final Placement nodePlacement;
    private final int nodesPerFilter;

    FilterAndPrioritize(
            Ledger ledger,
            NodeScoring scoring,
            Cluster cluster,
            PendingPods pending,
            Placement nodePlacement,
            int nodesPerFilter) {
        this.ledger = ledger;
        this.scoring = scoring;
        this.cluster = cluster;
        this.pending = pending;
        this.nodePlacement = nodePlacement;
        this.nodesPerFilter = nodesPerFilter;
    }

    FilterResult filter(Wire.Pod pod, List<String> nodes) {
        if (cluster.leadership() instanceof Waits waits) {
            return FilterResult.error(waits.why());
        }
        PodId id = pod.id();
        PodGpuRequest ask;
        try {
            ask = asks.of(pod);
        } catch (FormatException e) {
            return none(nodes, String.valueOf(e.getMessage()));
        }
        if (ask.containers().isEmpty()) {
            return new FilterResult(nodes, Map.of(), Map.of(), "");
        }
        Optional<String> sent = ledger.unsettled(id.uid());
        if (sent.isPresent()) {
            return only(sent.get(), nodes);
        }
        scoring.observe(id.uid(), ask);
        // Before looking: room that is freed while we look must find the pod waiting.
        pending.observe(pod, ask);
        int most = ledger.maxGpusPerNode();
        if (most > 0 && ask.mostVgpus() > most) {
            pending.waits(pod, ask, nodes);
            return none(
                    nodes,
                    "asks for " + ask.mostVgpus() + " vGPUs on different GPUs, no node has more than " + most
                            + (most == 1 ? " GPU" : " GPUs"));
        }
        FilterResult result = look(id, ask, nodes, pod.nominatedNodeName());
        if (result.nodeNames().isEmpty()) {
            pending.waits(pod, ask, nodes);
        } else {
            pending.fits(pod, ask);
            ledger.reserve(id, result.nodeNames().get(0), ask);
        }
        return result;
    }

    /*
     * A node that refuses is called unresolvable, whoever may be evicted from it: kube-scheduler passed it itself, so
     * its own search for victims finds that none is needed, and puts an error with the node's name into the pod's status,
     * never the same twice (1.35, framework/preemption/preemption.go, DryRunPreemption). Evicting for a shortage that
     * only a single GPU has is ours. Not so the node where it has made room already: that one being unresolvable would
     * let it make room once more (defaultpreemption, PodEligibleToPreemptOthers).
     */
    private FilterResult look(PodId pod, PodGpuRequest ask, List<String> nodes, String nominated) {
        FeasibilityCache feasibility =
                scoring.forPod(pod.uid(), ask, ask.nodePlacement().orElse(nodePlacement));
        var failed = new HashMap<String, String>(1);
        // Large enough from the start: one that grows is garbage over and over.
        var unresolvable = new HashMap<String, String>(1 + feasibility.expectedRefusals() * 4 / 3);
        // A pod with preferences of its own may like a node best that we like least.
        boolean all = nodesPerFilter == 0 || ask.preferences();
        List<String> best = feasibility.best(
                nodes,
                all ? nodes.size() : nodesPerFilter,
                (node, refuses) -> (node.equals(nominated) ? failed : unresolvable).put(node, refuses.reason()));
        return new FilterResult(best, failed, unresolvable, "");
    }

    /** 0 to 10 for each of these nodes; for a pod that makes no sense, or asks for nothing, 0 for all. */
    List<HostPriority> prioritize(Wire.Pod pod, List<String> nodes) {
        String uid = pod.id().uid();
        PodGpuRequest ask;
        try {
            ask = pending.request(uid).orElseGet(() -> asks.of(pod));
        } catch (FormatException e) {
            return indifferent(nodes);
        }
        if (ask.containers().isEmpty()) {
            return indifferent(nodes);
        }
        var priorities = new ArrayList<HostPriority>(nodes.size());
        scoring.forPod(uid, ask, ask.nodePlacement().orElse(nodePlacement))
                .prioritize(nodes, (node, score) -> priorities.add(new HostPriority(node, score)));
        return priorities;
    }

    private static List<HostPriority> indifferent(List<String> nodes) {
        return nodes.stream().map(node -> new HostPriority(node, 0)).toList();
    }

    private static FilterResult only(String node, List<String> nodes) {
        Map<String, String> others = nodes.stream()
                .filter(name -> !name.equals(node))
                .distinct()
                .collect(Collectors.toMap(name -> name, name -> UNDECIDED));
        return new FilterResult(nodes.contains(node) ? List.of(node) : List.of(), Map.of(), others, "");
    }

    private static FilterResult none(List<String> nodes, String reason) {
        return new FilterResult(
                List.of(),
                Map.of(),
                nodes.stream().distinct().collect(Collectors.toMap(name -> name, name -> reason)),
                "");
    }
}
