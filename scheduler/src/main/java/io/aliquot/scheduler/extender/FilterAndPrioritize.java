package io.aliquot.scheduler.extender;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.pods.Placement;
import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.Cluster.LeaderStatus.NotLeading;
import io.aliquot.scheduler.extender.Wire.FilterResult;
import io.aliquot.scheduler.extender.Wire.HostPriority;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.pending.PendingPods;
import io.aliquot.scheduler.pending.PendingPods.FilterOutcome;
import io.aliquot.scheduler.pending.UnboundPod;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.scoring.NodeRanking;
import io.aliquot.scheduler.scoring.NodeScoring;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;

/** The verbs filter and prioritize: the nodes that a pod fits on, and their scores. */
final class FilterAndPrioritize {
    private static final String UNDECIDED = "the outcome of an earlier bind of this pod is not known yet";

    private final GpuRequestCache requests = new GpuRequestCache();
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
        if (cluster.leadership() instanceof NotLeading notLeading) {
            return FilterResult.error(notLeading.why());
        }
        PodId id = pod.id();
        PodGpuRequest request;
        try {
            request = requests.of(pod);
        } catch (FormatException e) {
            return none(nodes, String.valueOf(e.getMessage()));
        }
        if (request.containers().isEmpty()) {
            return new FilterResult(nodes, Map.of(), Map.of(), "");
        }
        Optional<String> sent = ledger.assumedNode(id.uid());
        if (sent.isPresent()) {
            return only(sent.get(), nodes);
        }
        scoring.observe(id.uid(), request);
        UnboundPod unbound = pod.requesting(request);
        pending.observe(unbound);
        Evaluation evaluation = evaluate(unbound, nodes, pod.nominatedNodeName());
        pending.record(unbound, evaluation.outcome(), nodes);
        FilterResult result = evaluation.result();
        if (evaluation.outcome() == FilterOutcome.FITS) {
            ledger.reserve(id, result.nodeNames().get(0), request);
        }
        return result;
    }

    private record Evaluation(FilterOutcome outcome, FilterResult result) {}

    private Evaluation evaluate(UnboundPod pod, List<String> nodes, String nominated) {
        PodGpuRequest request = pod.request();
        int most = ledger.maxGpusPerNode();
        if (most > 0 && request.mostVgpus() > most) {
            String reason = "requests " + request.mostVgpus() + " vGPUs on different GPUs, no node has more than "
                    + most + (most == 1 ? " GPU" : " GPUs");
            return new Evaluation(FilterOutcome.DOES_NOT_FIT, none(nodes, reason));
        }
        Optional<String> overQuota = ledger.overQuota(pod.id(), request);
        if (overQuota.isPresent()) {
            return new Evaluation(FilterOutcome.OVER_QUOTA, none(nodes, overQuota.get()));
        }
        boolean dependsOnNode = ledger.quotaDependsOnNode(pod.id(), request);
        FilterResult fitting = rankNodes(pod, nodes, nominated, dependsOnNode ? nodes.size() : most(request, nodes));
        if (fitting.nodeNames().isEmpty()) {
            return new Evaluation(FilterOutcome.DOES_NOT_FIT, fitting);
        }
        FilterResult result = dependsOnNode ? withinQuota(pod, fitting, most(request, nodes)) : fitting;
        return new Evaluation(result.nodeNames().isEmpty() ? FilterOutcome.OVER_QUOTA : FilterOutcome.FITS, result);
    }

    /*
     * Why a refusing node is reported as unresolvable, also if evictions would help: kube-scheduler's own filters
     * accepted the node, so its search for victims finds that none is needed and writes an error with the node's name
     * into the pod's status, a different one each time (1.35, framework/preemption/preemption.go, DryRunPreemption).
     * The Evictor handles a shortage of single GPUs. The nominated node is the exception: if it were unresolvable,
     * kube-scheduler would preempt once more (defaultpreemption, PodEligibleToPreemptOthers). What a quota refuses is always
     * unresolvable: no pod is evicted for it.
     */
    private FilterResult rankNodes(UnboundPod pod, List<String> nodes, String nominated, int most) {
        PodGpuRequest request = pod.request();
        NodeRanking ranking =
                scoring.forPod(pod.id().uid(), request, request.nodePlacement().orElse(nodePlacement));
        var failed = new HashMap<String, String>(1);
        var unresolvable = new HashMap<String, String>();
        List<String> best = ranking.best(
                nodes,
                most,
                (node, refuses) -> (node.equals(nominated) ? failed : unresolvable).put(node, refuses.reason()));
        return new FilterResult(best, failed, unresolvable, "");
    }

    private int most(PodGpuRequest request, List<String> nodes) {
        // A pod with preferences of its own may score highest a node that the policy here scores lowest.
        boolean all = nodesPerFilter == 0 || request.preferences();
        return all ? nodes.size() : nodesPerFilter;
    }

    /** Without the nodes whose GPUs are more than the pod's quotas allow. */
    private FilterResult withinQuota(UnboundPod pod, FilterResult fitting, int most) {
        var within = new ArrayList<String>();
        var unresolvable = new HashMap<>(fitting.failedAndUnresolvableNodes());
        for (String node : fitting.nodeNames()) {
            if (within.size() == most) {
                break;
            }
            ledger.overQuotaOn(node, pod.id(), pod.request(), Set.of())
                    .ifPresentOrElse(why -> unresolvable.put(node, why), () -> within.add(node));
        }
        return new FilterResult(within, fitting.failedNodes(), unresolvable, "");
    }

    /** Scores from 0 to 10; 0 for all nodes if the request is malformed or has no GPU. */
    List<HostPriority> prioritize(Wire.Pod pod, List<String> nodes) {
        String uid = pod.id().uid();
        PodGpuRequest request;
        try {
            request = pending.request(uid).orElseGet(() -> requests.of(pod));
        } catch (FormatException e) {
            return indifferent(nodes);
        }
        if (request.containers().isEmpty()) {
            return indifferent(nodes);
        }
        var priorities = new ArrayList<HostPriority>(nodes.size());
        scoring.forPod(uid, request, request.nodePlacement().orElse(nodePlacement))
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
