package io.aliquot.scheduler.apiserver;

import io.aliquot.api.format.FormatException;
import io.aliquot.scheduler.apiserver.reader.PodReader;
import io.aliquot.scheduler.extensionapi.objects.GpuShares;
import io.aliquot.scheduler.ledger.ContainerShare;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.nodeagent.AgentUsage;
import io.aliquot.scheduler.nodeagent.RejectedPodEvents;
import io.aliquot.scheduler.pending.PendingPods;
import io.aliquot.scheduler.preemption.Budgets;
import io.aliquot.scheduler.settings.Settings;
import io.fabric8.kubernetes.api.model.Pod;
import java.util.List;
import java.util.OptionalLong;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.stereotype.Component;

/**
 * Decides what an event of the watch on pods means for the ledger, the Pending pods, the node agents, the disruption
 * budgets and the gpushares. The pods' informer calls it from one thread.
 */
@Component
final class PodEventHandler {
    private static final Logger LOG = LoggerFactory.getLogger(PodEventHandler.class);

    private final Ledger ledger;
    private final PendingPods pending;
    private final Budgets budgets;
    private final UnboundPodVersions unbound;
    private final GpuShares shares;
    private final Events events;
    private final RejectedPodEvents rejections;
    private final NodeAgents agents;

    PodEventHandler(
            Settings settings,
            Ledger ledger,
            PendingPods pending,
            Budgets budgets,
            UnboundPodVersions unbound,
            GpuShares shares,
            Events events,
            RejectedPodEvents rejections,
            AgentUsage usage) {
        this.ledger = ledger;
        this.pending = pending;
        this.budgets = budgets;
        this.unbound = unbound;
        this.shares = shares;
        this.events = events;
        this.rejections = rejections;
        this.agents = new NodeAgents(settings.namespace(), new NodeAgents.Listener() {
            @Override
            public void agent(String node, boolean ready, String address) {
                usage.putAgent(node, ready, address);
            }

            @Override
            public void noAgent(String node) {
                usage.removeAgent(node);
                ledger.setAgentMissing(node);
            }
        });
    }

    /** Handles a pod that was added, changed or listed. */
    void onPresent(Pod pod) {
        List<ContainerShare> held = List.of();
        agents.onPresent(pod);
        unbound.onPresent(pod);
        if (PodReader.ended(pod)) {
            ended(pod);
            PodReader.rejectedAt(pod).ifPresent(at -> rejections.rejected(PodReader.node(pod), PodReader.id(pod), at));
        } else if (PodReader.node(pod).isEmpty()) {
            ledger.observeUnbound(uid(pod), PodReader.version(pod));
            PodReader.unschedulable(pod, Settings.SCHEDULER_NAME)
                    .ifPresent(request -> pending.markedUnschedulable(PodReader.id(pod), request));
        } else {
            held = bound(pod);
        }
        PodReader.gpuPod(pod, Settings.SCHEDULER_NAME, held)
                .ifPresentOrElse(
                        shares::put, () -> shares.remove(PodReader.id(pod), OptionalLong.of(PodReader.version(pod))));
    }

    /** Handles a pod that was deleted. */
    void onGone(Pod pod) {
        agents.onGone(uid(pod));
        unbound.onGone(uid(pod));
        if (PodReader.ended(pod)) {
            ended(pod);
        } else {
            deletedBeforeEnd(pod);
        }
        // A pod that a list no longer shows has no spec, and the version of its deletion is not known.
        shares.remove(
                PodReader.id(pod),
                pod.getSpec() == null ? OptionalLong.empty() : OptionalLong.of(PodReader.version(pod)));
    }

    private List<ContainerShare> bound(Pod pod) {
        PodReader.Reading reading = PodReader.bound(pod);
        pending.forget(uid(pod));
        if (!reading.pod().shares().isEmpty()) {
            budgets.putPod(uid(pod), PodReader.labels(pod));
        }
        ledger.observeBound(reading.pod());
        observeForeign(pod);
        reading.problems().forEach(problem -> events.warn(pod, "UnreadableAllocation", problem));
        return reading.pod().shares();
    }

    private void observeForeign(Pod pod) {
        try {
            PodReader.foreign(pod)
                    .ifPresentOrElse(ledger::observeForeign, () -> ledger.removeForeign(PodReader.node(pod), uid(pod)));
        } catch (FormatException e) {
            ledger.removeForeign(PodReader.node(pod), uid(pod));
            if (ledger.sharesGpus(PodReader.node(pod))) {
                events.warn(pod, "UnreadableAllocation", String.valueOf(e.getMessage()));
            }
        }
    }

    private void ended(Pod pod) {
        forget(pod);
        ledger.observeEnded(uid(pod));
    }

    private void forget(Pod pod) {
        budgets.removePod(uid(pod));
        pending.forget(uid(pod));
        if (!PodReader.node(pod).isEmpty()) {
            ledger.removeForeign(PodReader.node(pod), uid(pod));
        }
    }

    /**
     * Handles a pod that was deleted before its end was seen. A kubelet reports the end of a pod before it deletes the
     * pod (since Kubernetes 1.27, KEP-3329), so the pod was deleted by force, or the watch missed its end.
     */
    private void deletedBeforeEnd(Pod pod) {
        forget(pod);
        if (!PodReader.node(pod).isEmpty()) {
            ledger.observeBound(PodReader.bound(pod).pod());
        }
        if (ledger.deletedBeforeEnd(uid(pod))) {
            LOG.info(
                    "deleted before its end {}; its vGPUs are free when its node's agent finds it no more",
                    PodReader.id(pod));
        }
    }

    private static String uid(Pod pod) {
        return pod.getMetadata().getUid();
    }
}
