package io.aliquot.scheduler.ledger;

import io.aliquot.scheduler.ledger.Commitment.Granted;
import io.aliquot.scheduler.ledger.Holding.State;
import io.aliquot.scheduler.placement.Amount;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/** What one pod takes of one node. Immutable. */
final class Claim {
    final PodId pod;
    final State state;
    final Map<String, Amount> perGpu;
    final HostLoad requests;
    /** Of the clock that the ledger was given, in nanoseconds. */
    final long since;

    private final List<Share> shares;
    /** As the cluster told of it last. */
    private final @Nullable BoundPod told;

    private final @Nullable Granted grant;

    private Claim(
            PodId pod,
            State state,
            List<Share> shares,
            Map<String, Amount> perGpu,
            @Nullable BoundPod told,
            long since,
            @Nullable Granted grant) {
        this.pod = pod;
        this.state = state;
        this.shares = shares;
        this.perGpu = perGpu;
        this.requests = told == null ? HostLoad.NONE : told.requests();
        this.told = told;
        this.since = since;
        this.grant = grant;
    }

    static Claim expected(PodId pod, Map<String, Amount> perGpu, long now) {
        return new Claim(pod, State.EXPECTED, List.of(), perGpu, null, now, null);
    }

    static Claim kept(PodId pod, Map<String, Amount> perGpu, long now) {
        return new Claim(pod, State.KEPT, List.of(), perGpu, null, now, null);
    }

    static Claim assumed(PodId pod, List<Share> shares, Map<String, Amount> perGpu, long now, Granted grant) {
        return new Claim(pod, State.ASSUMED, shares, perGpu, null, now, grant);
    }

    static Claim told(State state, BoundPod pod, long now) {
        return new Claim(pod.id(), state, pod.shares(), pod.perGpu(), pod, now, null);
    }

    /** As this one, from now on. */
    Claim since(long now) {
        return new Claim(pod, state, shares, perGpu, told, now, grant);
    }

    Optional<Granted> grant() {
        return Optional.ofNullable(grant);
    }

    Optional<BoundPod> told() {
        return Optional.ofNullable(told);
    }

    /** Whether the pod has its node, or may have it. */
    boolean mayBeBound() {
        return state != State.EXPECTED && state != State.KEPT;
    }

    Holding holding(long now) {
        Duration age = Duration.ofNanos(now - since);
        return told == null
                ? new Holding(pod, state, age, shares, perGpu, requests, 0, Instant.MAX, Instant.MAX, Instant.MAX)
                : new Holding(
                        pod,
                        state,
                        age,
                        shares,
                        perGpu,
                        requests,
                        told.priority(),
                        told.created(),
                        told.bound(),
                        told.leavesBy());
    }
}
