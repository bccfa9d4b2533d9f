package io.aliquot.scheduler.placement;

import io.aliquot.api.nodes.ForeignHolder;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.NodeSharing;
import io.aliquot.api.nodes.SharingMode;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.function.Predicate;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * The capacity of a node's GPUs: all that a selection needs of the node and that does not depend on a pod. Immutable;
 * two are equal if they were created from equal arguments.
 */
public final class NodeGpus {
    private final Inventory inventory;
    private final NodeSharing sharing;
    private final Set<String> cordoned;
    private final List<GpuCapacity> list;
    private final GpuTopology topology;

    /** GPUs that are all shared in the same way. */
    public NodeGpus(Inventory inventory, SharingMode sharingMode, Set<String> cordoned) {
        this(inventory, NodeSharing.all(sharingMode), cordoned);
    }

    /**
     * Computes the capacity of each GPU of an inventory.
     *
     * @param cordoned UUIDs of GPUs that take no new vGPUs; UUIDs that the inventory lacks are ignored, see
     *     {@link #unknown}
     */
    public NodeGpus(Inventory inventory, NodeSharing sharing, Set<String> cordoned) {
        this.inventory = inventory;
        this.sharing = sharing;
        this.cordoned = Set.copyOf(cordoned);
        List<Gpu> gpus = inventory.gpus();
        var topology = GpuTopology.of(gpus, sharing.mode() == SharingMode.TOPOLOGY);
        this.list = capacities(gpus, topology);
        this.topology = topology;
    }

    private List<GpuCapacity> capacities(List<Gpu> gpus, GpuTopology topology) {
        return IntStream.range(0, gpus.size())
                .mapToObj(position -> {
                    Gpu gpu = gpus.get(position);
                    return new GpuCapacity(
                            gpu,
                            sharing.mode(gpu),
                            inventory.allocatableMiB(gpu),
                            gpu.hasCapacity() ? inventory.allocatableCores() : 0,
                            gpu.hasCapacity() ? sharing.slots(gpu, inventory.slots()) : 0,
                            cordoned.contains(gpu.uuid()),
                            position,
                            topology);
                })
                .toList();
    }

    /**
     * The node's GPUs as {@link #list}, but holders whose amounts are counted do not close them. A list of holders that may
     * be incomplete still closes its GPU.
     *
     * @param counted tells the holders whose amounts are counted
     */
    public List<GpuCapacity> list(Predicate<ForeignHolder> counted) {
        List<Gpu> gpus = inventory.gpus().stream()
                .map(gpu -> gpu.heldBy().size() < Gpu.MOST_HOLDERS
                        ? gpu.withHolders(
                                gpu.heldBy().stream().filter(counted.negate()).toList())
                        : gpu)
                .toList();
        return gpus.equals(inventory.gpus()) ? list : capacities(gpus, topology);
    }

    /** The given UUIDs without those of the inventory's GPUs. */
    public static Set<String> unknown(Inventory inventory, Set<String> uuids) {
        var unknown = new HashSet<>(uuids);
        inventory.gpus().forEach(gpu -> unknown.remove(gpu.uuid()));
        return unknown;
    }

    /** The node's GPUs, in the order of the inventory. */
    public List<GpuCapacity> list() {
        return list;
    }

    public Inventory inventory() {
        return inventory;
    }

    public NodeSharing sharing() {
        return sharing;
    }

    @Override
    public boolean equals(@Nullable Object other) {
        return other instanceof NodeGpus that
                && inventory.equals(that.inventory)
                && sharing.equals(that.sharing)
                && cordoned.equals(that.cordoned);
    }

    @Override
    public int hashCode() {
        return Objects.hash(inventory, sharing, cordoned);
    }
}
