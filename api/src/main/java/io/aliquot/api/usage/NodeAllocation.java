package io.aliquot.api.usage;

import static io.aliquot.api.names.JsonFields.expect;
import static io.aliquot.api.names.JsonFields.field;
import static io.aliquot.api.names.JsonFields.integer;
import static io.aliquot.api.names.JsonFields.list;
import static io.aliquot.api.names.JsonFields.optionalText;
import static io.aliquot.api.names.JsonFields.text;
import static io.aliquot.api.names.JsonFields.truth;
import static io.aliquot.api.names.JsonFields.versioned;
import static io.aliquot.api.names.JsonFields.whole;

import io.aliquot.api.names.CorePolicy;
import io.aliquot.api.names.FormatException;
import io.aliquot.api.names.GpuUuids;
import io.aliquot.api.names.Held;
import io.aliquot.api.names.JsonFields;
import io.aliquot.api.names.Priority;
import java.util.List;
import java.util.OptionalInt;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.ObjectNode;

/**
 * What the scheduler's ledger says of a node: the body of its request for a {@link UsageReport}, JSON. The node's agent
 * shows it as metrics, so that the metrics of the scheduler do not grow with the number of GPUs and containers.
 *
 * @param gpus each GPU once, at most {@value UsageReport#MOST_GPUS}
 * @param limits each container that has not ended and GPU once, at most {@value UsageReport#MOST_CONTAINERS}
 * @param pods each pod once, at most {@value UsageReport#MOST_CONTAINERS}
 */
public record NodeAllocation(List<OfGpu> gpus, List<Limit> limits, List<OfPod> pods) {
    private static final int VERSION = 1;

    /** Of compute, the unit is a percent of a whole GPU. */
    public record Amount(long memoryMiB, int cores, int slots) {
        private static Amount parse(JsonNode amount) {
            return new Amount(whole(amount, "memoryMiB"), integer(amount, "cores"), integer(amount, "slots"));
        }

        private void print(ObjectNode object) {
            object.put("memoryMiB", memoryMiB).put("cores", cores).put("slots", slots);
        }
    }

    /**
     * A GPU.
     *
     * @param capacity for vGPUs
     * @param allocated to pods
     * @param schedulable whether it takes new vGPUs
     */
    public record OfGpu(String gpu, String model, Amount capacity, Amount allocated, boolean schedulable) {
        public OfGpu {
            GpuUuids.check(gpu);
        }
    }

    /**
     * What a pod holds of all GPUs together, by Kubernetes' rule for containers that do not run at the same time.
     *
     * @param cores percent of a GPU
     */
    public record OfPod(String namespace, String pod, long memoryMiB, int cores) {
        public OfPod {
            PodContainer.check("a namespace", namespace, 1);
            PodContainer.check("a pod", pod, 1);
        }
    }

    /**
     * What a container may use of a GPU.
     *
     * @param cores percent of the GPU, 0 to 100; 0: no limit, or with the policy elastic none of its own
     * @param policy whether it may use more compute than its cores
     * @param priority whether its kernels go before others', or after them
     * @param held whether it is a share of the GPU or the whole card
     */
    public record Limit(
            PodContainer container,
            String gpu,
            long memoryMiB,
            int cores,
            CorePolicy policy,
            Priority priority,
            Held held) {
        public Limit {
            GpuUuids.check(gpu);
            expect(cores >= 0 && cores <= 100, "cores from 0 to 100", cores);
        }

        /** Percent of the GPU's time that the container has whatever others do; empty if its time is not limited. */
        public OptionalInt ownCores() {
            return policy.limits(cores) ? OptionalInt.of(cores) : OptionalInt.empty();
        }

        /** Whether the container may use GPU time that others leave. */
        public boolean mayUseIdleTime() {
            return policy == CorePolicy.ELASTIC || ownCores().isEmpty();
        }
    }

    public NodeAllocation {
        gpus = List.copyOf(gpus);
        limits = List.copyOf(limits);
        pods = List.copyOf(pods);
        expect(gpus.size() <= UsageReport.MOST_GPUS, "at most " + UsageReport.MOST_GPUS + " GPUs", gpus.size());
        expect(
                limits.size() <= UsageReport.MOST_CONTAINERS,
                "at most " + UsageReport.MOST_CONTAINERS + " limits",
                limits.size());
    }

    /** Throws a {@link FormatException} that names the field which is wrong. */
    public static NodeAllocation parse(String text) {
        JsonNode root = versioned("a scheduler's allocation of a node", text, VERSION);
        return new NodeAllocation(
                list(root, "gpus", UsageReport.MOST_GPUS, NodeAllocation::gpu),
                list(root, "limits", UsageReport.MOST_CONTAINERS, NodeAllocation::limit),
                root.has("pods") // a scheduler of version 0.1 sends none
                        ? list(root, "pods", UsageReport.MOST_CONTAINERS, NodeAllocation::pod)
                        : List.of());
    }

    private static OfGpu gpu(JsonNode gpu) {
        return new OfGpu(
                text(gpu, "gpu"),
                text(gpu, "model"),
                Amount.parse(field(gpu, "capacity")),
                Amount.parse(field(gpu, "allocated")),
                truth(gpu, "schedulable"));
    }

    private static OfPod pod(JsonNode pod) {
        return new OfPod(text(pod, "namespace"), text(pod, "pod"), whole(pod, "memoryMiB"), integer(pod, "cores"));
    }

    private static Limit limit(JsonNode limit) {
        String policy = optionalText(limit, "policy"); // a scheduler of version 0.1 sends neither
        String priority = optionalText(limit, "priority");
        return new Limit(
                PodContainer.parse(limit),
                text(limit, "gpu"),
                whole(limit, "memoryMiB"),
                integer(limit, "cores"),
                policy.isEmpty() ? CorePolicy.FIXED : CorePolicy.parse("policy", policy),
                priority.isEmpty() ? Priority.NORMAL : Priority.parse("priority", priority),
                Held.parse(optionalText(limit, "held")));
    }

    public String print() {
        ObjectNode root = JsonFields.JSON.createObjectNode().put("version", VERSION);
        ArrayNode ofGpus = root.putArray("gpus");
        gpus.forEach(gpu -> {
            ObjectNode object = ofGpus.addObject().put("gpu", gpu.gpu).put("model", gpu.model);
            gpu.capacity.print(object.putObject("capacity"));
            gpu.allocated.print(object.putObject("allocated"));
            object.put("schedulable", gpu.schedulable);
        });
        ArrayNode ofContainers = root.putArray("limits");
        limits.forEach(limit -> {
            ObjectNode object = ofContainers.addObject();
            limit.container.print(object);
            object.put("gpu", limit.gpu)
                    .put("memoryMiB", limit.memoryMiB)
                    .put("cores", limit.cores)
                    .put("policy", limit.policy.print())
                    .put("priority", limit.priority.print())
                    .put("held", limit.held.print());
        });
        ArrayNode ofPods = root.putArray("pods");
        pods.forEach(pod -> ofPods.addObject()
                .put("namespace", pod.namespace)
                .put("pod", pod.pod)
                .put("memoryMiB", pod.memoryMiB)
                .put("cores", pod.cores));
        return root.toString();
    }
}
