package io.aliquot.scheduler.extender;

import io.aliquot.api.Fence;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.PodAsk;
import java.util.Map;

/** The API server, as the verbs need it. Calls return within seconds, whatever happens to it, and never throw. */
public interface Cluster {
    /** Whether this replica may place pods. */
    sealed interface Standing {
        /** It may, and this is what its Bindings must carry. */
        record Leads(Fence fence) implements Standing {}

        /**
         * It may not.
         *
         * @param why in a few words
         */
        record Waits(String why) implements Standing {}
    }

    /** What became of a Binding. */
    sealed interface BindOutcome {
        record Done() implements BindOutcome {}

        /** It has no effect and will have none. */
        record Refused(String why) implements BindOutcome {}

        /** It has no effect now: another one, perhaps an earlier try of ours, may have. */
        record Conflicts(String why) implements BindOutcome {}

        /** It may have had its effect, or may still have it. */
        record Unknown(String why) implements BindOutcome {}
    }

    /** A pod as it is now, not as it was a moment ago. */
    sealed interface PodState {
        /** The pod with this uid is gone or has ended. */
        record Gone() implements PodState {}

        record Unbound(PodAsk ask) implements PodState {}

        record Bound(String node) implements PodState {}

        /** It couldn't be read. */
        record Unreadable(String why) implements PodState {}
    }

    Standing standing();

    /** Gives the pod its node and these annotations, in one write, if it still is the pod with this uid. */
    BindOutcome bind(PodId pod, String node, Map<String, String> annotations);

    PodState read(PodId pod);

    /**
     * Makes kube-scheduler try waiting pods again.
     *
     * @return whether it worked
     */
    boolean wake(String node);

    /** Attaches a warning to the pod, for whoever looks at it; {@code reason} is one CamelCase word. */
    void warn(PodId pod, String reason, String message);
}
