package io.aliquot.scheduler.apiserver.reader;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.nodes.ForeignHolder;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.pods.Placement;
import io.aliquot.api.pods.Vgpu;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.scheduler.ledger.Commitment.Conflict;
import io.aliquot.scheduler.ledger.Commitment.Granted;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerListener;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.fabric8.kubernetes.api.model.NodeBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.api.model.Quantity;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

/**
 * Random histories of a node that Aliquot and other device plugins use in turn. The ledger and the readers of nodes and
 * pods are the real ones; the node's agent is a model of what it publishes. At every grant the test compares the GPU with
 * what really runs there. Another device plugin does not know Aliquot's pods, so a pod of it may start on a GPU that they
 * hold; the reverse must never happen.
 */
class ForeignPodHistoriesTest {
    private static final int HISTORIES = 100;
    private static final int STEPS = 400;
    private static final int GPU_MIB = 1000;

    private int grants;
    private int grantsBesideHami;
    private int refusalsOfHeldGpus;

    /** A history in which a plugin came, started a pod and was forgotten while the agent was down. */
    @Test
    void noDoubleAllocationByAnAgentThatMissedAPlugin() {
        runHistories(11115656454881L, 1);
    }

    @Test
    void noDoubleAllocationIn100RandomHistoriesOfLabelsForeignPodsAndOurs() {
        long first = System.nanoTime();
        System.out.println("seeds from " + first);
        runHistories(first, HISTORIES);
        assertThat(grants).as("grants").isGreaterThan(HISTORIES);
        assertThat(grantsBesideHami).as("grants beside pods of HAMi").isPositive();
        assertThat(refusalsOfHeldGpus).as("refusals of held GPUs").isPositive();
    }

    private void runHistories(long firstSeed, int count) {
        for (long seed = firstSeed; seed < firstSeed + count; seed++) {
            var history = new RandomHistory(seed);
            for (int step = 0; step < STEPS; step++) {
                history.step();
            }
        }
    }

    /** A running pod of another device plugin. */
    private record Foreign(Pod pod, boolean hami, String gpu, int memoryMiB) {}

    private final class RandomHistory {
        private final long seed;
        private final Random random;
        private final Ledger ledger = new Ledger(() -> 0, new LedgerListener() {
            @Override
            public void capacityFreed(String node) {}

            @Override
            public void overallocated(String node, String gpu) {}
        });
        private final NodeReader reader = new NodeReader(Placement.BINPACK);
        private final List<Gpu> gpus = List.of(Gpus.gpu(1, 0, GPU_MIB), Gpus.gpu(1, 1, GPU_MIB));

        // What really is.
        private final Map<String, Foreign> foreign = new TreeMap<>();
        private final Map<String, Vgpu> ours = new TreeMap<>();
        private boolean labeled = true;
        private boolean plugin;
        private boolean resourceKnown;
        private boolean podResources = true;
        private boolean agent = true;
        /** Whether the agent has had the kubelet's answer since it started. */
        private boolean counted;

        private Inventory published = Gpus.inventory(10, gpus.toArray(new Gpu[0]));
        private boolean hasInventory = true;
        /** Reports of the pod watch that the scheduler has not received yet, in order. */
        private final ArrayDeque<Runnable> reports = new ArrayDeque<>();

        private int names;

        RandomHistory(long seed) {
            this.seed = seed;
            this.random = new Random(seed);
            nodeChanged();
        }

        void step() {
            switch (random.nextInt(16)) {
                case 0 -> labeled = !labeled;
                case 1, 2 -> plugin = !plugin;
                case 3 -> resourceKnown = plugin; // the kubelet forgets the resource some minutes after the plugin
                case 4 -> podResources = !podResources;
                case 5 -> {
                    agent = !agent;
                    counted = false;
                    ledger.setAgentReady("n1", false);
                }
                case 6, 7 -> startForeign();
                case 8 -> endForeign();
                case 9, 10 -> {
                    if (!reports.isEmpty()) {
                        reports.remove().run();
                    }
                }
                case 11 -> endOurs();
                case 12, 13, 14 -> placeOurs();
                default -> {} // the agent's periodic pass
            }
            resourceKnown |= plugin;
            nodeChanged();
        }

        private void startForeign() {
            if (!plugin) {
                return;
            }
            String gpu = gpus.get(random.nextInt(gpus.size())).uuid();
            int memoryMiB = 100 * (1 + random.nextInt(5));
            boolean hami = random.nextBoolean();
            boolean unreadable = random.nextInt(5) == 0;
            // A user may also write HAMi's annotation to a pod that holds a GPU of NVIDIA's plugin, or rewrite it.
            boolean rewritten = !hami || random.nextBoolean();
            String record =
                    unreadable ? gpu + "[0-1],NVIDIA,100,0:;" : gpu + ",NVIDIA," + (rewritten ? 1 : memoryMiB) + ",0:;";
            String name = "f" + names++;
            Pod pod = new PodBuilder()
                    .withNewMetadata()
                    .withNamespace("team")
                    .withName(name)
                    .withUid(name)
                    .addToAnnotations("hami.io/vgpu-devices-allocated", record)
                    .endMetadata()
                    .withNewSpec()
                    .withNodeName("n1")
                    .addNewContainer()
                    .withName("main")
                    .withNewResources()
                    .addToLimits("nvidia.com/gpu", new Quantity("1"))
                    .addToLimits("nvidia.com/gpumem", new Quantity("" + memoryMiB))
                    .endResources()
                    .endContainer()
                    .endSpec()
                    .build();
            foreign.put(name, new Foreign(pod, hami, gpu, memoryMiB));
            reports.add(() -> {
                try {
                    PodReader.foreign(pod).ifPresent(ledger::observeForeign);
                } catch (FormatException e) {
                    ledger.removeForeign("n1", name);
                }
            });
        }

        private void endForeign() {
            if (!foreign.isEmpty()) {
                String name = any(foreign);
                foreign.remove(name);
                reports.add(() -> ledger.removeForeign("n1", name));
            }
        }

        private void endOurs() {
            if (!ours.isEmpty()) {
                String name = any(ours);
                ours.remove(name);
                ledger.observeEnded(name);
            }
        }

        private String any(Map<String, ?> pods) {
            return List.copyOf(pods.keySet()).get(random.nextInt(pods.size()));
        }

        private void placeOurs() {
            PodGpuRequest request = random.nextInt(4) == 0
                    ? Gpus.request("APP:main: gpu=1")
                    : Gpus.request("APP:main: gpumem=" + 100 * (1 + random.nextInt(5)));
            String name = "o" + names++;
            switch (ledger.commit(new PodId("team", name, name), "n1", request, 1)) {
                case Granted granted -> {
                    Vgpu vgpu = Gpus.of(granted.containers(), "main").list().get(0);
                    check(vgpu);
                    ours.put(name, vgpu);
                }
                case Conflict conflict ->
                    refusalsOfHeldGpus += conflict.reason().contains("another device plugin holds") ? 1 : 0;
                default -> throw new AssertionError("a new pod is granted or refused");
            }
        }

        private void check(Vgpu granted) {
            long memoryMiB = granted.memoryMiB();
            boolean alone = true;
            grants++;
            for (Vgpu other : ours.values()) {
                if (other.uuid().equals(granted.uuid())) {
                    memoryMiB += other.memoryMiB();
                    alone = false;
                    assertThat(other.exclusive()).as("whole card, seed " + seed).isFalse();
                }
            }
            for (Foreign pod : foreign.values()) {
                if (pod.gpu().equals(granted.uuid())) {
                    assertThat(pod.hami())
                            .as("only pods of HAMi share, seed " + seed)
                            .isTrue();
                    memoryMiB += pod.memoryMiB();
                    alone = false;
                    grantsBesideHami++;
                }
            }
            assertThat(memoryMiB).as("memory of a GPU, seed " + seed).isLessThanOrEqualTo(GPU_MIB);
            assertThat(granted.exclusive() && !alone)
                    .as("whole card, seed " + seed)
                    .isFalse();
        }

        /** The agent follows each change of the Node at once; the scheduler sees the Node before and after. */
        private void nodeChanged() {
            report();
            if (agent) {
                pass();
                report();
                ledger.setAgentReady("n1", hasInventory);
            }
        }

        /** A pass of the agent, as the device plugin's Reconciler and OtherDevicePlugins make it. */
        private void pass() {
            if (!labeled && podResources && ours.isEmpty()) {
                hasInventory = false;
                return;
            }
            if (!podResources && !hasInventory) {
                return;
            }
            var held = new ArrayList<Gpu>();
            for (Gpu gpu : gpus) {
                held.add(gpu.withHolders(holders(gpu)));
            }
            counted |= podResources;
            boolean unknown = !podResources
                    && (!counted
                            || resourceKnown
                            || !published.conflict().isEmpty()
                            || published.gpus().stream()
                                    .anyMatch(gpu -> !gpu.heldBy().isEmpty()));
            published = Gpus.inventory(10, (podResources ? held : published.gpus()).toArray(new Gpu[0]))
                    .withConflict(plugin ? "another device plugin" : unknown ? "they cannot be counted" : "");
            hasInventory = true;
        }

        private List<ForeignHolder> holders(Gpu gpu) {
            return foreign.entrySet().stream()
                    .filter(pod -> pod.getValue().hami() || pod.getValue().gpu().equals(gpu.uuid()))
                    .map(pod -> new ForeignHolder(
                            "team/" + pod.getKey(),
                            "nvidia.com/gpu",
                            pod.getValue().hami()))
                    .toList();
        }

        private void report() {
            Map<String, String> labels = new HashMap<>(Map.of("aliquot.io/node-agent", "on"));
            if (labeled) {
                labels.put("gpu", "on");
            }
            var node = new NodeBuilder()
                    .withNewMetadata()
                    .withName("n1")
                    .withLabels(labels)
                    .withAnnotations(hasInventory ? Map.of("aliquot.io/gpus", published.print()) : Map.of())
                    .endMetadata()
                    .withNewStatus()
                    .addToAllocatable("nvidia.com/gpu", new Quantity(plugin ? "2" : "0"))
                    .endStatus()
                    .build();
            ledger.putNode("n1", reader.read(node).facts());
            ledger.observe(new UsageReport(Instant.EPOCH, "n1", List.of(), List.of(), List.of()), 0);
        }
    }
}
