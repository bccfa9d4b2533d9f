package io.aliquot.scheduler.explain;

import io.aliquot.scheduler.ledger.PodId;
import java.util.List;

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

    /** A number of nodes and the names of some of them. */
    public record Nodes(int count, List<String> examples) {
        static final int MAX_EXAMPLES = 5;

        public static Nodes of(List<String> names) {
            return new Nodes(names.size(), names.stream().limit(MAX_EXAMPLES).toList());
        }
    }

    /**
     * Nodes that refuse the pod for the same reason.
     *
     * @param reason as in the answer to kube-scheduler
     * @param unresolvable whether evicting other pods would not help
     */
    public record Refusal(String reason, boolean unresolvable, Nodes nodes) {}

    /**
     * What a node lacks to fit the pod.
     *
     * @param gpus the GPUs that lack the least; empty if each vGPU fits alone but not all of them together
     */
    public record NodeShortfall(String node, List<GpuShortfall> gpus) {
        public NodeShortfall {
            gpus = List.copyOf(gpus);
        }
    }

    /**
     * What a GPU lacks to fit a vGPU of a container.
     *
     * @param gpu the GPU's UUID
     * @param text a predicate such as "lacks 2000 MiB"; empty if nothing is lacking
     * @param memoryMiB memory to free; 0 if memory suffices
     * @param cores percent of the GPU to free; 0 if cores suffice
     * @param slots vGPUs to remove; 0 if slots suffice
     */
    public record GpuShortfall(String container, String gpu, String text, long memoryMiB, int cores, int slots) {}

    /** A node that would fit the pod without these pods, all of which are needed. */
    public record PreemptionOption(String node, List<Victim> victims) {
        public PreemptionOption {
            victims = List.copyOf(victims);
        }
    }

    /**
     * A pod of a {@link PreemptionOption}.
     *
     * @param terminating whether the pod terminates already, without an eviction
     */
    public record Victim(PodId pod, int priority, boolean terminating) {}
}
