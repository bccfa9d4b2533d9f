package io.aliquot.deviceplugin.kubelet;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.Region;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import io.aliquot.deviceplugin.shim.Shim;
import io.aliquot.deviceplugin.v1beta1.ContainerAllocateResponse;
import io.aliquot.deviceplugin.v1beta1.Device;
import io.aliquot.deviceplugin.v1beta1.Mount;
import io.aliquot.deviceplugin.v1beta1.RegisterRequest;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(60)
final class KubeletRegistrarTest {
    private static final Duration LOOK = Duration.ofMillis(20);
    private static final Duration PATIENCE = Duration.ofMillis(200);

    private final Path folder;
    private final Path host;
    private final TestKubelet kubelet;
    private KubeletRegistrar plugin;

    KubeletRegistrarTest(@TempDir Path folder, @TempDir Path host) throws IOException {
        this.folder = folder;
        this.host = host;
        kubelet = new TestKubelet(folder);
        plugin = newPlugin();
    }

    @AfterEach
    void stop() {
        plugin.close();
        kubelet.close();
    }

    @Test
    void theKubeletIsOfferedAnonymousSlotsOfWhichSomeAreUnhealthy() throws InterruptedException {
        plugin.offer(new AdvertisedSlots(20, 10));

        RegisterRequest registration = kubelet.nextRegistration();
        assertThat(registration.getVersion()).isEqualTo("v1beta1");
        assertThat(registration.getResourceName()).isEqualTo("nvidia.com/gpu");
        List<Device> devices = kubelet.nextList(list -> !list.isEmpty());
        assertThat(devices).extracting(Device::getID).hasSize(20).startsWith("slot-000", "slot-001");
        assertThat(devices)
                .filteredOn(device -> device.getHealth().equals("Healthy"))
                .hasSize(10);
        assertThat(devices)
                .filteredOn(device -> device.getHealth().equals("Unhealthy"))
                .hasSize(10);
    }

    @Test
    void aChangedOfferReachesTheKubeletWithoutANewRegistration() throws InterruptedException {
        plugin.offer(new AdvertisedSlots(20, 0));
        kubelet.nextRegistration();

        plugin.offer(new AdvertisedSlots(40, 1));

        List<Device> devices = kubelet.nextList(list -> list.size() == 40);
        assertThat(devices)
                .filteredOn(device -> device.getHealth().equals("Unhealthy"))
                .hasSize(1);
        assertThat(kubelet.registersWithin(Duration.ofMillis(300))).isFalse();
    }

    @Test
    void allocateMountsTheShimAndAFreshStateFileAndShowsNoGpu() throws Exception {
        register(20);

        ContainerAllocateResponse answer = kubelet.allocate("slot-007").getContainerResponses(0);

        assertThat(answer.getEnvsMap()).containsExactly(Map.entry("NVIDIA_VISIBLE_DEVICES", "void"));
        assertThat(answer.getMountsList())
                .containsExactlyInAnyOrder(
                        mount("/host/libaliquot.so", "/usr/local/aliquot/1.0-abc/libaliquot.so", true),
                        mount("/host/ld.so.preload", "/etc/ld.so.preload", true),
                        mount(slot("slot-007").toString(), "/usr/local/aliquot/region", false));
        assertThat(Files.readAllBytes(slot("slot-007"))).isEqualTo(Region.fresh());
        assertThat(Files.getPosixFilePermissions(slot("slot-007")))
                .isEqualTo(PosixFilePermissions.fromString("rw-rw-rw-"));
    }

    @Test
    void aContainerWithSeveralSlotsHasTheFileOfTheLexicallyFirst() throws Exception {
        register(20);

        ContainerAllocateResponse answer =
                kubelet.allocate("slot-011", "slot-003", "slot-010").getContainerResponses(0);

        assertThat(answer.getMountsList())
                .filteredOn(mount -> mount.getContainerPath().equals("/usr/local/aliquot/region"))
                .extracting(Mount::getHostPath)
                .containsExactly(slot("slot-003").toString());
    }

    @Test
    void eachContainerOfARequestIsAnswered() throws Exception {
        register(20);

        assertThat(kubelet.allocate(List.of(List.of("slot-001"), List.of("slot-002")))
                        .getContainerResponsesList())
                .hasSize(2);
        assertThat(slot("slot-001")).exists();
        assertThat(slot("slot-002")).exists();
    }

    @Test
    void aSlotGivenAwayAgainGetsANewFileWhileTheOldOneStaysWhoeverHasItOpen() throws Exception {
        register(20);
        kubelet.allocate("slot-000");
        Files.writeString(slot("slot-000"), "used");
        try (var old = Files.newByteChannel(slot("slot-000"))) {
            kubelet.allocate("slot-000");

            assertThat(old.size()).isEqualTo(4);
            assertThat(Files.readAllBytes(slot("slot-000"))).isEqualTo(Region.fresh());
        }
    }

    @Test
    void aFolderInTheStateFilesPlaceGivesWay() throws Exception {
        register(20);
        Files.createDirectories(slot("slot-004"));

        kubelet.allocate("slot-004");

        assertThat(slot("slot-004")).isRegularFile();
    }

    @Test
    void idsThatAreNotOursAreRefused() throws Exception {
        register(20);

        for (String id :
                List.of("slot-020", "slot-0001", "slot-1", "../slots/slot-001", "GPU-1234", "", "slot-999999")) {
            assertThatThrownBy(() -> kubelet.allocate(id))
                    .as(id)
                    .isInstanceOfSatisfying(StatusRuntimeException.class, refused -> {
                        assertThat(refused.getStatus().getCode()).isEqualTo(Status.Code.INVALID_ARGUMENT);
                        assertThat(refused.getStatus().getDescription())
                                .contains("expected slots from slot-000 to slot-019, found " + id);
                    });
        }
        assertThatThrownBy(() -> kubelet.allocate())
                .hasMessageContaining("INVALID_ARGUMENT")
                .hasMessageContaining("at least one slot");
    }

    @Test
    void aStateFileThatCannotBeWrittenFailsTheAllocationWithItsReason() throws Exception {
        register(20);
        Files.createDirectories(slot("slot-005").resolve("somebody's"));

        assertThatThrownBy(() -> kubelet.allocate("slot-005"))
                .hasMessageContaining("INTERNAL")
                .hasMessageContaining("cannot write the state file of slot-005");
    }

    @Test
    void aKilledAndRestartedKubeletIsRegisteredWithAgain() throws Exception {
        register(20);
        String before = socket();

        for (int restart = 0; restart < 3; restart++) {
            kubelet.kill();
            kubelet.start();
            RegisterRequest again = kubelet.nextRegistration();

            assertThat(again.getEndpoint()).isNotEqualTo(before);
            kubelet.nextList(list -> list.size() == 20);
            kubelet.allocate("slot-000");
            before = again.getEndpoint();
        }
    }

    @Test
    void aKubeletThatIsNotThereYetIsWaitedFor() throws Exception {
        kubelet.kill();
        Files.delete(folder.resolve("kubelet.sock"));
        plugin.offer(new AdvertisedSlots(5, 0));
        await(() -> plugin.state().trouble().contains("kubelet.sock"));
        assertThat(plugin.state().registered()).isFalse();

        kubelet.start();

        kubelet.nextRegistration();
        kubelet.nextList(list -> list.size() == 5);
    }

    @Test
    void aRefusedRegistrationIsSaidAndTriedAgain() throws Exception {
        kubelet.refuseRegistrations(true);
        plugin.offer(new AdvertisedSlots(5, 0));
        await(() -> plugin.state().trouble().contains("not today"));

        kubelet.refuseRegistrations(false);

        kubelet.nextRegistration();
        await(() -> plugin.state().registered());
    }

    @Test
    void aStreamThatTheKubeletClosesIsRegisteredAgain() throws Exception {
        register(20);

        kubelet.disconnect();

        kubelet.nextRegistration();
        kubelet.nextList(list -> list.size() == 20);
    }

    @Test
    void whatAKilledRunLeftBehindIsClearedAwayAndItsStateFilesAreKept() throws Exception {
        register(20);
        kubelet.allocate("slot-000");
        plugin.close();
        Files.writeString(slot("slot-000"), "of a running container");
        Files.writeString(slot(".slot-001.new"), "half-written");
        Files.createFile(folder.resolve("aliquot-0.sock"));

        plugin = newPlugin();
        register(20);

        assertThat(Files.readString(slot("slot-000"))).isEqualTo("of a running container");
        assertThat(slot(".slot-001.new")).doesNotExist();
        assertThat(folder.resolve("aliquot-0.sock")).doesNotExist();
    }

    @Test
    void anotherPluginForOurResourceIsNoticedByTheNodesCountAndNotFoughtAgainst() throws Exception {
        register(20);
        Files.createFile(folder.resolve("nvidia-gpu.sock"));

        awaitWhile(() -> plugin.observe(2), () -> !plugin.state().registered());

        assertThat(plugin.state().trouble())
                .contains("the node has 2 nvidia.com/gpu where this plugin offers 20")
                .contains("another device plugin has registered nvidia.com/gpu")
                .contains("nvidia-gpu.sock");
        assertThat(kubelet.registersWithin(Duration.ofMillis(300))).isFalse();

        plugin.observe(20);
        assertThat(plugin.state().registered()).isTrue();
    }

    @Test
    void aNodeThatShowsNoneOfTheOfferedSlotsMeansTheKubeletHasLostUs() throws Exception {
        register(20);
        String before = socket();

        awaitWhile(
                () -> plugin.observe(0),
                () -> !socket().equals(before) && plugin.state().registered());

        kubelet.nextRegistration();
        kubelet.allocate("slot-000");
    }

    @Test
    void aNodeThatShowsAnOldCountForAShortWhileIsNotMinded() throws Exception {
        plugin = newPlugin(Duration.ofMinutes(1)); // a short while may be long on a busy machine
        register(20);

        plugin.observe(10);
        plugin.observe(0);

        assertThat(plugin.state().registered()).isTrue();
        assertThat(kubelet.registersWithin(Duration.ofMillis(100))).isFalse();
    }

    private KubeletRegistrar newPlugin() throws IOException {
        return newPlugin(PATIENCE);
    }

    private KubeletRegistrar newPlugin(Duration patience) throws IOException {
        var shim = new Shim("1.0-abc", Path.of("/host/libaliquot.so"), Path.of("/host/ld.so.preload"));
        return new KubeletRegistrar(folder, host, shim, new AgentMetrics(), LOOK, patience);
    }

    private void register(int slots) throws Exception {
        plugin.offer(new AdvertisedSlots(slots, 0));
        kubelet.nextRegistration();
        kubelet.nextList(list -> list.size() == slots);
        await(() -> plugin.state().registered());
    }

    private Path slot(String slot) {
        return host.resolve("slots").resolve(slot);
    }

    private String socket() throws IOException {
        try (var sockets = Files.newDirectoryStream(folder, "aliquot-*.sock")) {
            var each = sockets.iterator();
            return each.hasNext() ? each.next().getFileName().toString() : "";
        }
    }

    private static Mount mount(String host, String container, boolean readOnly) {
        return Mount.newBuilder()
                .setHostPath(host)
                .setContainerPath(container)
                .setReadOnly(readOnly)
                .build();
    }

    private static void await(Condition condition) throws Exception {
        awaitWhile(() -> {}, condition);
    }

    private static void awaitWhile(Runnable meanwhile, Condition condition) throws Exception {
        long until = System.nanoTime() + Duration.ofSeconds(20).toNanos();
        do {
            meanwhile.run();
            Thread.sleep(10);
        } while (!condition.holds() && System.nanoTime() < until);
        assertThat(condition.holds()).isTrue();
    }

    private interface Condition {
        boolean holds() throws Exception;
    }
}
