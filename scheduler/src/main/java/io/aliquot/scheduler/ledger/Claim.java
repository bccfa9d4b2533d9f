package io.aliquot.scheduler.ledger;

import io.aliquot.scheduler.ledger.Holding.State;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.HostResources;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalLong;
import org.jspecify.annotations.Nullable;

/** What one pod takes of one node. Immutable. */
final class Claim {
    final PodId pod;
    final State state;
    final Map<String, GpuAmount> perGpu;
    /** CPU and memory. */
    final HostResources hostRequests;
    /** When this state began, in nanoseconds of the ledger's clock. */
    final long since;

    private final List<ContainerShare> shares;
    /** The pod as it was reported or read last; null before. */
    private final @Nullable BoundPod observed;

    /** The version of the pod that a sent write, a Binding or a resize, is conditional on. */
    private final long base;
    /** What the pod holds if a resize that was sent takes effect; null without a resize. */
    private final @Nullable List<ContainerShare> resize;
    /** What counts beyond {@link #shares}. */
    private final Excess excess;

    private Claim(
            PodId pod,
            State state,
            List<ContainerShare> shares,
            Map<String, GpuAmount> perGpu,
            HostResources hostRequests,
            @Nullable BoundPod observed,
            long base,
            @Nullable List<ContainerShare> resize,
            Excess excess,
            long since) {
        this.pod = pod;
        this.state = state;
        this.shares = shares;
        this.perGpu = excess.perGpu().isEmpty() ? perGpu : ContainerShare.larger(perGpu, excess.perGpu());
        this.hostRequests = hostRequests;
        this.observed = observed;
        this.base = base;
        this.resize = resize;
        this.excess = excess;
        this.since = since;
    }

    static Claim reserved(PodId pod, Map<String, GpuAmount> perGpu, HostResources hostRequests, long now) {
        return new Claim(pod, State.RESERVED, List.of(), perGpu, hostRequests, null, 0, null, Excess.NONE, now);
    }

    static Claim reservedForPreemptor(PodId pod, Map<String, GpuAmount> perGpu, HostResources hostRequests, long now) {
        return new Claim(
                pod, State.RESERVED_FOR_PREEMPTOR, List.of(), perGpu, hostRequests, null, 0, null, Excess.NONE, now);
    }

    /** A Binding was sent. */
    static Claim assumed(
            PodId pod,
            List<ContainerShare> shares,
            Map<String, GpuAmount> perGpu,
            HostResources hostRequests,
            long base,
            long now) {
        return new Claim(pod, State.ASSUMED, shares, perGpu, hostRequests, null, base, null, Excess.NONE, now);
    }

    /** The pod was reported or read in a version that shows the outcome of every write. */
    static Claim observed(State state, BoundPod pod, Excess excess, long now) {
        return new Claim(pod.id(), state, pod.shares(), pod.perGpu(), pod.hostRequests(), pod, 0, null, excess, now);
    }

    /** The claim of a pod that was reported, without a resize and with another excess. */
    Claim withExcess(Excess other) {
        return observed(state, observed().orElseThrow(), other, since);
    }

    List<ContainerShare> shares() {
        return shares;
    }

    Excess excess() {
        return excess;
    }

    /** What counts beyond the shares of a later version of the pod. */
    Excess excessOf(BoundPod later, long now) {
        return observed == null ? Excess.NONE : excess.after(observed.shares(), later.shares(), now);
    }

    /** A resize of this one was sent. */
    Claim resizing(BoundPod pod, List<ContainerShare> wanted, long now) {
        return new Claim(
                pod.id(),
                state,
                pod.shares(),
                ContainerShare.larger(pod.perGpu(), ContainerShare.perGpu(wanted)),
                pod.hostRequests(),
                pod,
                pod.version(),
                wanted,
                excess,
                now);
    }

    /** The pod was reported in a version that does not show the outcome of the resize. */
    Claim stillResizing(BoundPod pod) {
        List<ContainerShare> wanted = Objects.requireNonNull(resize);
        Map<String, GpuAmount> most = ContainerShare.larger(pod.perGpu(), ContainerShare.perGpu(wanted));
        return new Claim(
                pod.id(), State.HELD, pod.shares(), most, pod.hostRequests(), pod, base, wanted, excess, since);
    }

    /** The pod was deleted by force. A write that was sent may have taken effect before. */
    Claim lingering(long now) {
        return new Claim(pod, State.LINGERING, shares, perGpu, hostRequests, observed, 0, null, excess, now);
    }

    boolean hasAmountsOf(Claim other) {
        return perGpu.equals(other.perGpu) && hostRequests.equals(other.hostRequests);
    }

    /** Whether a resize was sent whose outcome is unknown. */
    boolean isResizing() {
        return resize != null;
    }

    /** Whether the known version is at least as new. Of the same version, a report of the watch outweighs a read. */
    boolean isNewerThan(BoundPod pod, State reported) {
        return state == State.LINGERING
                || (observed != null
                        && (pod.version() < observed.version()
                                || (pod.version() == observed.version()
                                        && (state == State.HELD || reported == State.ASSUMED))));
    }

    /** Whether the pod counts as bound although the watch has not reported it yet. */
    boolean isAssumed() {
        return state == State.ASSUMED;
    }

    /** Whether a Binding was sent whose outcome is unknown. */
    boolean isBindingUnresolved() {
        return isAssumed() && observed == null;
    }

    long base() {
        return base;
    }

    Optional<BoundPod> observed() {
        return Optional.ofNullable(observed);
    }

    /** Whether the pod is bound or may be bound. */
    boolean mayBeBound() {
        return state != State.RESERVED && state != State.RESERVED_FOR_PREEMPTOR;
    }

    Holding holding() {
        return observed == null
                ? new Holding(
                        pod,
                        state,
                        shares,
                        perGpu,
                        hostRequests,
                        0,
                        Instant.MAX,
                        Instant.MAX,
                        Instant.MAX,
                        OptionalLong.empty())
                : new Holding(
                        pod,
                        state,
                        shares,
                        perGpu,
                        hostRequests,
                        observed.priority(),
                        observed.created(),
                        observed.bound(),
                        observed.leavesBy(),
                        excess.shrunkAt());
    }
}
