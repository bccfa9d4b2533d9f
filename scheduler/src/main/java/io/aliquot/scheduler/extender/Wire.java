package io.aliquot.scheduler.extender;

import com.fasterxml.jackson.annotation.JsonProperty;
import io.aliquot.api.PlacementPreferences;
import io.aliquot.api.Quantity;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.ContainerGpuRequest;
import io.aliquot.scheduler.placement.ContainerKind;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import tools.jackson.databind.PropertyNamingStrategies.UpperCamelCaseStrategy;
import tools.jackson.databind.annotation.JsonNaming;

/**
 * What kube-scheduler sends, read by {@link WireReader}, and what it is answered, in the JSON of
 * k8s.io/kube-scheduler/extender/v1, types.go. Of the pod only what we look at.
 */
final class Wire {
    private Wire() {}

    /** {@code nodeNames} is empty where kube-scheduler sends whole nodes. */
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
     * @param version of the object that kube-scheduler looks at, which may be an older one; 0 where it doesn't say
     * @param preferences whether it says what it would like, not only what it must have
     * @param nominatedNodeName where kube-scheduler has made room for it; empty if it hasn't
     */
    record Pod(
            PodId id,
            long version,
            PreemptionRank rank,
            Map<String, String> annotations,
            List<Container> initContainers,
            List<Container> containers,
            boolean preferences,
            String nominatedNodeName) {
        /**
         * What it has in common with others.
         *
         * @throws io.aliquot.api.FormatException where an annotation's value is unknown
         */
        Template template() {
            return new Template(initContainers, containers, PlacementPreferences.parse(annotations), preferences);
        }
    }

    /** Of a pod, all that decides what it asks for. */
    record Template(
            List<Container> initContainers,
            List<Container> containers,
            PlacementPreferences wishes,
            boolean preferences) {
        /**
         * What such a pod asks for.
         *
         * @throws io.aliquot.api.FormatException where that makes no sense
         */
        PodGpuRequest ask() {
            var asks = new ArrayList<ContainerGpuRequest>();
            for (Container container : initContainers) {
                var kind = container.restarts() ? ContainerKind.SIDECAR : ContainerKind.INIT;
                ContainerGpuRequest.parse(container.name(), kind, container.limits())
                        .ifPresent(asks::add);
            }
            for (Container container : containers) {
                ContainerGpuRequest.parse(container.name(), ContainerKind.APP, container.limits())
                        .ifPresent(asks::add);
            }
            return PodGpuRequest.of(asks, wishes, preferences).withHostRequests(requests());
        }

        /** Of CPU and memory, by all containers that run on. */
        private HostResources requests() {
            HostResources requests = HostResources.NONE;
            for (Container container : containers) {
                requests = requests.plus(container.load());
            }
            for (Container container : initContainers) {
                if (container.restarts()) {
                    requests = requests.plus(container.load());
                }
            }
            return requests;
        }
    }

    /** {@code restarts}: of an init container, whether it does not end before the next begins. */
    record Container(String name, Map<String, String> limits, Map<String, String> requests, boolean restarts) {
        HostResources load() {
            return new HostResources(request("cpu", 3), request("memory", 0));
        }

        private long request(String resource, int digits) {
            String amount = requests.get(resource);
            return amount == null
                    ? 0
                    : Quantity.parse(amount).value().scaleByPowerOfTen(digits).longValue();
        }
    }
}
