package io.aliquot.scheduler.ledger;

import io.aliquot.scheduler.ledger.Commitment.Granted;
import io.aliquot.scheduler.placement.Amount;
import java.util.Map;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/** What one pod takes of one node. Immutable. */
final class Claim {
    enum State {
        /** Kept free for a moment for a pod that will probably come. */
        EXPECTED,
        /** Granted to a Binding that was sent, or read; the watch has not told of it yet. */
        ASSUMED,
        /** As the cluster tells. */
        HELD
    }

    final PodId pod;
    final State state;
    final Map<String, Amount> perGpu;
    final HostLoad requests;
    /** Of the clock that the ledger was given, in nanoseconds. */
    final long since;

    private final @Nullable Granted grant;

    private Claim(
            PodId pod,
            State state,
            Map<String, Amount> perGpu,
            HostLoad requests,
            long since,
            @Nullable Granted grant) {
        this.pod = pod;
        this.state = state;
        this.perGpu = perGpu;
        this.requests = requests;
        this.since = since;
        this.grant = grant;
    }

    static Claim expected(PodId pod, Map<String, Amount> perGpu, long now) {
        return new Claim(pod, State.EXPECTED, perGpu, HostLoad.NONE, now, null);
    }

    static Claim assumed(PodId pod, Map<String, Amount> perGpu, long now, Granted grant) {
        return new Claim(pod, State.ASSUMED, perGpu, HostLoad.NONE, now, grant);
    }

    static Claim supposed(BoundPod pod, long now) {
        return new Claim(pod.id(), State.ASSUMED, pod.perGpu(), pod.requests(), now, null);
    }

    static Claim held(BoundPod pod, long now) {
        return new Claim(pod.id(), State.HELD, pod.perGpu(), pod.requests(), now, null);
    }

    Optional<Granted> grant() {
        return Optional.ofNullable(grant);
    }
}
