package io.aliquot.scheduler.simulation;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.nodes.Inventory;
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
        return new SimulatedNode(name, facts, systemPods.plus(pod.request().hostRequests()));
    }

    public String name() {
        return name;
    }

    public Inventory inventory() {
        return facts.inventory();
    }

    /** The GPUs, in the order of the inventory. */
    public List<GpuCapacity> gpus() {
        return facts.gpus().list();
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
