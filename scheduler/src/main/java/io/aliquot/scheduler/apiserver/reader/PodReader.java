package io.aliquot.scheduler.apiserver.reader;

import io.aliquot.api.foreign.ForeignResources;
import io.aliquot.api.foreign.HamiAllocation;
import io.aliquot.api.format.FormatException;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Resources;
import io.aliquot.api.pods.GpuRequest;
import io.aliquot.api.pods.Vgpu;
import io.aliquot.api.pods.Vgpus;
import io.aliquot.scheduler.cluster.AllocationAnnotations;
import io.aliquot.scheduler.extensionapi.objects.GpuPod;
import io.aliquot.scheduler.extensionapi.objects.GpuPod.ParsedRequest;
import io.aliquot.scheduler.ledger.BoundPod;
import io.aliquot.scheduler.ledger.ContainerShare;
import io.aliquot.scheduler.ledger.ForeignPod;
import io.aliquot.scheduler.ledger.ForeignPod.ForeignVgpu;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.ContainerGpuRequest;
import io.aliquot.scheduler.placement.ContainerKind;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.placement.PodHostRequests;
import io.aliquot.scheduler.placement.PodRuntime;
import io.aliquot.scheduler.placement.PodScopes;
import io.fabric8.kubernetes.api.model.Container;
import io.fabric8.kubernetes.api.model.ContainerStatus;
import io.fabric8.kubernetes.api.model.ManagedFieldsEntry;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodCondition;
import io.fabric8.kubernetes.api.model.PodSchedulingGate;
import io.fabric8.kubernetes.api.model.PodSpec;
import io.fabric8.kubernetes.api.model.PodStatus;
import io.fabric8.kubernetes.api.model.Quantity;
import io.fabric8.kubernetes.api.model.ResourceRequirements;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/** Reads from a Pod object what the ledger needs. */
public final class PodReader {
    private static final String FAILED = "Failed";
    private static final Set<String> ENDED = Set.of("Succeeded", FAILED);
    /** What the message of a pod begins with that its kubelet refused to run (pkg/kubelet/kubelet.go, rejectPod). */
    private static final String REJECTED = "Pod was rejected: ";
    /** Kubernetes' default, which the API server fills in. */
    private static final long DEFAULT_GRACE_SECONDS = 30;
    /** A year. The API server accepts any number, but the ledger's times are nanoseconds in 64 bits. */
    private static final long LONGEST_GRACE_SECONDS = 365L * 24 * 60 * 60;
    /** Scheduling gates and errors of kube-scheduler have other reasons (k8s.io/api, core/v1/types.go). */
    private static final String UNSCHEDULABLE = "Unschedulable";

    private PodReader() {}

    /**
     * The result of reading a bound pod.
     *
     * @param problems one sentence for each annotation that could not be read; the pod holds the other vGPUs
     */
    public record Reading(BoundPod pod, List<String> problems) {}

    private record Part(String name, ContainerKind kind, Container container) {}

    public static PodId id(Pod pod) {
        return new PodId(
                pod.getMetadata().getNamespace(),
                pod.getMetadata().getName(),
                pod.getMetadata().getUid());
    }

    /** Returns the name of the pod's node; empty for an unbound pod. */
    public static String node(Pod pod) {
        String node = pod.getSpec() == null ? null : pod.getSpec().getNodeName();
        return node == null ? "" : node;
    }

    /** Whether all containers have ended and will not restart. */
    public static boolean ended(Pod pod) {
        return pod.getStatus() != null
                && ENDED.contains(String.valueOf(pod.getStatus().getPhase()));
    }

    /**
     * Returns when its kubelet rejected a pod with shares; empty for all other pods. The status has no such time: it is that
     * of the last write of the status.
     */
    public static Optional<Instant> rejectedAt(Pod pod) {
        PodStatus status = pod.getStatus();
        if (status == null
                || !FAILED.equals(status.getPhase())
                || !String.valueOf(status.getMessage()).startsWith(REJECTED)
                || bound(pod).pod().shares().isEmpty()) {
            return Optional.empty();
        }
        return pod.getMetadata().getManagedFields().stream()
                .filter(write -> "status".equals(write.getSubresource()))
                .map(ManagedFieldsEntry::getTime)
                .filter(Objects::nonNull)
                .map(Instant::parse)
                .max(Comparator.naturalOrder());
    }

    public static Reading bound(Pod pod) {
        var problems = new ArrayList<String>();
        var shares = new ArrayList<ContainerShare>();
        Map<String, String> annotations = annotations(pod);
        Map<String, ContainerStatus> statuses = statuses(pod.getStatus());
        for (Part part : parts(pod.getSpec())) {
            String key = Annotations.vgpu(part.name());
            String text = annotations.get(key);
            if (text != null) {
                List<Vgpu> vgpus = wellFormed(key, text, problems);
                if (!vgpus.isEmpty()) {
                    boolean ended = ended(part, pod.getSpec().getRestartPolicy(), statuses.get(part.name()));
                    shares.add(new ContainerShare(part.name(), part.kind(), new Vgpus(vgpus), ended));
                }
            }
        }
        return new Reading(
                new BoundPod(
                        id(pod),
                        node(pod),
                        version(pod),
                        shares,
                        requests(pod),
                        scopes(pod),
                        Optional.ofNullable(pod.getSpec().getPriority()).orElse(0),
                        created(pod),
                        boundAt(pod).orElseGet(() -> created(pod)),
                        grace(pod),
                        Optional.ofNullable(pod.getMetadata().getDeletionTimestamp())
                                .map(Instant::parse)
                                .orElse(Instant.MAX)),
                problems);
    }

    /**
     * Reads what a bound pod holds by HAMi's record and by its limits; empty for a pod without that record and for one of
     * Aliquot's.
     *
     * @throws FormatException if the record is unreadable, or is not about as many containers and GPUs as the limits, so
     *     that the pod's GPUs count as wholly held
     */
    public static Optional<ForeignPod> foreign(Pod pod) {
        Map<String, String> annotations = annotations(pod);
        String text = annotations.get(HamiAllocation.ANNOTATION);
        if (text == null || annotations.keySet().stream().anyMatch(Annotations::reservedOnPods)) {
            return Optional.empty();
        }
        try {
            List<List<Vgpu>> recorded = HamiAllocation.parse(text).containers().stream()
                    .filter(container -> !container.isEmpty())
                    .toList();
            List<GpuRequest> requested = hamiRequests(pod, recorded.size());
            var vgpus = new ArrayList<ForeignVgpu>();
            for (int i = 0; i < recorded.size(); i++) {
                GpuRequest request = requested.get(i);
                expect(recorded.get(i).size() == request.vgpus(), "the " + request.vgpus() + " GPUs of a container");
                for (Vgpu vgpu : recorded.get(i)) {
                    var amount = new GpuAmount(vgpu.memoryMiB(), Math.max(vgpu.cores(), request.cores()), 1, false);
                    vgpus.add(new ForeignVgpu(vgpu.uuid(), amount, request.memory()));
                }
            }
            return Optional.of(new ForeignPod(id(pod), node(pod), vgpus));
        } catch (FormatException e) {
            throw new FormatException(
                    "annotation " + HamiAllocation.ANNOTATION + ": " + e.getMessage()
                            + "; the GPUs of the node count as wholly held until this pod ends",
                    e);
        }
    }

    /** The limits of the containers that the record is about: of all, or in early versions without init containers. */
    private static List<GpuRequest> hamiRequests(Pod pod, int recorded) {
        var all = new ArrayList<GpuRequest>();
        var apps = new ArrayList<GpuRequest>();
        for (Part part : parts(pod.getSpec())) {
            Map<String, String> limits = limits(part.container());
            String gpus = limits.getOrDefault(ForeignResources.NVIDIA_GPU, "0");
            if (!gpus.equals("0")) {
                limits.put(Resources.VGPU, gpus);
                GpuRequest request = GpuRequest.parse(limits).orElseThrow();
                all.add(request);
                if (part.kind() == ContainerKind.APP) {
                    apps.add(request);
                }
            }
        }
        expect(recorded == all.size() || recorded == apps.size(), all.size() + " containers");
        return recorded == all.size() ? all : apps;
    }

    private static void expect(boolean recorded, String what) {
        if (!recorded) {
            throw new FormatException(
                    "expected " + what + " by the limits of " + ForeignResources.NVIDIA_GPU + ", found another number");
        }
    }

    private static Map<String, String> limits(Container container) {
        var limits = new HashMap<String, String>();
        ResourceRequirements resources = container.getResources();
        if (resources != null && resources.getLimits() != null) {
            resources.getLimits().forEach((name, quantity) -> limits.put(name, quantity.toString()));
        }
        return limits;
    }

    /** Returns 0 for an object that did not come from an API server. */
    public static long version(Pod pod) {
        String version = pod.getMetadata().getResourceVersion();
        return version == null ? 0 : Long.parseLong(version);
    }

    /** Returns {@link Instant#EPOCH} for an object that did not come from an API server. */
    public static Instant created(Pod pod) {
        return Optional.ofNullable(pod.getMetadata().getCreationTimestamp())
                .map(Instant::parse)
                .orElse(Instant.EPOCH);
    }

    /**
     * Returns the longer one of the spec's and the deletion's grace periods. A deletion may give a pod more time than
     * its spec, and the kubelet follows it (k8s.io/kubernetes, pkg/kubelet/pod_workers.go,
     * calculateEffectiveGracePeriod).
     */
    private static Duration grace(Pod pod) {
        long ofSpec = Optional.ofNullable(pod.getSpec().getTerminationGracePeriodSeconds())
                .orElse(DEFAULT_GRACE_SECONDS);
        long ofDeletion = Optional.ofNullable(pod.getMetadata().getDeletionGracePeriodSeconds())
                .orElse(0L);
        return Duration.ofSeconds(Math.min(Math.max(ofSpec, ofDeletion), LONGEST_GRACE_SECONDS));
    }

    /** The API server sets the condition at the Binding (k8s.io/kubernetes, pkg/registry/core/pod/storage). */
    private static Optional<Instant> boundAt(Pod pod) {
        return scheduled(pod, "True").map(PodCondition::getLastTransitionTime).map(Instant::parse);
    }

    /** Returns why kube-scheduler last found no node; empty if it has not tried yet or found one. */
    static String unschedulableMessage(Pod pod) {
        return scheduled(pod, "False")
                .map(PodCondition::getMessage)
                .map(String::strip)
                .orElse("");
    }

    private static Optional<PodCondition> scheduled(Pod pod, String value) {
        return Stream.ofNullable(pod.getStatus())
                .flatMap(status -> status.getConditions().stream())
                .filter(condition -> condition.getType().equals("PodScheduled")
                        && condition.getStatus().equals(value))
                .findFirst();
    }

    /** Whether a container has ended for good: its restart policy is the pod's unless it has its own (KEP-5307). */
    private static boolean ended(Part part, @Nullable String ofPod, @Nullable ContainerStatus status) {
        if (status == null || status.getState() == null || status.getState().getTerminated() == null) {
            return false;
        }
        boolean succeeded = Objects.equals(status.getState().getTerminated().getExitCode(), 0);
        String own = part.container().getRestartPolicy();
        String policy = String.valueOf(own == null ? ofPod : own);
        return part.kind() == ContainerKind.INIT
                ? succeeded
                : policy.equals("Never") || (succeeded && policy.equals("OnFailure"));
    }

    private static Map<String, ContainerStatus> statuses(@Nullable PodStatus status) {
        Map<String, ContainerStatus> statuses = new HashMap<>();
        Stream.ofNullable(status)
                .flatMap(known -> Stream.of(known.getContainerStatuses(), known.getInitContainerStatuses()))
                .flatMap(List::stream)
                .forEach(container -> statuses.put(container.getName(), container));
        return statuses;
    }

    /** Returns all vGPUs of an annotation; of a malformed one, those of its well-formed lines. */
    private static List<Vgpu> wellFormed(String key, String text, List<String> problems) {
        try {
            return Vgpus.parse(text).list();
        } catch (FormatException whole) {
            problems.add(key + ": " + whole.getMessage());
            var vgpus = new LinkedHashMap<String, Vgpu>();
            text.lines().forEach(line -> {
                try {
                    Vgpu vgpu = Vgpus.parse(line).list().get(0);
                    vgpus.put(vgpu.uuid(), vgpu);
                } catch (FormatException one) {
                    // part of the problem above
                }
            });
            return List.copyOf(vgpus.values());
        }
    }

    /**
     * Reads the limits and annotations of a pod.
     *
     * @throws FormatException if they are malformed
     */
    public static PodGpuRequest gpuRequest(Pod pod) {
        var requests = new ArrayList<ContainerGpuRequest>();
        for (Part part : parts(pod.getSpec())) {
            ContainerGpuRequest.parse(part.name(), part.kind(), limits(part.container()))
                    .ifPresent(requests::add);
        }
        if (node(pod).isEmpty()) {
            AllocationAnnotations.check(
                    AllocationAnnotations.bytes(annotations(pod)), ContainerGpuRequest.vgpus(requests));
        }
        return PodGpuRequest.of(requests, annotations(pod), false)
                .withHostRequests(requests(pod))
                .withScopes(scopes(pod))
                .withRuntime(runtime(pod.getSpec()));
    }

    /**
     * Returns the request of a GPU pod for which this kube-scheduler last found no node; empty for all other pods.
     */
    public static Optional<PodGpuRequest> unschedulable(Pod pod, String schedulerName) {
        if (!schedulerName.equals(pod.getSpec().getSchedulerName())
                || scheduled(pod, "False")
                        .filter(condition -> UNSCHEDULABLE.equals(condition.getReason()))
                        .isEmpty()) {
            return Optional.empty();
        }
        try {
            return Optional.of(gpuRequest(pod))
                    .filter(request -> !request.containers().isEmpty());
        } catch (FormatException e) {
            return Optional.empty(); // no free capacity can help this pod
        }
    }

    /**
     * Reads a pod that holds a GPU of Aliquot, or requests one of this kube-scheduler; empty for all other pods and for one
     * that has ended.
     *
     * @param shares what its containers hold
     */
    public static Optional<GpuPod> gpuPod(Pod pod, String schedulerName, List<ContainerShare> shares) {
        if (ended(pod)) {
            return Optional.empty();
        }
        if (shares.isEmpty()
                && (!node(pod).isEmpty() || !schedulerName.equals(pod.getSpec().getSchedulerName()))) {
            return Optional.empty();
        }
        ParsedRequest request;
        try {
            PodGpuRequest parsed = gpuRequest(pod);
            if (shares.isEmpty() && parsed.containers().isEmpty()) {
                return Optional.empty();
            }
            request = new ParsedRequest.Valid(parsed);
        } catch (FormatException e) {
            request = new ParsedRequest.Invalid(String.valueOf(e.getMessage()));
        }
        return Optional.of(new GpuPod(
                id(pod),
                version(pod),
                created(pod),
                labels(pod),
                node(pod),
                pod.getMetadata().getDeletionTimestamp() != null,
                Optional.ofNullable(pod.getSpec().getPriority()).orElse(0),
                !"Never".equals(pod.getSpec().getPreemptionPolicy()),
                unschedulableMessage(pod),
                pod.getSpec().getSchedulingGates().stream()
                        .map(PodSchedulingGate::getName)
                        .toList(),
                request,
                shares));
    }

    private static PodScopes scopes(Pod pod) {
        return new PodScopes(
                Optional.ofNullable(pod.getSpec().getPriorityClassName()).orElse(""),
                pod.getSpec().getActiveDeadlineSeconds() != null);
    }

    private static PodRuntime runtime(PodSpec spec) {
        return new PodRuntime(
                Objects.requireNonNullElse(spec.getRuntimeClassName(), ""), Boolean.FALSE.equals(spec.getHostUsers()));
    }

    public static Map<String, String> labels(Pod pod) {
        Map<String, String> labels = pod.getMetadata().getLabels();
        return labels == null ? Map.of() : labels;
    }

    private static Map<String, String> annotations(Pod pod) {
        Map<String, String> annotations = pod.getMetadata().getAnnotations();
        return annotations == null ? Map.of() : annotations;
    }

    private static List<Part> parts(PodSpec spec) {
        var parts = new ArrayList<Part>();
        for (Container container : spec.getInitContainers()) {
            var kind = "Always".equals(container.getRestartPolicy()) ? ContainerKind.SIDECAR : ContainerKind.INIT;
            parts.add(new Part(container.getName(), kind, container));
        }
        for (Container container : spec.getContainers()) {
            parts.add(new Part(container.getName(), ContainerKind.APP, container));
        }
        return parts;
    }

    /**
     * The CPU and memory that kube-scheduler counts for the pod. During an in-place resize that is the greatest of what a
     * container requests, what its node has allocated to it and what it has; without the first if the resize is infeasible
     * (k8s.io/component-helpers 1.35, resource/helpers.go, PodRequests).
     */
    public static HostResources requests(Pod pod) {
        PodSpec spec = pod.getSpec();
        PodStatus status = pod.getStatus() == null ? new PodStatus() : pod.getStatus();
        boolean infeasible = isResizeInfeasible(status);
        Map<String, ContainerStatus> statuses = statuses(status);
        var sum = new PodHostRequests();
        for (Part part : parts(spec)) {
            HostResources requested =
                    HostResources.parse(requests(part.container().getResources()));
            ContainerStatus container = statuses.get(part.name());
            sum.add(
                    part.kind(),
                    container == null || part.kind() == ContainerKind.INIT
                            ? requested
                            : effective(
                                    requested,
                                    infeasible,
                                    container.getResources(),
                                    container.getAllocatedResources()));
        }
        Map<String, Quantity> podLevel = requests(spec.getResources());
        sum.podLevel(
                podLevel.keySet(),
                effective(
                        HostResources.parse(podLevel),
                        infeasible,
                        status.getResources(),
                        status.getAllocatedResources()));
        if (spec.getOverhead() != null) {
            sum.overhead(HostResources.parse(spec.getOverhead()));
        }
        return sum.total();
    }

    private static HostResources effective(
            HostResources requested,
            boolean infeasible,
            @Nullable ResourceRequirements actual,
            @Nullable Map<String, Quantity> allocated) {
        if (actual == null) {
            return requested;
        }
        HostResources held = HostResources.parse(requests(actual))
                .max(HostResources.parse(allocated == null ? Map.of() : allocated));
        return infeasible ? held : held.max(requested);
    }

    private static boolean isResizeInfeasible(PodStatus status) {
        return status.getConditions().stream()
                .filter(condition -> condition.getType().equals("PodResizePending"))
                .findFirst()
                .filter(condition -> "Infeasible".equals(condition.getReason()))
                .isPresent();
    }

    private static Map<String, Quantity> requests(@Nullable ResourceRequirements resources) {
        return resources == null || resources.getRequests() == null ? Map.of() : resources.getRequests();
    }
}
