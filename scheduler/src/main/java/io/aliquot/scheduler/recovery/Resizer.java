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
 * Changes what a running pod holds of its GPUs. Only the leader may: room that others see free must not be given twice.
 * The limit file in the container follows within seconds. Thread-safe.
 */
public final class Resizer {
    /** What became of it. */
    public sealed interface Result {
        /** The pod holds what was wanted. */
        record Done() implements Result {}

        /** Nothing changed, and trying again is of no use until something else changes. */
        record Refused(String why) implements Result {}

        /** No such pod is bound. */
        record NotFound() implements Result {}

        /** Nothing changed as far as is known, and trying again, or asking the replica that leads, may help. */
        record Unavailable(String why) implements Result {}
    }

    private static final Logger LOG = LoggerFactory.getLogger(Resizer.class);
    /** A pod's status changes every few hundred milliseconds while it starts, and its version with it. */
    private static final int TRIES = 5;

    private final Ledger ledger;
    private final Cluster cluster;
    private final WriteReconciler outcomes;

    public Resizer(Ledger ledger, Cluster cluster, WriteReconciler outcomes) {
        this.ledger = ledger;
        this.cluster = cluster;
        this.outcomes = outcomes;
    }

    /**
     * Resizes a pod. Who asks must have been authorised.
     *
     * @throws io.aliquot.api.FormatException where the changes make no sense for this pod
     */
    public Result resize(PodId pod, List<AllocationChange> changes) {
        Result result = new Result.Unavailable("the pod keeps changing; try again");
        for (int i = 0; i < TRIES && result instanceof Result.Unavailable; i++) {
            Cluster.LeaderStatus standing = cluster.leadership();
            if (!(standing instanceof Cluster.LeaderStatus.Leads leads)) {
                return new Result.Unavailable(((Cluster.LeaderStatus.Waits) standing).why());
            }
            Resizing resizing = ledger.resize(pod.uid(), changes);
            if (resizing instanceof Resizing.Unknown) {
                return new Result.NotFound();
            }
            if (resizing instanceof Resizing.Refused refused) {
                return new Result.Refused(refused.reason());
            }
            if (resizing instanceof Resizing.Undecided) {
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
        // Even if it is done: the next resize needn't wait for the watch then.
        PodState state = outcomes.reconcile(prepared.pod());
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
