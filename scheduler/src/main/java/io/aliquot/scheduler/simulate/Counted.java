package io.aliquot.scheduler.simulate;

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
record Counted(HostResources host, long vgpus, long mebibytes, long percent, long cores) {
    private static final Counted NONE = of(HostResources.NONE);

    private static Counted of(HostResources host) {
        return new Counted(host, 0, 0, 0, 0);
    }

    /** What a node has for pods, as its agent and its kubelet tell. */
    static Counted of(Node node) {
        Inventory inventory = node.facts().inventory();
        Map<String, Long> totals =
                inventory.extendedResources(node.facts().cards().share());
        return new Counted(
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
    static Counted of(PodGpuRequest pod) {
        Counted most = NONE;
        Counted running = NONE;
        for (ContainerGpuRequest container : pod.containers()) {
            Counted now = running.plus(of(container.request()));
            most = most.max(now);
            if (container.kind() != ContainerKind.INIT) {
                running = now;
            }
        }
        return most.plus(of(pod.requests()));
    }

    private static Counted of(GpuRequest request) {
        return new Counted(
                HostResources.NONE,
                request.vgpus(),
                request.memory() instanceof Mebibytes memory ? memory.amount() : 0,
                request.memory() instanceof Percentage memory ? memory.percent() : 0,
                request.cores());
    }

    private Counted max(Counted other) {
        return new Counted(
                host,
                Math.max(vgpus, other.vgpus),
                Math.max(mebibytes, other.mebibytes),
                Math.max(percent, other.percent),
                Math.max(cores, other.cores));
    }

    Counted plus(Counted other) {
        return new Counted(
                host.plus(other.host),
                vgpus + other.vgpus,
                mebibytes + other.mebibytes,
                percent + other.percent,
                cores + other.cores);
    }

    Counted minus(Counted other) {
        return new Counted(
                host.minus(other.host),
                vgpus - other.vgpus,
                mebibytes - other.mebibytes,
                percent - other.percent,
                cores - other.cores);
    }

    /** Whether a pod that requests this finds it here. */
    boolean holds(Counted pod) {
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
