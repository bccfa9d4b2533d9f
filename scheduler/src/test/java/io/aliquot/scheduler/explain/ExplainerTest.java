package io.aliquot.scheduler.explain;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.aliquot.api.Annotations;
import io.aliquot.api.Gpu;
import io.aliquot.api.Inventory;
import io.aliquot.api.Placement;
import io.aliquot.api.Scaling;
import io.aliquot.api.SharingMode;
import io.aliquot.api.VisibleDevices;
import io.aliquot.scheduler.explain.Explainer.Liked;
import io.aliquot.scheduler.explain.Explanation.Victim;
import io.aliquot.scheduler.ledger.BoundPod;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.ledger.ContainerAllocation;
import io.aliquot.scheduler.ledger.Feasibility;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerListener;
import io.aliquot.scheduler.ledger.NodeFacts;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.NodeGpus;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.placement.ScoreTerm;
import io.aliquot.scheduler.preemption.Budgets;
import io.aliquot.scheduler.preemption.Budgets.Budget;
import io.aliquot.scheduler.preemption.Selector;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.junit.jupiter.api.Test;

class ExplainerTest {
    private static final PodId POD = new PodId("team", "waiting", "uid-waiting");
    private static final int MEMORY = 40_000;

    private final Ledger ledger = new Ledger(System::nanoTime, new LedgerListener() {
        @Override
        public void capacityFreed(String node) {}

        @Override
        public void overallocated(String node, String gpu) {}
    });
    private final Budgets budgets = new Budgets();
    private final Explainer explainer = new Explainer(ledger, budgets);

    @Test
    void whereThereIsNoNodeThatIsSaid() {
        assertThat(story(Gpus.ask("APP:main: gpumem=1")).summary())
                .isEqualTo("no node is known that has GPUs to share");
    }

    @Test
    void aPodThatFitsIsToldToLookElsewhere() {
        node(1, 2);
        Explanation story = story(Gpus.ask("APP:main: gpumem=100"));
        assertThat(story.fitting()).containsExactly("n1");
        assertThat(story.summary()).isEqualTo("the GPUs of 1 of 1 node hold it (n1)");
        assertThat(story.remedies()).isEmpty();
        assertThat(story.victims()).isEmpty();
    }

    @Test
    void nodesThatHoldAPodComeInThePolicysOrderWithWhatItGoesBy() {
        node(1, 2);
        node(2, 2);
        hold("a", 2, 0, 10_000, 0, 0);
        PodGpuRequest ask = Gpus.ask("APP:main: gpumem=20000");
        ledger.observe("uid-waiting", ask);

        List<Liked> binpack = liked(ask, Placement.BINPACK);
        assertThat(binpack).extracting(Liked::node).containsExactly("n2", "n1");
        assertThat(binpack.get(1).terms())
                .containsExactly(new ScoreTerm("fullness", 1000 * binpack.get(1).liking()));
        assertThat(liked(ask, Placement.SPREAD)).extracting(Liked::node).containsExactly("n1", "n2");
        // Another pod of the kind still finds a GPU of n1, and half a one of n2 is of no use to it afterwards.
        List<Liked> fragmentation = liked(ask, Placement.FRAGMENTATION);
        assertThat(fragmentation).extracting(Liked::node).containsExactly("n2", "n1");
        for (Liked liked : fragmentation) {
            assertThat(liked.terms()).extracting(ScoreTerm::name).containsExactly("waste", "scarcity", "idleness");
            double cost =
                    liked.terms().stream().mapToDouble(ScoreTerm::thousandths).sum();
            assertThat(liked.liking()).isCloseTo(-cost, within(0.001));
        }
        assertThat(fragmentation.get(0).liking())
                .isGreaterThan(fragmentation.get(1).liking());
    }

    private List<Liked> liked(PodGpuRequest ask, Placement policy) {
        return explainer.liked(POD, ask, policy, ledger.nodeNames());
    }

    @Test
    void theNearestMissNamesGpuAndAmount() {
        node(1, 1);
        node(2, 2);
        hold("a", 1, 0, 30_000, 0, 0);
        hold("b", 2, 0, 32_000, 0, 0);
        hold("c", 2, 1, 36_000, 80, 0);
        Explanation story = story(Gpus.ask("APP:main: gpumem=12000 gpucores=30"));
        assertThat(story.summary())
                .isEqualTo("of 2 nodes none has room: 2 no GPU with 12000 MiB free; closest is n1, where "
                        + Gpus.uuid(1, 0) + " lacks 2000 MiB");
        assertThat(story.nearest()).extracting(Explanation.Near::node).containsExactly("n1", "n2");
        assertThat(story.nearest().get(0).lacks())
                .containsExactly(new Explanation.Lack("main", Gpus.uuid(1, 0), "lacks 2000 MiB", 2000, 0, 0));
        assertThat(story.remedies()).containsExactly("nvidia.com/gpumem: 10000 instead of 12000");
        assertThat(explainer.gpuByGpu(POD, Gpus.ask("APP:main: gpumem=12000 gpucores=30"), "n2"))
                .extracting(Explanation.Lack::text)
                .containsExactly("lacks 4000 MiB", "lacks 8000 MiB and 10 % of its cores");
    }

    @Test
    void coresSlotsAndWholeCardsAreNamedToo() {
        node(1, 1);
        hold("a", 1, 0, 1000, 80, 0);
        assertThat(story(Gpus.ask("APP:main: gpumem=1000 gpucores=30")).summary())
                .endsWith("closest is n1, where " + Gpus.uuid(1, 0) + " lacks 10 % of its cores");
        assertThat(story(Gpus.ask("APP:main: gpumem=1000 gpucores=30")).remedies())
                .containsExactly("nvidia.com/gpucores: 20 instead of 30");
        Explanation whole = story(Gpus.ask("APP:main: gpu=1"));
        assertThat(whole.summary()).endsWith("is shared by 1 vGPU already");
        assertThat(whole.remedies()).containsExactly("nvidia.com/gpumem: 39000 instead of a whole card");
        for (int i = 0; i < 9; i++) {
            hold("s" + i, 1, 0, 1, 0, 0);
        }
        assertThat(story(Gpus.ask("APP:main: gpumem=1")).summary()).endsWith("lacks a slot");
        assertThat(cause(Gpus.ask("APP:main: gpumem=1"))).isEqualTo(PendingCause.SLOTS);
    }

    @Test
    void aWholeCardOfWhichLessIsSoldThanThereIsOnlyHasToBecomeFree() {
        var inventory = new Inventory(
                new VisibleDevices("{uuid}"), new Scaling(90), Scaling.ONE, 10, List.of(Gpus.gpu(1, 0, MEMORY)));
        ledger.putNode(
                "n1",
                new NodeFacts.Sharing(
                        new NodeGpus(inventory, SharingMode.CORE_MEMORY, Set.of()),
                        Placement.BINPACK,
                        HostResources.NONE));
        hold("a", 1, 0, 1000, 0, 0);
        PodGpuRequest ask = Gpus.ask("APP:main: gpu=1");
        assertThat(story(ask).summary()).endsWith("is shared by 1 vGPU already");
        assertThat(explainer.cause(POD, ask, ledger.nodeNames())).isEqualTo(PendingCause.WHOLE_CARD);
        assertThat(explainer.gpuByGpu(POD, Gpus.ask("APP:main: gpumem-percentage=100"), "n1"))
                .extracting(Explanation.Lack::text)
                .containsExactly("lacks 1000 MiB");
    }

    @Test
    void whatNoDepartureHelpsIsSaidAndWhyGpuByGpu() {
        ledger.putNode(
                "n1",
                new NodeFacts.Sharing(
                        new NodeGpus(
                                Gpus.inventory(
                                        10,
                                        Gpus.gpu(1, 0, MEMORY),
                                        Gpus.gpu(1, 1, MEMORY, false),
                                        Gpus.gpu(1, 2, 1000)),
                                SharingMode.CORE_MEMORY,
                                Set.of(Gpus.uuid(1, 0))),
                        Placement.BINPACK,
                        HostResources.NONE));
        PodGpuRequest ask = Gpus.ask("APP:main: gpumem=2000");
        Explanation story = story(ask);
        assertThat(story.summary()).endsWith("; no pod's leaving would help");
        assertThat(story.nearest()).isEmpty();
        assertThat(story.groups()).allMatch(Explanation.Group::hopeless);
        assertThat(explainer.gpuByGpu(POD, ask, "n1"))
                .extracting(Explanation.Lack::text)
                .containsExactly("is cordoned", "is unhealthy", "has 1000 MiB at most");
        assertThat(cause(ask)).isEqualTo(PendingCause.CLOSED);
        assertThat(cause(Gpus.ask("APP:main: gpumem=50000"))).isEqualTo(PendingCause.IMPOSSIBLE);
        PodGpuRequest choosy = Gpus.ask(Map.of("aliquot.io/use-gpu-model", "H100"), "APP:main: gpumem=500");
        assertThat(explainer.gpuByGpu(POD, choosy, "n1"))
                .extracting(Explanation.Lack::text)
                .containsOnly("is not one that the pod takes, by its model or UUID");
        assertThat(story(choosy).remedies()).containsExactly("no annotations that choose its GPUs");
    }

    @Test
    void whoWaitsForAnAgentWaitsForWhatIsClosedEvenIfItIsFull() {
        node(1, 1);
        node(2, 1);
        hold("a", 1, 0, 30_000, 0, 0);
        hold("b", 2, 0, 30_000, 0, 0);
        ledger.setAgentReady("n1", false);
        assertThat(cause(Gpus.ask("APP:main: gpumem=20000"))).isEqualTo(PendingCause.MEMORY);
        ledger.setAgentReady("n2", false);
        assertThat(cause(Gpus.ask("APP:main: gpumem=20000"))).isEqualTo(PendingCause.CLOSED);
        assertThat(cause(Gpus.ask("APP:main: gpumem=50000"))).isEqualTo(PendingCause.IMPOSSIBLE);
        assertThat(cause(Gpus.ask("APP:main: gpu=2"))).isEqualTo(PendingCause.IMPOSSIBLE);
    }

    private PendingCause cause(PodGpuRequest ask) {
        return explainer.cause(POD, ask, ledger.nodeNames());
    }

    @Test
    void asFewAndAsUnimportantPodsAsItTakesWouldHaveToGo() {
        node(1, 1);
        node(2, 1);
        hold("important", 1, 0, 20_000, 0, 100);
        hold("small", 1, 0, 5_000, 0, 5);
        hold("large", 1, 0, 15_000, 0, 7);
        hold("other", 2, 0, 40_000, 0, 50);
        PodGpuRequest ask = Gpus.ask("APP:main: gpumem=15000");
        Explanation story = explainer.explain(POD, ask, 60, true, ledger.nodeNames());
        assertThat(story.victims())
                .containsExactly(
                        new Explanation.Room("n1", List.of(victim("large", 7))),
                        new Explanation.Room("n2", List.of(victim("other", 50))));
        assertThat(explainer.explain(POD, ask, 6, true, ledger.nodeNames()).victims())
                .isEmpty();
        assertThat(explainer.explain(POD, ask, 60, false, ledger.nodeNames()).victims())
                .isEmpty();
    }

    @Test
    void whomADisruptionBudgetProtectsIsNamedOnlyWhereNobodyElseWillDo() {
        node(1, 1);
        hold("guarded", 1, 0, 20_000, 0, 0);
        hold("other", 1, 0, 20_000, 0, 0);
        budgets.putPod("uid-guarded", Map.of("app", "guarded"));
        budgets.putBudget(new Budget("team", "guard", new Selector(Map.of("app", "guarded"), List.of()), 0, Set.of()));
        assertThat(explainer
                        .explain(POD, Gpus.ask("APP:main: gpumem=20000"), 1, true, ledger.nodeNames())
                        .victims())
                .containsExactly(new Explanation.Room("n1", List.of(victim("other", 0))));
    }

    @Test
    void podsThatAreEndingAnywayComeFirstAndNeedNoPriority() {
        node(1, 1);
        var share = BoundPods.main(Gpus.uuid(1, 0), new GpuAmount(30_000, 0, 1, false));
        ledger.observeBound(new BoundPod(
                new PodId("team", "ending", "uid-ending"),
                "n1",
                1,
                List.of(share),
                HostResources.NONE,
                1000,
                Instant.EPOCH,
                Instant.EPOCH,
                BoundPods.GRACE,
                Instant.now().plusSeconds(30),
                ""));
        hold("low", 1, 0, 5_000, 0, -1);
        assertThat(explainer
                        .explain(POD, Gpus.ask("APP:main: gpumem=20000"), 0, true, ledger.nodeNames())
                        .victims())
                .containsExactly(new Explanation.Room(
                        "n1", List.of(new Victim(new PodId("team", "ending", "uid-ending"), 1000, true))));
    }

    @Test
    void whatIsSaidIsTheSameAsLongAsTheSituationIs() {
        for (int node = 1; node <= 30; node++) {
            node(node, 4);
            for (int gpu = 0; gpu < 4; gpu++) {
                hold("p" + node + "-" + gpu, node, gpu, 30_000, 0, 0);
            }
        }
        PodGpuRequest ask = Gpus.ask("APP:main: gpumem=12000");
        assertThat(story(ask)).isEqualTo(story(ask));
        assertThat(explainer.oneLiner(POD, ask, ledger.nodeNames()).orElseThrow())
                .isEqualTo(story(ask).summary() + "; would fit: "
                        + String.join(", or ", story(ask).remedies()))
                .hasSizeLessThan(1024);
    }

    @Test
    void whoAsksForMoreThanAnyGpuHasIsToldWhatWouldFit() {
        node(1, 1);
        assertThat(explainer
                        .oneLiner(POD, Gpus.ask("APP:main: gpumem=50000"), ledger.nodeNames())
                        .orElseThrow())
                .isEqualTo("of 1 node none has room: 1 no GPU that large: 50000 MiB; no pod's leaving would help;"
                        + " would fit: nvidia.com/gpumem: 40000 instead of 50000");
    }

    /** Whatever is promised is tried: with the remedy, and without the victims, the pod fits; with one of them it doesn't. */
    @Test
    void promisesHold() {
        long seed = System.nanoTime();
        var random = new Random(seed);
        for (int round = 0; round < 150; round++) {
            var world = new ExplainerTest();
            for (int node = 1; node <= 3; node++) {
                world.node(node, 1 + random.nextInt(3));
            }
            for (int pod = 0; pod < 15; pod++) {
                int node = 1 + random.nextInt(3);
                PodId id = new PodId("team", "p" + pod, "uid-p" + pod);
                PodGpuRequest ask = Gpus.ask("APP:main: gpu=" + (1 + random.nextInt(2)) + " gpumem="
                        + (1 + random.nextInt(30_000)) + " gpucores=" + random.nextInt(60));
                if (world.ledger.commit(id, "n" + node, ask, 1)
                        instanceof io.aliquot.scheduler.ledger.Commitment.Granted granted) {
                    List<ContainerAllocation> shares = granted.containers().entrySet().stream()
                            .map(entry -> new ContainerAllocation(
                                    entry.getKey(), io.aliquot.scheduler.placement.ContainerKind.APP, entry.getValue()))
                            .toList();
                    world.ledger.observeBound(new BoundPod(
                            id,
                            "n" + node,
                            1,
                            shares,
                            HostResources.NONE,
                            random.nextInt(5),
                            Instant.EPOCH,
                            Instant.EPOCH,
                            BoundPods.GRACE,
                            Instant.MAX,
                            ""));
                }
            }
            int memory = 10_000 + random.nextInt(30_000);
            int cores = 20 + random.nextInt(80);
            PodGpuRequest ask = Gpus.ask("APP:main: gpumem=" + memory + " gpucores=" + cores);
            Explanation story = world.explainer.explain(POD, ask, 3, true, world.ledger.nodeNames());
            String what = "seed " + seed + " round " + round + " " + story;
            for (String remedy : story.remedies()) {
                int number = Integer.parseInt(remedy.replaceAll(".*: ([0-9]+) instead.*", "$1"));
                boolean ofMemory = remedy.startsWith("nvidia.com/gpumem");
                assertThat(world.fits(ofMemory ? number : memory, ofMemory ? cores : number))
                        .as(what)
                        .isTrue();
                assertThat(world.fits(ofMemory ? number + 1 : memory, ofMemory ? cores : number + 1))
                        .as(what)
                        .isFalse();
            }
            for (Explanation.Room room : story.victims()) {
                var uids = new java.util.HashSet<String>();
                room.pods().forEach(victim -> uids.add(victim.pod().uid()));
                assertThat(world.ledger.feasibilityWithout(room.node(), POD.uid(), ask, uids))
                        .as(what)
                        .isInstanceOf(Feasibility.Fits.class);
                for (Victim victim : room.pods()) {
                    assertThat(victim.priority()).as(what).isLessThan(3);
                    uids.remove(victim.pod().uid());
                    assertThat(world.ledger.feasibilityWithout(room.node(), POD.uid(), ask, uids))
                            .as(what)
                            .isInstanceOf(Feasibility.Refuses.class);
                    uids.add(victim.pod().uid());
                }
            }
        }
    }

    @Test
    void aThousandNodesAreToldInGroupsAndInTime() {
        for (int node = 1; node <= 1000; node++) {
            node(node, 8);
            for (int gpu = 0; gpu < 8; gpu++) {
                hold("p" + node + "-" + gpu, node, gpu, 20_000 + node % 7, 50, node % 3);
            }
        }
        PodGpuRequest ask = Gpus.ask("APP:main: gpu=8 gpumem=30000");
        long start = System.nanoTime();
        Explanation story = explainer.explain(POD, ask, 2, true, ledger.nodeNames());
        long millis = (System.nanoTime() - start) / 1_000_000;
        assertThat(story.groups()).hasSize(1);
        assertThat(story.groups().get(0).nodes()).isEqualTo(1000);
        assertThat(story.groups().get(0).examples()).hasSize(5);
        assertThat(story.nearest()).hasSize(5);
        assertThat(story.victims()).hasSize(3);
        assertThat(millis).isLessThan(10_000);
    }

    private boolean fits(int memory, int cores) {
        PodGpuRequest ask = Gpus.ask("APP:main: gpumem=" + memory + " gpucores=" + cores);
        return ledger.nodeNames().stream()
                .anyMatch(node -> ledger.feasibility(node, POD.uid(), ask) instanceof Feasibility.Fits);
    }

    private static Victim victim(String name, int priority) {
        return new Victim(new PodId("team", name, "uid-" + name), priority, false);
    }

    /** Each domain of the node has one GPU with room, and the pod wants two of one. */
    @Test
    void whereTheGpusWithRoomHangOnTwoNumaDomainsThatIsSaid() {
        ledger.putNode(
                "n1",
                new NodeFacts.Sharing(
                        Gpus.inventory(10, gpu(0, 0), gpu(1, 0), gpu(2, 1), gpu(3, 1)),
                        Placement.BINPACK,
                        new HostResources(1000, 1000)));
        hold("a", 1, 0, 30_000, 0, 0);
        hold("b", 1, 2, 30_000, 0, 0);
        String two = "APP:main: gpu=2 gpumem=20000";

        Explanation story = story(Gpus.ask(Map.of(Annotations.NUMA, "required"), two));

        assertThat(story.summary())
                .isEqualTo("of 1 node none has room: 1 no NUMA domain with 2 such GPUs free; closest is n1, where its "
                        + "GPUs would hold it, but not those of one NUMA domain");
        assertThat(story.remedies()).contains("aliquot.io/numa: preferred instead of required");
        assertThat(story(Gpus.ask(two)).fitting()).containsExactly("n1");
    }

    private static Gpu gpu(int index, int numa) {
        return new Gpu(Gpus.uuid(1, index), index, "NVIDIA Test", MEMORY, 0, numa, true, Gpu.SHIM, Map.of());
    }

    private Explanation story(PodGpuRequest ask) {
        return explainer.explain(POD, ask, 0, true, ledger.nodeNames());
    }

    private void node(int number, int gpus) {
        Gpu[] all = new Gpu[gpus];
        for (int i = 0; i < gpus; i++) {
            all[i] = Gpus.gpu(number, i, MEMORY);
        }
        ledger.putNode(
                "n" + number,
                new NodeFacts.Sharing(Gpus.inventory(10, all), Placement.BINPACK, new HostResources(1000, 1000)));
    }

    private void hold(String name, int node, int gpu, int memory, int cores, int priority) {
        var share = BoundPods.main(Gpus.uuid(node, gpu), new GpuAmount(memory, cores, 1, false));
        ledger.observeBound(new BoundPod(
                new PodId("team", name, "uid-" + name),
                "n" + node,
                1,
                List.of(share),
                HostResources.NONE,
                priority,
                Instant.EPOCH,
                Instant.EPOCH,
                BoundPods.GRACE,
                Instant.MAX,
                ""));
    }
}
