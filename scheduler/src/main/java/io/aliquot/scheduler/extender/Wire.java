package io.aliquot.scheduler.extender;

import com.fasterxml.jackson.annotation.JsonProperty;
import io.aliquot.api.PlacementPreferences;
import io.aliquot.api.Quantity;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.pending.PreemptionRank;
import io.aliquot.scheduler.pending.UnboundPod;
import io.aliquot.scheduler.placement.ContainerGpuRequest;
import io.aliquot.scheduler.placement.ContainerKind;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.placement.PodHostRequests;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.jspecify.annotations.Nullable;
import tools.jackson.databind.PropertyNamingStrategies.UpperCamelCaseStrategy;
import tools.jackson.databind.annotation.JsonNaming;

/**
 * Requests and answers of the verbs, in the JSON of k8s.io/kube-scheduler/extender/v1, types.go. {@link WireReader}
 * parses the requests. Of the pod, only the fields that the verbs use.
 */
final class Wire {
    private static final String CPU = "cpu";
    private static final String MEMORY = "memory";

    private Wire() {}

    /** {@code nodeNames} is empty if kube-scheduler sends whole nodes. */
    record Args(Pod pod, Optional<List<String>> nodeNames) {}

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

    record BindingArgs(PodId pod, String node) {}

    @JsonNaming(UpperCamelCaseStrategy.class)
    record BindingResult(String error) {}

    record PreemptionArgs(Pod pod, Map<String, MetaVictims> nodeNameToMetaVictims) {}

    @JsonNaming(UpperCamelCaseStrategy.class)
    record PreemptionResult(Map<String, MetaVictims> nodeNameToMetaVictims) {}

    @JsonNaming(UpperCamelCaseStrategy.class)
    record MetaVictims(
            List<MetaPod> pods,
            @JsonProperty("NumPDBViolations") int numPdbViolations) {}

    record MetaPod(@JsonProperty("UID") String uid) {}

    /**
     * A pod.
     *
     * @param version the resourceVersion that kube-scheduler sees, which may be an old one; 0 if it is missing
     * @param podRequests the pod-level requests
     * @param overhead of the pod's RuntimeClass
     * @param preferences whether the pod has preferred affinities or spread constraints
     * @param nominatedNodeName the node on which kube-scheduler preempted for the pod; empty for none
     */
    record Pod(
            PodId id,
            long version,
            PreemptionRank rank,
            Map<String, String> annotations,
            List<Container> initContainers,
            List<Container> containers,
            Map<String, String> podRequests,
            Map<String, String> overhead,
            boolean preferences,
            String nominatedNodeName) {
        /**
         * What the pod has in common with other pods of its template.
         *
         * @throws io.aliquot.api.FormatException if the value of an annotation is unknown
         */
        Template template() {
            return new Template(
                    initContainers,
                    containers,
                    podRequests,
                    overhead,
                    PlacementPreferences.parse(annotations),
                    preferences);
        }

        UnboundPod requesting(PodGpuRequest request) {
            return new UnboundPod(id, version, rank, request);
        }
    }

    /** The fields of a pod that determine its request. */
    record Template(
            List<Container> initContainers,
            List<Container> containers,
            Map<String, String> podRequests,
            Map<String, String> overhead,
            PlacementPreferences wishes,
            boolean preferences) {
        /**
         * Parses the request.
         *
         * @throws io.aliquot.api.FormatException if it is malformed
         */
        PodGpuRequest request() {
            var requests = new ArrayList<ContainerGpuRequest>();
            for (Container container : initContainers) {
                ContainerGpuRequest.parse(container.name(), container.initKind(), container.limits())
                        .ifPresent(requests::add);
            }
            for (Container container : containers) {
                ContainerGpuRequest.parse(container.name(), ContainerKind.APP, container.limits())
                        .ifPresent(requests::add);
            }
            return PodGpuRequest.of(requests, wishes, preferences).withHostRequests(requests());
        }

        private HostResources requests() {
            var sum = new PodHostRequests();
            for (Container container : initContainers) {
                sum.add(container.initKind(), hostResources(container.requests()));
            }
            for (Container container : containers) {
                sum.add(ContainerKind.APP, hostResources(container.requests()));
            }
            if (podRequests.containsKey(CPU)) {
                sum.podCpu(hostResources(podRequests).cpuMillis());
            }
            if (podRequests.containsKey(MEMORY)) {
                sum.podMemory(hostResources(podRequests).memoryBytes());
            }
            sum.overhead(hostResources(overhead));
            return sum.total();
        }
    }

    /** A container; {@code restarts} marks a sidecar among the init containers. */
    record Container(String name, Map<String, String> limits, Map<String, String> requests, boolean restarts) {
        private ContainerKind initKind() {
            return restarts ? ContainerKind.SIDECAR : ContainerKind.INIT;
        }
    }

    private static HostResources hostResources(Map<String, String> amounts) {
        return new HostResources(amount(amounts.get(CPU), 3), amount(amounts.get(MEMORY), 0));
    }

    private static long amount(@Nullable String quantity, int digits) {
        return quantity == null
                ? 0
                : Quantity.parse(quantity).value().scaleByPowerOfTen(digits).longValue();
    }
}
