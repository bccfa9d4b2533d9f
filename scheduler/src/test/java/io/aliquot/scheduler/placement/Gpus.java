package io.aliquot.scheduler.placement;

import io.aliquot.api.names.Resources;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.GpuHealth;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.Link;
import io.aliquot.api.nodes.Scaling;
import io.aliquot.api.nodes.SharingMode;
import io.aliquot.api.nodes.VisibleDevices;
import io.aliquot.api.pods.GpuRequest;
import io.aliquot.api.pods.Vgpus;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.stream.IntStream;

/** GPUs and requests for tests. */
public final class Gpus {
    private Gpus() {}

    public static String uuid(int node, int index) {
        return String.format("GPU-00000000-0000-0000-%04x-%012x", node, index);
    }

    public static Gpu gpu(int node, int index, int memoryMiB) {
        return gpu(node, index, memoryMiB, true);
    }

    public static Gpu gpu(int node, int index, int memoryMiB, boolean healthy) {
        return new Gpu(uuid(node, index), index, "NVIDIA Test", memoryMiB, 0, -1, health(healthy), Gpu.SHIM, Map.of());
    }

    public static GpuHealth health(boolean healthy) {
        return healthy ? Gpu.HEALTHY : new GpuHealth.Unhealthy("XID error 48", Instant.EPOCH);
    }

    /** A pod's request; each container is written as {@code kind:name: gpu=1 gpumem=3000 gpucores=30}. */
    public static PodGpuRequest request(String... containers) {
        return request(Map.of(), containers);
    }

    public static PodGpuRequest request(Map<String, String> annotations, String... containers) {
        return PodGpuRequest.of(Arrays.stream(containers).map(Gpus::container).toList(), annotations, false);
    }

    private static ContainerGpuRequest container(String text) {
        String[] parts = text.split(":", -1);
        var limits = new HashMap<String, String>();
        for (String limit : parts[2].trim().split(" ", -1)) {
            String[] pair = limit.split("=", -1);
            limits.put(resource(pair[0]), pair[1]);
        }
        return new ContainerGpuRequest(
                parts[1],
                ContainerKind.valueOf(parts[0]),
                GpuRequest.parse(limits).orElseThrow());
    }

    private static String resource(String name) {
        if (name.startsWith("mig-")) {
            return Resources.INSTANCE_GROUP + name.substring("mig-".length());
        }
        return name.equals("gpu") ? Resources.VGPU : "nvidia.com/" + name;
    }

    public static Inventory inventory(int slots, Gpu... gpus) {
        return new Inventory(new VisibleDevices("{uuid}"), Scaling.ONE, Scaling.ONE, slots, List.of(gpus));
    }

    static NodeGpus nodeGpus(int slots, Gpu... gpus) {
        return new NodeGpus(inventory(slots, gpus), SharingMode.CORE_MEMORY, Set.of());
    }

    /** A GPU with {@code slots} slots and this amount allocated. */
    static GpuInfo gpuWith(Gpu gpu, int slots, long allocatedMiB, int allocatedCores, int allocatedSlots) {
        return new GpuInfo(
                nodeGpus(slots, gpu).list().get(0), new GpuAmount(allocatedMiB, allocatedCores, allocatedSlots, false));
    }

    static GpuInfo empty(Gpu gpu) {
        return new GpuInfo(nodeGpus(10, gpu).list().get(0), GpuAmount.NOTHING);
    }

    static List<GpuInfo> empty(int gpus, int memoryMiB) {
        return IntStream.range(0, gpus)
                .mapToObj(i -> empty(gpu(1, i, memoryMiB)))
                .toList();
    }

    /**
     * A node with GPUs of 100 MiB and ten slots.
     *
     * @param gpus NUMA domain and allocated MiB of each: {@code 0:0 0:50 1:0}
     * @param links two GPUs and their link: {@code 0-1:pix 1-2:nvlink4}
     */
    static List<GpuInfo> node(String gpus, String links, SharingMode mode) {
        List<String[]> each = Arrays.stream(gpus.split(" ", -1))
                .map(gpu -> gpu.split(":", -1))
                .toList();
        List<Map<String, Link>> linksOf = new ArrayList<>();
        each.forEach(any -> linksOf.add(new HashMap<>()));
        for (String link : links.isEmpty() ? new String[0] : links.split(" ", -1)) {
            linksOf.get(link.charAt(0) - '0').put(uuid(1, link.charAt(2) - '0'), Link.parse(link.substring(4)));
        }
        Gpu[] cards = IntStream.range(0, each.size())
                .mapToObj(i -> {
                    int numa = Integer.parseInt(each.get(i)[0]);
                    return new Gpu(uuid(1, i), i, "NVIDIA Test", 100, 0, numa, Gpu.HEALTHY, Gpu.SHIM, linksOf.get(i));
                })
                .toArray(Gpu[]::new);
        List<GpuCapacity> capacities = new NodeGpus(inventory(10, cards), mode, Set.of()).list();
        return IntStream.range(0, each.size())
                .mapToObj(i -> {
                    int allocatedMiB = Integer.parseInt(each.get(i)[1]);
                    return new GpuInfo(
                            capacities.get(i), new GpuAmount(allocatedMiB, 0, allocatedMiB > 0 ? 1 : 0, false));
                })
                .toList();
    }

    /** The vGPUs of one container. */
    public static Vgpus of(Map<String, Vgpus> containers, String name) {
        return Objects.requireNonNull(containers.get(name), name);
    }
}
