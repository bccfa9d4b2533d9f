package io.aliquot.api.usage;

import static io.aliquot.api.format.FormatException.expect;

import com.fasterxml.jackson.annotation.JsonUnwrapped;
import io.aliquot.api.format.GpuUuids;
import io.aliquot.api.pods.CorePolicy;
import io.aliquot.api.pods.Held;
import io.aliquot.api.pods.Priority;
import java.util.List;
import java.util.OptionalInt;

/**
 * What the scheduler's ledger says of a node: the body of its request for a {@link UsageReport}, JSON. The node's agent
 * shows it as metrics, so that the metrics of the scheduler do not grow with the number of GPUs and containers.
 *
 * @param gpus each GPU once, at most {@value UsageReport#MOST_GPUS}
 * @param limits each container that has not ended and GPU once, at most {@value UsageReport#MOST_CONTAINERS}
 * @param pods each pod once, at most {@value UsageReport#MOST_CONTAINERS}
 */
public record NodeAllocation(List<OfGpu> gpus, List<Limit> limits, List<OfPod> pods) {
    /** Of compute, the unit is a percent of a whole GPU. */
    public record Amount(long memoryMiB, int cores, int slots) {}

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
            @JsonUnwrapped PodContainer container,
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
        expect(
                pods.size() <= UsageReport.MOST_CONTAINERS,
                "at most " + UsageReport.MOST_CONTAINERS + " pods",
                pods.size());
    }

    /** Throws a {@link io.aliquot.api.format.FormatException} that names the field which is wrong. */
    public static NodeAllocation parse(String text) {
        return AgentJson.parse(NodeAllocation.class, text);
    }

    public String print() {
        return AgentJson.print(this);
    }
}
