package io.aliquot.scheduler.cluster;

import io.aliquot.api.Annotations;
import io.aliquot.api.FormatException;
import io.aliquot.api.Vgpu;
import io.aliquot.api.Vgpus;
import io.aliquot.scheduler.ledger.BoundPod;
import io.aliquot.scheduler.ledger.ContainerAllocation;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.ContainerGpuRequest;
import io.aliquot.scheduler.placement.ContainerKind;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.fabric8.kubernetes.api.model.Container;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodCondition;
import io.fabric8.kubernetes.api.model.PodSpec;
import io.fabric8.kubernetes.api.model.PodStatus;
import io.fabric8.kubernetes.api.model.Quantity;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** What the ledger wants to know of a pod, from the API's object. */
public final class PodReader {
    private static final Set<String> ENDED = Set.of("Succeeded", "Failed");
    /** Of a pod that doesn't say; the API server fills it in. */
    private static final long DEFAULT_GRACE_SECONDS = 30;
    /** A year. The API server takes any number, and times of ours are nanoseconds in 64 bits. */
    private static final long LONGEST_GRACE_SECONDS = 365L * 24 * 60 * 60;
    /** The reason is another where a gate holds a pod back or kube-scheduler failed (k8s.io/api, core/v1/types.go). */
    private static final String UNSCHEDULABLE = "Unschedulable";

    private PodReader() {}

    /**
     * A bound pod.
     *
     * @param problems what could not be read of its annotations, a sentence each; it holds the rest all the same
     */
    record Reading(BoundPod pod, List<String> problems) {}

    private record Part(String name, ContainerKind kind, Container container) {}

    static PodId id(Pod pod) {
        return new PodId(
                pod.getMetadata().getNamespace(),
                pod.getMetadata().getName(),
                pod.getMetadata().getUid());
    }

    /** Its node's name; empty while it has none. */
    public static String node(Pod pod) {
        String node = pod.getSpec() == null ? null : pod.getSpec().getNodeName();
        return node == null ? "" : node;
    }

    /** Whether its containers have ended for good. */
    public static boolean ended(Pod pod) {
        return pod.getStatus() != null
                && ENDED.contains(String.valueOf(pod.getStatus().getPhase()));
    }

    static Reading bound(Pod pod) {
        var problems = new ArrayList<String>();
        var shares = new ArrayList<ContainerAllocation>();
        Map<String, String> annotations = annotations(pod);
        for (Part part : parts(pod.getSpec())) {
            String key = Annotations.vgpu(part.name());
            String text = annotations.get(key);
            if (text != null) {
                List<Vgpu> vgpus = readable(key, text, problems);
                if (!vgpus.isEmpty()) {
                    shares.add(new ContainerAllocation(part.name(), part.kind(), new Vgpus(vgpus)));
                }
            }
        }
        return new Reading(
                new BoundPod(
                        id(pod),
                        node(pod),
                        version(pod),
                        shares,
                        requests(pod.getSpec()),
                        Optional.ofNullable(pod.getSpec().getPriority()).orElse(0),
                        created(pod),
                        boundAt(pod.getStatus()).orElseGet(() -> created(pod)),
                        grace(pod),
                        Optional.ofNullable(pod.getMetadata().getDeletionTimestamp())
                                .map(Times::parse)
                                .orElse(Instant.MAX),
                        annotations.getOrDefault(Annotations.FENCE, "")),
                problems);
    }

    /** 0 for an object that never was at an API server. */
    static long version(Pod pod) {
        String version = pod.getMetadata().getResourceVersion();
        return version == null ? 0 : Long.parseLong(version);
    }

    /** When; {@link Instant#EPOCH} for an object that never was at an API server. */
    public static Instant created(Pod pod) {
        return Optional.ofNullable(pod.getMetadata().getCreationTimestamp())
                .map(Times::parse)
                .orElse(Instant.EPOCH);
    }

    /**
     * Whoever deletes a pod may give it longer than its spec says, and its kubelet then does (k8s.io/kubernetes,
     * pkg/kubelet/pod_workers.go, calculateEffectiveGracePeriod).
     */
    private static Duration grace(Pod pod) {
        long itsOwn = Optional.ofNullable(pod.getSpec().getTerminationGracePeriodSeconds())
                .orElse(DEFAULT_GRACE_SECONDS);
        long given = Optional.ofNullable(pod.getMetadata().getDeletionGracePeriodSeconds())
                .orElse(0L);
        return Duration.ofSeconds(Math.min(Math.max(itsOwn, given), LONGEST_GRACE_SECONDS));
    }

    /** The API server notes it with the Binding (k8s.io/kubernetes, pkg/registry/core/pod/storage). */
    private static Optional<Instant> boundAt(@Nullable PodStatus status) {
        return scheduled(status, "True")
                .map(PodCondition::getLastTransitionTime)
                .map(Times::parse);
    }

    /** Why kube-scheduler found no node for it when it last tried; empty where it hasn't yet, or has found one. */
    static String verdict(Pod pod) {
        return scheduled(pod.getStatus(), "False")
                .map(PodCondition::getMessage)
                .map(String::strip)
                .orElse("");
    }

    private static Optional<PodCondition> scheduled(@Nullable PodStatus status, String value) {
        if (status != null) {
            for (PodCondition condition : status.getConditions()) {
                if (condition.getType().equals("PodScheduled")
                        && condition.getStatus().equals(value)) {
                    return Optional.of(condition);
                }
            }
        }
        return Optional.empty();
    }

    /** All vGPUs of an annotation; of one that is malformed those in lines that are not. */
    private static List<Vgpu> readable(String key, String text, List<String> problems) {
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
                    // told with the whole
                }
            });
            return List.copyOf(vgpus.values());
        }
    }

    /**
     * What it wants.
     *
     * @throws FormatException where that makes no sense
     */
    public static PodGpuRequest ask(Pod pod) {
        var asks = new ArrayList<ContainerGpuRequest>();
        for (Part part : parts(pod.getSpec())) {
            var limits = new HashMap<String, String>();
            if (part.container().getResources() != null
                    && part.container().getResources().getLimits() != null) {
                part.container()
                        .getResources()
                        .getLimits()
                        .forEach((name, quantity) -> limits.put(name, quantity.toString()));
            }
            ContainerGpuRequest.parse(part.name(), part.kind(), limits).ifPresent(asks::add);
        }
        return PodGpuRequest.of(asks, annotations(pod), false).withHostRequests(requests(pod.getSpec()));
    }

    /**
     * What a pod wants that this kube-scheduler found no node for when it last tried; empty where it asks for no GPU, too.
     */
    static Optional<PodGpuRequest> refused(Pod pod, String schedulerName) {
        if (!schedulerName.equals(pod.getSpec().getSchedulerName())
                || scheduled(pod.getStatus(), "False")
                        .filter(condition -> UNSCHEDULABLE.equals(condition.getReason()))
                        .isEmpty()) {
            return Optional.empty();
        }
        try {
            return Optional.of(ask(pod)).filter(ask -> !ask.containers().isEmpty());
        } catch (FormatException e) {
            return Optional.empty(); // it waits for nothing that could come
        }
    }

    static Map<String, String> labels(Pod pod) {
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

    /** Of CPU and memory: of all containers that run on; what an init container needs beyond them is gone before long. */
    public static HostResources requests(Pod pod) {
        return requests(pod.getSpec());
    }

    private static HostResources requests(PodSpec spec) {
        long cpuMillis = 0;
        long memoryBytes = 0;
        for (Part part : parts(spec)) {
            if (part.kind() != ContainerKind.INIT
                    && part.container().getResources() != null
                    && part.container().getResources().getRequests() != null) {
                HostResources load = load(part.container().getResources().getRequests());
                cpuMillis += load.cpuMillis();
                memoryBytes += load.memoryBytes();
            }
        }
        return new HostResources(cpuMillis, memoryBytes);
    }

    public static HostResources load(Map<String, Quantity> amounts) {
        return new HostResources(Quantities.thousandths(amounts.get("cpu")), Quantities.whole(amounts.get("memory")));
    }
}
