package io.aliquot.deviceplugin.inventory;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.nodes.ForeignHolder;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.Scaling;
import io.aliquot.api.nodes.VisibleDevices;
import io.aliquot.deviceplugin.kubelet.DeviceHolders;
import io.aliquot.deviceplugin.node.DraDevice;
import io.aliquot.deviceplugin.node.NodeView;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class OtherDevicePluginsTest {
    private static final String UUID_0 = "GPU-8f6e8f0c-0001-4a5b-9c3d-000000000000";
    private static final String UUID_1 = "GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001";
    private static final List<Gpu> GPUS = List.of(gpu(UUID_0, 0), gpu(UUID_1, 1));
    private static final DeviceHolders NO_HOLDERS = new DeviceHolders.Known(List.of());
    private static final DeviceHolders UNAVAILABLE = new DeviceHolders.Unavailable("no socket");
    private static final NodeView OURS = node(Map.of("aliquot.io/vgpu", 20L, "nvidia.com/gpumem", 81920L));

    private static Gpu gpu(String uuid, int index) {
        return new Gpu(uuid, index, "NVIDIA A100", 40960, 0, -1, Gpu.HEALTHY, Gpu.SHIM, Map.of());
    }

    private static NodeView node(Map<String, Long> resources) {
        return new NodeView(Map.of(), Map.of(), resources, resources, Map.of(), "");
    }

    private static Inventory in(NodeView node, DeviceHolders holders, List<Gpu> previous) {
        return OtherDevicePlugins.in(inventory(GPUS), Optional.of(inventory(previous)), node, List.of(), holders, true);
    }

    private static Inventory inventory(List<Gpu> gpus) {
        return new Inventory(new VisibleDevices("{uuid}"), Scaling.ONE, Scaling.ONE, 10, gpus);
    }

    private static DeviceHolders held(String resource, String... ids) {
        return new DeviceHolders.Known(List.of(new DeviceHolders.Holder("team/train", "main", resource, List.of(ids))));
    }

    @Test
    void withoutOtherPluginsTheInventoryStays() {
        Inventory inventory = in(OURS, held("aliquot.io/vgpu", "slot-001"), GPUS);

        assertThat(inventory.conflict()).isEmpty();
        assertThat(inventory.gpus()).isEqualTo(GPUS);
    }

    @ParameterizedTest
    @CsvSource({
        "nvidia.com/gpu, GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001",
        "nvidia.com/gpu, GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001::3", // time-slicing
        "nvidia.com/gpu.shared, GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001::0",
    })
    void theGpuOfADeviceIsHeldByItsPod(String resource, String device) {
        Inventory inventory = in(OURS, held(resource, device), GPUS);

        assertThat(inventory.gpus().get(0).heldBy()).isEmpty();
        assertThat(inventory.gpus().get(1).heldBy()).containsExactly(new ForeignHolder("team/train", resource));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {"MIG-5f0c2f9e-9b0c-5d0f-a1b1-0e4b8a9f8a11", "0", "GPU-00000000-0000-0000-0000-000000000000"})
    void aDeviceThatNamesNoneOfTheNodesGpusMayBeAPartOfAny(String device) {
        assertThat(in(OURS, held("nvidia.com/mig-1g.10gb", device), GPUS).gpus())
                .allSatisfy(gpu -> assertThat(gpu.heldBy()).hasSize(1));
    }

    /** HAMi's plugin does not use the GPU whose ID the kubelet chose, but the one in the pod's annotation. */
    @Test
    void aPodOfHamiMayHoldAnyGpuWhateverTheIdSays() {
        DeviceHolders holders = held("nvidia.com/gpu", "GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001-7");

        Inventory inventory = in(OURS, holders, GPUS);

        assertThat(inventory.gpus())
                .allSatisfy(gpu -> assertThat(gpu.heldBy())
                        .containsExactly(new ForeignHolder("team/train", "nvidia.com/gpu", true)));
        assertThat(in(OURS, UNAVAILABLE, inventory.gpus()).gpus()).isEqualTo(inventory.gpus());
    }

    /** The kubelet forgets a resource minutes after its plugin has gone, while pods may still hold its GPUs. */
    @Test
    void aConflictOutlastsTheResourceWhileTheKubeletDoesNotAnswer() {
        Inventory before = inventory(GPUS).withConflict("another device plugin");

        Inventory unknown =
                OtherDevicePlugins.in(inventory(GPUS), Optional.of(before), OURS, List.of(), UNAVAILABLE, true);

        assertThat(unknown.conflict()).contains("cannot be counted");
        assertThat(OtherDevicePlugins.in(inventory(GPUS), Optional.of(unknown), OURS, List.of(), NO_HOLDERS, true)
                        .conflict())
                .isEmpty();
    }

    @Test
    void onlyTheFirstHoldersOfAGpuAreListed() {
        var many = new DeviceHolders.Known(IntStream.range(0, 100)
                .mapToObj(i ->
                        new DeviceHolders.Holder("team/p" + i, "main", "nvidia.com/gpu", List.of(UUID_0 + "::" + i)))
                .toList());

        assertThat(in(OURS, many, GPUS).gpus().get(0).heldBy()).hasSize(Gpu.MOST_HOLDERS);
    }

    @ParameterizedTest
    @ValueSource(strings = {"nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb", "aliyun.com/gpu-mem"})
    void aNodeOnWhichAnotherPluginAdvertisesGpusIsInConflict(String resource) {
        assertThat(in(node(Map.of(resource, 1L, "aliquot.io/vgpu", 20L)), NO_HOLDERS, GPUS)
                        .conflict())
                .contains("advertises " + resource, "nvidia.com/gpu.deploy.device-plugin=false");
    }

    @ParameterizedTest
    @CsvSource({
        "'GPU-0,10,122880,100,NVIDIA-A100,0,true:', Requesting_2026.11.28 03:00:00, true",
        "'[{\"id\":\"GPU-0\"}]', Reported 2026-11-28 03:00:00, true",
        "'GPU-0,10,122880,100,NVIDIA-A100,0,true:', , true",
        "'GPU-0,10,122880,100,NVIDIA-A100,0,true:', Deleted_2026.11.28 03:00:00, false",
        "[], Reported 2026-11-28 03:00:00, false",
        "'', Reported 2026-11-28 03:00:00, false",
    })
    void aNodeOnWhichHamiIsRegisteredIsInConflict(String gpus, String handshake, boolean conflict) {
        Map<String, String> annotations = new HashMap<>(Map.of("hami.io/node-nvidia-register", gpus));
        if (handshake != null) {
            annotations.put("hami.io/node-handshake", handshake);
        }
        Map<String, Long> none = Map.of("nvidia.com/gpu", 0L);
        var node = new NodeView(Map.of(), annotations, none, none, Map.of(), "");

        assertThat(in(node, NO_HOLDERS, GPUS).conflict().startsWith(Inventory.HAMI))
                .isEqualTo(conflict);
    }

    @Test
    void aDraDriverThatPublishesTheNodesGpusIsInConflict() {
        var devices = List.of(
                new DraDevice("net.example.com", "node1/nic-0", Set.of()),
                new DraDevice("shares.example.com", "node1/gpu-1", Set.of(UUID_1)));

        assertThat(withDra(devices, NO_HOLDERS).conflict())
                .contains("DRA driver shares.example.com publishes", "nvidia.com/gpu.deploy.dra-driver=false");
        assertThat(withDra(List.of(new DraDevice("gpu.nvidia.com", "node1/mig", Set.of())), NO_HOLDERS)
                        .conflict())
                .contains("DRA driver gpu.nvidia.com publishes");
        assertThat(withDra(devices.subList(0, 1), NO_HOLDERS).conflict()).isEmpty();
    }

    @Test
    void theGpuOfAClaimIsHeldByItsPodAlsoWhenTheDriverHasGone() {
        DeviceHolders holders = held("gpu.nvidia.com", "node1/gpu-1");
        var holder = new ForeignHolder("team/train", "gpu.nvidia.com");

        Inventory published = withDra(List.of(new DraDevice("gpu.nvidia.com", "node1/gpu-1", Set.of(UUID_1))), holders);

        assertThat(published.gpus().get(0).heldBy()).isEmpty();
        assertThat(published.gpus().get(1).heldBy()).containsExactly(holder);
        assertThat(in(OURS, UNAVAILABLE, published.gpus()).gpus()).isEqualTo(published.gpus());
        assertThat(withDra(List.of(), holders).gpus())
                .as("which of them is not known any more")
                .allSatisfy(gpu -> assertThat(gpu.heldBy()).containsExactly(holder));
        assertThat(withDra(List.of(), held("net.example.com", "node1/nic-0")).gpus())
                .isEqualTo(GPUS);
    }

    private static Inventory withDra(List<DraDevice> published, DeviceHolders holders) {
        return OtherDevicePlugins.in(inventory(GPUS), Optional.empty(), OURS, published, holders, true);
    }

    @Test
    void aPluginThatHasGoneIsNoConflict() {
        assertThat(in(node(Map.of("nvidia.com/gpu", 0L)), NO_HOLDERS, GPUS).conflict())
                .isEmpty();
    }

    @Test
    void whileTheKubeletDoesNotAnswerANodeThatOtherPluginsUsedIsInConflictAndKeepsItsHolders() {
        List<Gpu> held = List.of(
                GPUS.get(0).withHolders(List.of(new ForeignHolder("team/train", "nvidia.com/gpu"))), GPUS.get(1));

        assertThat(in(node(Map.of("nvidia.com/gpu", 0L)), UNAVAILABLE, GPUS).conflict())
                .contains("cannot be counted: no socket");
        Inventory inventory = in(OURS, UNAVAILABLE, held);
        assertThat(inventory.conflict()).contains("cannot be counted");
        assertThat(inventory.gpus()).isEqualTo(held);
        assertThat(in(OURS, UNAVAILABLE, GPUS).conflict()).isEmpty();
    }

    /** A plugin may have come, started pods and been forgotten by the kubelet while no agent ran. */
    @Test
    void untilTheKubeletHasAnsweredANewAgentTheNodeIsInConflict() {
        assertThat(OtherDevicePlugins.in(
                                inventory(GPUS), Optional.of(inventory(GPUS)), OURS, List.of(), UNAVAILABLE, false)
                        .conflict())
                .contains("cannot be counted: no socket");
        assertThat(OtherDevicePlugins.in(
                                inventory(GPUS), Optional.of(inventory(GPUS)), OURS, List.of(), NO_HOLDERS, false)
                        .conflict())
                .isEmpty();
    }
}
