package io.aliquot.deviceplugin.attribution;

import io.aliquot.api.names.Resources;
import io.aliquot.deviceplugin.kubelet.DeviceHolders;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/**
 * Which container holds which slot, as the kubelet's PodResources says. Asks again periodically, and at once for a
 * container that is not known. While the kubelet does not answer, its last answer stands.
 *
 * <p>Not thread-safe.
 */
public final class SlotHolders {
    private static final Duration LONGEST_AGE = Duration.ofSeconds(5);

    private static final int MOST_WITHOUT_SLOT = 1000;

    private final Supplier<DeviceHolders> podResources;
    private final LongSupplier nanoTime;
    private Map<ContainerName, String> slots = Map.of();
    private Set<String> pods = Set.of();

    /** Containers that use a GPU without a slot: asking for them again at once would not help. */
    private final Set<ContainerName> withoutSlot = new HashSet<>();

    private boolean askNow = true;
    private long askedAt;

    /** Asks nothing yet. */
    public SlotHolders(Supplier<DeviceHolders> podResources, LongSupplier nanoTime) {
        this.podResources = podResources;
        this.nanoTime = nanoTime;
    }

    /** The slot of each container that holds vGPUs, which names the container's region; of several the first. */
    public Map<ContainerName, String> current() {
        long now = nanoTime.getAsLong();
        if (askNow || now - askedAt > LONGEST_AGE.toNanos()) {
            askNow = false;
            askedAt = now;
            if (podResources.get() instanceof DeviceHolders.Known known) {
                read(known);
            }
        }
        return slots;
    }

    /** Whether a container has appeared that the kubelet's last answer may lack. */
    public boolean isOutdated() {
        return askNow;
    }

    /**
     * Whether a container, or another container of its pod, holds vGPUs. PodResources leaves out init containers, which use
     * the slots of their pod.
     */
    public boolean holdsVgpu(ContainerName container) {
        if (pods.contains(pod(container))) {
            return true;
        }
        askNow |= withoutSlot.add(container);
        return false;
    }

    private void read(DeviceHolders.Known known) {
        Map<ContainerName, String> found = new TreeMap<>();
        Set<String> holders = new HashSet<>();
        Map<String, ContainerName> ofSlot = new HashMap<>();
        for (DeviceHolders.Holder holder : known.list()) {
            Optional<String> first = holder.deviceIds().stream().sorted().findFirst();
            int slash = holder.pod().indexOf('/');
            if (holder.resource().equals(Resources.VGPU) && first.isPresent() && slash > 0) {
                var container = new ContainerName(
                        holder.pod().substring(0, slash), holder.pod().substring(slash + 1), holder.container());
                holders.add(holder.pod());
                ContainerName other = ofSlot.put(first.get(), container);
                found.put(container, first.get());
                if (other != null) {
                    // Older kubelets still list a pod that has ended, and nothing tells which of the two pods has.
                    found.remove(other);
                    found.remove(container);
                }
            }
        }
        slots = found;
        pods = holders;
        if (withoutSlot.size() > MOST_WITHOUT_SLOT) {
            withoutSlot.clear(); // most of them have ended
        }
    }

    private static String pod(ContainerName container) {
        return container.namespace() + "/" + container.pod();
    }
}
