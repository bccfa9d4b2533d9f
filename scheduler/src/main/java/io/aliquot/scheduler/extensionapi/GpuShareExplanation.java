package io.aliquot.scheduler.extensionapi;

import io.aliquot.scheduler.explain.Explanation.GpuShortfall;
import io.aliquot.scheduler.explain.Explanation.NodeShortfall;
import io.aliquot.scheduler.explain.Explanation.Nodes;
import io.aliquot.scheduler.explain.Explanation.Refusal;
import io.aliquot.scheduler.extensionapi.ApiTypes.Metadata;
import java.util.List;

/**
 * The answer of {@code gpushares/explain}.
 *
 * @param summary the answer in one line
 * @param kubeScheduler why kube-scheduler found no node in its last attempt, in its own words; empty if it has made no
 *     attempt or has found a node
 * @param placement the policy that selects the node of a Pending pod; empty for a bound one
 * @param fits nodes whose GPUs fit the pod now
 * @param scores of the best of these nodes, best first
 * @param refusals the other nodes, grouped by reason
 * @param nearest nodes that lack the least, nearest first
 * @param suggestions smaller requests that would fit now, each one enough by itself
 * @param preemptionOptions nodes that would fit the pod without pods of lower priority, cheapest first; names of pods
 *     that the caller may not list are empty
 * @param gpus what each GPU of the node in the query lacks; empty without a node in the query
 */
record GpuShareExplanation(
        String apiVersion,
        String kind,
        Metadata metadata,
        String phase,
        String summary,
        String kubeScheduler,
        String placement,
        Nodes fits,
        List<Score> scores,
        List<Refusal> refusals,
        List<NodeShortfall> nearest,
        List<String> suggestions,
        List<PreemptionOption> preemptionOptions,
        List<GpuShortfall> gpus) {
    /** The answer about a pod that is not Pending for GPUs. */
    static GpuShareExplanation plain(GpuPod pod, String summary) {
        return new GpuShareExplanation(
                Discovery.GROUP_VERSION,
                "GpuShareExplanation",
                GpuShares.metadata(pod),
                pod.phase(),
                summary,
                "",
                "",
                new Nodes(0, List.of()),
                List.of(),
                List.of(),
                List.of(),
                List.of(),
                List.of(),
                List.of());
    }

    record Score(String node, List<Term> terms) {}

    record Term(String name, int thousandths) {}

    record PreemptionOption(String node, List<Victim> victims) {}

    record Victim(String namespace, String name, int priority, boolean terminating) {}
}
