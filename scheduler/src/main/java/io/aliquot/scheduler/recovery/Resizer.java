package io.aliquot.scheduler.recovery;

import io.aliquot.api.Annotations;
import io.aliquot.api.Fence;
import io.aliquot.scheduler.apiserver.AllocationAnnotations;
import io.aliquot.scheduler.apiserver.Cluster;
import io.aliquot.scheduler.apiserver.Cluster.PodState;
import io.aliquot.scheduler.apiserver.Cluster.WriteOutcome;
import io.aliquot.scheduler.ledger.AllocationChange;
import io.aliquot.scheduler.ledger.ContainerAllocation;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.ledger.Resizing;
import io.aliquot.scheduler.ledger.Resizing.Prepared;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Changes the GPU allocation of a running pod. Only the leader may, since another replica could allocate the same
 * capacity. The limit file in the container follows within seconds. Thread-safe.
 */
public final class Resizer {
    /** The outcome of a resize. */
    public sealed interface Result {
        /** The pod holds the requested amount. */
        record Done() implements Result {}

        /** Nothing changed, and a retry fails until something else changes. */
        record Refused(String why) implements Result {}

        /** The pod does not exist or is not bound. */
        record NotFound() implements Result {}

        /** Nothing changed as far as is known; a retry, or a request to the leader, may succeed. */
        record Unavailable(String why) implements Result {}
    }

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
     * @throws io.aliquot.api.FormatException if the changes are invalid for this pod
     */
    public Result resize(PodId pod, List<AllocationChange> changes) {
        Result result = new Result.Unavailable("the pod keeps changing; try again");
        for (int i = 0; i < TRIES && result instanceof Result.Unavailable; i++) {
            Cluster.LeaderStatus leaderStatus = cluster.leadership();
            if (!(leaderStatus instanceof Cluster.LeaderStatus.Leads leads)) {
                return new Result.Unavailable(((Cluster.LeaderStatus.Waits) leaderStatus).why());
            }
            Resizing resizing = ledger.resize(pod.uid(), changes);
            if (resizing instanceof Resizing.Unknown) {
                return new Result.NotFound();
            }
            if (resizing instanceof Resizing.Refused refused) {
                return new Result.Refused(refused.reason());
            }
            if (resizing instanceof Resizing.Unresolved) {
                return new Result.Unavailable("the outcome of an earlier resize is not known yet; try again");
            }
            if (resizing instanceof Resizing.Unchanged) {
                return new Result.Done();
            }
            Prepared prepared = (Prepared) resizing;
            Outcome outcome = write(prepared, leads.fence());
            result = outcome.result;
            if (!outcome.again) {
                break;
            }
        }
        LOG.info("resize {} changes={} result={}", pod, changes, result);
        return result;
    }

    private record Outcome(Result result, boolean again) {}

    private Outcome write(Prepared prepared, Fence fence) {
        WriteOutcome outcome =
                cluster.annotate(prepared.pod(), prepared.version(), annotations(prepared.shares(), fence));
        if (outcome instanceof WriteOutcome.Refused refused) {
            ledger.rollbackResize(prepared.pod().uid(), prepared.version());
            return new Outcome(
                    cluster.leadership().equals(new Cluster.LeaderStatus.Leads(fence))
                            ? new Result.Refused(refused.why())
                            : new Result.Unavailable(refused.why()),
                    false);
        }
        if (outcome instanceof WriteOutcome.Unheard unheard) {
            ledger.rollbackResize(prepared.pod().uid(), prepared.version());
            return new Outcome(new Result.Unavailable(unheard.why()), false);
        }
        // Also after success: the next resize then does not have to wait for the watch.
        PodState state = reconciler.reconcile(prepared.pod());
        if (outcome instanceof WriteOutcome.Done) {
            return new Outcome(new Result.Done(), false);
        }
        String why = outcome instanceof WriteOutcome.Conflicts conflicts
                ? conflicts.why()
                : ((WriteOutcome.Unknown) outcome).why();
        if (state instanceof PodState.Bound bound) {
            return bound.pod().shares().equals(prepared.shares())
                    ? new Outcome(new Result.Done(), false)
                    : new Outcome(new Result.Unavailable(why), true);
        }
        return state instanceof PodState.Gone
                ? new Outcome(new Result.NotFound(), false)
                : new Outcome(new Result.Unavailable("its outcome is not known yet: " + why), false);
    }

    private static Map<String, String> annotations(List<ContainerAllocation> shares, Fence fence) {
        return AllocationAnnotations.annotations(
                Annotations.RESIZE_FENCE,
                fence,
                shares.stream().collect(Collectors.toMap(ContainerAllocation::container, ContainerAllocation::vgpus)));
    }
}
