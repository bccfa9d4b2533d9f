package io.aliquot.scheduler.simulation;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.SharingMode;
import io.aliquot.api.pods.Placement;
import io.aliquot.scheduler.apiserver.reader.NodeReader;
import io.aliquot.scheduler.ledger.NodeFacts.Sharing;
import io.aliquot.scheduler.ledger.NodeFacts.Unavailable;
import io.aliquot.scheduler.placement.GpuCapacity;
import io.aliquot.scheduler.placement.HostResources;
import io.fabric8.kubernetes.api.model.Node;
import java.util.List;
import java.util.Map;

/** A node that shares its GPUs. Immutable. */
public final class SimulatedNode {
    private static final NodeReader READER = new NodeReader(Placement.BINPACK);

    private final String name;
    final Sharing facts;
    /** Requests of the pods that stay on the node, such as those of DaemonSets. */
    final HostResources systemPods;

    private SimulatedNode(String name, Sharing facts, HostResources systemPods) {
        this.name = name;
        this.facts = facts;
        this.systemPods = systemPods;
    }

    /**
     * A GPU as its node offers it.
     *
     * @param memoryMiB sold on it, scaling included
     * @param cores percent of compute sold on it, scaling included
     * @param slots vGPUs at most
     */
    public record OfferedGpu(Gpu gpu, SharingMode sharing, long memoryMiB, int cores, int slots, boolean cordoned) {
        private static OfferedGpu of(GpuCapacity capacity) {
            return new OfferedGpu(
                    capacity.gpu(),
                    capacity.sharingMode(),
                    capacity.memoryMiB(),
                    capacity.cores(),
                    capacity.slots(),
                    capacity.cordoned() || !capacity.gpu().heldBy().isEmpty());
        }

        /** Whether the GPU takes new pods: it is healthy and not cordoned. */
        public boolean schedulable() {
            return gpu.healthy() && !cordoned;
        }
    }

    /**
     * A node that shares its GPUs by memory and compute.
     *
     * @param cpuMillis allocatable CPU in thousandths of a core
     * @param memoryBytes allocatable memory
     */
    public static SimulatedNode of(String name, Inventory inventory, long cpuMillis, long memoryBytes) {
        var allocatable = new HostResources(cpuMillis, memoryBytes);
        return new SimulatedNode(name, new Sharing(inventory, Placement.BINPACK, allocatable), HostResources.NONE);
    }

    /**
     * Reads a node as the scheduler does: labels, annotations and allocatable.
     *
     * @throws FormatException if the node does not share GPUs; the message is the reason
     */
    public static SimulatedNode read(Node node) {
        NodeReader.Reading reading = READER.read(node);
        return switch (reading.facts()) {
            case Sharing sharing -> new SimulatedNode(node.getMetadata().getName(), sharing, HostResources.NONE);
            case Unavailable unavailable ->
                throw new FormatException(reading.problem().isEmpty() ? unavailable.reason() : reading.problem());
        };
    }

    /** The same node with one more pod that stays on it. */
    public SimulatedNode withSystemPod(PodRequest pod) {
        return new SimulatedNode(name, facts, systemPods.plus(pod.request.hostRequests()));
    }

    public String name() {
        return name;
    }

    public Inventory inventory() {
        return facts.inventory();
    }

    /** The GPUs, in the order of the inventory. */
    public List<OfferedGpu> gpus() {
        return facts.gpus().list().stream().map(OfferedGpu::of).toList();
    }

    /** Amounts of the extended resources that the node reports to kube-scheduler, by their names. */
    public Map<String, Long> extendedResources() {
        return inventory().extendedResources(facts.gpus().sharing());
    }

    /** Allocatable CPU less the requests of the pods that stay on the node. */
    public long cpuMillis() {
        return free().cpuMillis();
    }

    /** Allocatable memory less the requests of the pods that stay on the node. */
    public long memoryBytes() {
        return free().memoryBytes();
    }

    HostResources free() {
        return facts.allocatable().minus(systemPods);
    }
}
