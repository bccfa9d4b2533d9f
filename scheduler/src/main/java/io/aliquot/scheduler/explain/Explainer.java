package io.aliquot.scheduler.explain;

import io.aliquot.api.Placement;
import io.aliquot.scheduler.explain.Explanation.Group;
import io.aliquot.scheduler.explain.Explanation.Lack;
import io.aliquot.scheduler.explain.Explanation.Room;
import io.aliquot.scheduler.ledger.Feasibility;
import io.aliquot.scheduler.ledger.FeasibilityCache;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeFacts.Sharing;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.placement.ScoreTerm;
import io.aliquot.scheduler.preemption.Budgets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/*
 * Every node is looked at, since the answer is about all of them; what is dear (whom to evict, what to ask for instead)
 * only on the nodes that come closest. The same ledger and pod give the same answer, word for word: nodes are gone
 * through in the order of their names, and ties are broken by name.
 */
/** Tells why a pod waits. Thread-safe. */
public final class Explainer {
    private static final int EXAMPLES = 5;
    private static final int NEAREST = 5;
    private static final int ROOMS = 3;
    private static final int REASONS_IN_LINE = 4;
    private static final int REMEDIES_IN_LINE = 3;
    /** Nodes, nearest first, that are looked into more closely; for pods that could go some 30 ms each at the very worst. */
    private static final int LOOKED_INTO = 50;

    private final Ledger ledger;
    private final Budgets budgets;

    public Explainer(Ledger ledger, Budgets budgets) {
        this.ledger = ledger;
        this.budgets = budgets;
    }

    /**
     * A node that holds a pod.
     *
     * @param liking how much the policy likes it; the most wins
     * @param terms what that is made of
     */
    public record Liked(String node, double liking, List<ScoreTerm> terms) {}

    /** What all nodes say, sorted. */
    private record Survey(int nodes, List<String> fitting, List<Group> groups, List<Shortfall> misfits) {
        /** Those that are looked into. */
        List<Shortfall> closest() {
            return misfits.stream().limit(LOOKED_INTO).toList();
        }
    }

    /**
     * All of it.
     *
     * @param priority Kubernetes' of the pod; it may push those aside that have less
     * @param preempts whether it may push anybody aside
     * @param nodes that it may go to, were it not for its GPUs
     */
    public Explanation explain(PodId pod, PodGpuRequest ask, int priority, boolean preempts, Collection<String> nodes) {
        Survey survey = survey(pod, ask, nodes);
        List<Shortfall> closest = survey.closest();
        boolean waits = survey.fitting().isEmpty();
        return new Explanation(
                summary(survey),
                survey.fitting(),
                survey.groups(),
                closest.stream().limit(NEAREST).map(Shortfall::near).toList(),
                waits ? new Suggestions(ask, sharing(pod, nodes)).find() : List.of(),
                waits ? rooms(pod, ask, priority, preempts, closest) : List.of());
    }

    /** Some of the nodes that hold the pod now, the one that the policy likes best first. */
    public List<Liked> liked(PodId pod, PodGpuRequest ask, Placement policy, Collection<String> nodes) {
        FeasibilityCache offers = ledger.offers(pod.uid(), ask, policy);
        return nodes.stream()
                .flatMap(node -> offers.of(node) instanceof Feasibility.Fits fits
                        ? Stream.of(new Liked(node, offers.liking(node), offers.terms(fits)))
                        : Stream.empty())
                .sorted(Comparator.comparingDouble(Liked::liking).reversed().thenComparing(Liked::node))
                .limit(EXAMPLES)
                .toList();
    }

    /**
     * What {@link Explanation#summary} says, and what the pod could ask for instead, for an event; empty where there is room.
     * Some microseconds a node.
     */
    public Optional<String> oneLiner(PodId pod, PodGpuRequest ask, Collection<String> nodes) {
        Survey survey = survey(pod, ask, nodes);
        if (!survey.fitting().isEmpty()) {
            return Optional.empty();
        }
        List<String> closest =
                survey.closest().stream().map(misfit -> misfit.near().node()).toList();
        List<String> remedies = new Suggestions(ask, sharing(pod, closest.isEmpty() ? nodes : closest)).find();
        String instead = remedies.stream().limit(REMEDIES_IN_LINE).collect(Collectors.joining(", or "));
        return Optional.of(summary(survey) + (instead.isEmpty() ? "" : "; would fit: " + instead));
    }

    /** In a word. */
    public PendingCause cause(PodId pod, PodGpuRequest ask, Collection<String> nodes) {
        Survey survey = survey(pod, ask, nodes);
        if (!survey.fitting().isEmpty()) {
            return PendingCause.ELSEWHERE;
        }
        if (!survey.misfits().isEmpty()) {
            return survey.misfits().get(0).cause();
        }
        boolean closed = nodes.stream()
                .flatMap(node -> ledger.view(node).stream())
                .anyMatch(view -> NodeFreeCapacity.emptyAndOpen(view).hold(ask));
        return closed ? PendingCause.CLOSED : PendingCause.IMPOSSIBLE;
    }

    /** What is in the way on each GPU of a node, container by container; of one that holds a vGPU, nothing. */
    public List<Lack> gpuByGpu(PodId pod, PodGpuRequest ask, String node) {
        return ledger.view(node)
                .map(view -> Shortfall.gpuByGpu(ask, NodeFreeCapacity.without(view, pod.uid())))
                .orElse(List.of());
    }

    private Survey survey(PodId pod, PodGpuRequest ask, Collection<String> nodes) {
        var fitting = new ArrayList<String>();
        var refusing = new TreeMap<String, List<String>>();
        var hopeless = new TreeMap<String, Boolean>();
        var misfits = new ArrayList<Shortfall>();
        for (String node : nodes.stream().sorted().distinct().toList()) {
            Feasibility offer = ledger.feasibility(node, pod.uid(), ask);
            if (offer instanceof Feasibility.Refuses refuses) {
                refusing.computeIfAbsent(refuses.reason(), reason -> new ArrayList<>())
                        .add(node);
                hopeless.put(refuses.reason(), refuses.hopeless());
                if (!refuses.hopeless()) {
                    ledger.view(node)
                            .flatMap(view -> Shortfall.of(ask, view, NodeFreeCapacity.without(view, pod.uid())))
                            .ifPresent(misfits::add);
                }
            } else {
                fitting.add(node);
            }
        }
        misfits.sort(Comparator.comparingDouble(Shortfall::distance)
                .thenComparing(misfit -> misfit.near().node()));
        return new Survey(
                fitting.size() + refusing.values().stream().mapToInt(List::size).sum(),
                fitting,
                groups(refusing, hopeless),
                misfits);
    }

    private static List<Group> groups(Map<String, List<String>> refusing, Map<String, Boolean> hopeless) {
        return refusing.entrySet().stream()
                .map(entry -> new Group(
                        entry.getKey(),
                        hopeless.getOrDefault(entry.getKey(), true),
                        entry.getValue().size(),
                        entry.getValue().stream().limit(EXAMPLES).toList()))
                .sorted(Comparator.comparing(Group::hopeless)
                        .thenComparing(Group::nodes, Comparator.reverseOrder())
                        .thenComparing(Group::reason))
                .toList();
    }

    private static String summary(Survey survey) {
        if (survey.nodes() == 0) {
            return "no node is known that has GPUs to share";
        }
        String of = survey.nodes() == 1 ? "1 node" : survey.nodes() + " nodes";
        if (!survey.fitting().isEmpty()) {
            String names = survey.fitting().stream().limit(EXAMPLES).collect(Collectors.joining(", "));
            String more = survey.fitting().size() > EXAMPLES ? ", …" : "";
            return "the GPUs of " + survey.fitting().size() + " of " + of + " hold it (" + names + more + ")";
        }
        String reasons = survey.groups().stream()
                .limit(REASONS_IN_LINE)
                .map(group -> group.nodes() + " " + group.reason())
                .collect(Collectors.joining(", "));
        int others = survey.groups().stream()
                .skip(REASONS_IN_LINE)
                .mapToInt(Group::nodes)
                .sum();
        String closest = survey.misfits().stream()
                .findFirst()
                .map(misfit -> "; closest is " + misfit.near().node() + ", where " + misfit.words())
                .orElse("; no pod's leaving would help");
        return "of " + of + " none has room: " + reasons + (others > 0 ? ", " + others + " for other reasons" : "")
                + closest;
    }

    private List<NodeFreeCapacity> sharing(PodId pod, Collection<String> nodes) {
        return nodes.stream()
                .sorted()
                .flatMap(node -> ledger.view(node).stream())
                .filter(view -> view.served() && view.facts() instanceof Sharing)
                .map(view -> NodeFreeCapacity.without(view, pod.uid()))
                .toList();
    }

    private List<Room> rooms(PodId pod, PodGpuRequest ask, int priority, boolean preempts, List<Shortfall> closest) {
        var found = new ArrayList<PreemptionOption>();
        for (Shortfall misfit : closest) {
            Optional<NodeView> view = ledger.view(misfit.near().node());
            view.flatMap(now -> PreemptionOption.find(now, pod, ask, priority, preempts, budgets))
                    .ifPresent(found::add);
        }
        return found.stream().sorted().limit(ROOMS).map(PreemptionOption::room).toList();
    }
}
