package io.aliquot.scheduler.ledger;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.pods.CorePolicy;
import io.aliquot.api.pods.Vgpu;
import io.aliquot.api.pods.Vgpus;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A change of one container's part of each of its GPUs; what is null stays as it is.
 *
 * @param memoryMiB device memory
 * @param cores percent of the GPU; 0 for no limit
 */
public record ContainerShareChange(
        String container,
        @Nullable Integer memoryMiB,
        @Nullable Integer cores,
        @Nullable CorePolicy policy) {
    /**
     * Applies changes to what a pod's containers hold.
     *
     * @throws FormatException if a container or amount does not exist, or a whole card would change
     */
    public static List<ContainerShare> apply(List<ContainerShareChange> changes, List<ContainerShare> shares) {
        for (ContainerShareChange change : changes) {
            if (shares.stream().noneMatch(share -> share.container().equals(change.container()))) {
                throw new FormatException("container " + change.container()
                        + " holds no GPU; those that do: "
                        + String.join(
                                ", ",
                                shares.stream().map(ContainerShare::container).toList()));
            }
        }
        var applied = new ArrayList<ContainerShare>();
        for (ContainerShare share : shares) {
            List<Vgpu> vgpus = share.vgpus().list();
            for (ContainerShareChange change : changes) {
                if (change.container().equals(share.container())) {
                    vgpus = vgpus.stream().map(change::apply).toList();
                }
            }
            applied.add(new ContainerShare(share.container(), share.kind(), new Vgpus(vgpus), share.ended()));
        }
        return applied;
    }

    private Vgpu apply(Vgpu vgpu) {
        if (vgpu.exclusive()) {
            throw new FormatException(
                    "container " + container + " has all of GPU " + vgpu.uuid() + ": a whole card cannot be resized");
        }
        return new Vgpu(
                vgpu.uuid(),
                memoryMiB == null ? vgpu.memoryMiB() : memoryMiB,
                cores == null ? vgpu.cores() : cores,
                policy == null ? vgpu.policy() : policy,
                vgpu.priority(),
                vgpu.contextMiB(),
                false);
    }
}
