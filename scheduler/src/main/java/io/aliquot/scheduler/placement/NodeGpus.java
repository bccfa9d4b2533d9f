package io.aliquot.scheduler.placement;

import io.aliquot.api.Gpu;
import io.aliquot.api.Inventory;
import io.aliquot.api.SharingMode;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * The GPUs of a node as it offers them, with everything worked out that doesn't depend on a pod. Immutable; two are
 * equal if they were made of equal things.
 */
public final class NodeGpus {
    private final Inventory inventory;
    private final SharingMode share;
    private final Set<String> cordoned;
    private final List<GpuCapacity> list;

    /**
     * Cards.
     *
     * @param cordoned UUIDs of GPUs that take no new share; those that the node doesn't have are passed over, see
     *     {@link #unknown}
     */
    public NodeGpus(Inventory inventory, SharingMode share, Set<String> cordoned) {
        this.inventory = inventory;
        this.share = share;
        this.cordoned = Set.copyOf(cordoned);
        List<Gpu> gpus = inventory.gpus();
        var wiring = GpuTopology.of(gpus);
        this.list = IntStream.range(0, gpus.size())
                .mapToObj(place -> new GpuCapacity(
                        gpus.get(place),
                        share,
                        inventory.allocatableMiB(gpus.get(place)),
                        inventory.allocatableCores(),
                        inventory.slots(),
                        cordoned.contains(gpus.get(place).uuid()),
                        place,
                        wiring))
                .toList();
    }

    /** Those of {@code uuids} that are none of the inventory's. */
    public static Set<String> unknown(Inventory inventory, Set<String> uuids) {
        var unknown = new HashSet<>(uuids);
        inventory.gpus().forEach(gpu -> unknown.remove(gpu.uuid()));
        return unknown;
    }

    /** In the inventory's order. */
    public List<GpuCapacity> list() {
        return list;
    }

    public Inventory inventory() {
        return inventory;
    }

    public SharingMode share() {
        return share;
    }

    @Override
    public boolean equals(@Nullable Object other) {
        return other instanceof NodeGpus cards
                && inventory.equals(cards.inventory)
                && share == cards.share
                && cordoned.equals(cards.cordoned);
    }

    @Override
    public int hashCode() {
        return Objects.hash(inventory, share, cordoned);
    }

    @Override
    public String toString() {
        return share.print() + " " + inventory.print() + " without " + cordoned;
    }
}
