package io.aliquot.simulator;

import io.aliquot.api.Gpu;
import io.aliquot.api.GpuRequest;
import io.aliquot.api.Inventory;
import io.aliquot.api.MemoryRequest.Mebibytes;
import io.aliquot.api.MemoryRequest.Percentage;
import io.aliquot.api.Resources;
import io.aliquot.scheduler.placement.ContainerGpuRequest;
import io.aliquot.scheduler.placement.ContainerKind;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.Map;
import java.util.Objects;

/**
 * What kube-scheduler itself counts: what a node has, or what a pod requests. Of GPUs it takes the amounts as they are
 * written, once for all vGPUs of a container.
 */
record ResourceVector(HostResources host, long vgpus, long mebibytes, long percent, long cores) {
    private static final ResourceVector NONE = of(HostResources.NONE);

    private static ResourceVector of(HostResources host) {
        return new ResourceVector(host, 0, 0, 0, 0);
    }

    /** What a node has for pods, as its agent and its kubelet tell. */
    static ResourceVector of(Node node) {
        Inventory inventory = node.facts().inventory();
        Map<String, Long> totals = inventory.totals(node.facts().cards().share());
        return new ResourceVector(
                node.facts().allocatable().minus(node.own()),
                inventory.gpus().stream().filter(Gpu::healthy).count() * inventory.slots(),
                total(totals, Resources.MEMORY),
                total(totals, Resources.MEMORY_PERCENTAGE),
                total(totals, Resources.CORES));
    }

    private static long total(Map<String, Long> totals, String resource) {
        return Objects.requireNonNull(totals.get(resource));
    }

    /** What a pod requests: of all containers that run at one time the most. */
    static ResourceVector of(PodGpuRequest pod) {
        ResourceVector most = NONE;
        ResourceVector running = NONE;
        for (ContainerGpuRequest container : pod.containers()) {
            ResourceVector now = running.plus(of(container.request()));
            most = most.max(now);
            if (container.kind() != ContainerKind.INIT) {
                running = now;
            }
        }
        return most.plus(of(pod.requests()));
    }

    private static ResourceVector of(GpuRequest request) {
        return new ResourceVector(
                HostResources.NONE,
                request.vgpus(),
                request.memory() instanceof Mebibytes memory ? memory.amount() : 0,
                request.memory() instanceof Percentage memory ? memory.percent() : 0,
                request.cores());
    }

    private ResourceVector max(ResourceVector other) {
        return new ResourceVector(
                host,
                Math.max(vgpus, other.vgpus),
                Math.max(mebibytes, other.mebibytes),
                Math.max(percent, other.percent),
                Math.max(cores, other.cores));
    }

    ResourceVector plus(ResourceVector other) {
        return new ResourceVector(
                host.plus(other.host),
                vgpus + other.vgpus,
                mebibytes + other.mebibytes,
                percent + other.percent,
                cores + other.cores);
    }

    ResourceVector minus(ResourceVector other) {
        return new ResourceVector(
                host.minus(other.host),
                vgpus - other.vgpus,
                mebibytes - other.mebibytes,
                percent - other.percent,
                cores - other.cores);
    }

    /** Whether a pod that requests this finds it here. */
    boolean holds(ResourceVector pod) {
        return holds(host.cpuMillis(), pod.host.cpuMillis())
                && holds(host.memoryBytes(), pod.host.memoryBytes())
                && holds(vgpus, pod.vgpus)
                && holds(mebibytes, pod.mebibytes)
                && holds(percent, pod.percent)
                && holds(cores, pod.cores);
    }

    /** Who asks for nothing fits where there is less than nothing, too. */
    private static boolean holds(long left, long requested) {
        return requested == 0 || requested <= left;
    }
}
