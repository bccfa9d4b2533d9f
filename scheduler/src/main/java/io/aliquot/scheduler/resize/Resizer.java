package io.aliquot.scheduler.resize;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.pods.Fence;
import io.aliquot.scheduler.cluster.AllocationAnnotations;
import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.Cluster.LeaderStatus;
import io.aliquot.scheduler.cluster.Cluster.PodState;
import io.aliquot.scheduler.cluster.Cluster.WriteOutcome;
import io.aliquot.scheduler.ledger.ContainerShare;
import io.aliquot.scheduler.ledger.ContainerShareChange;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.ledger.QuotaAmount;
import io.aliquot.scheduler.ledger.Resizing;
import io.aliquot.scheduler.ledger.Resizing.Prepared;
import io.aliquot.scheduler.recovery.WriteReconciler;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.stereotype.Component;

/**
 * Resizes a running pod: changes what its containers hold of their GPUs. Only the leader may, since another replica could
 * allocate the same capacity. The limit file in the container follows within seconds. Thread-safe.
 */
@Component
public final class Resizer {
    /** The outcome of a resize. */
    public sealed interface Result {
        /**
         * The pod holds the requested amount.
         *
         * @param version of the pod with it, if it was read
         */
        record Done(OptionalLong version) implements Result {}

        /** Nothing changed, because the pod is no longer in the version that the caller requires. */
        record Changed() implements Result {}

        /** Nothing changed, and a retry fails until something else changes. */
        record Refused(String why) implements Result {}

        /** The pod does not exist or is not bound. */
        record NotFound() implements Result {}

        /** Nothing changed as far as is known; a retry, or a request to the leader, may succeed. */
        record Unavailable(String why) implements Result {}
    }

    public static final String UNRESOLVED = "the outcome of an earlier resize is not known yet; try again";

    private static final Logger LOG = LoggerFactory.getLogger(Resizer.class);
    /** While a pod starts, its status and with it its resourceVersion change every few hundred milliseconds. */
    private static final int TRIES = 5;

    private final Ledger ledger;
    private final Cluster cluster;
    private final WriteReconciler reconciler;

    public Resizer(Ledger ledger, Cluster cluster, WriteReconciler reconciler) {
        this.ledger = ledger;
        this.cluster = cluster;
        this.reconciler = reconciler;
    }

    /**
     * Resizes a pod. The caller has authorized the user.
     *
     * @param required the version that the pod must have; empty for any
     * @throws io.aliquot.api.format.FormatException if the changes are invalid for this pod
     */
    public Result resize(PodId pod, List<ContainerShareChange> changes, OptionalLong required) {
        Attempt attempt = new Attempt(new Result.Unavailable("the pod keeps changing; try again"), true);
        for (int i = 0; i < TRIES && attempt.again(); i++) {
            Fence fence;
            switch (cluster.leadership()) {
                case LeaderStatus.NotLeading notLeading -> {
                    return new Result.Unavailable(notLeading.why());
                }
                case LeaderStatus.Leads leads -> fence = leads.fence();
            }
            switch (ledger.resize(pod.uid(), changes)) {
                case Resizing.Unknown unknown -> {
                    return new Result.NotFound();
                }
                case Resizing.Refused refused -> {
                    return new Result.Refused(refused.reason());
                }
                case Resizing.Unresolved unresolved -> {
                    return new Result.Unavailable(UNRESOLVED);
                }
                case Resizing.Unchanged unchanged -> {
                    return new Result.Done(OptionalLong.empty());
                }
                case Prepared prepared
                when required.isPresent() && required.getAsLong() != prepared.version() -> {
                    ledger.rollbackResize(pod.uid(), prepared.version());
                    return new Result.Changed();
                }
                case Prepared prepared -> attempt = write(prepared, fence);
            }
        }
        LOG.info("resize {} changes={} result={}", pod, changes, attempt.result());
        return attempt.result();
    }

    private record Attempt(Result result, boolean again) {
        private static Attempt last(Result result) {
            return new Attempt(result, false);
        }
    }

    private Attempt write(Prepared prepared, Fence fence) {
        PodId pod = prepared.pod();
        return switch (cluster.resize(pod, prepared.version(), annotations(prepared.shares(), fence))) {
            case WriteOutcome.Refused refused -> {
                ledger.rollbackResize(pod.uid(), prepared.version());
                yield Attempt.last(
                        cluster.leadership().equals(new LeaderStatus.Leads(fence))
                                ? new Result.Refused(refused.why())
                                : new Result.Unavailable(refused.why()));
            }
            case WriteOutcome.Unheard unheard -> {
                ledger.rollbackResize(pod.uid(), prepared.version());
                yield Attempt.last(new Result.Unavailable(unheard.why()));
            }
            case WriteOutcome.Done done -> {
                // The next resize then does not have to wait for the watch.
                yield Attempt.last(new Result.Done(reconciler.reconcile(pod).version()));
            }
            case WriteOutcome.Conflicts conflicts -> reconcile(prepared, conflicts.why());
            case WriteOutcome.Unknown unknown -> reconcile(prepared, unknown.why());
        };
    }

    private Attempt reconcile(Prepared prepared, String why) {
        return switch (reconciler.reconcile(prepared.pod())) {
            case PodState.Bound bound
            when bound.pod().shares().equals(prepared.shares()) -> Attempt.last(new Result.Done(bound.version()));
            case PodState.Bound bound -> new Attempt(new Result.Unavailable(why), true);
            case PodState.Gone gone -> Attempt.last(new Result.NotFound());
            default -> Attempt.last(new Result.Unavailable("its outcome is not known yet: " + why));
        };
    }

    private static Map<String, String> annotations(List<ContainerShare> shares, Fence fence) {
        return AllocationAnnotations.annotations(
                Annotations.RESIZE_FENCE,
                fence,
                shares.stream().collect(Collectors.toMap(ContainerShare::container, ContainerShare::vgpus)),
                QuotaAmount.held(shares));
    }
}
