package io.aliquot.scheduler.explain;

import com.fasterxml.jackson.annotation.JsonClassDescription;
import com.fasterxml.jackson.annotation.JsonPropertyDescription;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.scoring.ScoreTerm;
import java.util.List;
import java.util.function.Predicate;

/**
 * Why a pod is Pending, or which nodes fit it.
 *
 * @param summary one line, the same text while the situation is the same
 * @param fittingNodes nodes whose GPUs fit the pod now
 * @param refusals the other nodes, grouped by reason
 * @param nearest of the nodes that evictions may help, those that lack the least, nearest first
 * @param suggestions smaller requests that would fit now, each one enough by itself; empty if there are none
 * @param preemptionOptions nodes that would fit the pod without pods of lower priority, cheapest first
 */
public record Explanation(
        String summary,
        List<String> fittingNodes,
        List<Refusal> refusals,
        List<NodeShortfall> nearest,
        List<String> suggestions,
        List<PreemptionOption> preemptionOptions) {
    public Explanation {
        fittingNodes = List.copyOf(fittingNodes);
        refusals = List.copyOf(refusals);
        nearest = List.copyOf(nearest);
        suggestions = List.copyOf(suggestions);
        preemptionOptions = List.copyOf(preemptionOptions);
    }

    @JsonClassDescription("A number of nodes and the names of some of them.")
    public record Nodes(
            @JsonPropertyDescription("Number of nodes.") int count,

            @JsonPropertyDescription("Names of at most five of them.")
            List<String> examples) {
        static final int MAX_EXAMPLES = 5;

        public static Nodes of(List<String> names) {
            return new Nodes(names.size(), names.stream().limit(MAX_EXAMPLES).toList());
        }
    }

    @JsonClassDescription("Nodes that refuse the pod for the same reason.")
    public record Refusal(
            @JsonPropertyDescription("The reason, as kube-scheduler reports it.")
            String reason,

            @JsonPropertyDescription("Whether evicting other pods would not help.")
            boolean unresolvable,

            @JsonPropertyDescription("The nodes.") Nodes nodes) {}

    @JsonClassDescription("What a node lacks to fit the pod.")
    public record NodeShortfall(
            @JsonPropertyDescription("Name of the node.") String node,

            @JsonPropertyDescription(
                    "The GPUs that lack the least; empty if each vGPU fits alone but not all of them together.")
            List<GpuShortfall> gpus) {
        public NodeShortfall {
            gpus = List.copyOf(gpus);
        }
    }

    @JsonClassDescription("What a GPU lacks to fit a vGPU of a container.")
    public record GpuShortfall(
            @JsonPropertyDescription("Name of the container.")
            String container,

            @JsonPropertyDescription("UUID of the GPU.") String gpu,

            @JsonPropertyDescription("What is lacking, such as: lacks 2000 MiB. Empty if nothing is.")
            String text,

            @JsonPropertyDescription("Memory to free, in MiB; 0 if memory suffices.")
            long memoryMiB,

            @JsonPropertyDescription("Percent of the GPU to free; 0 if cores suffice.")
            int cores,

            @JsonPropertyDescription("Number of vGPUs to remove; 0 if slots suffice.")
            int slots) {}

    @JsonClassDescription("How a placement policy rates a node.")
    public record Score(
            @JsonPropertyDescription("Name of the node.") String node,

            @JsonPropertyDescription("The parts of the score.")
            List<Term> terms) {
        static Score of(String node, List<ScoreTerm> terms) {
            return new Score(
                    node,
                    terms.stream()
                            .map(term -> new Term(term.name(), (int) Math.round(term.thousandths())))
                            .toList());
        }
    }

    @JsonClassDescription("A part of a node's score.")
    public record Term(
            @JsonPropertyDescription("fullness; or waste or scarcity of the policy fragmentation.")
            String name,

            @JsonPropertyDescription("Its value in thousandths; with fragmentation, of a GPU.")
            int thousandths) {}

    @JsonClassDescription("A node that would fit the pod without these pods.")
    public record PreemptionOption(
            @JsonPropertyDescription("Name of the node.") String node,

            @JsonPropertyDescription("The pods, all of which are needed.")
            List<Victim> victims) {
        public PreemptionOption {
            victims = List.copyOf(victims);
        }

        /** The same, without the names of pods in other namespaces than those that pass the test. */
        public PreemptionOption showing(Predicate<String> namespaces) {
            return new PreemptionOption(
                    node,
                    victims.stream()
                            .map(one -> namespaces.test(one.namespace)
                                    ? one
                                    : new Victim("", "", one.priority, one.terminating))
                            .toList());
        }
    }

    @JsonClassDescription("A pod that would be evicted, or terminates already.")
    public record Victim(
            @JsonPropertyDescription("Its namespace; empty if the user may not list the pods there.")
            String namespace,

            @JsonPropertyDescription("Its name; empty if the user may not list the pods of its namespace.")
            String name,

            @JsonPropertyDescription("Value of its PriorityClass.")
            int priority,

            @JsonPropertyDescription("Whether it terminates already.")
            boolean terminating) {
        static Victim of(PodId pod, int priority, boolean terminating) {
            return new Victim(pod.namespace(), pod.name(), priority, terminating);
        }
    }
}
