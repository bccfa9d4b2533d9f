package io.aliquot.scheduler.apiserver;

import io.aliquot.api.Fence;
import io.aliquot.scheduler.ledger.BoundPod;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.Map;
import java.util.OptionalLong;

/** The API server, as the verbs need it. Calls return within seconds, whatever happens to it, and never throw. */
public interface Cluster {
    /** Whether this replica may place pods. */
    sealed interface LeaderStatus {
        /** It may, and this is what its Bindings must carry. */
        record Leads(Fence fence) implements Cluster.LeaderStatus {}

        /**
         * It may not.
         *
         * @param why in a few words
         */
        record Waits(String why) implements Cluster.LeaderStatus {}
    }

    /** What became of a write that was conditional on a pod's version. */
    sealed interface WriteOutcome {
        record Done() implements WriteOutcome {}

        /** The server has said no. It has no effect and will have none. */
        record Refused(String why) implements WriteOutcome {}

        /** The server has not looked at it, being too busy or not there. It has no effect and will have none. */
        record Unheard(String why) implements WriteOutcome {}

        /** It has no effect: the pod has another version now, perhaps by an earlier try of ours. */
        record Conflicts(String why) implements WriteOutcome {}

        /** It may have had its effect, or may still have it. */
        record Unknown(String why) implements WriteOutcome {}
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

        record Unbound(long at, PodGpuRequest ask) implements PodState {
            @Override
            public OptionalLong version() {
                return OptionalLong.of(at);
            }
        }

        /** It isn't bound, and what it wants makes no sense. */
        record Malformed(long at, String why) implements PodState {
            @Override
            public OptionalLong version() {
                return OptionalLong.of(at);
            }
        }

        record Bound(BoundPod pod) implements PodState {
            @Override
            public OptionalLong version() {
                return OptionalLong.of(pod.version());
            }
        }

        /** It couldn't be read. */
        record Unreadable(String why) implements PodState {}

        /** Of the API's object, where there is one. */
        default OptionalLong version() {
            return OptionalLong.empty();
        }
    }

    Cluster.LeaderStatus leadership();

    /** The version of a pod that is not bound, as the watch told last. */
    OptionalLong version(PodId pod);

    /** Gives the pod its node and these annotations, in one write, if it still is the pod with this uid and version. */
    WriteOutcome bind(PodId pod, long version, String node, Map<String, String> annotations);

    /** Gives the pod these annotations, if it still is the pod with this uid and version. */
    WriteOutcome annotate(PodId pod, long version, Map<String, String> annotations);

    /** Makes the pod's version a later one if it still is this one, and reads it. */
    PodState bumpVersion(PodId pod, long version);

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

    /** Attaches news to the pod, for whoever looks at it, each time anew; {@code reason} is one CamelCase word. */
    void note(PodId pod, String reason, String message);

    /** Attaches a warning to the pod, for whoever looks at it; {@code reason} is one CamelCase word. */
    void warn(PodId pod, String reason, String message);
}
