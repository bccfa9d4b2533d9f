package io.aliquot.scheduler.extender;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.pods.Fence;
import io.aliquot.scheduler.cluster.AllocationAnnotations;
import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.Cluster.LeaderStatus.Leads;
import io.aliquot.scheduler.cluster.Cluster.LeaderStatus.NotLeading;
import io.aliquot.scheduler.cluster.Cluster.PodState;
import io.aliquot.scheduler.cluster.Cluster.PodState.Unbound;
import io.aliquot.scheduler.cluster.Cluster.WriteOutcome;
import io.aliquot.scheduler.ledger.BoundPod;
import io.aliquot.scheduler.ledger.Commitment.AlreadyBound;
import io.aliquot.scheduler.ledger.Commitment.Conflict;
import io.aliquot.scheduler.ledger.Commitment.Granted;
import io.aliquot.scheduler.ledger.Commitment.Unresolved;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.ledger.QuotaAmount;
import io.aliquot.scheduler.pending.PendingPods;
import io.aliquot.scheduler.recovery.WriteReconciler;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.function.LongSupplier;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.stereotype.Component;

/*
 * What the outcome of a Binding means for the claim:
 *
 *   done                    committed; the watch confirms it
 *   refused (403, 404, …)   released
 *   conflict (409)          the pod is read. Bound by an earlier try: committed. Changed since filter: tried once more
 *                           with its current request. Else: released
 *   unknown (timeout, 5xx)  reconciled (see WriteReconciler). Bound: committed. Not bound: released. Unreadable: the
 *                           claim stays, and filter returns that node only, until the pod can be read
 */
/** The verb bind. */
@Component
final class Binder {
    private static final Logger LOG = LoggerFactory.getLogger(Binder.class);

    /**
     * The outcome of a bind.
     *
     * @param label of the metric
     * @param error for kube-scheduler; empty if the pod is bound
     */
    record Result(String label, String error) {
        private static final Result BOUND = new Result("bound", "");
    }

    /** Latest start of a second try: its write and three reads take 7 s, and kube-scheduler times out after 10 s. */
    static final Duration SECOND_TRY_UNTIL = Duration.ofMillis(2500);

    private final Ledger ledger;
    private final Cluster cluster;
    private final PendingPods pending;
    private final WriteReconciler reconciler;
    private final LongSupplier nanoTime;

    Binder(Ledger ledger, Cluster cluster, PendingPods pending, WriteReconciler reconciler, LongSupplier nanoTime) {
        this.ledger = ledger;
        this.cluster = cluster;
        this.pending = pending;
        this.reconciler = reconciler;
        this.nanoTime = nanoTime;
    }

    Result bind(PodId pod, String node) {
        return switch (cluster.leadership()) {
            case Leads leads -> bind(pod, node, leads.fence());
            case NotLeading notLeading -> new Result("not-leading", notLeading.why());
        };
    }

    /**
     * A try; the first of at most two.
     *
     * @param began when kube-scheduler asked
     */
    private record Attempt(PodId pod, String node, Fence fence, boolean first, long began) {}

    private Result bind(PodId pod, String node, Fence fence) {
        var attempt = new Attempt(pod, node, fence, true, nanoTime.getAsLong());
        Optional<Unbound> known = pending.known(pod.uid());
        OptionalLong version = cluster.version(pod);
        // A later version may have another request: then the pod is read.
        if (known.isPresent()
                && version.isPresent()
                && version.getAsLong() <= known.get().at()) {
            return bind(known.get(), attempt);
        }
        PodState state = cluster.read(pod);
        return state instanceof Unbound unbound
                ? bind(unbound, attempt)
                : notUnbound(state, node, "the pod cannot be bound");
    }

    private Result bind(Unbound known, Attempt attempt) {
        PodId pod = attempt.pod();
        if (known.request().containers().isEmpty()) {
            return send(
                    known,
                    attempt,
                    AllocationAnnotations.annotations(Annotations.FENCE, attempt.fence(), Map.of(), QuotaAmount.NONE),
                    "no GPU");
        }
        return switch (ledger.commit(pod, attempt.node(), known.request(), known.at())) {
            case Granted granted -> send(known, attempt, annotations(granted, attempt.fence()), describe(granted));
            case AlreadyBound bound -> bound(bound.node(), attempt.node());
            case Unresolved unresolved ->
                retryIfChanged(
                        known, reconciler.reconcile(pod), attempt, "the outcome of an earlier bind is not known");
            case Conflict(String reason) -> {
                LOG.info("bind conflict {} node={} reason=\"{}\"", pod, attempt.node(), reason);
                pending.doesNotFit(pod, known);
                yield new Result("conflict", attempt.node() + ": " + reason);
            }
        };
    }

    private Result send(Unbound known, Attempt attempt, Map<String, String> annotations, String what) {
        PodId pod = attempt.pod();
        String node = attempt.node();
        return switch (cluster.bind(pod, known.at(), node, annotations)) {
            case WriteOutcome.Done done -> {
                LOG.info("bound {} node={} holds=\"{}\"", pod, node, what);
                pending.forget(pod.uid());
                yield Result.BOUND;
            }
            case WriteOutcome.Refused refused -> releaseAfterRefusal(known, attempt, refused.why());
            case WriteOutcome.Unheard unheard -> releaseAfterRefusal(known, attempt, unheard.why());
            case WriteOutcome.Unknown(String why) -> {
                PodState state = reconciler.reconcile(pod);
                LOG.warn("bind unclear {} node={} reason=\"{}\" found={}", pod, node, why, state);
                yield notUnbound(state, node, why);
            }
            case WriteOutcome.Conflicts(String why) -> {
                PodState state = cluster.read(pod);
                LOG.info("bind conflict {} node={} reason=\"{}\" found={}", pod, node, why, state);
                if (state instanceof Unbound now && now.at() == known.at()) {
                    ledger.release(pod.uid(), known.at()); // the conflict is not about its version
                }
                yield retryIfChanged(known, state, attempt, why);
            }
        };
    }

    /** Releases the claim of a pod that was certainly not bound. */
    private Result releaseAfterRefusal(Unbound known, Attempt attempt, String why) {
        LOG.warn("bind refused {} node={} reason=\"{}\"", attempt.pod(), attempt.node(), why);
        ledger.release(attempt.pod().uid(), known.at());
        return new Result("refused", why);
    }

    /** Tries once more if the pod has changed since it was filtered. */
    private Result retryIfChanged(Unbound known, PodState state, Attempt attempt, String why) {
        boolean inTime = nanoTime.getAsLong() - attempt.began() < SECOND_TRY_UNTIL.toNanos();
        if (state instanceof Unbound now && attempt.first() && inTime && now.at() > known.at()) {
            return bind(now, new Attempt(attempt.pod(), attempt.node(), attempt.fence(), false, attempt.began()));
        }
        reconciler.apply(attempt.pod(), state);
        return notUnbound(state, attempt.node(), why);
    }

    /** The result for a pod that cannot be bound, or not now. */
    private Result notUnbound(PodState state, String node, String why) {
        return switch (state) {
            case PodState.Bound(BoundPod pod) -> {
                pending.forget(pod.id().uid());
                yield bound(pod.node(), node);
            }
            case PodState.Gone gone -> new Result("gone", "the pod is gone");
            case PodState.Unreadable unreadable ->
                new Result("unknown", why + "; the pod cannot be read: " + unreadable.why());
            case PodState.Malformed malformed -> new Result("failed", why + ": " + malformed.why());
            case Unbound unbound -> new Result("failed", why);
        };
    }

    private static Result bound(String present, String wanted) {
        return present.equals(wanted)
                ? Result.BOUND
                : new Result("already-bound", "the pod is bound to node " + present + " already");
    }

    private static String describe(Granted granted) {
        return granted.containers().entrySet().stream()
                .map(container -> container.getKey() + ": "
                        + container.getValue().print().strip().replace("\n", ", "))
                .sorted()
                .collect(Collectors.joining("; "));
    }

    private static Map<String, String> annotations(Granted granted, Fence fence) {
        Map<String, String> annotations =
                AllocationAnnotations.annotations(Annotations.FENCE, fence, granted.containers(), granted.total());
        granted.containers()
                .forEach((container, vgpus) -> annotations.put(
                        Annotations.visibleDevices(container),
                        granted.visibleDevices().of(vgpus.uuids())));
        return annotations;
    }
}
