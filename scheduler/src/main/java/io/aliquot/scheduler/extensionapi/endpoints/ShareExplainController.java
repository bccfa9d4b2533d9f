package io.aliquot.scheduler.extensionapi.endpoints;

import io.aliquot.api.pods.Placement;
import io.aliquot.scheduler.explain.Explainer;
import io.aliquot.scheduler.explain.Explanation;
import io.aliquot.scheduler.explain.Explanation.Nodes;
import io.aliquot.scheduler.extensionapi.identity.PodVisibility;
import io.aliquot.scheduler.extensionapi.identity.RequestUser;
import io.aliquot.scheduler.extensionapi.machinery.Discovery;
import io.aliquot.scheduler.extensionapi.machinery.JsonResponse;
import io.aliquot.scheduler.extensionapi.machinery.Query;
import io.aliquot.scheduler.extensionapi.machinery.StatusException;
import io.aliquot.scheduler.extensionapi.objects.GpuPod;
import io.aliquot.scheduler.extensionapi.objects.GpuPod.ParsedRequest;
import io.aliquot.scheduler.extensionapi.objects.GpuShareExplanation;
import io.aliquot.scheduler.extensionapi.objects.GpuShares;
import io.aliquot.scheduler.extensionapi.objects.NamespaceRules;
import io.aliquot.scheduler.extensionapi.objects.PendingReasons;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.placement.GpuInfo;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.settings.Settings;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Optional;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RestController;

/** Serves why a pod is Pending, or what a bound pod holds. */
@RestController
public final class ShareExplainController {
    private final GpuShares shares;
    private final PendingReasons reasons;
    private final Explainer explainer;
    private final Ledger ledger;
    private final PodVisibility visibility;
    private final Settings settings;
    private final NamespaceRules rules;

    ShareExplainController(
            GpuShares shares,
            PendingReasons reasons,
            Explainer explainer,
            Ledger ledger,
            PodVisibility visibility,
            Settings settings,
            NamespaceRules rules) {
        this.rules = rules;
        this.shares = shares;
        this.reasons = reasons;
        this.explainer = explainer;
        this.ledger = ledger;
        this.visibility = visibility;
        this.settings = settings;
    }

    @GetMapping(ObjectsController.SHARE + "/explain")
    void explain(
            HttpServletRequest request,
            HttpServletResponse response,
            @PathVariable("namespace") String namespace,
            @PathVariable("name") String name)
            throws IOException {
        String node = Query.of(request).text("node");
        GpuPod pod = shares.get(namespace, name);
        Optional<RequestUser> user = Optional.ofNullable((RequestUser) request.getAttribute(RequestUser.ATTRIBUTE));
        JsonResponse.write(response, pod.isPending() ? pending(pod, node, user) : bound(pod));
    }

    private GpuShareExplanation bound(GpuPod pod) {
        String held = pod.shares().stream()
                .flatMap(share -> share.vgpus().list().stream()
                        .map(vgpu -> share.container() + ": " + vgpu.memoryMiB() + " MiB and "
                                + (vgpu.policy().limits(vgpu.cores())
                                        ? vgpu.cores() + " % of the cores"
                                        : "unlimited cores")
                                + " of "
                                + vgpu.uuid() + (vgpu.exclusive() ? " (whole card)" : "")))
                .collect(Collectors.joining("; "));
        return GpuShareExplanation.plain(
                pod, rules(pod), "is bound to node " + pod.node() + " and holds " + held + unhealthyGpus(pod));
    }

    private String rules(GpuPod pod) {
        try {
            return rules.of(pod.id().namespace()).describe();
        } catch (StatusException e) {
            return ""; // the rest of the answer does not depend on it
        }
    }

    /** What is wrong with the unhealthy GPUs among those that the pod holds. */
    private String unhealthyGpus(GpuPod pod) {
        List<String> held = pod.gpus();
        return ledger.view(pod.node()).stream()
                .flatMap(view -> view.gpus().stream())
                .map(GpuInfo::gpu)
                .filter(gpu -> held.contains(gpu.uuid()))
                .flatMap(gpu -> gpu.health().unhealthy().stream()
                        .map(unhealthy -> "; " + gpu.uuid() + " is " + unhealthy.describe()))
                .collect(Collectors.joining());
    }

    private GpuShareExplanation pending(GpuPod pod, String node, Optional<RequestUser> user) {
        if (!(pod.request() instanceof ParsedRequest.Valid(PodGpuRequest request))) {
            return GpuShareExplanation.plain(pod, rules(pod), reasons.summary(pod));
        }
        Explanation explanation = reasons.explain(pod, request);
        // Every caller sees priorities; only those that may list the pods of a namespace see names.
        var visible = new HashMap<String, Boolean>(); // by namespace, so that each is asked for once
        Predicate<String> mayList = namespace -> visible.computeIfAbsent(
                namespace,
                one -> user.filter(caller -> visibility.mayListPods(caller, one))
                        .isPresent());
        Placement policy = request.nodePlacement().orElse(settings.nodePlacement());
        return new GpuShareExplanation(
                Discovery.GROUP_VERSION,
                "GpuShareExplanation",
                GpuShares.metadata(pod),
                pod.phase(),
                rules(pod),
                reasons.summary(pod, explanation),
                pod.schedulerMessage(),
                policy.print(),
                Nodes.of(explanation.fittingNodes()),
                explainer.bestNodes(pod.id(), request, policy, explanation.fittingNodes()),
                explanation.refusals(),
                explanation.nearest(),
                explanation.suggestions(),
                explanation.preemptionOptions().stream()
                        .map(option -> option.showing(mayList))
                        .toList(),
                node.isEmpty() ? List.of() : explainer.gpuShortfalls(pod.id(), request, node));
    }
}
