package io.aliquot.scheduler.ledger;

import io.aliquot.api.pods.CorePolicy;
import io.aliquot.api.pods.Priority;
import io.aliquot.api.pods.Vgpu;
import io.aliquot.api.pods.Vgpus;
import io.aliquot.api.usage.PodContainer;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.scheduler.placement.ContainerKind;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodScopes;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;

/** Bound pods for tests. */
public final class BoundPods {
    public static final Duration GRACE = Duration.ofSeconds(30);

    private BoundPods() {}

    public static BoundPod of(PodId id, String node, long version, ContainerShare... shares) {
        return new BoundPod(
                id,
                node,
                version,
                List.of(shares),
                HostResources.NONE,
                PodScopes.NONE,
                0,
                Instant.EPOCH,
                Instant.EPOCH,
                GRACE,
                Instant.MAX);
    }

    /** A pod bound this many seconds after 1970. */
    public static BoundPod of(
            PodId id, String node, int priority, int second, HostResources hostRequests, ContainerShare... shares) {
        var since = Instant.ofEpochSecond(second);
        return new BoundPod(
                id,
                node,
                1 + second,
                List.of(shares),
                hostRequests,
                PodScopes.NONE,
                priority,
                since,
                since,
                GRACE,
                Instant.MAX);
    }

    /** The same pod, bound this many seconds after 1970. */
    public static BoundPod boundAt(BoundPod pod, int second) {
        return new BoundPod(
                pod.id(),
                pod.node(),
                pod.version(),
                pod.shares(),
                pod.hostRequests(),
                pod.scopes(),
                pod.priority(),
                pod.created(),
                Instant.ofEpochSecond(second),
                pod.grace(),
                pod.leavesBy());
    }

    /** The same pod being deleted with this deadline. */
    public static BoundPod leaving(BoundPod pod, Instant leavesBy) {
        return leaving(pod, leavesBy, pod.grace());
    }

    /** The same pod with this deadline and grace period; being deleted unless the deadline is {@link Instant#MAX}. */
    public static BoundPod leaving(BoundPod pod, Instant leavesBy, Duration grace) {
        return new BoundPod(
                pod.id(),
                pod.node(),
                pod.version() + 1,
                pod.shares(),
                pod.hostRequests(),
                pod.scopes(),
                pod.priority(),
                pod.created(),
                pod.bound(),
                grace,
                leavesBy);
    }

    /** What a pod with these shares counts for in quotas. */
    public static QuotaAmount quotaAmount(List<ContainerShare> shares) {
        return QuotaAmount.of(shares);
    }

    public static QuotaAmount sum(QuotaAmount one, QuotaAmount other) {
        return one.plus(other);
    }

    /** The allocation of a container {@code main}. */
    public static ContainerShare main(String gpu, GpuAmount amount) {
        return new ContainerShare("main", ContainerKind.APP, new Vgpus(List.of(vgpu(gpu, amount))));
    }

    /**
     * What an agent reports of a container and a GPU.
     *
     * @param charged what the container says of itself
     * @param measured what NVML has shown for ten seconds
     */
    public static UsageReport.OfContainer usage(
            PodContainer container, String gpu, OptionalLong charged, OptionalLong measured) {
        return new UsageReport.OfContainer(
                container,
                gpu,
                charged,
                OptionalLong.of(0),
                measured,
                0,
                0,
                OptionalInt.empty(),
                OptionalInt.empty(),
                OptionalInt.empty(),
                0,
                0,
                1,
                Optional.empty());
    }

    public static Vgpu vgpu(String gpu, GpuAmount amount) {
        return new Vgpu(
                gpu,
                (int) amount.memoryMiB(),
                amount.cores(),
                CorePolicy.FIXED,
                Priority.NORMAL,
                0,
                amount.exclusive());
    }
}
