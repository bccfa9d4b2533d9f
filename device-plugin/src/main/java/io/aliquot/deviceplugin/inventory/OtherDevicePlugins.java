package io.aliquot.deviceplugin.inventory;

import io.aliquot.api.foreign.ForeignResources;
import io.aliquot.api.foreign.HamiRegistration;
import io.aliquot.api.format.FormatException;
import io.aliquot.api.names.Labels;
import io.aliquot.api.nodes.ForeignHolder;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.deviceplugin.kubelet.DeviceHolders;
import io.aliquot.deviceplugin.node.DraDevice;
import io.aliquot.deviceplugin.node.NodeView;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * What other device plugins and drivers of dynamic resource allocation do on this node with the GPUs that Aliquot is to share. While one of them advertises GPUs, the
 * node takes no pods, because neither plugin knows what the other gives away. When it has gone, its running pods keep
 * their GPUs: those count as wholly held until the pods end.
 *
 * <p>A plugin is recognized by its resource in the Node's allocatable, which the kubelet sets to 0 when the plugin's
 * connection ends (pkg/kubelet/cm/devicemanager, GetCapacity). A socket file that a killed plugin left is no plugin. HAMi's
 * is recognized by its registration as well, which it keeps while its plugin restarts.
 */
public final class OtherDevicePlugins {
    private static final Pattern HAMI = Pattern.compile("GPU-[0-9a-f-]{36}-[0-9]+");

    private OtherDevicePlugins() {}

    /**
     * Adds to an inventory what other device plugins do.
     *
     * @param inventory as NVML and the administrator's settings make it
     * @param previous as last published; its holders and its conflict count while the kubelet does not answer
     * @param published devices of drivers of dynamic resource allocation
     * @param counted whether the kubelet has answered since the agent started; until then, a plugin may have come and gone
     *     unseen
     */
    public static Inventory in(
            Inventory inventory,
            Optional<Inventory> previous,
            NodeView node,
            List<DraDevice> published,
            DeviceHolders holders,
            boolean counted) {
        Set<String> drivers = gpuDrivers(inventory.gpus(), published);
        List<Gpu> gpus = switch (holders) {
            case DeviceHolders.Known known -> held(inventory.gpus(), ofOthers(known.list(), published, drivers));
            case DeviceHolders.Unavailable unavailable ->
                held(
                        inventory.gpus(),
                        previousHolders(previous.map(Inventory::gpus).orElse(List.of())));
        };
        return inventory.withGpus(gpus).withConflict(conflict(gpus, previous, node, drivers, holders, counted));
    }

    private static String conflict(
            List<Gpu> gpus,
            Optional<Inventory> previous,
            NodeView node,
            Set<String> drivers,
            DeviceHolders holders,
            boolean counted) {
        if (HamiRegistration.isOn(node.annotations())) {
            return Inventory.HAMI + " (annotation " + HamiRegistration.REGISTER
                    + "); give Aliquot's nodes another label by the chart value nodeLabel, or remove HAMi from this node,"
                    + " and then the annotation";
        }
        Optional<String> advertised = foreignResource(node.allocatable(), 1);
        if (advertised.isPresent()) {
            return "another device plugin advertises " + advertised.get()
                    + " on this node; remove it from the node, with the GPU Operator by the node's label "
                    + Labels.OPERATOR_PLUGIN + "=" + Labels.OPERATOR_PLUGIN_OFF;
        }
        if (!drivers.isEmpty()) {
            return "the DRA driver " + drivers.iterator().next()
                    + " publishes this node's GPUs in ResourceSlices; keep it off"
                    + " this node, with the GPU Operator by the node's label " + Labels.OPERATOR_DRA_DRIVER + "="
                    + Labels.OPERATOR_PLUGIN_OFF;
        }
        // The kubelet forgets a resource 5 minutes after its plugin has gone; the former conflict outlasts that.
        boolean mayBeHeld = !counted
                || foreignResource(node.capacity(), 0).isPresent()
                || previous.filter(before -> !before.conflict().isEmpty()).isPresent()
                || gpus.stream().anyMatch(gpu -> !gpu.heldBy().isEmpty());
        return holders instanceof DeviceHolders.Unavailable unavailable && mayBeHeld
                ? "pods of another device plugin may hold this node's GPUs, and they cannot be counted: "
                        + unavailable.reason()
                : "";
    }

    /** One of another device plugin's resources with at least this amount: one shows what is wrong. */
    private static Optional<String> foreignResource(Map<String, Long> amounts, long least) {
        return amounts.entrySet().stream()
                .filter(entry -> entry.getValue() >= least && ForeignResources.servedByOtherPlugins(entry.getKey()))
                .map(Map.Entry::getKey)
                .min(Comparator.naturalOrder());
    }

    /** The drivers that publish GPUs of the node, by name: NVIDIA's, and any whose devices have the UUID of a GPU. */
    private static Set<String> gpuDrivers(List<Gpu> gpus, List<DraDevice> published) {
        return published.stream()
                .filter(device -> device.driver().equals(DeviceHolders.NVIDIA_DRIVER)
                        || gpus.stream().map(Gpu::uuid).anyMatch(device.gpus()::contains))
                .map(DraDevice::driver)
                .collect(Collectors.toCollection(TreeSet::new));
    }

    /**
     * Who holds GPUs by other device plugins and by claims; of a claim's device the UUIDs, if it is still published. A driver
     * withdraws its slices when it ends, and its claims stay.
     */
    private static List<DeviceHolders.Holder> ofOthers(
            List<DeviceHolders.Holder> holders, List<DraDevice> published, Set<String> drivers) {
        var others = new ArrayList<DeviceHolders.Holder>();
        for (DeviceHolders.Holder holder : holders) {
            if (ForeignResources.servedByOtherPlugins(holder.resource())) {
                others.add(holder);
            } else if (holder.resource().equals(DeviceHolders.NVIDIA_DRIVER) || drivers.contains(holder.resource())) {
                List<String> ids = holder.deviceIds().stream()
                        .flatMap(id -> gpusOf(holder.resource(), id, published))
                        .toList();
                others.add(new DeviceHolders.Holder(holder.pod(), holder.container(), holder.resource(), ids));
            }
        }
        return others;
    }

    private static Stream<String> gpusOf(String driver, String id, List<DraDevice> published) {
        return published.stream()
                .filter(device -> device.driver().equals(driver) && device.id().equals(id))
                .map(DraDevice::gpus)
                .filter(gpus -> !gpus.isEmpty())
                .findFirst()
                .map(Set::stream)
                .orElse(Stream.of(id));
    }

    private static List<DeviceHolders.Holder> previousHolders(List<Gpu> previous) {
        return previous.stream()
                .flatMap(gpu -> gpu.heldBy().stream()
                        .map(holder -> new DeviceHolders.Holder(
                                holder.pod(),
                                "",
                                holder.resource(),
                                List.of(gpu.uuid() + (holder.hami() ? "-0" : "")))))
                .toList();
    }

    private static List<Gpu> held(List<Gpu> gpus, List<DeviceHolders.Holder> holders) {
        return gpus.stream().map(gpu -> gpu.withHolders(of(gpu, gpus, holders))).toList();
    }

    private static List<ForeignHolder> of(Gpu gpu, List<Gpu> all, List<DeviceHolders.Holder> holders) {
        var found = new ArrayList<ForeignHolder>();
        for (DeviceHolders.Holder holder : holders) {
            if (holder.deviceIds().stream().anyMatch(id -> mayBe(id, gpu, all))) {
                try {
                    found.add(new ForeignHolder(
                            holder.pod(),
                            holder.resource(),
                            holder.deviceIds().stream().allMatch(OtherDevicePlugins::isHamis)));
                } catch (FormatException e) {
                    throw new IllegalStateException("the kubelet's PodResources: " + e.getMessage(), e);
                }
            }
        }
        return found;
    }

    private static boolean isHamis(String deviceId) {
        return HAMI.matcher(deviceId).matches();
    }

    /**
     * Whether a device is this GPU or a part of it. NVIDIA's plugin names a GPU by its UUID and a time slice
     * {@code UUID::N} (github.com/NVIDIA/k8s-device-plugin, internal/rm). A device with another name, such as a MIG device,
     * may be a part of any GPU. So may one of HAMi, {@code UUID-N}: HAMi's Allocate ignores the IDs that the kubelet chose
     * and uses the GPUs of the pod's annotation (github.com/Project-HAMi/HAMi,
     * pkg/device-plugin/nvidiadevice/nvinternal/plugin/server.go).
     */
    private static boolean mayBe(String deviceId, Gpu gpu, List<Gpu> all) {
        return isHamis(deviceId)
                || deviceId.startsWith(gpu.uuid())
                || all.stream().noneMatch(other -> deviceId.startsWith(other.uuid()));
    }
}
