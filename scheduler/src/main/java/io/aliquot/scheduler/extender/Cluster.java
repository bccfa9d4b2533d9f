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

    /** What became of an eviction. */
    sealed interface EvictOutcome {
        /** The pod has been told to leave, or could be. */
        record Done() implements EvictOutcome {}

        /** There is no such pod. */
        record Gone() implements EvictOutcome {}

        /** A disruption budget forbids it now. */
        record Protected(String why) implements EvictOutcome {}

        /** It may or may not have been told. */
        record Failed(String why) implements EvictOutcome {}
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

    /**
     * Tells the pod with this uid to leave, as far as disruption budgets allow.
     *
     * @param dryRun only says what would become of it
     */
    EvictOutcome evict(PodId pod, boolean dryRun);

    /** Attaches news to the pod, for whoever looks at it; {@code reason} is one CamelCase word. */
    void note(PodId pod, String reason, String message);

    /** Attaches a warning to the pod, for whoever looks at it; {@code reason} is one CamelCase word. */
    void warn(PodId pod, String reason, String message);
}
