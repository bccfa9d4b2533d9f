package io.aliquot.scheduler.extender;

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.annotation.JsonSetter;
import com.fasterxml.jackson.annotation.Nulls;
import io.aliquot.api.foreign.HamiAnnotations;
import io.aliquot.api.format.FormatException;
import io.aliquot.api.pods.PlacementPreferences;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.pending.PreemptionRank;
import io.aliquot.scheduler.pending.UnboundPod;
import io.aliquot.scheduler.placement.ContainerGpuRequest;
import io.aliquot.scheduler.placement.ContainerKind;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.placement.PodHostRequests;
import io.aliquot.scheduler.placement.PodRuntime;
import io.aliquot.scheduler.placement.PodScopes;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.BiConsumer;
import org.jspecify.annotations.Nullable;
import tools.jackson.databind.DeserializationFeature;
import tools.jackson.databind.PropertyNamingStrategies.UpperCamelCaseStrategy;
import tools.jackson.databind.annotation.JsonNaming;
import tools.jackson.databind.json.JsonMapper;

/**
 * Requests and answers of the verbs, in the JSON of k8s.io/kube-scheduler/extender/v1, types.go, with Go's field names,
 * since that package has no tags, around a pod with the API's own names. Of the pod, only the fields that the verbs use.
 */
final class Wire {
    private static final JsonSetter.Value EMPTY_IF_MISSING = JsonSetter.Value.forValueNulls(Nulls.AS_EMPTY, Nulls.SKIP);

    private Wire() {}

    /** Reads and writes these records; null counts as missing, and a missing text, list or object is empty. */
    static JsonMapper mapper() {
        var mapper = JsonMapper.builder().disable(DeserializationFeature.FAIL_ON_NULL_FOR_PRIMITIVES);
        for (Class<?> type : List.of(String.class, List.class, Map.class, Status.class, Resources.class)) {
            mapper.withConfigOverride(type, config -> config.setNullHandling(EMPTY_IF_MISSING));
        }
        return mapper.build();
    }

    /** Of the fields of the JSON, only those that the record names. Without this annotation Jackson buffers the others. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    private interface Partial {}

    private static void require(String field, @Nullable Object value) {
        if (value == null || value.equals("")) {
            throw new FormatException("expected " + field + ", found none");
        }
    }

    /** {@code nodeNames} is empty if kube-scheduler sends whole nodes. */
    @JsonNaming(UpperCamelCaseStrategy.class)
    record Args(Pod pod, Optional<List<String>> nodeNames) implements Partial {
        Args {
            require("Pod", pod);
        }
    }

    @JsonNaming(UpperCamelCaseStrategy.class)
    record FilterResult(
            List<String> nodeNames,
            Map<String, String> failedNodes,
            Map<String, String> failedAndUnresolvableNodes,
            String error) {
        static FilterResult error(String why) {
            return new FilterResult(List.of(), Map.of(), Map.of(), why);
        }
    }

    @JsonNaming(UpperCamelCaseStrategy.class)
    record HostPriority(String host, int score) {}

    @JsonNaming(UpperCamelCaseStrategy.class)
    record BindingArgs(
            String podName,
            String podNamespace,
            @JsonProperty("PodUID") String podUid,
            String node) implements Partial {
        BindingArgs {
            require("PodName", podName);
            require("PodNamespace", podNamespace);
            require("PodUID", podUid);
            require("Node", node);
        }

        PodId pod() {
            return new PodId(podNamespace, podName, podUid);
        }
    }

    @JsonNaming(UpperCamelCaseStrategy.class)
    record BindingResult(String error) {}

    @JsonNaming(UpperCamelCaseStrategy.class)
    record PreemptionArgs(
            Pod pod, @JsonSetter(nulls = Nulls.SKIP) Map<String, MetaVictims> nodeNameToMetaVictims)
            implements Partial {
        PreemptionArgs {
            require("Pod", pod);
            require("NodeNameToMetaVictims", nodeNameToMetaVictims);
        }
    }

    @JsonNaming(UpperCamelCaseStrategy.class)
    record PreemptionResult(Map<String, MetaVictims> nodeNameToMetaVictims) {}

    @JsonNaming(UpperCamelCaseStrategy.class)
    record MetaVictims(
            List<MetaPod> pods,
            @JsonProperty("NumPDBViolations") int numPdbViolations) implements Partial {}

    record MetaPod(@JsonProperty("UID") String uid) implements Partial {
        MetaPod {
            require("UID", uid);
        }
    }

    record Pod(Metadata metadata, Spec spec, Status status) implements Partial {
        Pod {
            require("metadata", metadata);
            require("spec", spec);
        }

        PodId id() {
            return new PodId(metadata.namespace, metadata.name, metadata.uid);
        }

        /** The node on which kube-scheduler preempted for the pod; empty for none. */
        String nominatedNodeName() {
            return status.nominatedNodeName;
        }

        /**
         * What the pod has in common with other pods of its template.
         *
         * @throws io.aliquot.api.format.FormatException if the value of an annotation is unknown
         */
        Template template() {
            return new Template(
                    spec.initContainers,
                    spec.containers,
                    spec.resources.requests,
                    spec.overhead,
                    HamiAnnotations.preferences(metadata.annotations),
                    spec.preferences(),
                    spec.scopes(),
                    spec.runtime());
        }

        UnboundPod requesting(PodGpuRequest request) {
            return new UnboundPod(id(), metadata.resourceVersion, spec.rank(), request);
        }
    }

    /** {@code resourceVersion} is the one that kube-scheduler sees, which may be an old one; 0 if it is missing. */
    record Metadata(String namespace, String name, String uid, long resourceVersion, Map<String, String> annotations)
            implements Partial {
        Metadata {
            require("metadata.namespace", namespace);
            require("metadata.name", name);
            require("metadata.uid", uid);
        }
    }

    /**
     * A pod's spec.
     *
     * @param resources the pod-level requests
     * @param overhead of the pod's RuntimeClass
     * @param affinity of nodes, of pods, and against pods
     */
    record Spec(
            List<Container> initContainers,
            List<Container> containers,
            Resources resources,
            Map<String, String> overhead,
            Map<String, Affinity> affinity,
            List<TopologySpreadConstraint> topologySpreadConstraints,
            int priority,
            String priorityClassName,
            String preemptionPolicy,
            @Nullable Long activeDeadlineSeconds,
            String runtimeClassName,
            @Nullable Boolean hostUsers)
            implements Partial {
        /** Whether the pod has preferred affinities or spread constraints. */
        private boolean preferences() {
            return affinity.values().stream()
                            .anyMatch(kind -> !kind.preferredDuringSchedulingIgnoredDuringExecution.isEmpty())
                    || topologySpreadConstraints.stream()
                            .anyMatch(constraint -> constraint.whenUnsatisfiable.equals("ScheduleAnyway"));
        }

        private PodScopes scopes() {
            return new PodScopes(priorityClassName, activeDeadlineSeconds != null);
        }

        private PodRuntime runtime() {
            return new PodRuntime(runtimeClassName, Boolean.FALSE.equals(hostUsers));
        }

        private PreemptionRank rank() {
            return new PreemptionRank(priority, !preemptionPolicy.equals("Never"));
        }
    }

    record Status(String nominatedNodeName) implements Partial {
        Status() {
            this("");
        }
    }

    record Affinity(List<Object> preferredDuringSchedulingIgnoredDuringExecution) implements Partial {}

    record TopologySpreadConstraint(String whenUnsatisfiable) implements Partial {}

    record Resources(Map<String, String> limits, Map<String, String> requests) implements Partial {
        Resources() {
            this(Map.of(), Map.of());
        }
    }

    /** A container; one that restarts always marks a sidecar among the init containers. */
    record Container(String name, Resources resources, String restartPolicy) implements Partial {
        Container {
            require("a container's name", name);
        }

        private ContainerKind initKind() {
            return restartPolicy.equals("Always") ? ContainerKind.SIDECAR : ContainerKind.INIT;
        }
    }

    /** The fields of a pod that determine its request. */
    record Template(
            List<Container> initContainers,
            List<Container> containers,
            Map<String, String> podRequests,
            Map<String, String> overhead,
            PlacementPreferences placement,
            boolean preferences,
            PodScopes scopes,
            PodRuntime runtime) {
        /**
         * Parses the request.
         *
         * @throws io.aliquot.api.format.FormatException if it is malformed
         */
        PodGpuRequest request() {
            var requests = new ArrayList<ContainerGpuRequest>();
            each((kind, container) -> ContainerGpuRequest.parse(container.name(), kind, container.resources.limits)
                    .ifPresent(requests::add));
            return PodGpuRequest.of(requests, placement, preferences)
                    .withHostRequests(requests())
                    .withScopes(scopes)
                    .withRuntime(runtime);
        }

        private void each(BiConsumer<ContainerKind, Container> action) {
            initContainers.forEach(container -> action.accept(container.initKind(), container));
            containers.forEach(container -> action.accept(ContainerKind.APP, container));
        }

        private HostResources requests() {
            var sum = new PodHostRequests();
            each((kind, container) -> sum.add(kind, HostResources.parse(container.resources.requests)));
            sum.podLevel(podRequests.keySet(), HostResources.parse(podRequests));
            sum.overhead(HostResources.parse(overhead));
            return sum.total();
        }
    }
}
