package io.aliquot.scheduler.extender;

import io.aliquot.api.Annotations;
import io.aliquot.api.Fence;
import io.aliquot.scheduler.extender.Cluster.BindOutcome;
import io.aliquot.scheduler.extender.Cluster.PodState;
import io.aliquot.scheduler.extender.Cluster.Standing.Leads;
import io.aliquot.scheduler.extender.Cluster.Standing.Waits;
import io.aliquot.scheduler.ledger.Commitment.AlreadyBound;
import io.aliquot.scheduler.ledger.Commitment.Conflict;
import io.aliquot.scheduler.ledger.Commitment.Granted;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.PodAsk;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/*
 * What a Binding's outcome means for the grant:
 *
 *   done                    kept; the watch will confirm it
 *   refused (403, 404, …)   released
 *   conflict (409)          the pod is read: bound to this node by an earlier try, kept; else released
 *   unknown (timeout, 5xx)  the pod is read: bound to this node, kept; elsewhere or gone, released; not bound, kept,
 *                           since the server may still carry it out, until it surely has given up
 *
 * Where an earlier Binding may still be carried out, a later one's refusal proves nothing, and counts as unknown. While
 * it is kept, filter offers the pod that node only and bind grants the same GPUs, so that whichever of several
 * Bindings takes effect, it is what the ledger counts.
 */
/** The verb bind. */
final class Binder {
    /** A server ends a request after 60 s unless told otherwise (kube-apiserver, --request-timeout). */
    static final Duration GIVEN_UP = Duration.ofSeconds(65);

    private static final Logger LOG = LoggerFactory.getLogger(Binder.class);

    /**
     * How a bind ended.
     *
     * @param label for the metrics
     * @param error for kube-scheduler; empty where the pod is bound
     */
    record Result(String label, String error) {
        private static final Result BOUND = new Result("bound", "");
    }

    private final Ledger ledger;
    private final Cluster cluster;
    private final PendingPods pending;

    Binder(Ledger ledger, Cluster cluster, PendingPods pending) {
        this.ledger = ledger;
        this.cluster = cluster;
        this.pending = pending;
    }

    Result bind(PodId pod, String node) {
        Cluster.Standing standing = cluster.standing();
        if (standing instanceof Leads leads) {
            return bind(pod, node, leads.fence());
        }
        return new Result("not-leading", ((Waits) standing).why());
    }

    private Result bind(PodId pod, String node, Fence fence) {
        PodAsk ask;
        Optional<PodAsk> remembered = pending.ask(pod.uid());
        if (remembered.isPresent()) {
            ask = remembered.get();
        } else {
            PodState state = cluster.read(pod);
            if (!(state instanceof PodState.Unbound unbound)) {
                return notUnbound(state, node);
            }
            ask = unbound.ask();
        }
        if (ask.containers().isEmpty()) {
            return send(pod, node, Map.of(Annotations.FENCE, fence.print()), "no GPU", false);
        }
        boolean again = ledger.unsettled(pod.uid()).isPresent();
        var commitment = ledger.commit(pod, node, ask);
        if (commitment instanceof Granted granted) {
            return send(pod, node, annotations(granted, fence), words(granted), again);
        }
        if (commitment instanceof AlreadyBound bound) {
            return notUnbound(new PodState.Bound(bound.node()), node);
        }
        String reason = ((Conflict) commitment).reason();
        LOG.info("bind conflict {} node={} reason=\"{}\"", pod, node, reason);
        pending.waits(pod, ask);
        return new Result("conflict", node + ": " + reason);
    }

    /** For a pod that cannot be bound since it isn't unbound. */
    private static Result notUnbound(PodState state, String node) {
        if (state instanceof PodState.Bound bound) {
            return bound.node().equals(node)
                    ? Result.BOUND
                    : new Result("already-bound", "the pod is bound to node " + bound.node() + " already");
        }
        if (state instanceof PodState.Unreadable unreadable) {
            return new Result("unreadable", "the pod cannot be read: " + unreadable.why());
        }
        return new Result("gone", "the pod is gone");
    }

    private static String words(Granted granted) {
        return granted.containers().entrySet().stream()
                .map(container -> container.getKey() + ": "
                        + container.getValue().print().strip().replace("\n", ", "))
                .sorted()
                .collect(Collectors.joining("; "));
    }

    private static Map<String, String> annotations(Granted granted, Fence fence) {
        var annotations = new TreeMap<String, String>();
        annotations.put(Annotations.FENCE, fence.print());
        granted.containers().forEach((container, vgpus) -> {
            annotations.put(Annotations.vgpu(container), vgpus.print());
            annotations.put(
                    Annotations.visibleDevices(container),
                    granted.visibleDevices().of(vgpus.uuids()));
        });
        return annotations;
    }

    private Result send(PodId pod, String node, Map<String, String> annotations, String what, boolean again) {
        BindOutcome outcome = cluster.bind(pod, node, annotations);
        if (outcome instanceof BindOutcome.Done) {
            LOG.info("bound {} node={} holds=\"{}\"", pod, node, what);
            pending.forget(pod.uid());
            return Result.BOUND;
        }
        if (outcome instanceof BindOutcome.Refused refused && !again) {
            LOG.warn("bind refused {} node={} reason=\"{}\"", pod, node, refused.why());
            ledger.release(pod.uid());
            return new Result("refused", refused.why());
        }
        boolean mayStillHappen = again || outcome instanceof BindOutcome.Unknown;
        String why = why(outcome);
        PodState state = cluster.read(pod);
        LOG.warn("bind unclear {} node={} reason=\"{}\" found={}", pod, node, why, state);
        if (state instanceof PodState.Bound bound && bound.node().equals(node)) {
            pending.forget(pod.uid());
            return Result.BOUND;
        }
        if (!keeps(state, node, mayStillHappen)) {
            ledger.release(pod.uid());
        }
        return new Result(mayStillHappen ? "unknown" : "conflict", why);
    }

    private static String why(BindOutcome outcome) {
        if (outcome instanceof BindOutcome.Refused refused) {
            return refused.why();
        }
        return outcome instanceof BindOutcome.Unknown unknown ? unknown.why() : ((BindOutcome.Conflicts) outcome).why();
    }

    /** Reads pods whose Binding was sent long ago without the watch telling of it, and decides what became of them. */
    void settle() {
        for (PodId pod : ledger.unsettledSince(GIVEN_UP)) {
            PodState state = cluster.read(pod);
            String node = ledger.unsettled(pod.uid()).orElse("");
            if (!keeps(state, node, false)) {
                LOG.warn("given up {} node={} found={}", pod, node, state);
                ledger.giveUp(pod.uid(), GIVEN_UP);
            }
        }
    }

    private static boolean keeps(PodState state, String node, boolean mayStillHappen) {
        if (state instanceof PodState.Bound bound) {
            return bound.node().equals(node);
        }
        return state instanceof PodState.Unreadable || (state instanceof PodState.Unbound && mayStillHappen);
    }
}
