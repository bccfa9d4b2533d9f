package io.aliquot.deviceplugin.kubelet;

import static io.aliquot.testing.Await.await;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.format.JsonFields;
import io.aliquot.api.names.Resources;
import io.aliquot.api.pods.CorePolicy;
import io.aliquot.api.pods.Held;
import io.aliquot.api.pods.Priority;
import io.aliquot.api.usage.NodeAllocation.Limit;
import io.aliquot.api.usage.PodContainer;
import io.aliquot.deviceplugin.cdi.CdiContainers;
import io.aliquot.deviceplugin.cdi.DeviceInjection;
import io.aliquot.deviceplugin.cdi.NvidiaDevices;
import io.aliquot.deviceplugin.cdi.StartHook;
import io.aliquot.deviceplugin.files.SlotFiles;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import io.aliquot.deviceplugin.shim.Shim;
import io.aliquot.deviceplugin.v1beta1.ContainerAllocateResponse;
import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import tools.jackson.databind.JsonNode;

/** The kubelet calls by gRPC on unix sockets; the scheduler is a map. */
@Timeout(60)
final class CdiStartsTest {
    private static final StartHook HOOK = new StartHook(Path.of("/host/hook"), Path.of("/var/lib/kubelet/pods"), true);
    private static final Duration INTERVAL = Duration.ofMillis(20);
    private static final Duration PATIENCE = Duration.ofSeconds(20);
    private static final String A = "GPU-00000000-0000-0000-0000-00000000000a";
    private static final String B = "GPU-00000000-0000-0000-0000-00000000000b";
    private static final Shim SHIM =
            new Shim("1.0-abc", Path.of("/host/libaliquot.so"), Path.of("/host/ld.so.preload"), Path.of("/host/hook"));

    private final Path folder;
    private final Path host;
    private final Path cdi;
    private final TestKubelet kubelet;
    private final Map<String, List<Limit>> scheduler = new ConcurrentHashMap<>();
    private KubeletRegistrar registrar;

    CdiStartsTest(@TempDir Path folder, @TempDir Path host, @TempDir Path cdi) throws IOException {
        this.folder = folder;
        this.host = host;
        this.cdi = cdi;
        kubelet = new TestKubelet(folder);
        registrar = agent(SHIM, PATIENCE);
    }

    private CdiContainers containers() throws IOException {
        return new CdiContainers(
                host, cdi, new NvidiaDevices(List.of(host.resolve("etc"), cdi)), HOOK, InstantSource.system());
    }

    private KubeletRegistrar agent(Shim shim, Duration longestWait) throws IOException {
        CdiContainers containers = containers();
        return new KubeletRegistrar(
                Resources.VGPU,
                new PluginFolder(folder, "", InstantSource.system()),
                new Allocator(shim, SlotFiles.open(host), containers)::allocate,
                Optional.of(new CdiStarts(
                        folder,
                        containers,
                        (uid, container) -> scheduler.getOrDefault(uid + "/" + container, List.of()),
                        System::nanoTime,
                        longestWait)),
                new AgentMetrics(),
                System::nanoTime,
                INTERVAL,
                Duration.ofSeconds(60));
    }

    @BeforeEach
    void registerByCdi() throws Exception {
        nvidia("0.5.0");
        register(DeviceInjection.CDI);
    }

    @AfterEach
    void stop() {
        registrar.close();
        kubelet.close();
    }

    @Test
    void allocateNamesADeviceAndMountsNothing() throws Exception {
        assertThat(kubelet.requiresPreStart()).isTrue();

        ContainerAllocateResponse answer = kubelet.allocate("slot-007").getContainerResponses(0);

        assertThat(answer.getMountsList()).isEmpty();
        assertThat(answer.getEnvsMap()).containsExactly(Map.entry("NVIDIA_VISIBLE_DEVICES", "void"));
        assertThat(device(answer)).matches("aliquot\\.io/vgpu=slot-007-[0-9a-f]{16}");
        assertThat(host.resolve("slots/slot-007")).exists();
        assertThat(host.resolve("agent/slot-007")).exists();
        assertThat(specs()).as("whose it is, is not known yet").isEmpty();
    }

    @Test
    void noTwoAllocationsHaveOneName() throws Exception {
        Set<String> names = new HashSet<>();
        for (int i = 0; i < 25; i++) {
            names.add(device(kubelet.allocate("slot-000").getContainerResponses(0)));
        }
        registrar.close();
        registrar = agent(SHIM, PATIENCE);
        register(DeviceInjection.CDI);
        for (int i = 0; i < 25; i++) {
            names.add(device(kubelet.allocate("slot-000").getContainerResponses(0)));
        }
        assertThat(names).hasSize(50);
    }

    @Test
    void theSpecificationHasTheGpuAndAllThatLimitsIt() throws Exception {
        tell("uid-1", "main", B);
        String name = device(kubelet.admit("uid-1", "main", "slot-003", "slot-001"));

        kubelet.preStart(PATIENCE, "slot-001", "slot-003");

        JsonNode spec = spec(name);
        assertThat(spec.path("kind").asString()).isEqualTo("aliquot.io/vgpu");
        assertThat(spec.path("cdiVersion").asString())
                .as("the first with annotations")
                .isEqualTo("0.6.0");
        assertThat(spec.path("annotations").toString())
                .isEqualTo("{\"aliquot.io/pod-uid\":\"uid-1\",\"aliquot.io/namespace\":\"team\","
                        + "\"aliquot.io/pod\":\"train\",\"aliquot.io/container\":\"main\"}");
        assertThat(spec.path("devices")).hasSize(1);
        JsonNode edits = spec.path("devices").path(0).path("containerEdits");
        assertThat(edits.path("deviceNodes").toString())
                .isEqualTo("[{\"path\":\"/dev/nvidiactl\"},{\"path\":\"/dev/nvidia1\",\"permissions\":\"rw\"}]");
        assertThat(edits.path("env").toString()).isEqualTo("[\"FROM=nvidia\"]");
        assertThat(edits.path("mounts").toString())
                .isEqualTo("[" + mount("/lib/libcuda.so.1", "/lib/libcuda.so.1", "ro") + ","
                        + mount(
                                "/host/libaliquot.so",
                                "/usr/local/aliquot/1.0-abc/libaliquot.so",
                                "rbind",
                                "rprivate",
                                "ro")
                        + "," + mount("/host/ld.so.preload", "/etc/ld.so.preload", "rbind", "rprivate", "ro") + ","
                        + mount(host + "/slots/slot-001", "/usr/local/aliquot/region", "rbind", "rprivate", "rw") + ","
                        + mount(host + "/agent/slot-001", "/usr/local/aliquot/agent", "rbind", "rprivate", "ro") + "]");
        assertThat(Files.getPosixFilePermissions(specs().getFirst()))
                .hasToString("[OWNER_READ, OWNER_WRITE, GROUP_READ, OTHERS_READ]");
    }

    @Test
    void theHookComparesContainerMountsAndImage() throws Exception {
        tell("uid-1", "main", B);
        String name = device(kubelet.admit("uid-1", "main", "slot-001"));

        kubelet.preStart(PATIENCE, "slot-001");

        JsonNode hooks = spec(name).at("/devices/0/containerEdits/hooks");
        assertThat(hooks).hasSize(1);
        JsonNode hook = hooks.path(0);
        assertThat(hook.path("hookName").asString()).isEqualTo("createContainer");
        assertThat(hook.path("path").asString()).isEqualTo("/host/hook");
        assertThat(hook.path("args").valueStream().map(JsonNode::asString))
                .startsWith(
                        "hook", "--pod-uid", "uid-1", "--namespace", "team", "--pod", "train", "--container", "main")
                .containsSequence(
                        "--mount",
                        "/var/lib/kubelet/pods/uid-1/volumes/kubernetes.io~downward-api/aliquot-vgpu-main",
                        "/etc/aliquot")
                .containsSequence("--mount", host + "/slots/slot-001", "/usr/local/aliquot/region")
                .endsWith("--preload", "--note", note(name).toString());
    }

    @Test
    void whatTheHookNotesIsTakenOnceWithTheContainerOfTheSpecification() throws Exception {
        tell("uid-1", "init", A);
        tell("uid-1", "main", A);
        String init = device(kubelet.admit("uid-1", "init", "slot-000"));
        kubelet.admit("uid-1", "main", "slot-000");
        kubelet.preStart(PATIENCE, "slot-000");
        assertThat(Files.getPosixFilePermissions(note(init)))
                .as("a hook in a user namespace can write it, and none can read it")
                .isEqualTo(PosixFilePermissions.fromString("rw--w--w-"));
        assertThat(containers().takeWithoutLoader()).isEmpty();

        for (int start = 0; start < 2; start++) {
            Files.writeString(note(init), "L");
            kubelet.preStart(PATIENCE, "slot-000");
            assertThat(containers().takeWithoutLoader())
                    .containsExactly(new PodContainer("team", "train", "uid-1", "init"));
            assertThat(containers().takeWithoutLoader()).isEmpty();
        }
    }

    @Test
    void severalGpusAreInOneDeviceAndTheHigherVersionCounts() throws Exception {
        nvidia("0.7.0");
        tell("uid-1", "main", A, B);
        String name = device(kubelet.admit("uid-1", "main", "slot-000", "slot-001"));

        kubelet.preStart(PATIENCE, "slot-000", "slot-001");

        assertThat(spec(name).path("cdiVersion").asString()).isEqualTo("0.7.0");
        assertThat(spec(name).findValue("deviceNodes").toString())
                .contains("/dev/nvidia0", "/dev/nvidia1")
                .containsOnlyOnce("/dev/nvidiactl");
    }

    /** The kubelet reuses an init container's slots for later containers of the pod, and PreStartContainer does not say which starts. */
    @Test
    void anInitContainerAndTheMainOneWithTheSameSlotHaveADeviceEach() throws Exception {
        String init = device(kubelet.admit("uid-1", "init", "slot-000"));
        String main = device(kubelet.admit("uid-1", "main", "slot-000"));
        tell("uid-1", "init", A);
        tell("uid-1", "main", B);

        kubelet.preStart(PATIENCE, "slot-000");

        assertThat(spec(init).toString()).contains("/dev/nvidia0").doesNotContain("/dev/nvidia1");
        assertThat(spec(main).toString()).contains("/dev/nvidia1").doesNotContain("/dev/nvidia0");
        scheduler.clear(); // the init container has ended
        kubelet.preStart(PATIENCE, "slot-000");
    }

    @Test
    void waitsForTheSchedulerWhileOtherContainersAreAllocated() throws Exception {
        String name = device(kubelet.admit("uid-1", "main", "slot-000"));
        var start = CompletableFuture.runAsync(() -> kubelet.preStart(PATIENCE, "slot-000"));

        kubelet.admit("uid-2", "main", "slot-001"); // answered meanwhile
        assertThat(start).isNotDone();
        tell("uid-1", "main", A);
        start.join();

        assertThat(spec(name).toString()).contains("/dev/nvidia0");
    }

    @Test
    void withoutTheSchedulerTheStartFailsWithASentence() throws Exception {
        registrar.close();
        registrar = agent(SHIM, Duration.ofMillis(200));
        register(DeviceInjection.CDI);
        kubelet.admit("uid-1", "main", "slot-000");
        tell("uid-1", "other", A);
        tell("uid-of-a-former-pod-of-this-name", "main", A);

        assertThatThrownBy(() -> kubelet.preStart(PATIENCE, "slot-000"))
                .hasMessage(
                        "UNAVAILABLE: Aliquot's scheduler has not told this node's agent which GPU container main of the"
                                + " pod with UID uid-1 has: see whether the scheduler runs and reaches the agent's port 9092");
        assertThatThrownBy(() -> kubelet.preStart(PATIENCE, "slot-001"))
                .hasMessageContaining("names no container with slot-001");
        assertThat(specs()).isEmpty();
    }

    @Test
    void aGpuThatCdiDoesNotNameFailsTheStartUntilItDoes() throws Exception {
        registrar.close();
        registrar = agent(SHIM, Duration.ofMillis(200));
        register(DeviceInjection.CDI);
        Files.delete(cdi.resolve("nvidia.yaml"));
        tell("uid-1", "main", A);
        String name = device(kubelet.admit("uid-1", "main", "slot-000"));

        assertThatThrownBy(() -> kubelet.preStart(PATIENCE, "slot-000"))
                .hasMessageContaining("names nvidia.com/gpu=" + A + ": run nvidia-ctk cdi generate");
        nvidia("0.5.0");
        kubelet.preStart(PATIENCE, "slot-000");

        assertThat(spec(name).toString()).contains("/dev/nvidia0");
    }

    /** A container keeps the shim to which its region belongs, as the kubelet repeats the mounts of a legacy node. */
    @Test
    void theAgentMayBeReplacedBetweenAllocateAndTheStart() throws Exception {
        String name = device(kubelet.admit("uid-1", "main", "slot-000"));
        registrar.close();
        registrar = agent(
                new Shim("2.0-def", Path.of("/new/libaliquot.so"), Path.of("/new/preload"), Path.of("/new/hook")),
                PATIENCE);
        register(DeviceInjection.CDI);
        tell("uid-1", "main", A);

        kubelet.preStart(PATIENCE, "slot-000");

        assertThat(spec(name).toString())
                .contains("/usr/local/aliquot/1.0-abc/")
                .doesNotContain("2.0-def");
    }

    /** After a reboot /var/run is empty, and NVIDIA's specification may be of another driver. */
    @Test
    void aRestartAfterARebootNeedsNoScheduler() throws Exception {
        tell("uid-1", "main", A);
        String name = device(kubelet.admit("uid-1", "main", "slot-000"));
        kubelet.preStart(PATIENCE, "slot-000");
        registrar.close();
        scheduler.clear();
        for (Path spec : specs()) {
            Files.delete(spec);
        }
        Files.writeString(
                cdi.resolve("nvidia.yaml"),
                Files.readString(cdi.resolve("nvidia.yaml")).replace("libcuda.so.1", "libcuda.so.2"));
        registrar = agent(SHIM, PATIENCE);
        register(DeviceInjection.CDI);

        kubelet.preStart(PATIENCE, "slot-000");

        assertThat(spec(name).toString()).contains("/dev/nvidia0", "libcuda.so.2");
    }

    @Test
    void anUnchangedSpecificationIsNotWrittenAgain() throws Exception {
        tell("uid-1", "main", A);
        kubelet.admit("uid-1", "main", "slot-000");
        kubelet.preStart(PATIENCE, "slot-000");
        Path spec = specs().getFirst();
        Object before = Files.getAttribute(spec, "unix:ino");

        kubelet.preStart(PATIENCE, "slot-000");

        assertThat(Files.getAttribute(spec, "unix:ino")).isEqualTo(before);
    }

    @Test
    void aDamagedRecordFailsTheStartWithASentence() throws Exception {
        registrar.close();
        registrar = agent(SHIM, Duration.ofMillis(200));
        register(DeviceInjection.CDI);
        String name = device(kubelet.admit("uid-1", "main", "slot-000"));
        Path record = host.resolve("cdi").resolve(name.substring(name.indexOf('=') + 1) + ".json");
        Files.writeString(record, "{}");

        assertThatThrownBy(() -> kubelet.preStart(PATIENCE, "slot-000"))
                .hasMessageContaining(record + " is damaged, delete the pod: ");
        Files.delete(record);
        assertThatThrownBy(() -> kubelet.preStart(PATIENCE, "slot-000"))
                .hasMessageContaining(record + ", which says what the container has, is missing: delete the pod");
    }

    @Test
    void aCheckpointOfAnotherFormFailsTheStartWithASentence() throws Exception {
        registrar.close();
        registrar = agent(SHIM, Duration.ofMillis(200));
        register(DeviceInjection.CDI);
        for (String other : List.of("", "[]", "{\"Data\":{}}", "{\"Data\":{\"PodDeviceEntries\":[{}]}}")) {
            Files.writeString(folder.resolve("kubelet_internal_checkpoint"), other);
            assertThatThrownBy(() -> kubelet.preStart(PATIENCE, "slot-000"))
                    .as(other)
                    .hasMessageContaining("the kubelet's checkpoint " + folder.resolve("kubelet_internal_checkpoint")
                            + " cannot be read");
        }
    }

    @Test
    void removesWhatTheKubeletHasForgottenForLong() throws Exception {
        tell("uid-1", "main", A);
        tell("uid-2", "main", A);
        tell("uid-3", "main", A);
        String first = device(kubelet.admit("uid-1", "main", "slot-000"));
        String second = device(kubelet.admit("uid-2", "main", "slot-001"));
        kubelet.preStart(PATIENCE, "slot-000");
        kubelet.preStart(PATIENCE, "slot-001");
        kubelet.forget("uid-1");
        String third = device(kubelet.admit("uid-3", "main", "slot-000"));

        kubelet.preStart(PATIENCE, "slot-000");
        assertThat(specs()).as("young").hasSize(3);
        for (Path record : list(host.resolve("cdi"), "*.json")) {
            Files.setLastModifiedTime(record, FileTime.from(Instant.now().minus(Duration.ofMinutes(11))));
        }
        kubelet.preStart(PATIENCE, "slot-000");

        assertThat(specs()).hasSize(2);
        assertThat(spec(second)).isNotNull();
        assertThat(spec(third)).isNotNull();
        assertThat(specs().toString()).doesNotContain(first.substring(first.indexOf('=') + 1));
        assertThat(list(host.resolve("cdi"), "*.json")).hasSize(2);
        assertThat(list(host.resolve("cdi"), "*.note")).hasSize(2);
    }

    @Test
    void containersThatWereAllocatedByMountsStartAsBefore() throws Exception {
        registrar.inject(DeviceInjection.RUNTIME);
        kubelet.nextRegistration();
        await(() -> registrar.problem().isEmpty());
        ContainerAllocateResponse answer = kubelet.admit("uid-1", "main", "slot-000");
        assertThat(answer.getCdiDevicesList()).isEmpty();
        assertThat(answer.getMountsList()).hasSize(4);
        assertThat(kubelet.requiresPreStart()).as("without containers by CDI").isFalse();

        registrar.inject(DeviceInjection.CDI);
        kubelet.nextRegistration();

        assertThat(kubelet.requiresPreStart()).isTrue();
        kubelet.preStart(PATIENCE, "slot-000");
        assertThat(specs()).isEmpty();
    }

    @Test
    void theKubeletStillAsksForContainersByCdiAfterTheNodeHasChanged() throws Exception {
        tell("uid-1", "main", A);
        String name = device(kubelet.admit("uid-1", "main", "slot-000"));

        registrar.inject(DeviceInjection.RUNTIME);
        kubelet.nextRegistration();

        assertThat(kubelet.requiresPreStart()).isTrue();
        kubelet.preStart(PATIENCE, "slot-000");
        assertThat(spec(name)).isNotNull();
    }

    private Path note(String device) {
        return host.resolve("cdi").resolve(device.substring(device.indexOf('=') + 1) + ".note");
    }

    private void register(DeviceInjection injection) throws Exception {
        registrar.inject(injection);
        registrar.advertise(new AdvertisedSlots(20, 0));
        kubelet.nextRegistration();
        kubelet.nextList(list -> list.size() == 20);
        await(() -> registrar.problem().isEmpty());
    }

    private void tell(String uid, String container, String... gpus) {
        var of = new PodContainer("team", "train", uid, container);
        List<Limit> limits = new ArrayList<>();
        for (String gpu : gpus) {
            limits.add(new Limit(of, gpu, 1024, 10, CorePolicy.FIXED, Priority.NORMAL, Held.SHARE));
        }
        scheduler.put(uid + "/" + container, limits);
    }

    private void nvidia(String version) throws IOException {
        Files.writeString(cdi.resolve("nvidia.yaml"), """
                cdiVersion: %s
                kind: nvidia.com/gpu
                containerEdits:
                  env: [FROM=nvidia]
                  deviceNodes:
                  - path: /dev/nvidiactl
                  mounts:
                  - hostPath: /lib/libcuda.so.1
                    containerPath: /lib/libcuda.so.1
                    options: [ro]
                devices:
                - name: %s
                  containerEdits:
                    deviceNodes: [{path: /dev/nvidia0, permissions: rw}]
                - name: %s
                  containerEdits:
                    deviceNodes: [{path: /dev/nvidia1, permissions: rw}]
                """.formatted(version, A, B));
    }

    private static String device(ContainerAllocateResponse answer) {
        return answer.getCdiDevices(0).getName();
    }

    private List<Path> specs() throws IOException {
        return list(cdi, "aliquot*");
    }

    private static List<Path> list(Path folder, String glob) throws IOException {
        try (DirectoryStream<Path> files = Files.newDirectoryStream(folder, glob)) {
            List<Path> list = new ArrayList<>();
            files.forEach(list::add);
            return list;
        }
    }

    private JsonNode spec(String device) throws IOException {
        String name = device.substring(device.indexOf('=') + 1);
        JsonNode spec = JsonFields.JSON.readTree(Files.readString(cdi.resolve("aliquot.io-vgpu_" + name + ".json")));
        assertThat(spec.path("devices").path(0).path("name").asString()).isEqualTo(name);
        return spec;
    }

    private static String mount(String hostPath, String containerPath, String... options) {
        return "{\"hostPath\":\"" + hostPath + "\",\"containerPath\":\"" + containerPath + "\",\"options\":[\""
                + String.join("\",\"", options) + "\"]}";
    }
}
