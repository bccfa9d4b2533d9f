package io.aliquot.scheduler.extensionapi.objects;

import com.fasterxml.jackson.annotation.JsonClassDescription;
import com.fasterxml.jackson.annotation.JsonPropertyDescription;
import io.aliquot.scheduler.explain.Explanation.GpuShortfall;
import io.aliquot.scheduler.explain.Explanation.NodeShortfall;
import io.aliquot.scheduler.explain.Explanation.Nodes;
import io.aliquot.scheduler.explain.Explanation.PreemptionOption;
import io.aliquot.scheduler.explain.Explanation.Refusal;
import io.aliquot.scheduler.explain.Explanation.Score;
import io.aliquot.scheduler.extensionapi.machinery.Discovery;
import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.Metadata;
import java.util.List;

/** The answer of {@code gpushares/explain}. Names of pods that the caller may not list are empty. */
@JsonClassDescription("Why a pod is Pending, or what a bound pod holds.")
public record GpuShareExplanation(
        String apiVersion,
        String kind,
        @JsonPropertyDescription("That of the gpushare.") Metadata metadata,

        @JsonPropertyDescription("Pending, Bound or Terminating.")
        String phase,

        @JsonPropertyDescription(
                "The core policies and priorities that pods of the namespace may have, in words; empty if all.")
        String allowed,

        @JsonPropertyDescription("The answer in one line.") String summary,

        @JsonPropertyDescription(
                "Why kube-scheduler found no node in its last attempt, in its own words; empty if it made no attempt or found a node.")
        String kubeScheduler,

        @JsonPropertyDescription("The policy that selects the node of a Pending pod; empty for a bound one.")
        String placement,

        @JsonPropertyDescription("Nodes whose GPUs fit the pod now.")
        Nodes fits,

        @JsonPropertyDescription("The best of these nodes, best first.")
        List<Score> scores,

        @JsonPropertyDescription("The other nodes, grouped by reason.")
        List<Refusal> refusals,

        @JsonPropertyDescription("The nodes that lack the least, nearest first.")
        List<NodeShortfall> nearest,

        @JsonPropertyDescription("Smaller requests that would fit now, each one enough by itself.")
        List<String> suggestions,

        @JsonPropertyDescription("Nodes that would fit the pod without pods of lower priority, cheapest first.")
        List<PreemptionOption> preemptionOptions,

        @JsonPropertyDescription("What each GPU of the node in the query lacks; empty without a node in the query.")
        List<GpuShortfall> gpus) {
    /** The answer about a pod that is not Pending for GPUs. */
    public static GpuShareExplanation plain(GpuPod pod, String allowed, String summary) {
        return new GpuShareExplanation(
                Discovery.GROUP_VERSION,
                "GpuShareExplanation",
                GpuShares.metadata(pod),
                pod.phase(),
                allowed,
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
}
