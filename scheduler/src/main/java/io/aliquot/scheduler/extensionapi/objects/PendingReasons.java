package io.aliquot.scheduler.extensionapi.objects;

import io.aliquot.scheduler.explain.Explainer;
import io.aliquot.scheduler.explain.Explanation;
import io.aliquot.scheduler.extensionapi.objects.GpuPod.ParsedRequest;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.pending.PendingPods;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.Collection;
import java.util.List;
import java.util.Optional;
import org.springframework.stereotype.Component;

/** Why a pod is Pending, computed now from every node. */
@Component
public final class PendingReasons {
    private static final String ALL_NODES =
            "; this covers all nodes, because this replica does not know which of them kube-scheduler excludes";

    private final Ledger ledger;
    private final PendingPods pending;
    private final Explainer explainer;

    PendingReasons(Ledger ledger, PendingPods pending, Explainer explainer) {
        this.ledger = ledger;
        this.pending = pending;
        this.explainer = explainer;
    }

    /** The explanation in one line. */
    public String summary(GpuPod pod) {
        return switch (pod.request()) {
            case ParsedRequest.Invalid(String reason) -> "cannot be scheduled: " + reason;
            case ParsedRequest.Valid(PodGpuRequest request) -> summary(pod, explain(pod, request));
        };
    }

    public Explanation explain(GpuPod pod, PodGpuRequest request) {
        Optional<List<String>> candidates = pending.candidates(pod.id().uid());
        Collection<String> nodes = candidates.orElseGet(ledger::nodeNames);
        return explainer.explain(pod.id(), request, pod.priority(), pod.mayPreempt(), nodes);
    }

    /**
     * Scheduling gates come first. If a node has enough free GPU capacity, only kube-scheduler knows why a pod without them
     * is Pending.
     */
    public String summary(GpuPod pod, Explanation explanation) {
        String message = pod.schedulerMessage();
        String scheduler = pod.gated().isPresent() || explanation.fittingNodes().isEmpty()
                ? ""
                : message.isEmpty()
                        ? "; kube-scheduler has not reported a failed attempt"
                        : "; kube-scheduler's last attempt: " + message;
        return pod.gated().map(why -> why + "; then: ").orElse("")
                + explanation.summary()
                + scheduler
                + (pending.candidates(pod.id().uid()).isEmpty() ? ALL_NODES : "");
    }
}
