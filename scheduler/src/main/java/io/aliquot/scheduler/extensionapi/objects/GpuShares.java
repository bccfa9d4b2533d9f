package io.aliquot.scheduler.extensionapi.objects;

import io.aliquot.api.pods.CorePolicy;
import io.aliquot.api.pods.GpuRequest;
import io.aliquot.api.pods.MemoryRequest.Mebibytes;
import io.aliquot.api.pods.MemoryRequest.Percentage;
import io.aliquot.api.pods.Vgpu;
import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.ApiObject;
import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.Column;
import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.Metadata;
import io.aliquot.scheduler.extensionapi.machinery.Resource;
import io.aliquot.scheduler.extensionapi.machinery.StatusException;
import io.aliquot.scheduler.extensionapi.machinery.WatchCache;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.ContainerRequest;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.ContainerSpec;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.ContainerStatus;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.GpuPart;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.GpuShare;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.GpuShareSpec;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.GpuShareStatus;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.ShareUsage;
import io.aliquot.scheduler.extensionapi.objects.GpuPod.ParsedRequest;
import io.aliquot.scheduler.ledger.ContainerShare;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.ledger.QuotaAmount;
import io.aliquot.scheduler.placement.ContainerGpuRequest;
import java.time.Clock;
import java.time.Instant;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.function.BinaryOperator;
import java.util.function.Function;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import org.springframework.stereotype.Component;

/**
 * The gpushares: the pods that hold or request a GPU. An object is a function of its Pod, so that the same resourceVersion
 * has the same content on every replica, apart from usage and, in a single GET, the explanation. Thread-safe.
 */
@Component
public final class GpuShares extends Resource<GpuPod> {
    private static final List<Column> COLUMNS = List.of(
            Resource.column("Name", "string", 0, "Name of the pod"),
            Resource.column("Status", "string", 0, "Pending, Bound or Terminating"),
            Resource.column("Node", "string", 0, "Node of the pod"),
            Resource.column("Memory", "string", 0, "GPU memory used and granted, in MiB"),
            Resource.column("Cores", "string", 0, "Compute used and granted, in percent of a GPU"),
            Resource.column("GPUs", "integer", 0, "Number of GPUs that the pod holds or requests"),
            Resource.column("Reason", "string", 1, "Why a pod is Pending"),
            Resource.column("Lent", "string", 1, "Compute of its cores that others use, in percent of a GPU"),
            Resource.column("Borrowed", "string", 1, "Compute used beyond its cores, in percent of a GPU"),
            Resource.column("Age", "string", 1, "Time since the pod's creation"));

    private static final Map<String, Function<GpuPod, String>> FIELDS = Map.of(
            "metadata.name", pod -> pod.id().name(),
            "metadata.namespace", pod -> pod.id().namespace(),
            "spec.nodeName", GpuPod::node,
            "status.nodeName", GpuPod::node,
            "status.phase", GpuPod::phase);

    private static final int MOST_REFRESHED = 50;

    private final UsageLookup usage;
    private final Clock clock;

    GpuShares(UsageLookup usage, Clock clock) {
        super("GpuShare", COLUMNS, FIELDS, new WatchCache<>(GpuPod::bytes));
        this.usage = usage;
        this.clock = clock;
    }

    // Reports of the watch on pods.

    /** Adds or updates a pod. */
    public void put(GpuPod pod) {
        store().put(key(pod.id().namespace(), pod.id().name()), pod, pod.version());
    }

    /**
     * Removes a pod that has ended, is gone, or is none of ours; no effect for a pod that is not known.
     *
     * @param version of the pod then; empty if it is not known when it went
     */
    public void remove(PodId pod, OptionalLong version) {
        String key = key(pod.namespace(), pod.name());
        if (store().find(key)
                .filter(known -> known.id().uid().equals(pod.uid()))
                .isPresent()) {
            store().remove(key, version);
        }
    }

    /** All pods have been listed, as of this version. */
    public void listed(long version) {
        store().listed(version);
    }

    /** Every change of a pod up to this version was reported. */
    public void reached(long version) {
        store().reached(version);
    }

    static String key(String namespace, String name) {
        return namespace + "/" + name;
    }

    /** Of a team's pods, not of a cluster's: else each list would ask all agents. */
    @Override
    public void refreshFigures(Collection<GpuPod> pods) {
        if (pods.size() <= MOST_REFRESHED) {
            usage.refresh(pods.stream().map(GpuPod::node).distinct().toList());
        }
    }

    @Override
    public String namespace(GpuPod pod) {
        return pod.id().namespace();
    }

    @Override
    public Map<String, String> labels(GpuPod pod) {
        return pod.labels();
    }

    /**
     * The pod of this name.
     *
     * @throws StatusException with code 404
     */
    public GpuPod get(String namespace, String name) {
        return store().find(key(namespace, name)).orElseThrow(() -> StatusException.notFound(plural(), name));
    }

    @Override
    public GpuShare print(GpuPod pod) {
        return print(pod, reason(pod));
    }

    public static Metadata metadata(GpuPod pod) {
        return new Metadata(
                pod.id().name(),
                pod.id().namespace(),
                pod.id().uid(),
                Long.toString(pod.version()),
                pod.created().equals(Instant.EPOCH) ? null : pod.created().toString(),
                pod.labels().isEmpty() ? null : pod.labels());
    }

    /** In a list, what the Pod itself tells. */
    private static String reason(GpuPod pod) {
        if (pod.isPending() && pod.request() instanceof ParsedRequest.Invalid(String why)) {
            return "cannot be scheduled: " + why;
        }
        return pod.isPending() ? pod.gated().orElse(pod.schedulerMessage()) : "";
    }

    public GpuShare print(GpuPod pod, String reason) {
        List<ContainerStatus> containers = pod.isPending() ? requested(pod) : held(pod);
        boolean holds = !pod.isPending();
        QuotaAmount held = QuotaAmount.held(pod.shares());
        return new GpuShare(
                metadata(pod),
                new GpuShareSpec(holds ? heldSpec(pod.shares()) : requestedSpec(pod)),
                new GpuShareStatus(
                        pod.phase(),
                        reason.isEmpty() ? null : reason,
                        pod.node().isEmpty() ? null : pod.node(),
                        pod.priority(),
                        holds ? pod.gpus().size() : requestedGpus(pod),
                        holds ? held.memoryMiB() : null,
                        holds ? (int) held.cores() : null,
                        holds ? GpuNodes.amounts(ContainerShare.perGpu(pod.shares())) : null,
                        containers.stream()
                                .flatMap(container -> container.gpus().stream())
                                .flatMap(part -> Stream.ofNullable(part.usage()))
                                .reduce(GpuShares::plus)
                                .orElse(null),
                        containers));
    }

    private static int requestedGpus(GpuPod pod) {
        return pod.request() instanceof ParsedRequest.Valid(var request)
                ? (int) QuotaAmount.of(request, 0, false).vgpus()
                : 0;
    }

    private List<ContainerStatus> held(GpuPod pod) {
        return pod.shares().stream()
                .map(share -> new ContainerStatus(
                        share.container(),
                        null,
                        share.vgpus().list().stream()
                                .map(vgpu -> part(pod, share.container(), vgpu))
                                .toList()))
                .toList();
    }

    private GpuPart part(GpuPod pod, String container, Vgpu vgpu) {
        return new GpuPart(
                vgpu.uuid(),
                vgpu.memoryMiB(),
                vgpu.cores(),
                vgpu.policy().print(),
                vgpu.priority().print(),
                vgpu.exclusive(),
                usage.ofContainer(pod.node(), pod.id(), container, vgpu.uuid()).orElse(null));
    }

    private static List<ContainerStatus> requested(GpuPod pod) {
        return requests(pod).stream()
                .map(container -> new ContainerStatus(container.name(), requested(container.request()), List.of()))
                .toList();
    }

    private static ContainerRequest requested(GpuRequest request) {
        return new ContainerRequest(
                request.vgpus(), memoryMiB(request), memoryPercent(request), request.cores(), request.exclusive());
    }

    private static @Nullable Integer memoryMiB(GpuRequest request) {
        return request.memory() instanceof Mebibytes(int amount) ? Integer.valueOf(amount) : null;
    }

    private static @Nullable Integer memoryPercent(GpuRequest request) {
        return request.memory() instanceof Percentage(int percent) ? Integer.valueOf(percent) : null;
    }

    private static List<ContainerGpuRequest> requests(GpuPod pod) {
        return pod.request() instanceof ParsedRequest.Valid(var request) ? request.containers() : List.of();
    }

    private static List<ContainerSpec> requestedSpec(GpuPod pod) {
        return requests(pod).stream()
                .map(container -> new ContainerSpec(
                        container.name(),
                        memoryMiB(container.request()),
                        container.request().cores(),
                        null))
                .toList();
    }

    static List<ContainerSpec> heldSpec(List<ContainerShare> shares) {
        return shares.stream()
                .map(share -> new ContainerSpec(
                        share.container(),
                        same(share, Vgpu::memoryMiB),
                        same(share, Vgpu::cores),
                        Optional.ofNullable(same(share, Vgpu::policy))
                                .map(CorePolicy::print)
                                .orElse(null)))
                .toList();
    }

    /** What all vGPUs of a container have; null if they differ. */
    private static <V> @Nullable V same(ContainerShare share, Function<Vgpu, V> value) {
        List<V> values =
                share.vgpus().list().stream().map(value).distinct().limit(2).toList();
        return values.size() == 1 ? values.get(0) : null;
    }

    private static ShareUsage plus(ShareUsage one, ShareUsage other) {
        return new ShareUsage(
                together(one.memoryMiB(), other.memoryMiB(), Long::sum),
                together(one.utilizationPercent(), other.utilizationPercent(), Integer::sum),
                together(one.lentPercent(), other.lentPercent(), Integer::sum),
                together(one.borrowedPercent(), other.borrowedPercent(), Integer::sum),
                together(one.processes(), other.processes(), Integer::sum),
                together(one.deniedAllocations(), other.deniedAllocations(), Long::sum),
                together(one.throttledSeconds(), other.throttledSeconds(), Double::sum),
                together(one.lastActive(), other.lastActive(), BinaryOperator.maxBy(Comparator.naturalOrder())));
    }

    /** Two figures as one; the other one if one is not known. */
    private static <V> @Nullable V together(@Nullable V one, @Nullable V other, BinaryOperator<V> both) {
        if (one == null || other == null) {
            return one == null ? other : one;
        }
        return both.apply(one, other);
    }

    @Override
    public List<Object> cells(ApiObject printed) {
        var share = (GpuShare) printed;
        GpuShareStatus status = share.status();
        ShareUsage used = status.usage();
        return Arrays.asList(
                share.metadata().name(),
                status.phase(),
                Objects.requireNonNullElse(status.nodeName(), "-"),
                Resource.fraction(used == null ? null : used.memoryMiB(), status.memoryMiB(), "Mi"),
                cores(share),
                status.gpus(),
                Objects.requireNonNullElse(status.reason(), ""),
                percent(used == null ? null : used.lentPercent()),
                percent(used == null ? null : used.borrowedPercent()),
                Resource.age(share.metadata().creationTimestamp(), clock.instant()));
    }

    private static String percent(@Nullable Integer figure) {
        return figure == null ? "-" : figure + "%";
    }

    private static String cores(GpuShare share) {
        GpuShareStatus status = share.status();
        ShareUsage used = status.usage();
        boolean unlimited = status.cores() != null
                && status.containers().stream()
                        .flatMap(container -> container.gpus().stream())
                        .noneMatch(part ->
                                CorePolicy.parse("policy", part.policy()).limits(part.cores()));
        return Resource.fraction(
                used == null ? null : used.utilizationPercent(),
                unlimited ? "unlimited" : status.cores(),
                unlimited ? "" : "%");
    }
}
