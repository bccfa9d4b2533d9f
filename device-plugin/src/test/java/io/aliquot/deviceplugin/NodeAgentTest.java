package io.aliquot.deviceplugin;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.Gpu;
import io.aliquot.api.Inventory;
import io.aliquot.api.Scaling;
import io.aliquot.deviceplugin.kubelet.KubeletRegistrar;
import io.aliquot.deviceplugin.kubelet.TestKubelet;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import io.aliquot.deviceplugin.node.NodeClient;
import io.aliquot.deviceplugin.node.NodeView;
import io.aliquot.deviceplugin.node.NodeWriteException;
import io.aliquot.deviceplugin.nvml.FakeDriver;
import io.aliquot.deviceplugin.nvml.Nvml;
import io.aliquot.deviceplugin.shim.Shim;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The whole process but for its API client: real NVML (the fake driver's), real sockets, a Node in memory. */
@Timeout(60)
final class NodeAgentTest {
    private static final String A100 = "NVIDIA A100-SXM4-80GB;81920;108";
    private static final Duration LOOK = Duration.ofMillis(50);

    private final FakeDriver driver = new FakeDriver();
    private final NodeInMemory node = new NodeInMemory();
    private final AgentMetrics metrics = new AgentMetrics();
    private final Path host;
    private final Path sockets;
    private final TestKubelet kubelet;
    private NodeAgent agent;

    NodeAgentTest(@TempDir Path host, @TempDir Path sockets) throws IOException {
        this.host = host;
        this.sockets = sockets;
        kubelet = new TestKubelet(sockets);
        agent = newAgent(driver::open);
    }

    @AfterEach
    void stop() {
        agent.close();
        kubelet.close();
    }

    @Test
    void aNodeGetsItsInventoryItsTotalsAndItsSlots() throws Exception {
        driver.install(A100, A100);
        start();

        kubelet.nextRegistration();
        kubelet.nextList(list -> list.size() == 20);
        await(() -> node.total("nvidia.com/gpumem") == 163_840);
        assertThat(node.total("nvidia.com/gpumem-percentage")).isEqualTo(200);
        assertThat(node.total("nvidia.com/gpucores")).isEqualTo(200);
        Inventory inventory = node.inventory();
        assertThat(inventory.slots()).isEqualTo(10);
        assertThat(inventory.gpus()).extracting(Gpu::memoryMiB).containsExactly(81920, 81920);
        assertThat(inventory.gpus()).allMatch(Gpu::healthy);
        await(() -> agent.waitingFor().isEmpty());
    }

    @Test
    void nothingIsWrittenWhileNothingChanges() throws Exception {
        driver.install(A100);
        start();
        await(() -> node.writes() == 2);

        Thread.sleep(LOOK.multipliedBy(6).toMillis());

        assertThat(node.writes()).isEqualTo(2);
    }

    @Test
    void totalsThatAKubeletZeroedAreWrittenAgain() throws Exception {
        driver.install(A100);
        start();
        await(() -> node.total("nvidia.com/gpumem") == 81920);

        node.zeroTotals();
        agent.wake();

        await(() -> node.total("nvidia.com/gpumem") == 81920);
    }

    @Test
    void totalsAreWrittenAgainEvenWhileAWishOfTheNodeIsRefused() throws Exception {
        driver.install(A100);
        start();
        await(() -> node.total("nvidia.com/gpumem") == 81920);
        node.annotateAsAdmin("aliquot.io/memory-scaling", "double");

        node.zeroTotals();
        agent.wake();

        await(() -> node.total("nvidia.com/gpumem") == 81920);
    }

    @Test
    void theNodesAnnotationOfSlotsIsLive() throws Exception {
        driver.install(A100, A100);
        start();
        kubelet.nextList(list -> list.size() == 20);

        node.annotateAsAdmin("aliquot.io/slots", "25");
        agent.wake();

        kubelet.nextList(list -> list.size() == 50);
        await(() -> node.inventory().slots() == 25);
    }

    @Test
    void theNodesScalingsAreLiveAndTotalsFollowThemUpwards() throws Exception {
        driver.install(A100, A100);
        start();
        await(() -> node.total("nvidia.com/gpumem") == 163_840);

        node.annotateAsAdmin("aliquot.io/memory-scaling", "1.5");
        node.annotateAsAdmin("aliquot.io/core-scaling", "2");
        agent.wake();

        await(() -> node.total("nvidia.com/gpumem") == 245_760 && node.total("nvidia.com/gpucores") == 400);
        assertThat(node.total("nvidia.com/gpumem-percentage")).isEqualTo(300);
        assertThat(node.inventory().memoryScaling()).isEqualTo(new Scaling(150));
        assertThat(node.inventory().coreScaling()).isEqualTo(new Scaling(200));
    }

    /** Or kube-scheduler would refuse pods for compute that nobody reserves. */
    @Test
    void whereMemoryAloneIsSharedTheTotalOfComputeIsAllThatCanBeAskedFor() throws Exception {
        driver.install(A100, A100);
        start();
        await(() -> node.total("nvidia.com/gpucores") == 200);

        node.labelAsAdmin("aliquot.io/share", "memory");
        agent.wake();

        await(() -> node.total("nvidia.com/gpucores") == 2000);
        assertThat(node.total("nvidia.com/gpumem")).isEqualTo(163_840);
        node.labelAsAdmin("aliquot.io/share", "half");
        agent.wake();
        await(() -> metrics.print().contains("aliquot_agent_node_setting_errors 1.0"));
        assertThat(node.total("nvidia.com/gpucores")).isEqualTo(2000);
    }

    /** A restarted kubelet rejects running pods whose requests are more than its node has. */
    @Test
    void totalsStayWhenAScalingIsLoweredWhatIsSoldDoesNot() throws Exception {
        driver.install(A100);
        node.annotateAsAdmin("aliquot.io/memory-scaling", "2");
        start();
        await(() -> node.total("nvidia.com/gpumem") == 163_840);

        node.annotateAsAdmin("aliquot.io/memory-scaling", "1");
        agent.wake();
        await(() -> node.inventory().memoryScaling().equals(Scaling.ONE));
        node.zeroTotals();
        agent.wake();

        await(() -> node.total("nvidia.com/gpumem") == 163_840);
        assertThat(node.total("nvidia.com/gpumem-percentage")).isEqualTo(200);
        agent.close();
        agent = newAgent(driver::open);
        start();
        await(() -> agent.waitingFor().isEmpty());
        assertThat(node.total("nvidia.com/gpumem")).isEqualTo(163_840);
    }

    @Test
    void aWishThatIsRefusedLeavesInventoryAndSlotsAsTheyWere() throws Exception {
        driver.install(A100, A100);
        start();
        kubelet.nextList(list -> list.size() == 20);
        await(() -> node.writes() == 2);
        String before = node.inventory().print();

        node.annotateAsAdmin("aliquot.io/memory-scaling", "1000"); // first, or slots alone might be seen and granted
        node.annotateAsAdmin("aliquot.io/slots", "25");
        agent.wake();

        await(() -> metrics.print().contains("aliquot_agent_node_setting_errors 1.0"));
        Thread.sleep(LOOK.multipliedBy(3).toMillis());
        assertThat(node.inventory().print()).isEqualTo(before);
        assertThat(node.writes()).isEqualTo(2);
    }

    @Test
    void aLostGpuIsUnhealthyInInventoryAndSlotsAndKeepsItsTotals() throws Exception {
        driver.install(A100, A100);
        start();
        kubelet.nextList(list -> list.size() == 20);
        await(() -> node.total("nvidia.com/gpumem") == 163_840);
        String lost = node.inventory().gpus().get(0).uuid();

        driver.fail(lost, 79);

        kubelet.nextList(list -> list.stream()
                        .filter(slot -> slot.getHealth().equals("Unhealthy"))
                        .count()
                == 10);
        await(() -> node.inventory().gpus().stream().anyMatch(gpu -> gpu.uuid().equals(lost) && !gpu.healthy()));
        assertThat(node.inventory().gpus()).hasSize(2);
        assertThat(node.total("nvidia.com/gpumem")).isEqualTo(163_840);
    }

    @Test
    void aRestartedAgentRemembersAGpuThatIsGone() throws Exception {
        driver.install(A100, A100);
        start();
        await(() -> node.writes() == 2);
        String gone = node.inventory().gpus().get(1).uuid();
        agent.close();

        driver.remove(gone);
        agent = newAgent(driver::open);
        start();

        await(() -> node.inventory().gpus().stream().anyMatch(gpu -> gpu.uuid().equals(gone) && !gpu.healthy()));
        assertThat(node.total("nvidia.com/gpumem")).isEqualTo(163_840);
        kubelet.nextList(list -> list.size() == 20
                && list.stream()
                                .filter(slot -> slot.getHealth().equals("Healthy"))
                                .count()
                        == 10);
    }

    @Test
    void withoutADriverTheReasonIsSaidAndTriedAgain() throws Exception {
        driver.install(A100);
        var tries = new int[1];
        agent.close();
        agent = newAgent(() -> {
            if (tries[0]++ == 0) {
                return Nvml.open("/nowhere/libnvidia-ml.so.1", Path.of("/sys"));
            }
            return driver.open();
        });
        start();

        await(() -> agent.waitingFor().contains("install NVIDIA's driver"));

        kubelet.nextRegistration();
        await(() -> agent.waitingFor().isEmpty());
    }

    @Test
    void aNodeWithoutGpusIsSaidToBeOne() throws Exception {
        start();

        await(() -> agent.waitingFor().contains("NVML shows no GPU"));
    }

    @Test
    void anUnreadableInventoryIsWrittenAnew() throws Exception {
        driver.install(A100);
        node.annotateAsAdmin("aliquot.io/gpus", "{");
        start();

        await(() -> node.writes() == 2);
        assertThat(node.inventory().gpus()).hasSize(1);
    }

    @Test
    void aWriteThatFailsIsSaidAndTriedAgain() throws Exception {
        driver.install(A100);
        node.refuseOnce();
        start();

        await(() -> agent.waitingFor().contains("not now"));
        await(() -> node.writes() == 2);
        await(() -> agent.waitingFor().isEmpty());
    }

    private NodeAgent newAgent(NodeAgent.NvmlOpener opener) throws IOException {
        Settings settings = Settings.parse(Map.of("NODE_NAME", "node1"));
        var shim = new Shim("1.0-abc", Path.of("/host/libaliquot.so"), Path.of("/host/ld.so.preload"));
        return new NodeAgent(settings, opener, new KubeletRegistrar(sockets, host, shim, metrics), metrics, LOOK);
    }

    private void start() {
        NodeAgent started = agent;
        new Thread(() -> started.run(node), "agent").start();
    }

    private static void await(Callable<Boolean> condition) throws Exception {
        long until = System.nanoTime() + Duration.ofSeconds(20).toNanos();
        while (!condition.call() && System.nanoTime() < until) {
            Thread.sleep(10);
        }
        assertThat(condition.call()).isTrue();
    }

    private static final class NodeInMemory implements NodeClient {
        private final Map<String, String> labels = new HashMap<>(Map.of("gpu", "on"));
        private final Map<String, String> annotations = new HashMap<>();
        private final Map<String, Long> resources = new HashMap<>();
        private int writes;
        private boolean refusing;

        @Override
        public synchronized Optional<NodeView> latest() {
            return Optional.of(new NodeView(labels, annotations, resources, resources));
        }

        @Override
        public synchronized void annotate(String key, String value) throws NodeWriteException {
            if (refusing) {
                refusing = false;
                throw new NodeWriteException("not now", new IOException());
            }
            annotations.put(key, value);
            writes++;
        }

        @Override
        public synchronized void putResources(Map<String, Long> amounts) {
            resources.putAll(amounts);
            writes++;
        }

        @Override
        public void close() {}

        synchronized void labelAsAdmin(String key, String value) {
            labels.put(key, value);
        }

        synchronized void annotateAsAdmin(String key, String value) {
            annotations.put(key, value);
        }

        synchronized void zeroTotals() {
            resources.replaceAll((resource, amount) -> 0L);
        }

        synchronized void refuseOnce() {
            refusing = true;
        }

        synchronized int writes() {
            return writes;
        }

        synchronized long total(String resource) {
            return resources.getOrDefault(resource, 0L);
        }

        synchronized Inventory inventory() {
            return Inventory.parse(annotations.getOrDefault("aliquot.io/gpus", ""));
        }
    }
}
