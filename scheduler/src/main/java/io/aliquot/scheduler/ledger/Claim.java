package io.aliquot.scheduler.ledger;

import io.aliquot.scheduler.ledger.Holding.State;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.placement.PodScopes;
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

    private final PodScopes scopes;
    /** What counts in the quotas of the namespace. */
    private final QuotaAmount quotaAmount;

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
            PodScopes scopes,
            QuotaAmount quotaAmount,
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
        this.scopes = scopes;
        this.quotaAmount = quotaAmount;
        this.since = since;
    }

    /**
     * A claim of a pod that was not reported yet.
     *
     * @param state {@code RESERVED}, {@code RESERVED_FOR_PREEMPTOR}, or {@code ASSUMED} if a Binding is sent
     * @param shares what the pod's containers get
     * @param base the version that the Binding is conditional on; 0 without one
     */
    static Claim of(
            State state,
            PodId pod,
            List<ContainerShare> shares,
            Map<String, GpuAmount> perGpu,
            PodGpuRequest request,
            long base,
            long now) {
        return new Claim(
                pod,
                state,
                state == State.ASSUMED ? shares : List.of(),
                perGpu,
                request.hostRequests(),
                null,
                base,
                null,
                Excess.NONE,
                request.scopes(),
                QuotaAmount.of(shares),
                now);
    }

    /** The pod was reported or read in a version that shows the outcome of every write. */
    static Claim observed(State state, BoundPod pod, Excess excess, long now) {
        return new Claim(
                pod.id(),
                state,
                pod.shares(),
                pod.perGpu(),
                pod.hostRequests(),
                pod,
                0,
                null,
                excess,
                pod.scopes(),
                QuotaAmount.of(pod.shares()),
                now);
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
        return resizing(state, pod, pod.version(), wanted, now);
    }

    /** The pod was reported in a version that does not show the outcome of the resize. */
    Claim stillResizing(BoundPod pod) {
        return resizing(State.HELD, pod, base, Objects.requireNonNull(resize), since);
    }

    private Claim resizing(State now, BoundPod pod, long version, List<ContainerShare> wanted, long began) {
        return new Claim(
                pod.id(),
                now,
                pod.shares(),
                ContainerShare.larger(pod.perGpu(), ContainerShare.perGpu(wanted)),
                pod.hostRequests(),
                pod,
                version,
                wanted,
                excess,
                pod.scopes(),
                QuotaAmount.of(pod.shares()).max(QuotaAmount.of(wanted)),
                began);
    }

    /**
     * The pod was deleted by force. A write that was sent may have taken effect before. Quotas count it no more, as those of
     * Kubernetes: the pod is gone, and another replica may not know of it.
     */
    Claim lingering(long now) {
        return new Claim(
                pod,
                State.LINGERING,
                shares,
                perGpu,
                hostRequests,
                observed,
                0,
                null,
                excess,
                scopes,
                QuotaAmount.NONE,
                now);
    }

    PodScopes scopes() {
        return scopes;
    }

    QuotaAmount quotaAmount() {
        return quotaAmount;
    }

    boolean hasAmountsOf(Claim other) {
        return perGpu.equals(other.perGpu) && hostRequests.equals(other.hostRequests);
    }

    /** Whether a resize was sent whose outcome is unknown. */
    boolean isResizing() {
        return resize != null;
    }

    /**
     * Whether the known version is at least as new. Of the same version, a report of the watch outweighs a read. A deleted
     * pod that the watch reports again comes from a backup of etcd, at any version.
     */
    boolean isNewerThan(BoundPod pod, State reported) {
        if (state == State.LINGERING) {
            return reported == State.ASSUMED;
        }
        return observed != null
                && (pod.version() < observed.version()
                        || (pod.version() == observed.version() && (state == State.HELD || reported == State.ASSUMED)));
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
