package io.aliquot.scheduler.extender;

import com.fasterxml.jackson.annotation.JacksonAnnotationsInside;
import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.annotation.JsonProperty;
import io.aliquot.api.PodWishes;
import io.aliquot.api.Quantity;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.ContainerAsk;
import io.aliquot.scheduler.placement.ContainerKind;
import io.aliquot.scheduler.placement.HostLoad;
import io.aliquot.scheduler.placement.PodAsk;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.PropertyNamingStrategies.UpperCamelCaseStrategy;
import tools.jackson.databind.annotation.JsonDeserialize;
import tools.jackson.databind.annotation.JsonNaming;

/**
 * The JSON of k8s.io/kube-scheduler/extender/v1, types.go: Go's field names, since that package has no tags, around a
 * pod with the API's own names. Of the pod only what we look at.
 */
final class Wire {
    private Wire() {}

    /** Whatever the record doesn't name is skipped; Jackson would keep it until the record is made, and then drop it. */
    @JacksonAnnotationsInside
    @JsonIgnoreProperties(ignoreUnknown = true)
    @Retention(RetentionPolicy.RUNTIME)
    private @interface Excerpt {}

    @JsonNaming(UpperCamelCaseStrategy.class)
    @Excerpt
    record Args(
            Pod pod,

            @JsonDeserialize(using = NodeNames.class) @Nullable
            List<String> nodeNames) {
        Args {
            expect(pod, "Pod");
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
    @Excerpt
    record BindingArgs(String podName, String podNamespace, String podUID, String node) {
        BindingArgs {
            expect(podName, "PodName");
            expect(podNamespace, "PodNamespace");
            expect(podUID, "PodUID");
            expect(node, "Node");
        }
    }

    @JsonNaming(UpperCamelCaseStrategy.class)
    record BindingResult(String error) {}

    @JsonNaming(UpperCamelCaseStrategy.class)
    @Excerpt
    record PreemptionArgs(Pod pod, Map<String, MetaVictims> nodeNameToMetaVictims) {
        PreemptionArgs {
            expect(pod, "Pod");
            expect(nodeNameToMetaVictims, "NodeNameToMetaVictims");
        }
    }

    @JsonNaming(UpperCamelCaseStrategy.class)
    record PreemptionResult(Map<String, MetaVictims> nodeNameToMetaVictims) {}

    @JsonNaming(UpperCamelCaseStrategy.class)
    @Excerpt
    record MetaVictims(
            List<MetaPod> pods,
            @JsonProperty("NumPDBViolations") int numPdbViolations) {
        MetaVictims {
            pods = orEmpty(pods);
        }
    }

    @Excerpt
    record MetaPod(@JsonProperty("UID") String uid) {
        MetaPod {
            expect(uid, "UID");
        }
    }

    @Excerpt
    record Pod(Metadata metadata, Spec spec, Status status) {
        Pod {
            expect(metadata, "metadata");
            expect(spec, "spec");
            status = status == null ? new Status("") : status;
        }

        Rank rank() {
            return new Rank(spec.priority() == null ? 0 : spec.priority(), !"Never".equals(spec.preemptionPolicy()));
        }

        PodId id() {
            return new PodId(metadata.namespace(), metadata.name(), metadata.uid());
        }

        /**
         * What it has in common with others.
         *
         * @throws io.aliquot.api.FormatException where an annotation's value is unknown
         */
        Template template() {
            return new Template(
                    spec.initContainers(),
                    spec.containers(),
                    PodWishes.parse(metadata.annotations()),
                    spec.preferences());
        }
    }

    /** Of a pod, all that decides what it asks for. */
    record Template(List<Container> initContainers, List<Container> containers, PodWishes wishes, boolean preferences) {
        /**
         * What such a pod asks for.
         *
         * @throws io.aliquot.api.FormatException where that makes no sense
         */
        PodAsk ask() {
            var asks = new ArrayList<ContainerAsk>();
            for (Container container : initContainers) {
                var kind = container.runsOn() ? ContainerKind.SIDECAR : ContainerKind.INIT;
                ContainerAsk.parse(container.name(), kind, container.limits()).ifPresent(asks::add);
            }
            for (Container container : containers) {
                ContainerAsk.parse(container.name(), ContainerKind.APP, container.limits())
                        .ifPresent(asks::add);
            }
            return PodAsk.of(asks, wishes, preferences).requesting(requests());
        }

        /** Of CPU and memory, by all containers that run on. */
        private HostLoad requests() {
            HostLoad requests = HostLoad.NONE;
            for (Container container : containers) {
                requests = requests.plus(container.requests());
            }
            for (Container container : initContainers) {
                if (container.runsOn()) {
                    requests = requests.plus(container.requests());
                }
            }
            return requests;
        }
    }

    @Excerpt
    record Metadata(String name, String namespace, String uid, Map<String, String> annotations) {
        Metadata {
            expect(name, "metadata.name");
            expect(namespace, "metadata.namespace");
            expect(uid, "metadata.uid");
            annotations = orEmpty(annotations);
        }
    }

    @Excerpt
    record Spec(
            List<Container> containers,
            List<Container> initContainers,
            @Nullable Affinity affinity,
            List<Spread> topologySpreadConstraints,
            @Nullable Integer priority,
            @Nullable String preemptionPolicy) {
        Spec {
            containers = orEmpty(containers);
            initContainers = orEmpty(initContainers);
            topologySpreadConstraints = orEmpty(topologySpreadConstraints);
        }

        /** Whether the pod says what it would like, not only what it must have. */
        boolean preferences() {
            return (affinity != null && affinity.preferences())
                    || topologySpreadConstraints.stream()
                            .anyMatch(spread -> "ScheduleAnyway".equals(spread.whenUnsatisfiable()));
        }
    }

    /** {@code nominatedNodeName} is where kube-scheduler has made room for the pod; empty if it hasn't. */
    @Excerpt
    record Status(String nominatedNodeName) {
        Status {
            nominatedNodeName = nominatedNodeName == null ? "" : nominatedNodeName;
        }
    }

    @Excerpt
    record Container(String name, @Nullable Resources resources, String restartPolicy) {
        Container {
            expect(name, "a container's name");
            restartPolicy = restartPolicy == null ? "" : restartPolicy;
        }

        /** Of an init container, whether it does not end before the next begins. */
        boolean runsOn() {
            return restartPolicy.equals("Always");
        }

        Map<String, String> limits() {
            return resources == null ? Map.of() : resources.limits();
        }

        HostLoad requests() {
            return resources == null
                    ? HostLoad.NONE
                    : new HostLoad(resources.request("cpu", 3), resources.request("memory", 0));
        }
    }

    @Excerpt
    record Resources(Map<String, String> limits, Map<String, String> requests) {
        Resources {
            limits = orEmpty(limits);
            requests = orEmpty(requests);
        }

        private long request(String resource, int digits) {
            String amount = requests.get(resource);
            return amount == null
                    ? 0
                    : Quantity.parse(amount).value().scaleByPowerOfTen(digits).longValue();
        }
    }

    @Excerpt
    record Affinity(
            @Nullable Terms nodeAffinity,
            @Nullable Terms podAffinity,
            @Nullable Terms podAntiAffinity) {
        boolean preferences() {
            return some(nodeAffinity) || some(podAffinity) || some(podAntiAffinity);
        }

        private static boolean some(@Nullable Terms terms) {
            return terms != null
                    && !terms.preferredDuringSchedulingIgnoredDuringExecution().isEmpty();
        }
    }

    @Excerpt
    record Terms(List<JsonNode> preferredDuringSchedulingIgnoredDuringExecution) {
        Terms {
            preferredDuringSchedulingIgnoredDuringExecution = orEmpty(preferredDuringSchedulingIgnoredDuringExecution);
        }
    }

    @Excerpt
    record Spread(@Nullable String whenUnsatisfiable) {}

    private static void expect(@Nullable Object field, String name) {
        if (field == null) {
            throw new IllegalArgumentException("expected " + name + ", found none");
        }
    }

    private static <T> List<T> orEmpty(@Nullable List<T> list) {
        return list == null ? List.of() : list;
    }

    private static Map<String, String> orEmpty(@Nullable Map<String, String> map) {
        return map == null ? Map.of() : map;
    }
}
