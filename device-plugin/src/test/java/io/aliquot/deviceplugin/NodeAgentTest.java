package io.aliquot.deviceplugin;

import static io.aliquot.testing.Await.await;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.foreign.FeatureDiscovery;
import io.aliquot.api.nodes.ForeignHolder;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.GpuHealth;
import io.aliquot.api.nodes.GpuKind;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.Scaling;
import io.aliquot.api.nodes.VisibleDevices;
import io.aliquot.api.pods.CorePolicy;
import io.aliquot.api.pods.Held;
import io.aliquot.api.pods.Priority;
import io.aliquot.api.usage.NodeAllocation.Limit;
import io.aliquot.api.usage.PodContainer;
import io.aliquot.deviceplugin.attribution.Limits;
import io.aliquot.deviceplugin.cdi.CdiContainers;
import io.aliquot.deviceplugin.cdi.NvidiaDevices;
import io.aliquot.deviceplugin.cdi.StartHook;
import io.aliquot.deviceplugin.files.SlotFiles;
import io.aliquot.deviceplugin.kubelet.KubeletRegistrar;
import io.aliquot.deviceplugin.kubelet.TestKubelet;
import io.aliquot.deviceplugin.kubelet.TestPodResources;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import io.aliquot.deviceplugin.node.DraDevice;
import io.aliquot.deviceplugin.node.MetadataPatch;
import io.aliquot.deviceplugin.node.NodeClient;
import io.aliquot.deviceplugin.node.NodeCondition;
import io.aliquot.deviceplugin.node.NodeView;
import io.aliquot.deviceplugin.node.NodeWriteException;
import io.aliquot.deviceplugin.nvml.FakeDriver;
import io.aliquot.deviceplugin.nvml.Nvml;
import io.aliquot.deviceplugin.nvml.NvmlSession;
import io.aliquot.deviceplugin.shim.Shim;
import io.aliquot.deviceplugin.v1beta1.ContainerAllocateResponse;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.InstantSource;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The whole process except its API client: NVML of the fake driver, unix sockets, a Node in memory. */
@Timeout(60)
final class NodeAgentTest {
    private static final StartHook HOOK = new StartHook(Path.of("/host/hook"), Path.of("/var/lib/kubelet/pods"), true);
    private static final String A100 = "NVIDIA A100-SXM4-80GB;81920;108";

    private static final String BOOT_ID = "dc93c6bb-6b52-4d2a-9d0e-0b0c4c1b2a3d";
    private static final String CERTIFICATE = "0123456789abcdef".repeat(4);
    private static final Duration INTERVAL = Duration.ofMillis(50);

    private final FakeDriver driver = new FakeDriver();
    private final InMemoryNode node = new InMemoryNode();
    private final AgentMetrics metrics = new AgentMetrics();
    private final Path host;
    private final Path kubeletRoot;
    private final Path sockets;
    private final Path cdi;
    private final TestKubelet kubelet;
    private final TestPodResources podResources;
    private volatile Limits limits = Limits.NONE;
    private NodeAgent agent;

    NodeAgentTest(@TempDir Path host, @TempDir Path kubeletRoot) throws IOException {
        this.host = host;
        this.kubeletRoot = kubeletRoot;
        cdi = Files.createDirectory(host.resolve("run-cdi"));
        sockets = Files.createDirectory(kubeletRoot.resolve("device-plugins"));
        kubelet = new TestKubelet(sockets);
        podResources = new TestPodResources(Files.createDirectory(kubeletRoot.resolve("pod-resources")));
        agent = newAgent(driver::open);
    }

    @AfterEach
    void stop() {
        agent.close();
        kubelet.close();
        podResources.close();
    }

    @Test
    void publishesInventoryExtendedResourcesAndSlots() throws Exception {
        driver.install(A100, A100);
        start();

        kubelet.nextRegistration();
        kubelet.nextList(list -> list.size() == 20);
        await(() -> node.capacity("nvidia.com/gpumem") == 163_840);
        assertThat(node.capacity("nvidia.com/gpumem-percentage")).isEqualTo(200);
        assertThat(node.capacity("nvidia.com/gpucores")).isEqualTo(200);
        Inventory inventory = node.inventory();
        assertThat(inventory.slots()).isEqualTo(10);
        assertThat(inventory.gpus()).extracting(Gpu::memoryMiB).containsExactly(81920, 81920);
        assertThat(inventory.gpus()).allMatch(Gpu::healthy);
        assertThat(inventory.certificate()).isEqualTo(CERTIFICATE);
        await(() -> agent.health().readinessProblems().isEmpty());
    }

    @Test
    void writesNothingWhileNothingChanges() throws Exception {
        driver.install(A100);
        start();
        await(() -> node.writes() == 2);
        await(() -> !node.condition().isEmpty());

        awaitPasses(6);

        assertThat(node.writes()).isEqualTo(2);
        assertThat(node.conditionWrites()).isEqualTo(1);
    }

    @Test
    void rewritesExtendedResourcesThatTheKubeletHasZeroed() throws Exception {
        driver.install(A100);
        start();
        await(() -> node.capacity("nvidia.com/gpumem") == 81920);

        node.zeroExtendedResources();
        agent.wake();

        await(() -> node.capacity("nvidia.com/gpumem") == 81920);
    }

    @Test
    void rewritesExtendedResourcesWhileANodeSettingIsInvalid() throws Exception {
        driver.install(A100);
        start();
        await(() -> node.capacity("nvidia.com/gpumem") == 81920);
        node.annotateAsAdmin("aliquot.io/memory-scaling", "double");

        node.zeroExtendedResources();
        agent.wake();

        await(() -> node.capacity("nvidia.com/gpumem") == 81920);
    }

    @Test
    void appliesAChangedSlotsAnnotation() throws Exception {
        driver.install(A100, A100);
        start();
        kubelet.nextList(list -> list.size() == 20);

        node.annotateAsAdmin("aliquot.io/slots", "25");
        agent.wake();

        kubelet.nextList(list -> list.size() == 50);
        await(() -> node.inventory().slots() == 25);
    }

    @Test
    void appliesRaisedScalingsToInventoryAndExtendedResources() throws Exception {
        driver.install(A100, A100);
        start();
        await(() -> node.capacity("nvidia.com/gpumem") == 163_840);

        node.annotateAsAdmin("aliquot.io/memory-scaling", "1.5");
        node.annotateAsAdmin("aliquot.io/core-scaling", "2");
        agent.wake();

        await(() -> node.capacity("nvidia.com/gpumem") == 245_760 && node.capacity("nvidia.com/gpucores") == 400);
        assertThat(node.capacity("nvidia.com/gpumem-percentage")).isEqualTo(300);
        assertThat(node.inventory().memoryScaling()).isEqualTo(new Scaling(150));
        assertThat(node.inventory().coreScaling()).isEqualTo(new Scaling(200));
    }

    /** kube-scheduler counts the cores of pods, although Aliquot does not reserve them in this mode. */
    @Test
    void inSharingModeMemoryTheCoresAreAllThatPodsCanRequest() throws Exception {
        driver.install(A100, A100);
        start();
        await(() -> node.capacity("nvidia.com/gpucores") == 200);

        node.labelAsAdmin("aliquot.io/share", "memory");
        agent.wake();

        await(() -> node.capacity("nvidia.com/gpucores") == 2000);
        assertThat(node.capacity("nvidia.com/gpumem")).isEqualTo(163_840);
        node.labelAsAdmin("aliquot.io/share", "half");
        agent.wake();
        await(() -> metrics.print().contains("aliquot_agent_node_settings_invalid 1.0"));
        assertThat(node.capacity("nvidia.com/gpucores")).isEqualTo(2000);
    }

    /** A restarted kubelet rejects running pods whose requests exceed the node's allocatable. */
    @Test
    void aLoweredScalingAppliesToTheInventoryButNotToExtendedResources() throws Exception {
        driver.install(A100);
        node.annotateAsAdmin("aliquot.io/memory-scaling", "2");
        start();
        await(() -> node.capacity("nvidia.com/gpumem") == 163_840);

        node.annotateAsAdmin("aliquot.io/memory-scaling", "1");
        agent.wake();
        await(() -> node.inventory().memoryScaling().equals(Scaling.ONE));
        node.zeroExtendedResources();
        agent.wake();

        await(() -> node.capacity("nvidia.com/gpumem") == 163_840);
        assertThat(node.capacity("nvidia.com/gpumem-percentage")).isEqualTo(200);
        restart();
        await(() -> agent.health().readinessProblems().isEmpty());
        assertThat(node.capacity("nvidia.com/gpumem")).isEqualTo(163_840);
    }

    /** As after a reboot of a node whose kubelet has lost its checkpoint. */
    @Test
    void theExtendedResourcesAreWhatPodsMayHoldAlsoIfTheKubeletZeroesThemWhileTheAgentIsDown() throws Exception {
        driver.install(A100, A100);
        node.annotateAsAdmin("aliquot.io/memory-scaling", "2");
        start();
        await(() -> node.capacity("nvidia.com/gpumem") == 327_680);
        podResources.run("team", "train", "aliquot.io/vgpu", "slot-000");
        node.annotateAsAdmin("aliquot.io/memory-scaling", "1");
        agent.wake();
        await(() -> node.inventory().memoryScaling().equals(Scaling.ONE));
        String failed = node.inventory().gpus().get(1).uuid();
        agent.close();
        driver.remove(failed);
        node.zeroExtendedResources();

        for (int restart = 0; restart < 2; restart++) {
            agent = newAgent(driver::open);
            start();

            await(() -> node.capacity("nvidia.com/gpumem") == 327_680);
            assertThat(node.capacity("nvidia.com/gpumem-percentage")).isEqualTo(400);
            assertThat(node.capacity("nvidia.com/gpucores")).isEqualTo(200);
            agent.close();
            node.zeroExtendedResources();
        }
    }

    @Test
    void anInvalidNodeSettingLeavesInventoryAndSlotsUnchanged() throws Exception {
        driver.install(A100, A100);
        start();
        kubelet.nextList(list -> list.size() == 20);
        await(() -> node.writes() == 2);
        String before = node.inventory().print();

        node.annotateAsAdmin("aliquot.io/memory-scaling", "1000"); // first, or a pass could apply slots alone
        node.annotateAsAdmin("aliquot.io/slots", "25");
        agent.wake();

        await(() -> metrics.print().contains("aliquot_agent_node_settings_invalid 1.0"));
        awaitPasses(3);
        assertThat(node.inventory().print()).isEqualTo(before);
        assertThat(node.writes()).isEqualTo(2);
    }

    @Test
    void aLostGpuIsUnhealthyInInventoryAndSlotsAndStillCountsInExtendedResources() throws Exception {
        driver.install(A100, A100);
        start();
        kubelet.nextList(list -> list.size() == 20);
        await(() -> node.capacity("nvidia.com/gpumem") == 163_840);
        String lost = node.inventory().gpus().get(0).uuid();

        driver.fail(lost, 79);

        kubelet.nextList(list -> list.stream()
                        .filter(slot -> slot.getHealth().equals("Unhealthy"))
                        .count()
                == 10);
        await(() -> node.inventory().gpus().stream().anyMatch(gpu -> gpu.uuid().equals(lost) && !gpu.healthy()));
        assertThat(node.inventory().gpus()).hasSize(2);
        assertThat(node.capacity("nvidia.com/gpumem")).isEqualTo(163_840);
    }

    @Test
    void aRestartedAgentKeepsAMissingGpuAsUnhealthy() throws Exception {
        driver.install(A100, A100);
        start();
        await(() -> node.writes() == 2);
        String missing = node.inventory().gpus().get(1).uuid();
        podResources.run("team", "train", "aliquot.io/vgpu", "slot-000"); // else the GPU is taken for removed soon
        agent.close();

        driver.remove(missing);
        agent = newAgent(driver::open);
        start();

        await(() -> node.inventory().gpus().stream().anyMatch(gpu -> gpu.uuid().equals(missing) && !gpu.healthy()));
        assertThat(node.capacity("nvidia.com/gpumem")).isEqualTo(163_840);
        kubelet.nextList(list -> list.size() == 20
                && list.stream()
                                .filter(slot -> slot.getHealth().equals("Healthy"))
                                .count()
                        == 10);
    }

    @Test
    void theXidOfAnApplicationLeavesItsGpuHealthy() throws Exception {
        driver.install(A100);
        start();
        await(() -> agent.health().readinessProblems().isEmpty());
        int writes = node.writes();

        driver.fail(node.inventory().gpus().getFirst().uuid(), 31);

        await(() -> metrics.print().contains("xid=\"31\"} 1.0"));
        awaitPasses(4);
        assertThat(node.writes()).isEqualTo(writes);
    }

    /** 63 and 154 are no errors of the GPU; what they are about is. {@code HealthRulesTest} has the other ones. */
    @ParameterizedTest
    @CsvSource({
        "48, XID 48 (double bit ECC error), RESET",
        "63, a row of its memory is to be remapped; reset it, RESET",
        "79, XID 79 (GPU has fallen off the bus), REBOOT",
        "154, the driver asks for a reset of the GPU, RESET"
    })
    void aGpuIsUnhealthyAfterAnXidUntilItIsResetAlsoAcrossARestartOfTheAgent(
            int xid, String reason, GpuHealth.Recovery recovery) throws Exception {
        driver.install(A100, A100);
        String uuid = startListening();

        driver.fail(uuid, xid);

        await(() -> !node.gpu(uuid).healthy());
        await(() -> reason(uuid).equals(reason) || xid == 63);
        GpuHealth.Unhealthy unhealthy = node.gpu(uuid).health().unhealthy().orElseThrow();
        assertThat(unhealthy.recovery()).isEqualTo(recovery);
        assertThat(node.inventory().gpus().get(1).healthy()).isTrue();
        await(() -> metrics.print()
                .contains("aliquot_gpu_healthy{gpu=\"" + uuid + "\",model=\"NVIDIA"
                        + " A100-SXM4-80GB\",node=\"node1\",reason=\"" + reason(uuid) + "\"} 0.0"));

        restart();
        await(() -> agent.health().readinessProblems().isEmpty());
        awaitPasses(4);
        assertThat(node.gpu(uuid).health().unhealthy().orElseThrow().since()).isEqualTo(unhealthy.since());

        driver.run("reset", uuid);
        await(() -> node.gpu(uuid).healthy());
    }

    @Test
    void aFailedRemappingIsNotEndedByAReset() throws Exception {
        driver.install(A100);
        String uuid = startListening();

        assertThat(node.condition()).isEqualTo("true GPUsHealthy 1 of 1 GPUs are healthy");

        driver.fail(uuid, 64);
        await(() -> reason(uuid).startsWith("XID 64"));
        await(() -> node.condition()
                .equals("false GPUUnhealthy 0 of 1 GPUs are healthy; " + uuid
                        + " (NVIDIA A100-SXM4-80GB): XID 64 (GPU memory remapping failure)"));
        driver.run("reset", uuid);
        awaitPasses(4);

        assertThat(node.gpu(uuid).healthy()).isFalse();
        driver.heal(uuid);
        await(() -> node.gpu(uuid).healthy());
        await(() -> node.condition().startsWith("true"));
    }

    @Test
    void withAnOldDriverAnAdministratorClearsAnXidOnce() throws Exception {
        driver.install(A100);
        driver.run("driver", "--without", "recovery-actions");
        String uuid = startListening();
        driver.fail(uuid, 119);
        await(() -> reason(uuid).startsWith("XID 119"));
        driver.run("reset", uuid);
        awaitPasses(4);
        assertThat(node.gpu(uuid).healthy()).isFalse();

        node.annotateAsAdmin("aliquot.io/clear-gpu-errors", uuid);
        await(() -> node.gpu(uuid).healthy());

        driver.fail(uuid, 119);
        await(() -> reason(uuid).startsWith("XID 119"));
        awaitPasses(4);
        assertThat(node.gpu(uuid).healthy()).isFalse();
        node.annotateAsAdmin("aliquot.io/clear-gpu-errors", "all");
        await(() -> node.gpu(uuid).healthy());
    }

    @Test
    void withAnOldDriverAnXidEndsWhenTheDriverIsLoadedAnew() throws Exception {
        driver.install(A100);
        driver.run("driver", "--without", "recovery-actions");
        String uuid = startListening();
        driver.fail(uuid, 119);
        await(() -> reason(uuid).startsWith("XID 119"));

        driver.run("driver", "--unload");
        await(() -> unready("kernel driver is not loaded"));
        driver.run("reset", uuid);
        driver.run("driver", "--load");

        await(() -> node.gpu(uuid).healthy());
        await(() -> agent.health().readinessProblems().isEmpty());
    }

    @Test
    void anXidOfAGpuThatDoesNotReturnItsUuidExcludesNoOtherGpu() throws Exception {
        driver.install(A100, A100);
        String uuid = startListening();

        driver.run("hide-uuid", uuid);
        driver.fail(uuid, 48);

        await(() -> metrics.print().contains("gpu=\"\",xid=\"48\"} 1.0"));
        await(() -> !node.gpu(uuid).healthy());
        awaitPasses(4);
        assertThat(node.inventory().gpus().get(1).healthy()).isTrue();
        driver.heal(uuid);
        await(() -> node.gpu(uuid).healthy());
    }

    @Test
    void aGpuThatIsTakenOutLeavesTheNodeWhenNoPodHoldsAVgpu() throws Exception {
        driver.install(A100, A100);
        podResources.run("team", "ours", "aliquot.io/vgpu", "slot-001");
        start();
        await(() -> node.capacity("nvidia.com/gpumem") == 163_840);
        String uuid = node.inventory().gpus().get(1).uuid();

        driver.run("remove", uuid);
        await(() -> reason(uuid).equals("NVML does not list it any more"));
        awaitPasses(12);
        assertThat(node.inventory().gpus()).hasSize(2);
        assertThat(node.capacity("nvidia.com/gpumem")).isEqualTo(163_840);

        podResources.end("team", "ours");
        await(() -> node.inventory().gpus().size() == 1);
        await(() -> node.capacity("nvidia.com/gpumem") == 81_920);

        driver.run("insert", uuid); // NVML lists it when it is opened again
        restart();
        await(() -> node.inventory().gpus().size() == 2);
        await(() -> node.capacity("nvidia.com/gpumem") == 163_840);
        assertThat(node.gpu(uuid).healthy()).isTrue();
    }

    @Test
    void anInstanceThatIsDestroyedUnderAPodIsUnhealthyAndANewOneIsAGpuAtOnce() throws Exception {
        driver.install(A100 + ";;;;;1g.10gb,2g.20gb");
        podResources.run("team", "ours", "aliquot.io/vgpu", "slot-001");
        start();
        await(() -> node.capacity("nvidia.com/gpumem") == 9_856 + 19_968);
        Gpu first = node.inventory().gpus().get(0);
        GpuKind.MigInstance instance = first.instance().orElseThrow();
        assertThat(instance.profile()).isEqualTo("1g.10gb");

        driver.run("mig-destroy", first.uuid());
        await(() -> reason(first.uuid()).equals("NVML does not list it any more"));
        driver.run("mig-create", instance.card(), "1g.10gb");
        await(() -> node.inventory().gpus().size() == 3);
        assertThat(node.inventory().gpus().stream().filter(Gpu::healthy)).hasSize(2);
        assertThat(node.inventory().gpus()).extracting(Gpu::uuid).doesNotContain(instance.card());

        podResources.end("team", "ours");
        await(() -> node.inventory().gpus().size() == 2);
        assertThat(node.inventory().gpus()).allMatch(Gpu::healthy);
    }

    /** The kubelet does not tell of which GPU a pod holds a vGPU; the scheduler does. */
    @Test
    void anInstanceThatIsGoneLeavesOnceNoPodHoldsItAndIsNeverUnhealthyIfNoneDid() throws Exception {
        driver.install(A100 + ";;;;;1g.10gb,2g.20gb,1g.10gb");
        podResources.run("team", "ours", "aliquot.io/vgpu", "slot-001");
        start();
        await(() -> node.capacity("nvidia.com/gpumem") == 2 * 9_856 + 19_968);
        List<Gpu> all = node.inventory().gpus();
        String held = all.get(1).uuid();
        limits = limits(held);

        driver.run("mig-destroy", all.get(0).uuid());
        await(() -> node.inventory().gpus().size() == 2);
        assertThat(node.everUnhealthy).isEmpty();
        assertThat(node.capacity("nvidia.com/gpumem"))
                .as("a kubelet that restarts rejects no pod")
                .isEqualTo(2 * 9_856 + 19_968);

        driver.run("mig-destroy", held);
        await(() -> reason(held).equals("NVML does not list it any more"));
        awaitPasses(12);
        limits = limits(all.get(2).uuid());
        await(() -> node.inventory().gpus().size() == 1);

        podResources.end("team", "ours");
        await(() -> node.capacity("nvidia.com/gpumem") == 9_856);
    }

    @Test
    void aCardThatIsTurnedToMigModeIsNoUnhealthyGpu() throws Exception {
        driver.install(A100, A100);
        podResources.run("team", "ours", "aliquot.io/vgpu", "slot-001");
        start();
        await(() -> node.capacity("nvidia.com/gpumem") == 163_840);
        String card = node.inventory().gpus().get(1).uuid();
        limits = limits(node.inventory().gpus().get(0).uuid());

        driver.run("mig", card, "on");
        driver.run("mig-create", card, "1g.10gb");
        await(() ->
                node.inventory().gpus().stream().anyMatch(gpu -> gpu.instance().isPresent()));

        await(() -> node.inventory().gpus().size() == 2);
        assertThat(node.everUnhealthy).isEmpty();
        assertThat(node.inventory().gpus()).extracting(Gpu::uuid).doesNotContain(card);
    }

    /** As one that was lost when the node joined. */
    @Test
    void aGpuWhoseMemoryNvmlHasNeverToldIsUnhealthyWithNvmlsReasonAndHasNoCapacity() throws Exception {
        driver.install(A100, A100);
        String lost;
        try (Nvml nvml = driver.open()) {
            lost = nvml.gpus().gpus().get(1).uuid();
        }
        driver.run("lose", lost);
        start();

        await(() -> node.hasInventory() && reason(lost).contains("GPU is lost"));
        assertThat(node.gpu(lost).memoryMiB()).isZero();
        await(() -> node.condition().contains("1 of 2 GPUs are healthy; " + lost + " ("));
        assertThat(node.condition()).contains("GPU is lost");
        assertThat(node.capacity("nvidia.com/gpumem")).isEqualTo(81_920);
        assertThat(node.capacity("nvidia.com/gpumem-percentage")).isEqualTo(100);
        assertThat(node.capacity("nvidia.com/gpucores")).isEqualTo(100);
        kubelet.nextList(list -> list.size() == 10);

        driver.run("return", lost);
        await(() -> node.inventory().gpus().stream().allMatch(Gpu::healthy));
        assertThat(node.gpu(lost).memoryMiB()).isEqualTo(81_920);
        await(() -> node.capacity("nvidia.com/gpumem") == 163_840);
    }

    private static Limits limits(String gpu) {
        var container = new PodContainer("team", "ours", "0a1b2c3d-0000-4000-8000-00000000000f", "main");
        return new Limits(List.of(new Limit(container, gpu, 1000, 0, CorePolicy.FIXED, Priority.NORMAL, Held.SHARE)));
    }

    @Test
    void aNodeThatIsMarkedForADriverUpgradeTakesNoPodsAndHasNoUnhealthyGpu() throws Exception {
        driver.install(A100);
        start();
        await(() -> agent.health().readinessProblems().isEmpty());

        node.labelAsAdmin("nvidia.com/gpu-driver-upgrade-state", "pod-restart-required");
        await(() -> node.inventory().conflict().startsWith("the driver is being upgraded: "));
        await(() -> unready("the driver is being upgraded"));
        driver.run("driver", "--unload");
        awaitPasses(6);
        assertThat(node.inventory().gpus()).allMatch(Gpu::healthy);
        assertThat(node.capacity("nvidia.com/gpumem")).isEqualTo(81_920);

        driver.run("driver", "--load");
        node.labelAsAdmin("nvidia.com/gpu-driver-upgrade-state", "upgrade-done");
        await(() -> node.inventory().conflict().isEmpty());
        await(() -> agent.health().readinessProblems().isEmpty());
        assertThat(node.inventory().gpus()).allMatch(Gpu::healthy);
    }

    @Test
    void anUpgradedDriverEndsTheAgentWhichServesAgainWithTheNewOne() throws Exception {
        driver.install(A100);
        var end = new CompletableFuture<NodeAgent.End>();
        NodeAgent first = agent;
        new Thread(() -> end.complete(first.run(node)), "agent").start();
        await(() -> agent.health().readinessProblems().isEmpty());
        node.annotateAsAdmin("aliquot.io/release-driver", "true");
        await(() -> unready("the driver is being upgraded"));

        driver.run("driver", "--version", "600.1-fake");
        node.annotateAsAdmin("aliquot.io/release-driver", "false");

        assertThat(end.get(20, TimeUnit.SECONDS)).isEqualTo(NodeAgent.End.RESTART);
        agent = newAgent(driver::open);
        start();
        await(() -> agent.health().readinessProblems().isEmpty());
        assertThat(node.inventory().driverVersion()).isEqualTo("600.1-fake");
        assertThat(node.inventory().bootId()).isEqualTo(BOOT_ID);
    }

    @Test
    void aDriverThatHangsStopsNeitherTheNodeNorTheEndOfTheAgent() throws Exception {
        driver.install(A100);
        start();
        await(() -> agent.health().readinessProblems().isEmpty());

        driver.run("driver", "--hang", "on");
        try {
            awaitPasses(4);
            node.annotateAsAdmin("aliquot.io/slots", "25");
            agent.wake();

            await(() -> node.inventory().slots() == 25);
            assertThat(agent.health().livenessProblems()).isEmpty();
        } finally {
            agent.close();
            driver.run("driver", "--hang", "off");
        }
    }

    @Test
    void reportsAMissingDriverAndRetries() throws Exception {
        driver.install(A100);
        var attempts = new int[1];
        agent.close();
        agent = newAgent(() -> {
            if (attempts[0]++ == 0) {
                return Nvml.open("/nowhere/libnvidia-ml.so.1", Path.of("/sys"));
            }
            return driver.open();
        });
        start();

        await(() -> unready("install NVIDIA's driver"));
        assertThat(agent.health().isReady()).isFalse();

        kubelet.nextRegistration();
        await(() -> agent.health().readinessProblems().isEmpty());
    }

    @Test
    void reportsANodeWithoutGpus() throws Exception {
        start();

        await(() -> unready("NVML lists no GPU"));
    }

    @Test
    void replacesAnUnreadableInventory() throws Exception {
        driver.install(A100);
        node.annotateAsAdmin("aliquot.io/gpus", "{");
        start();

        await(() -> node.writes() == 2);
        assertThat(node.inventory().gpus()).hasSize(1);
    }

    @Test
    void reportsAFailedWriteAndRetries() throws Exception {
        driver.install(A100);
        node.rejectOneWrite();
        start();

        await(() -> unready("not now"));
        await(() -> node.writes() == 2);
        await(() -> agent.health().readinessProblems().isEmpty());
    }

    @Test
    void anAgentThatServesItsNodeLabelsIt() throws Exception {
        driver.install(A100);
        start();

        await(() -> node.labels().containsKey("aliquot.io/node-agent"));
        assertThat(node.labels())
                .containsEntry("aliquot.io/node-agent", "on")
                .containsEntry("nvidia.com/gpu.deploy.device-plugin", "false")
                .containsEntry("nvidia.com/gpu.deploy.dra-driver", "false");
    }

    @Test
    void describesItsNodesGpusWhereNoOtherProgramDoes() throws Exception {
        driver.install(A100, A100);
        start();
        await(() -> node.labels().containsKey("nvidia.com/gpu.product"));
        assertThat(node.labels())
                .containsEntry("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB")
                .containsEntry("nvidia.com/gpu.count", "2")
                .containsKeys(FeatureDiscovery.LABELS.toArray(String[]::new));

        node.advertise("nvidia.com/gpu", 2);
        agent.wake();

        await(() -> FeatureDiscovery.LABELS.stream().noneMatch(node.labels()::containsKey));
        node.advertise("nvidia.com/gpu", 0);
        agent.wake();
        await(() -> node.labels().containsKey("nvidia.com/gpu.product"));
        node.annotateAsAdmin("aliquot.io/release-driver", "true");
        await(() -> unready("release-driver"));
        assertThat(node.labels()).containsKey("nvidia.com/gpu.product");
        node.labelAsAdmin("nvidia.com/gpu.deploy.driver", "true");
        await(() -> !node.labels().containsKey("nvidia.com/gpu.product"));
    }

    @Test
    void afterItsLabelIsGoneANodeLeavesWithItsLastVgpuAndLeavesNothingBehind() throws Exception {
        driver.install(A100);
        podResources.run("team", "ours", "aliquot.io/vgpu", "slot-001");
        start();
        await(() -> agent.health().readinessProblems().isEmpty());

        node.removeLabelAsAdmin("gpu");
        await(() -> unready("the node has no label gpu=on"));
        awaitPasses(12);
        assertThat(node.inventory().gpus()).hasSize(1);
        assertThat(sockets.toFile().list()).hasSize(2);

        podResources.end("team", "ours");

        await(() -> !node.labels().containsKey("aliquot.io/node-agent"));
        assertThat(node.labels()).isEmpty();
        assertThat(node.isEmpty()).isTrue();
        await(() -> sockets.toFile().list().length == 1);
    }

    @Test
    void aNodeWhoseLabelComesBackStaysOrReturns() throws Exception {
        driver.install(A100);
        start();
        kubelet.nextRegistration();
        node.removeLabelAsAdmin("gpu");
        await(() -> !node.labels().containsKey("aliquot.io/node-agent"));
        await(() -> unready("the node has left"));

        node.labelAsAdmin("gpu", "on");

        kubelet.nextRegistration();
        await(() -> agent.health().readinessProblems().isEmpty());
        assertThat(node.inventory().gpus()).hasSize(1);
        assertThat(node.capacity("nvidia.com/gpumem")).isEqualTo(81920);
        assertThat(node.labels()).containsEntry("aliquot.io/node-agent", "on");
    }

    @Test
    void aNodeTakesNoPodsWhileAnotherDevicePluginAdvertisesItsGpus() throws Exception {
        driver.install(A100);
        start();
        await(() -> agent.health().readinessProblems().isEmpty());

        node.advertise("nvidia.com/gpu", 4);
        agent.wake();
        await(() -> node.inventory().conflict().contains("advertises nvidia.com/gpu"));
        await(() -> unready("advertises nvidia.com/gpu"));
        assertThat(agent.health().isReady())
                .isTrue(); // or a rollout of the DaemonSet, and helm --wait, would wait for it
        await(() -> node.resources().equals(Map.of("nvidia.com/gpu", 4L)));
        assertThat(metrics.print()).contains("aliquot_agent_node_conflict 1.0");

        node.advertise("nvidia.com/gpu", 0);
        agent.wake();
        await(() -> node.inventory().conflict().isEmpty());
        await(() -> agent.health().readinessProblems().isEmpty());
    }

    /** A node that HAMi serves, with its label: a kubelet would reject HAMi's pods for amounts of the agent. */
    @Test
    void onANodeOfHamiTheAgentWritesNothingButTheConflict() throws Exception {
        driver.install(A100, A100);
        registerHami();
        node.advertise("nvidia.com/gpu", 20);
        node.advertise("nvidia.com/gpumem", 245_760); // not the agent's
        Map<String, Long> before = node.resources();
        start();
        await(() -> unready("HAMi serves this node's GPUs"));
        awaitPasses(10);

        assertThat(node.resources()).isEqualTo(before);
        assertThat(node.condition()).isEmpty();
        assertThat(node.inventory().conflict()).startsWith(Inventory.HAMI).contains("chart value nodeLabel");
        assertThat(node.inventory().withheld()).isTrue();
        assertThat(node.labels()).isEqualTo(Map.of("gpu", "on", "aliquot.io/node-agent", "on"));
        assertThat(sockets.toFile().list()).as("no socket but the kubelet's").hasSize(1);
        int writes = node.writes();

        restart();
        await(() -> unready("HAMi serves this node's GPUs"));
        awaitPasses(10);
        node.removeLabelAsAdmin("gpu");
        await(() -> !node.labels().containsKey("aliquot.io/node-agent"));

        assertThat(writes).isEqualTo(1);
        assertThat(node.resources()).isEqualTo(before);
    }

    @Test
    void whenHamiComesTheAgentRemovesItsAmountsWithTheLastVgpuAndReturnsWhenHamiHasGone() throws Exception {
        driver.install(A100);
        podResources.run("team", "ours", "aliquot.io/vgpu", "slot-001");
        start();
        await(() -> agent.health().readinessProblems().isEmpty());

        registerHami();
        await(() -> unready("HAMi serves this node's GPUs"));
        node.zeroExtendedResources(); // a kubelet that has lost its checkpoint
        awaitPasses(12);
        assertThat(node.capacity("nvidia.com/gpumem")).isEqualTo(81_920);
        assertThat(sockets.toFile().list()).hasSize(2);

        podResources.end("team", "ours");

        await(() -> node.resources().isEmpty() && node.inventory().withheld());
        await(() -> sockets.toFile().list().length == 1);
        assertThat(node.condition()).isEmpty();

        node.annotateAsAdmin("hami.io/node-handshake", "Deleted_2026.11.28 04:00:00");
        kubelet.nextRegistration();
        await(() -> agent.health().readinessProblems().isEmpty());
        assertThat(node.capacity("nvidia.com/gpumem")).isEqualTo(81_920);
        assertThat(node.condition()).startsWith("true");
        assertThat(node.inventory().withheld()).isFalse();
    }

    /** HAMi came while no agent ran. */
    @Test
    void amountsOfAnEarlierAgentOnANodeOfAnotherOwnerAreRemoved() throws Exception {
        driver.install(A100);
        start();
        await(() -> agent.health().readinessProblems().isEmpty());
        agent.close();
        registerHami();
        node.zeroExtendedResources();

        agent = newAgent(driver::open);
        start();

        await(() -> node.resources().isEmpty());
        await(() -> node.inventory().withheld());
        await(() -> sockets.toFile().list().length == 1);
    }

    /** From a claim that the kubelet reports to the GPU that its driver has published, and after the driver's end. */
    @Test
    void aNodeWhoseGpusADraDriverPublishesIsTheDriversAndAClaimHoldsItsGpu() throws Exception {
        driver.install(A100, A100);
        node.publish(List.of());
        start();
        await(() -> agent.health().readinessProblems().isEmpty());
        String uuid = node.inventory().gpus().get(1).uuid();

        podResources.claim("team", "dra", "gpu.nvidia.com", "node1", "gpu-1");
        node.publish(List.of(new DraDevice("gpu.nvidia.com", "node1/gpu-1", Set.of(uuid))));
        await(() -> unready("DRA driver gpu.nvidia.com publishes"));
        await(() -> node.resources().isEmpty());
        assertThat(node.gpu(uuid).heldBy()).containsExactly(new ForeignHolder("team/dra", "gpu.nvidia.com"));
        assertThat(node.inventory().gpus().get(0).heldBy()).isEmpty();

        node.publish(List.of());
        podResources.end("team", "dra");
        await(() -> agent.health().readinessProblems().isEmpty());
        assertThat(node.capacity("nvidia.com/gpumem")).isEqualTo(163_840);
        assertThat(node.gpu(uuid).heldBy()).isEmpty();
    }

    private void registerHami() {
        node.annotateAsAdmin("hami.io/node-nvidia-register", "GPU-8f6e8f0c,10,122880,100,NVIDIA-A100,0,true:");
        node.annotateAsAdmin("hami.io/node-handshake", "Requesting_2026.11.28 03:00:00");
    }

    /** The devices by which Cluster Autoscaler takes the node for ready are as many as its GPUs, and no conflict themselves. */
    @Test
    void theReadyResourceIsAdvertisedUnlessAnotherDevicePluginHasTheGpus() throws Exception {
        driver.install(A100, A100);
        agent.close();
        agent = newAgent(driver::open, INTERVAL, Map.of("ALIQUOT_READY_RESOURCE", "microsoft.com/directx"));
        start();
        assertThat(List.of(
                        kubelet.nextRegistration().getResourceName(),
                        kubelet.nextRegistration().getResourceName()))
                .containsExactlyInAnyOrder("aliquot.io/vgpu", "microsoft.com/directx");
        kubelet.nextList(list -> list.size() == 2);
        node.advertise("microsoft.com/directx", 2);
        awaitPasses(2);
        await(() -> agent.health().readinessProblems().isEmpty());
        assertThat(sockets("aliquot.ready-*.sock")).hasSize(1);

        node.advertise("nvidia.com/gpu", 4);
        agent.wake();
        await(() -> sockets("aliquot.ready-*.sock").isEmpty());
        node.advertise("nvidia.com/gpu", 0);
        agent.wake();
        assertThat(kubelet.nextRegistration().getResourceName()).isEqualTo("microsoft.com/directx");
    }

    private List<Path> sockets(String glob) throws IOException {
        try (var found = Files.newDirectoryStream(sockets, glob)) {
            var list = new ArrayList<Path>();
            found.forEach(list::add);
            return list;
        }
    }

    @Test
    void aGpuIsHeldUntilThePodOfAnotherDevicePluginEnds() throws Exception {
        driver.install(A100, A100);
        start();
        await(node::hasInventory);
        String uuid = node.inventory().gpus().get(0).uuid();

        podResources.run("team", "train", "nvidia.com/gpu", uuid);
        await(() -> !node.inventory().gpus().get(0).heldBy().isEmpty());
        assertThat(node.inventory().gpus().get(0).heldBy())
                .containsExactly(new ForeignHolder("team/train", "nvidia.com/gpu"));
        assertThat(node.inventory().gpus().get(1).heldBy()).isEmpty();
        await(() -> metrics.print().contains("aliquot_agent_gpus_held_by_others 1.0"));

        podResources.stop();
        await(() -> unready("cannot be counted"));
        assertThat(node.inventory().conflict()).contains("cannot be counted");
        assertThat(node.inventory().gpus().get(0).heldBy()).hasSize(1);
        podResources.end("team", "train");
        podResources.restart();

        await(() -> node.inventory().gpus().get(0).heldBy().isEmpty());
        assertThat(node.inventory().conflict()).isEmpty();
    }

    /** Otherwise a GPU that a pod of another device plugin holds would look free until the kubelet answers. */
    @Test
    void publishesNoFirstInventoryBeforeTheKubeletHasNamedTheHolders() throws Exception {
        driver.install(A100);
        podResources.stop();
        start();

        await(() -> unready("publishes no inventory yet"));
        awaitPasses(3);
        assertThat(node.hasInventory()).isFalse();

        podResources.restart();
        await(node::hasInventory);
        await(() -> agent.health().readinessProblems().isEmpty());
    }

    /** The scheduler reads the corrected setting before the agent can write another inventory. */
    @Test
    void theHoldersArePublishedAlsoWhileANodeSettingIsInvalid() throws Exception {
        driver.install(A100);
        start();
        await(node::hasInventory);
        String uuid = node.inventory().gpus().get(0).uuid();
        node.annotateAsAdmin("aliquot.io/slots", "none");

        podResources.run("team", "train", "nvidia.com/gpu", uuid);

        await(() -> !node.inventory().gpus().get(0).heldBy().isEmpty());
        assertThat(node.inventory().slots()).isEqualTo(10);
    }

    /**
     * The scheduler binds nothing to the node then. The agent's passes are a minute apart here, so that only the end of the
     * kubelet's connection can have caused the write.
     */
    @Test
    void theNodeSaysAtOnceThatItsKubeletIsGoneAndThatTheDevicesAreBack() throws Exception {
        agent.close();
        agent = newAgent(driver::open, Duration.ofMinutes(1), Map.of());
        driver.install(A100);
        start();
        kubelet.nextList(list -> !list.isEmpty());
        await(node::hasInventory);
        agent.wake();
        await(() -> agent.health().readinessProblems().isEmpty());

        for (int restart = 0; restart < 3; restart++) {
            assertThat(node.inventory().conflict()).isEmpty();
            kubelet.kill();
            await(() -> node.inventory().conflict().equals(Inventory.KUBELET_GONE));
            awaitPasses(1);
            assertThat(node.inventory().conflict()).isEqualTo(Inventory.KUBELET_GONE);

            kubelet.start();
            kubelet.nextList(list -> !list.isEmpty());
            await(() -> node.inventory().conflict().isEmpty());
        }
        assertThat(agent.health().readinessProblems()).isEmpty();
    }

    private String reason(String uuid) {
        return node.gpu(uuid)
                .health()
                .unhealthy()
                .map(GpuHealth.Unhealthy::reason)
                .orElse("");
    }

    @Test
    void containersGetTheirGpusByCdiWhereTheRuntimeResolvesItAndItNamesThem() throws Exception {
        driver.install(A100, A100);
        start();
        kubelet.nextRegistration();
        await(() -> agent.health().readinessProblems().isEmpty());
        List<String> gpus = node.inventory().gpus().stream().map(Gpu::uuid).toList();
        assertThat(node.inventory().visibleDevices().template()).isEqualTo("{uuid}");
        name(gpus);
        awaitPasses(3);
        assertThat(node.inventory().visibleDevices().template())
                .as("containerd 1")
                .isEqualTo("{uuid}");

        name(gpus.subList(0, 1));
        node.runtime("containerd://2.2.0");
        awaitPasses(3);
        assertThat(node.inventory().visibleDevices().template())
                .as("one has no name")
                .isEqualTo("{uuid}");
        assertThat(kubelet.requiresPreStart()).isFalse();
        name(gpus);
        agent.wake();

        await(() -> node.inventory().visibleDevices().equals(VisibleDevices.BY_ALLOCATE));
        kubelet.nextRegistration();
        assertThat(kubelet.requiresPreStart()).isTrue();
        await(() -> agent.health().readinessProblems().isEmpty());
        ContainerAllocateResponse answer = kubelet.allocate("slot-000").getContainerResponses(0);
        assertThat(answer.getMountsList()).isEmpty();
        assertThat(answer.getCdiDevices(0).getName()).startsWith("aliquot.io/vgpu=slot-000-");
    }

    /** As while a program replaces NVIDIA's specification: Bind has written into a pod's annotations which way it is. */
    @Test
    void aNodeThatInjectsByCdiTakesNoPodsWhileCdiDoesNotNameItsGpus() throws Exception {
        driver.install(A100);
        node.runtime("cri-o://1.35.0");
        start();
        await(() -> agent.health().readinessProblems().isEmpty());
        String gpu = node.inventory().gpus().getFirst().uuid();
        name(List.of(gpu));
        agent.wake();
        await(() -> node.inventory().visibleDevices().equals(VisibleDevices.BY_ALLOCATE));

        Files.delete(cdi.resolve("nvidia.json"));
        restart();

        await(() ->
                node.inventory().conflict().contains("names nvidia.com/gpu=" + gpu + ": run nvidia-ctk cdi generate"));
        assertThat(node.inventory().visibleDevices()).isEqualTo(VisibleDevices.BY_ALLOCATE);
        await(() -> unready("run nvidia-ctk cdi generate"));
        name(List.of(gpu));
        agent.wake();
        await(() -> node.inventory().conflict().isEmpty()
                && agent.health().readinessProblems().isEmpty());
    }

    @Test
    void theSettingDecidesWhateverTheNodeHas() throws Exception {
        driver.install(A100);
        agent.close();
        agent = newAgent(driver::open, INTERVAL, Map.of("ALIQUOT_DEVICE_INJECTION", "cdi"));
        start();
        await(() -> unready("run nvidia-ctk cdi generate"));
        await(() -> node.inventory().visibleDevices().equals(VisibleDevices.BY_ALLOCATE));
        name(List.of(node.inventory().gpus().getFirst().uuid()));
        agent.wake();
        await(() -> agent.health().readinessProblems().isEmpty());

        agent.close();
        node.runtime("containerd://2.2.0");
        agent = newAgent(driver::open, INTERVAL, Map.of("ALIQUOT_DEVICE_INJECTION", "runtime"));
        start();

        await(() -> node.inventory().visibleDevices().template().equals("{uuid}"));
    }

    /** Writes the specification of NVIDIA's for these GPUs. */
    private void name(List<String> gpus) throws IOException {
        Files.writeString(
                cdi.resolve("nvidia.json"),
                gpus.stream()
                        .map(gpu -> "{\"name\":\"" + gpu + "\"}")
                        .collect(Collectors.joining(
                                ",", "{\"cdiVersion\":\"0.6.0\",\"kind\":\"nvidia.com/gpu\",\"devices\":[", "]}")));
    }

    private boolean unready(String problem) {
        return agent.health().readinessProblems().stream().anyMatch(reason -> reason.contains(problem));
    }

    private NodeAgent newAgent(NvmlSession.Opener opener) throws IOException {
        return newAgent(opener, INTERVAL, Map.of());
    }

    private NodeAgent newAgent(NvmlSession.Opener opener, Duration interval, Map<String, String> more)
            throws IOException {
        Map<String, String> environment = new HashMap<>(more);
        environment.put("NODE_NAME", "node1");
        environment.put("ALIQUOT_KUBELET_ROOT", kubeletRoot.toString());
        environment.put("ALIQUOT_LABEL_GPU_OPERATOR", "true");
        Settings settings = Settings.parse(environment);
        var shim = new Shim(
                "1.0-abc", Path.of("/host/libaliquot.so"), Path.of("/host/ld.so.preload"), Path.of("/host/hook"));
        SlotFiles files = SlotFiles.open(host);
        var nvidiaDevices = new NvidiaDevices(List.of(host.resolve("etc-cdi"), cdi));
        var cdiContainers = new CdiContainers(host, cdi, nvidiaDevices, HOOK, InstantSource.system());
        var registrar = KubeletRegistrar.ofVgpus(
                sockets,
                files,
                shim,
                cdiContainers,
                (podUid, container) -> limits.of(podUid, container),
                metrics,
                InstantSource.system(),
                System::nanoTime);
        return new NodeAgent(
                settings,
                opener,
                registrar,
                files,
                new NodeAgent.Folders(host, host, host, List.of(cdi), host),
                metrics,
                BOOT_ID,
                CERTIFICATE,
                () -> limits,
                nvidiaDevices,
                cdiContainers,
                interval,
                InstantSource.system(),
                System::nanoTime);
    }

    /** Starts the agent and waits until it has read the GPUs, since when it listens for XID errors; returns the UUID of the first GPU. */
    private String startListening() throws Exception {
        start();
        await(() -> agent.health().readinessProblems().isEmpty());
        return node.inventory().gpus().getFirst().uuid();
    }

    private void restart() throws IOException {
        agent.close();
        agent = newAgent(driver::open);
        start();
    }

    private void start() {
        NodeAgent started = agent;
        new Thread(() -> started.run(node), "agent").start();
    }

    /** Waits until so many passes of the agent have begun and ended. */
    private void awaitPasses(int count) throws Exception {
        long last = agent.passes() + 1 + count; // a pass may be under way
        await(() -> {
            agent.wake();
            return agent.passes() >= last;
        });
    }

    private static final class InMemoryNode implements NodeClient {
        private final Map<String, String> labels = new HashMap<>(Map.of("gpu", "on"));
        private final Map<String, String> annotations = new HashMap<>();
        private final Map<String, Long> resources = new HashMap<>();
        private final Map<String, NodeCondition> conditions = new HashMap<>();
        private final Set<String> everUnhealthy = ConcurrentHashMap.newKeySet();
        private int writes;
        private int conditionWrites;
        private boolean rejecting;
        private String runtime = "containerd://1.7.29";
        private List<DraDevice> published = List.of();

        synchronized void publish(List<DraDevice> devices) {
            published = devices;
        }

        synchronized void runtime(String version) {
            runtime = version;
        }

        @Override
        public synchronized Optional<List<DraDevice>> draDevices() {
            return Optional.of(published);
        }

        @Override
        public synchronized Optional<NodeView> latest() {
            return Optional.of(new NodeView(labels, annotations, resources, resources, conditions, runtime));
        }

        @Override
        public synchronized void patchMetadata(MetadataPatch patch) throws NodeWriteException {
            if (rejecting) {
                rejecting = false;
                throw new NodeWriteException("not now", new IOException());
            }
            labels.putAll(patch.labels());
            annotations.putAll(patch.annotations());
            labels.keySet().removeAll(patch.removedLabels());
            annotations.keySet().removeAll(patch.removedAnnotations());
            if (hasInventory()) {
                inventory().gpus().stream().filter(gpu -> !gpu.healthy()).forEach(gpu -> everUnhealthy.add(gpu.uuid()));
            }
            if (!isOfFeatureLabels(patch)) {
                writes++;
            }
        }

        private static boolean isOfFeatureLabels(MetadataPatch patch) {
            return patch.annotations().containsKey("aliquot.io/gpu-labels")
                    || patch.removedAnnotations().contains("aliquot.io/gpu-labels")
                    || patch.labels().keySet().stream().anyMatch(FeatureDiscovery.LABELS::contains);
        }

        @Override
        public synchronized Optional<Boolean> hasGpuOperator() {
            return Optional.of(false);
        }

        @Override
        public synchronized void removeExtendedResources(Collection<String> names) {
            resources.keySet().removeAll(names);
            writes++;
        }

        @Override
        public synchronized void setExtendedResources(Map<String, Long> amounts) {
            resources.putAll(amounts);
            writes++;
        }

        @Override
        public synchronized void setCondition(NodeCondition condition) {
            conditions.put(condition.type(), condition);
            conditionWrites++;
        }

        synchronized int conditionWrites() {
            return conditionWrites;
        }

        @Override
        public synchronized void removeCondition(String type) {
            conditions.remove(type);
        }

        synchronized String condition() {
            return Optional.ofNullable(conditions.get("AliquotGPUsHealthy"))
                    .map(condition -> condition.status() + " " + condition.reason() + " " + condition.message())
                    .orElse("");
        }

        @Override
        public void close() {}

        synchronized void removeLabelAsAdmin(String key) {
            labels.remove(key);
        }

        synchronized void advertise(String resource, long amount) {
            resources.put(resource, amount);
        }

        synchronized Map<String, Long> resources() {
            return Map.copyOf(resources);
        }

        synchronized Map<String, String> labels() {
            return Map.copyOf(labels);
        }

        synchronized boolean isEmpty() {
            return annotations.isEmpty() && resources.isEmpty() && conditions.isEmpty();
        }

        synchronized void labelAsAdmin(String key, String value) {
            labels.put(key, value);
        }

        synchronized void annotateAsAdmin(String key, String value) {
            annotations.put(key, value);
        }

        synchronized void zeroExtendedResources() {
            resources.replaceAll((resource, amount) -> 0L);
        }

        synchronized void rejectOneWrite() {
            rejecting = true;
        }

        synchronized int writes() {
            return writes;
        }

        synchronized long capacity(String resource) {
            return resources.getOrDefault(resource, 0L);
        }

        Gpu gpu(String uuid) {
            return inventory().gpus().stream()
                    .filter(gpu -> gpu.uuid().equals(uuid))
                    .findAny()
                    .orElseThrow();
        }

        synchronized boolean hasInventory() {
            return annotations.containsKey("aliquot.io/gpus");
        }

        synchronized Inventory inventory() {
            return Inventory.parse(annotations.getOrDefault("aliquot.io/gpus", ""));
        }
    }
}
