package io.aliquot.scheduler.ledger;

import io.aliquot.scheduler.ledger.Holding.State;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.HostResources;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/** What one pod takes of one node. Immutable. */
final class Claim {
    final PodId pod;
    final State state;
    final Map<String, GpuAmount> perGpu;
    /** Of CPU and memory. */
    final HostResources requests;
    /** Of the clock that the ledger was given, in nanoseconds. */
    final long since;

    private final List<ContainerAllocation> shares;
    /** As the cluster told of it last. */
    private final @Nullable BoundPod told;

    /** The version of the pod that a write which was sent is conditional on: a Binding, or a resize. */
    private final long base;
    /** What the pod holds if a resize that was sent takes effect. */
    private final @Nullable List<ContainerAllocation> resize;

    private Claim(
            PodId pod,
            State state,
            List<ContainerAllocation> shares,
            Map<String, GpuAmount> perGpu,
            HostResources requests,
            @Nullable BoundPod told,
            long base,
            @Nullable List<ContainerAllocation> resize,
            long since) {
        this.pod = pod;
        this.state = state;
        this.shares = shares;
        this.perGpu = perGpu;
        this.requests = requests;
        this.told = told;
        this.base = base;
        this.resize = resize;
        this.since = since;
    }

    static Claim expected(PodId pod, Map<String, GpuAmount> perGpu, HostResources requests, long now) {
        return new Claim(pod, State.EXPECTED, List.of(), perGpu, requests, null, 0, null, now);
    }

    static Claim kept(PodId pod, Map<String, GpuAmount> perGpu, HostResources requests, long now) {
        return new Claim(pod, State.KEPT, List.of(), perGpu, requests, null, 0, null, now);
    }

    /** A Binding was sent. */
    static Claim assumed(
            PodId pod,
            List<ContainerAllocation> shares,
            Map<String, GpuAmount> perGpu,
            HostResources requests,
            long base,
            long now) {
        return new Claim(pod, State.ASSUMED, shares, perGpu, requests, null, base, null, now);
    }

    /** The cluster told of the pod, and of the outcome of whatever was sent. */
    static Claim told(State state, BoundPod pod, long now) {
        return new Claim(pod.id(), state, pod.shares(), pod.perGpu(), pod.requests(), pod, 0, null, now);
    }

    /** A resize of this one was sent. */
    Claim resizing(BoundPod pod, List<ContainerAllocation> wanted, long now) {
        return new Claim(
                pod.id(),
                state,
                pod.shares(),
                ContainerAllocation.larger(pod.perGpu(), ContainerAllocation.perGpu(wanted)),
                pod.requests(),
                pod,
                pod.version(),
                wanted,
                now);
    }

    /** The cluster told of the pod as it was no later than when the resize was sent. */
    Claim stillResizing(BoundPod pod) {
        List<ContainerAllocation> wanted = Objects.requireNonNull(resize);
        Map<String, GpuAmount> most = ContainerAllocation.larger(pod.perGpu(), ContainerAllocation.perGpu(wanted));
        return new Claim(pod.id(), State.HELD, pod.shares(), most, pod.requests(), pod, base, wanted, since);
    }

    /** The cluster knows the pod no more. Whatever was sent may have been done before that. */
    Claim lingering(long now) {
        return new Claim(pod, State.LINGERING, shares, perGpu, requests, told, 0, null, now);
    }

    boolean takesAsMuchAs(Claim other) {
        return perGpu.equals(other.perGpu) && requests.equals(other.requests);
    }

    /** Whether the outcome of a resize that was sent is not known. */
    boolean resizes() {
        return resize != null;
    }

    /** Whether what is known is at least as new. A reading counts less than the watch's word on the same version. */
    boolean outdates(BoundPod pod, State as) {
        return state == State.LINGERING
                || (told != null
                        && (pod.version() < told.version()
                                || (pod.version() == told.version() && (state == State.HELD || as == State.ASSUMED))));
    }

    /** Whether a Binding was sent, and nothing was heard of the pod since. */
    boolean sent() {
        return state == State.ASSUMED && told == null;
    }

    long base() {
        return base;
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
