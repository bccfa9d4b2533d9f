package io.aliquot.scheduler.inspection;

import io.aliquot.api.Placement;
import io.aliquot.scheduler.explain.Explainer;
import io.aliquot.scheduler.explain.Explainer.ScoredNode;
import io.aliquot.scheduler.explain.Explanation;
import io.aliquot.scheduler.explain.Explanation.Nodes;
import io.aliquot.scheduler.inspection.AccessReviews.Access;
import io.aliquot.scheduler.inspection.AccessReviews.Caller;
import io.aliquot.scheduler.inspection.ExplainResponse.PreemptionOption;
import io.aliquot.scheduler.inspection.ExplainResponse.Score;
import io.aliquot.scheduler.inspection.ExplainResponse.Term;
import io.aliquot.scheduler.inspection.ExplainResponse.Victim;
import io.aliquot.scheduler.inspection.PodLookup.ParsedRequest;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeFacts.Sharing;
import io.aliquot.scheduler.pending.PendingPods;
import io.aliquot.scheduler.placement.GpuFreeCapacity;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.settings.Settings;
import jakarta.servlet.http.HttpServletRequest;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** Serves why a pod is Pending, or what a bound pod holds. */
@RestController
final class ExplainController {
    private static final String ALL_NODES =
            "; this covers all nodes, because this replica does not know which of them kube-scheduler excludes";

    private final PodLookup pods;
    private final ApiMapper mapper;
    private final Ledger ledger;
    private final PendingPods pending;
    private final Explainer explainer;
    private final AccessControl access;
    private final Settings settings;

    ExplainController(
            PodLookup pods,
            ApiMapper mapper,
            Ledger ledger,
            PendingPods pending,
            Explainer explainer,
            AccessControl access,
            Settings settings) {
        this.pods = pods;
        this.mapper = mapper;
        this.ledger = ledger;
        this.pending = pending;
        this.explainer = explainer;
        this.access = access;
        this.settings = settings;
    }

    @GetMapping("/api/v1/pods/{namespace}/{name}/explain")
    ExplainResponse explain(HttpServletRequest http) {
        var request = ApiRequest.of(http, "node");
        String node = request.name("node");
        String namespace = request.name("namespace");
        String name = request.name("name");
        access.require(request.caller(), new Access("get", "pods", namespace, name));
        PodLookup.Pod pod = pods.find(namespace, name)
                .orElseThrow(() -> ApiException.notFound("there is no pod " + name + " in namespace " + namespace));
        if (pod.ended()) {
            return ExplainResponse.plain(pod, "ended", "has ended and holds no GPU");
        }
        if (!pod.node().isEmpty()) {
            return bound(pod);
        }
        return switch (pod.request()) {
            case ParsedRequest.Invalid(String reason) ->
                ExplainResponse.plain(pod, "invalid", "cannot be scheduled: " + reason);
            case ParsedRequest.Valid(PodGpuRequest gpus) -> unbound(pod, gpus, node, request.caller());
        };
    }

    private ExplainResponse bound(PodLookup.Pod pod) {
        List<ApiTypes.ShareView> shares = mapper.pods(pod.id().namespace(), pod.node()).stream()
                .filter(held -> held.pod().uid().equals(pod.id().uid()))
                .flatMap(held -> ApiMapper.shares(held).stream())
                .toList();
        String summary = "is bound to node " + pod.node() + " and holds ";
        return shares.isEmpty()
                ? ExplainResponse.plain(pod, "bound", summary + "no share of a GPU")
                : ExplainResponse.bound(
                        pod,
                        "bound",
                        summary
                                + shares.stream().map(ExplainController::text).collect(Collectors.joining("; "))
                                + unhealthyGpus(pod.node(), shares),
                        gpuPlacement(pod),
                        shares);
    }

    /** What is wrong with the unhealthy GPUs among those that the pod holds. */
    private String unhealthyGpus(String node, List<ApiTypes.ShareView> shares) {
        Set<String> held = shares.stream().map(ApiTypes.ShareView::gpu).collect(Collectors.toSet());
        return ledger.view(node).stream()
                .flatMap(view -> view.gpus().stream())
                .map(GpuFreeCapacity::gpu)
                .filter(gpu -> held.contains(gpu.uuid()))
                .flatMap(gpu -> gpu.health().unhealthy().stream()
                        .map(unhealthy -> "; " + gpu.uuid() + " is " + unhealthy.describe()))
                .collect(Collectors.joining());
    }

    private static String text(ApiTypes.ShareView share) {
        return share.container() + ": " + share.memoryMiB() + " MiB and "
                + (share.cores() == 0 ? "unlimited cores" : share.cores() + " % of the cores")
                + " of " + share.gpu() + (share.exclusive() ? " (whole card)" : "");
    }

    private String gpuPlacement(PodLookup.Pod pod) {
        if (pod.request() instanceof ParsedRequest.Valid(PodGpuRequest request)
                && request.gpuPlacement().isPresent()) {
            return request.gpuPlacement().get().print() + ", set by the pod";
        }
        return ledger.view(pod.node())
                .map(view -> view.facts() instanceof Sharing sharing
                        ? sharing.gpuPlacement().print() + ", set by the node or the chart"
                        : "")
                .orElse("");
    }

    private ExplainResponse unbound(PodLookup.Pod pod, PodGpuRequest request, String node, Caller caller) {
        if (request.containers().isEmpty()) {
            return ExplainResponse.plain(pod, "no-gpu", "requests no GPU");
        }
        if (!pod.schedulerName().equals(settings.schedulerName())) {
            return ExplainResponse.plain(
                    pod,
                    "other-scheduler",
                    "is for the scheduler " + pod.schedulerName() + "; set schedulerName: " + settings.schedulerName()
                            + ", or create the pod in a namespace where Aliquot's webhook sets it");
        }
        return pending(pod, request, node, caller);
    }

    private ExplainResponse pending(PodLookup.Pod pod, PodGpuRequest request, String node, Caller caller) {
        Optional<List<String>> candidates = pending.candidates(pod.id().uid());
        List<String> nodes = candidates.orElseGet(ledger::nodeNames);
        Explanation explanation = explainer.explain(pod.id(), request, pod.priority(), pod.mayPreempt(), nodes);
        Placement policy = request.nodePlacement().orElse(settings.nodePlacement());
        return new ExplainResponse(
                pod.id().namespace(),
                pod.id().name(),
                pod.id().uid(),
                "pending",
                summary(explanation, pod.schedulerMessage()) + (candidates.isEmpty() ? ALL_NODES : ""),
                pod.schedulerMessage(),
                "",
                policy.print(),
                List.of(),
                Nodes.of(explanation.fittingNodes()),
                explainer.bestNodes(pod.id(), request, policy, explanation.fittingNodes()).stream()
                        .map(ExplainController::score)
                        .toList(),
                explanation.refusals(),
                explanation.nearest(),
                explanation.suggestions(),
                explanation.preemptionOptions().stream()
                        .map(option -> preemptionOption(option, caller))
                        .toList(),
                node.isEmpty() ? List.of() : explainer.gpuShortfalls(pod.id(), request, node));
    }

    private static Score score(ScoredNode node) {
        return new Score(
                node.node(),
                node.terms().stream()
                        .map(term -> new Term(term.name(), (int) Math.round(term.thousandths())))
                        .toList());
    }

    /** If a node has enough free GPU capacity, only kube-scheduler knows why the pod is Pending. */
    private static String summary(Explanation explanation, String schedulerMessage) {
        if (explanation.fittingNodes().isEmpty()) {
            return explanation.summary();
        }
        return explanation.summary()
                + (schedulerMessage.isEmpty()
                        ? "; kube-scheduler has not reported a failed attempt"
                        : "; kube-scheduler's last attempt: " + schedulerMessage);
    }

    private PreemptionOption preemptionOption(Explanation.PreemptionOption option, Caller caller) {
        return new PreemptionOption(
                option.node(),
                option.victims().stream().map(victim -> victim(victim, caller)).toList());
    }

    /** Every caller sees priorities; only those that may list the pods of the namespace see names. */
    private Victim victim(Explanation.Victim victim, Caller caller) {
        String namespace = victim.pod().namespace();
        boolean visible = access.isAllowed(caller, new Access("list", "pods", namespace, ""));
        return new Victim(
                visible ? namespace : "", visible ? victim.pod().name() : "", victim.priority(), victim.terminating());
    }
}
