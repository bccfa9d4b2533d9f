package io.aliquot.scheduler.explain;

import io.aliquot.api.nodes.GpuHealth.Unhealthy;
import io.aliquot.api.pods.Placement;
import io.aliquot.scheduler.explain.Explanation.GpuShortfall;
import io.aliquot.scheduler.explain.Explanation.Nodes;
import io.aliquot.scheduler.explain.Explanation.PreemptionOption;
import io.aliquot.scheduler.explain.Explanation.Refusal;
import io.aliquot.scheduler.explain.Explanation.Score;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeFacts.Sharing;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.Feasibility;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.preemption.Budgets;
import io.aliquot.scheduler.scoring.NodeRanking;
import io.aliquot.scheduler.scoring.NodeScoring;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import org.springframework.stereotype.Component;

/*
 * An explanation covers every node. The expensive parts, suggestions in events and preemption options, cover only the
 * nodes that lack the least. The result is deterministic: the same ledger and pod give the same text, because nodes are
 * evaluated in the order of their names and ties are broken by name.
 */
/** Explains why a pod is Pending. Reads the ledger and changes nothing. Thread-safe. */
@Component
public final class Explainer {
    private static final int MAX_BEST_NODES = 5;
    private static final int MAX_NEAREST = 5;
    private static final int MAX_PREEMPTION_OPTIONS = 3;
    private static final int MAX_REASONS_IN_SUMMARY = 4;
    private static final int MAX_SUGGESTIONS_IN_LINE = 3;
    /** Nodes, nearest first, for which preemption is tried. One node takes less than 1 ms. */
    private static final int MAX_EXAMINED_NODES = 50;

    private final Ledger ledger;
    private final NodeScoring scoring;
    private final Budgets budgets;

    public Explainer(Ledger ledger, NodeScoring scoring, Budgets budgets) {
        this.ledger = ledger;
        this.scoring = scoring;
        this.budgets = budgets;
    }

    private record RankedNode(String node, double score) {}

    /**
     * What all nodes answered for a pod.
     *
     * @param shortfalls sorted, nearest first
     * @param unhealthy what is wrong with each GPU that would fit, on nodes where no eviction would help
     * @param overQuota whether a quota refuses the GPUs of a node
     */
    private record Evaluation(
            List<String> fitting,
            List<Refusal> refusals,
            List<Shortfall> shortfalls,
            List<Unhealthy> unhealthy,
            boolean overQuota) {
        List<Shortfall> nearest() {
            return shortfalls.stream().limit(MAX_EXAMINED_NODES).toList();
        }
    }

    /**
     * Explains in full which nodes fit a pod, why the others refuse it, and what would help. Takes up to some seconds
     * in a cluster of 1,000 nodes.
     *
     * @param priority the pod's priority in Kubernetes; it may preempt pods of lower priority
     * @param mayPreempt false for {@code preemptionPolicy: Never}
     * @param nodes the nodes to evaluate: those that kube-scheduler allows for the pod, apart from GPUs
     */
    public Explanation explain(
            PodId pod, PodGpuRequest request, int priority, boolean mayPreempt, Collection<String> nodes) {
        Evaluation evaluation = evaluate(pod, request, nodes);
        List<Shortfall> nearest = evaluation.nearest();
        Optional<String> overQuota = ledger.overQuota(pod, request);
        boolean pending = overQuota.isEmpty() && evaluation.fitting().isEmpty();
        return new Explanation(
                overQuota.map(why -> why + "; ").orElse("") + summary(evaluation),
                evaluation.fitting(),
                evaluation.refusals(),
                nearest.stream().limit(MAX_NEAREST).map(Shortfall::node).toList(),
                pending ? new Suggestions(request, sharingNodes(pod, request, nodes)).find() : List.of(),
                pending ? preemptionOptions(pod, request, priority, mayPreempt, nearest) : List.of());
    }

    /** The best of the given nodes that fit the pod now, by the policy's score, best first; at most 5. */
    public List<Score> bestNodes(PodId pod, PodGpuRequest request, Placement policy, Collection<String> nodes) {
        NodeRanking ranking = scoring.forPod(pod.uid(), request, policy);
        return nodes.stream()
                .filter(node -> ranking.feasibility(node) instanceof Feasibility.Fits)
                .map(node -> new RankedNode(node, ranking.score(node)))
                .sorted(Comparator.comparingDouble(RankedNode::score).reversed().thenComparing(RankedNode::node))
                .limit(MAX_BEST_NODES)
                .map(best -> Score.of(best.node(), ranking.terms(best.node())))
                .toList();
    }

    /**
     * The explanation in one line, for an event: {@link Explanation#summary} and suggestions for the nearest nodes.
     * Empty if a node fits the pod. Takes some microseconds for each node.
     */
    public Optional<String> eventText(PodId pod, PodGpuRequest request, Collection<String> nodes) {
        Optional<String> overQuota = ledger.overQuota(pod, request);
        if (overQuota.isPresent()) {
            return overQuota;
        }
        Evaluation evaluation = evaluate(pod, request, nodes);
        if (!evaluation.fitting().isEmpty()) {
            return Optional.empty();
        }
        List<String> nearest = evaluation.nearest().stream()
                .map(shortfall -> shortfall.node().node())
                .toList();
        List<String> suggestions =
                new Suggestions(request, sharingNodes(pod, request, nearest.isEmpty() ? nodes : nearest)).find();
        String alternatives =
                suggestions.stream().limit(MAX_SUGGESTIONS_IN_LINE).collect(Collectors.joining(", or "));
        return Optional.of(summary(evaluation) + (alternatives.isEmpty() ? "" : "; would fit: " + alternatives));
    }

    /** The main cause for which the pod is Pending, for metrics. */
    public PendingCause cause(PodId pod, PodGpuRequest request, Collection<String> nodes) {
        if (ledger.overQuota(pod, request).isPresent()) {
            return PendingCause.QUOTA;
        }
        Evaluation evaluation = evaluate(pod, request, nodes);
        if (!evaluation.fitting().isEmpty()) {
            return PendingCause.ELSEWHERE;
        }
        if (!evaluation.shortfalls().isEmpty()) {
            return evaluation.shortfalls().get(0).cause();
        }
        if (evaluation.overQuota()) {
            return PendingCause.QUOTA;
        }
        boolean fitsOpenNode = nodes.stream()
                .filter(node -> ledger.runtimeRefusal(node, request).isEmpty())
                .flatMap(node -> ledger.view(node).stream())
                .anyMatch(view -> HypotheticalNode.emptyAndOpen(view).fits(request));
        return fitsOpenNode ? PendingCause.CLOSED : PendingCause.IMPOSSIBLE;
    }

    /**
     * What each GPU of a node lacks, one entry for each container and GPU. The text of an entry is empty if that GPU
     * fits a vGPU of that container. Empty for a node that the ledger does not know.
     */
    public List<GpuShortfall> gpuShortfalls(PodId pod, PodGpuRequest request, String node) {
        return ledger.view(node)
                .map(view -> Shortfall.ofGpus(request, HypotheticalNode.without(view, Set.of(pod.uid()))))
                .orElse(List.of());
    }

    private Evaluation evaluate(PodId pod, PodGpuRequest request, Collection<String> nodes) {
        var fitting = new ArrayList<String>();
        var refusing = new HashMap<Feasibility.Refused, List<String>>();
        var shortfalls = new ArrayList<Shortfall>();
        var unhealthy = new ArrayList<Unhealthy>();
        boolean quotaDependsOnNode = ledger.quotaDependsOnNode(pod, request);
        boolean anyOverQuota = false;
        for (String node : nodes.stream().sorted().distinct().toList()) {
            switch (ledger.feasibility(node, pod.uid(), request)) {
                case Feasibility.Fits fits -> {
                    Optional<String> overQuota =
                            quotaDependsOnNode ? ledger.overQuotaOn(node, pod, request, Set.of()) : Optional.empty();
                    overQuota.ifPresentOrElse(
                            why -> refusing.computeIfAbsent(
                                            new Feasibility.Refused(why, true), any -> new ArrayList<>())
                                    .add(node),
                            () -> fitting.add(node));
                    anyOverQuota |= overQuota.isPresent();
                }
                case Feasibility.Refused refusal -> {
                    refusing.computeIfAbsent(refusal, any -> new ArrayList<>()).add(node);
                    ledger.view(node)
                            .filter(view -> ledger.runtimeRefusal(node, request).isEmpty())
                            .map(view -> HypotheticalNode.without(view, Set.of(pod.uid())))
                            .ifPresent(free -> {
                                if (refusal.unresolvable()) {
                                    Shortfall.unhealthyGpus(request, free).forEach(unhealthy::add);
                                } else {
                                    Shortfall.of(request, free).ifPresent(shortfalls::add);
                                }
                            });
                }
            }
        }
        shortfalls.sort(Comparator.comparingDouble(Shortfall::distance)
                .thenComparing(shortfall -> shortfall.node().node()));
        List<Refusal> refusals = refusing.entrySet().stream()
                .map(entry ->
                        new Refusal(entry.getKey().reason(), entry.getKey().unresolvable(), Nodes.of(entry.getValue())))
                .sorted(Comparator.comparing(Refusal::unresolvable)
                        .thenComparing(refusal -> -refusal.nodes().count())
                        .thenComparing(Refusal::reason))
                .toList();
        return new Evaluation(fitting, refusals, shortfalls, unhealthy, anyOverQuota);
    }

    private static String summary(Evaluation evaluation) {
        Nodes fitting = Nodes.of(evaluation.fitting());
        List<Refusal> refusals = evaluation.refusals();
        int nodes = fitting.count() + count(refusals);
        if (nodes == 0) {
            return "the scheduler knows no node with shared GPUs";
        }
        if (fitting.count() > 0) {
            String more = fitting.count() > fitting.examples().size() ? ", …" : "";
            return fitting.count() + "/" + nodes + " nodes fit the pod's GPU requests ("
                    + String.join(", ", fitting.examples()) + more + ")";
        }
        String reasons = refusals.stream()
                .limit(MAX_REASONS_IN_SUMMARY)
                .map(refusal -> refusal.nodes().count() + " " + refusal.reason())
                .collect(Collectors.joining(", "));
        int others = count(refusals.subList(Math.min(MAX_REASONS_IN_SUMMARY, refusals.size()), refusals.size()));
        String nearest = evaluation.shortfalls().stream()
                .findFirst()
                .map(shortfall -> "; closest is " + shortfall.node().node() + ", where " + shortfall.text())
                .orElseGet(() -> "; no eviction would help" + unhealthyGpus(evaluation.unhealthy()));
        return "0/" + nodes + " nodes fit: " + reasons + (others > 0 ? ", " + others + " for other reasons" : "")
                + nearest;
    }

    private static String unhealthyGpus(List<Unhealthy> gpus) {
        List<String> reasons = gpus.stream().map(Unhealthy::reason).distinct().toList();
        if (reasons.isEmpty()) {
            return "";
        }
        return "; " + (gpus.size() == 1 ? "1 GPU that would fit is" : gpus.size() + " GPUs that would fit are")
                + " unhealthy" + (reasons.size() == 1 ? ": " + reasons.get(0) : ", for different reasons");
    }

    private static int count(List<Refusal> refusals) {
        return refusals.stream().mapToInt(refusal -> refusal.nodes().count()).sum();
    }

    /** The nodes on which a smaller request may help. */
    private List<HypotheticalNode> sharingNodes(PodId pod, PodGpuRequest request, Collection<String> nodes) {
        return nodes.stream()
                .sorted()
                .filter(node -> ledger.runtimeRefusal(node, request).isEmpty())
                .flatMap(node -> ledger.view(node).stream())
                .filter(view -> view.agentReady() && view.facts() instanceof Sharing)
                .map(view -> HypotheticalNode.without(view, Set.of(pod.uid())))
                .toList();
    }

    private List<PreemptionOption> preemptionOptions(
            PodId pod, PodGpuRequest request, int priority, boolean mayPreempt, List<Shortfall> nearest) {
        var options = new PreemptionOptions(pod, request, priority, mayPreempt, budgets);
        return options.cheapest(
                nearest.stream()
                        .flatMap(shortfall -> ledger.view(shortfall.node().node()).stream()),
                MAX_PREEMPTION_OPTIONS);
    }
}
