package io.aliquot.simulator;

import io.aliquot.api.names.Resources;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.pods.GpuRequest;
import io.aliquot.api.pods.MemoryRequest.Mebibytes;
import io.aliquot.api.pods.MemoryRequest.Percentage;
import io.aliquot.scheduler.simulation.PodRequest;
import io.aliquot.scheduler.simulation.SimulatedNode;
import java.util.Map;
import java.util.Objects;

/**
 * Amounts of the resources that kube-scheduler itself compares: free on a node, or requested by a pod. kube-scheduler
 * counts an extended resource as written in the manifest: once per container, not once per vGPU.
 */
record ResourceVector(long cpuMillis, long memoryBytes, long vgpus, long gpuMiB, long gpuMemoryPercent, long gpuCores) {
    /** What an empty node has for pods, as its agent and its kubelet report it. */
    static ResourceVector of(SimulatedNode node) {
        Inventory inventory = node.inventory();
        Map<String, Long> totals = node.extendedResources();
        return new ResourceVector(
                node.cpuMillis(),
                node.memoryBytes(),
                inventory.gpus().stream().filter(Gpu::healthy).count() * inventory.slots(),
                total(totals, Resources.MEMORY),
                total(totals, Resources.MEMORY_PERCENTAGE),
                total(totals, Resources.CORES));
    }

    private static long total(Map<String, Long> totals, String resource) {
        return Objects.requireNonNull(totals.get(resource));
    }

    /** What a pod requests: the maximum over the containers that run at one time. */
    static ResourceVector of(PodRequest pod) {
        return new ResourceVector(
                pod.cpuMillis(),
                pod.memoryBytes(),
                pod.peak(GpuRequest::vgpus),
                pod.peak(gpu -> gpu.memory() instanceof Mebibytes memory ? memory.amount() : 0),
                pod.peak(gpu -> gpu.memory() instanceof Percentage memory ? memory.percent() : 0),
                pod.peak(GpuRequest::cores));
    }

    ResourceVector plus(ResourceVector other) {
        return new ResourceVector(
                cpuMillis + other.cpuMillis,
                memoryBytes + other.memoryBytes,
                vgpus + other.vgpus,
                gpuMiB + other.gpuMiB,
                gpuMemoryPercent + other.gpuMemoryPercent,
                gpuCores + other.gpuCores);
    }

    ResourceVector minus(ResourceVector other) {
        return new ResourceVector(
                cpuMillis - other.cpuMillis,
                memoryBytes - other.memoryBytes,
                vgpus - other.vgpus,
                gpuMiB - other.gpuMiB,
                gpuMemoryPercent - other.gpuMemoryPercent,
                gpuCores - other.gpuCores);
    }

    /** Whether a pod with these requests fits into this free capacity. */
    boolean fits(ResourceVector pod) {
        return fits(cpuMillis, pod.cpuMillis)
                && fits(memoryBytes, pod.memoryBytes)
                && fits(vgpus, pod.vgpus)
                && fits(gpuMiB, pod.gpuMiB)
                && fits(gpuMemoryPercent, pod.gpuMemoryPercent)
                && fits(gpuCores, pod.gpuCores);
    }

    /** A request of zero fits even where the free amount is negative. */
    private static boolean fits(long free, long requested) {
        return requested == 0 || requested <= free;
    }
}
