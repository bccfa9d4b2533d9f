package io.aliquot.scheduler.cluster;

import io.aliquot.api.pods.Fence;
import io.aliquot.scheduler.ledger.BoundPod;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * The API server, as the scheduler needs it. Every call returns within seconds, also when the server is down, and never
 * throws.
 */
public interface Cluster {
    /** Whether this replica may place pods. */
    sealed interface LeaderStatus {
        /** This replica leads; its Bindings must carry the fence. */
        record Leads(Fence fence) implements Cluster.LeaderStatus {}

        /**
         * This replica does not lead.
         *
         * @param why in a few words
         */
        record NotLeading(String why) implements Cluster.LeaderStatus {}
    }

    /** The outcome of a write that is conditional on a pod's resourceVersion. */
    sealed interface WriteOutcome {
        record Done() implements WriteOutcome {}

        /** The server rejected the write. It has no effect and will have none. */
        record Refused(String why) implements WriteOutcome {}

        /**
         * The server did not process the write: it was overloaded or unreachable. The write has no effect and will have
         * none.
         */
        record Unheard(String why) implements WriteOutcome {}

        /** The write has no effect: the pod has another version now, perhaps from an earlier try of this replica. */
        record Conflicts(String why) implements WriteOutcome {}

        /** The write may have taken effect, or may still take effect. */
        record Unknown(String why) implements WriteOutcome {}
    }

    /** The outcome of an eviction. */
    sealed interface EvictOutcome {
        /** Whether the pod is being evicted or is gone. */
        default boolean succeeded() {
            return this instanceof Done || this instanceof Gone;
        }

        /** The pod is being evicted; for a dry run, it could be. */
        record Done() implements EvictOutcome {}

        /** The pod does not exist. */
        record Gone() implements EvictOutcome {}

        /** A disruption budget forbids the eviction now. */
        record Protected(String why) implements EvictOutcome {}

        /** The pod may or may not be being evicted. */
        record Failed(String why) implements EvictOutcome {}
    }

    /** The current state of a pod, read from the API server and not from a watch. */
    sealed interface PodState {
        /** The pod with this uid is gone or has ended. */
        record Gone() implements PodState {}

        record Unbound(long at, PodGpuRequest request) implements PodState {
            @Override
            public OptionalLong version() {
                return OptionalLong.of(at);
            }
        }

        /** The pod is not bound, and its request is malformed. */
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

        /** The pod could not be read. */
        record Unreadable(String why) implements PodState {}

        /** The resourceVersion of the pod; empty if it does not exist or could not be read. */
        default OptionalLong version() {
            return OptionalLong.empty();
        }
    }

    Cluster.LeaderStatus leadership();

    /** The resourceVersion of an unbound pod that the watch reported last. */
    OptionalLong version(PodId pod);

    /** Binds the pod to the node and sets the annotations, in one write, if its uid and version still match. */
    WriteOutcome bind(PodId pod, long version, String node, Map<String, String> annotations);

    /** Sets the annotations of a new allocation, if the uid and version of the pod still match. */
    WriteOutcome resize(PodId pod, long version, Map<String, String> annotations);

    /** Sets the annotations of the node, and removes those without a value, if its version still matches. */
    WriteOutcome annotate(String node, long version, Map<String, Optional<String>> annotations);

    /** Advances the resourceVersion of the pod if it still is this one, and reads the pod. */
    PodState bumpVersion(PodId pod, long version);

    PodState read(PodId pod);

    /**
     * Makes kube-scheduler retry pending pods.
     *
     * @return whether the write succeeded
     */
    boolean wake(String node);

    /**
     * Evicts the pod with this uid, if disruption budgets allow it.
     *
     * @param dryRun only returns what the outcome would be
     */
    EvictOutcome evict(PodId pod, boolean dryRun);

    /** Evicts the pod likewise, with this grace period instead of its own. */
    EvictOutcome evict(PodId pod, Duration grace);

    /**
     * Ends the pod with this uid within a grace period, whatever its own grace period and its disruption budgets say, also
     * if it is being deleted already.
     */
    EvictOutcome end(PodId pod, Duration grace);

    /** Writes a Normal event about the pod, at every call; {@code reason} is one CamelCase word. */
    void note(PodId pod, String reason, String message);

    /** Writes a Warning event about the pod; {@code reason} is one CamelCase word. */
    default void warn(PodId pod, String reason, String message) {
        warn(pod, reason, message, message);
    }

    /**
     * Writes a Warning event about the pod once in ten minutes for each {@code what}, by all replicas together and whatever
     * figures the message has.
     */
    void warn(PodId pod, String reason, String what, String message);

    /** Writes a Normal event about the node, at every call; {@code reason} is one CamelCase word. */
    void note(NodeId node, String reason, String message);

    /** Writes a Warning event about the node; {@code reason} is one CamelCase word. */
    void warn(NodeId node, String reason, String message);

    /**
     * Writes a Warning event about the node once for each {@code occasion}, a word, by all replicas together and whatever
     * the message: while the API server does not have it, a further call sends it again.
     */
    void warnOnce(NodeId node, String reason, String occasion, String message);
}
