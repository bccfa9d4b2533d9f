package io.aliquot.scheduler.scoring;

import static io.aliquot.scheduler.placement.Gpus.ask;
import static io.aliquot.scheduler.placement.Gpus.gpu;
import static io.aliquot.scheduler.placement.Gpus.uuid;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.Gpu;
import io.aliquot.api.Placement;
import io.aliquot.api.SharingMode;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.ledger.Commitment.Granted;
import io.aliquot.scheduler.ledger.Feasibility;
import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerListener;
import io.aliquot.scheduler.ledger.LedgerTest;
import io.aliquot.scheduler.ledger.NodeFacts.Sharing;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.GpuModels;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.NodeGpus;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.scoring.fragmentation.Fragmentation;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.ToDoubleBiFunction;
import org.junit.jupiter.api.Test;

/** The scoring policy is notified of all nodes and pods, and its scores select GPUs and nodes. */
class ScoringCacheTest {
    private static final int NODES = 4;
    private static final int PODS = 12;
    private static final Map<String, String> BY_JUDGE =
            Map.of("aliquot.io/node-placement", "fragmentation", "aliquot.io/gpu-placement", "fragmentation");
    private static final PodGpuRequest QUARTER = ask(BY_JUDGE, "APP:main: gpumem=250");
    private static final HostResources HOST = new HostResources(8_000, 32L << 30);

    private final AtomicLong now = new AtomicLong();
    private final long seed = Long.getLong("aliquot.seed", System.nanoTime());

    /** A scoring policy that records its calls and scores by the function of the test. */
    private static final class Notes implements ScoringPolicy<FreeCapacity> {
        final Map<FreeCapacity, Integer> rooms = new HashMap<>();
        final List<DemandVector> demands = new ArrayList<>();
        final AtomicInteger inside = new AtomicInteger();
        int weighed;
        int version;
        ToDoubleBiFunction<FreeCapacity, Integer> likes = (after, free) -> 0;

        @Override
        public void nodeAdded(FreeCapacity room) {
            alone(() -> rooms.merge(room, 1, Integer::sum));
        }

        @Override
        public void nodeRemoved(FreeCapacity room) {
            alone(() -> rooms.compute(room, (any, count) -> count == null || count == 1 ? null : count - 1));
        }

        @Override
        public void observe(DemandVector demand) {
            alone(() -> demands.add(demand));
        }

        @Override
        public int modelVersion() {
            return version;
        }

        @Override
        public FreeCapacity evaluate(DemandVector demand, FreeCapacity before, FreeCapacity after) {
            alone(() -> weighed++);
            return after;
        }

        @Override
        public double score(FreeCapacity after) {
            return likes.applyAsDouble(after, after.free());
        }

        private void alone(Runnable work) {
            assertThat(inside.incrementAndGet()).isEqualTo(1);
            work.run();
            inside.decrementAndGet();
        }
    }

    private final Notes judge = new Notes();
    private final Ledger ledger = ledger();
    private final NodeScoring scoring = new NodeScoring(ledger, judge);

    private Ledger ledger() {
        return new Ledger(now::get, new LedgerListener() {
            @Override
            public void capacityFreed(String node) {}

            @Override
            public void overallocated(String node, String gpu) {}
        });
    }

    private static Sharing node(int number, int... gpuMiB) {
        var gpus = new Gpu[gpuMiB.length];
        for (int i = 0; i < gpus.length; i++) {
            gpus[i] = gpu(number, i, gpuMiB[i]);
        }
        return new Sharing(Gpus.inventory(4, gpus), Placement.BINPACK, HOST);
    }

    private static PodId pod(int number) {
        return LedgerTest.pod("p" + number);
    }

    private static PodGpuRequest kind(int number) {
        PodGpuRequest ask = switch (number) {
            case 0 -> ask("APP:main: gpumem=100");
            case 1 -> ask(BY_JUDGE, "APP:main: gpumem=400 gpucores=40");
            case 2 -> ask(BY_JUDGE, "APP:main: gpu=2 gpumem=300");
            default -> ask(BY_JUDGE, "APP:main: gpu=1");
        };
        return ask.withHostRequests(new HostResources(500L * number, (long) number << 30));
    }

    @Test
    void afterAnyChangesThePolicyKnowsTheCurrentFreeCapacities() {
        var random = new Random(seed);
        for (int step = 0; step < 5_000; step++) {
            happen(random);
            if (random.nextInt(4) == 0) {
                scoring.forPod("anybody", kind(1), Placement.FRAGMENTATION);
                assertThat(judge.rooms)
                        .as("-Daliquot.seed=%d, step %d", seed, step)
                        .isEqualTo(rooms());
            }
        }
    }

    /** The free capacities computed from the views of the ledger. */
    private Map<FreeCapacity, Integer> rooms() {
        Map<FreeCapacity, Integer> rooms = new HashMap<>();
        for (String name : ledger.nodeNames()) {
            NodeView view = ledger.view(name).orElseThrow();
            if (view.facts() instanceof Sharing sharing && view.served()) {
                HostResources left = sharing.allocatable();
                for (Holding holding : view.holdings()) {
                    left = left.minus(holding.requests());
                }
                FreeCapacity.Shape shape = new GpuModels().shape(sharing.cards().list(), sharing.allocatable());
                rooms.merge(FreeCapacity.of(shape, left, view.gpus()), 1, Integer::sum);
            }
        }
        return rooms;
    }

    private void happen(Random random) {
        int number = random.nextInt(NODES);
        String node = "n" + number;
        PodId pod = pod(random.nextInt(PODS));
        PodGpuRequest ask = kind(random.nextInt(4));
        switch (random.nextInt(10)) {
            case 0 -> ledger.putNode(node, node(number, 1000, 1000 + 500 * random.nextInt(2)));
            case 1 -> ledger.setAgentReady(node, random.nextInt(4) != 0);
            case 2 -> {
                if (random.nextInt(4) == 0) {
                    ledger.removeNode(node);
                }
            }
            case 3 -> ledger.reserve(pod, node, ask);
            case 4, 5 -> ledger.commit(pod, node, ask, now.incrementAndGet());
            case 6 ->
                ledger.observeBound(BoundPods.of(
                        pod,
                        node,
                        (int) now.incrementAndGet(),
                        (int) now.get(),
                        new HostResources(100, 1 << 20),
                        BoundPods.main(uuid(number, 0), new GpuAmount(100, 5, 1, false))));
            case 7 -> ledger.observeEnded(pod.uid());
            case 8 -> ledger.reserveFor(pod, node, ask, Set.of("p3", "p4", "p5"));
            default -> {
                now.addAndGet(Duration.ofSeconds(random.nextInt(4)).toNanos());
                ledger.expire();
            }
        }
    }

    @Test
    void theGpuWithTheHighestScoreIsAllocatedAndTheFullestOfEquals() {
        ledger.putNode("n1", node(1, 1000, 1000, 1000));
        ledger.observeBound(LedgerTest.bound("half", "n1", uuid(1, 1), new GpuAmount(500, 0, 1, false)));

        assertThat(taken("a")).isEqualTo(uuid(1, 1));
        judge.likes = (after, free) -> after.gpuMiB(1) < 1000 ? 1 : 0; // prefers two partly allocated GPUs
        judge.version++;
        assertThat(taken("b")).isEqualTo(uuid(1, 0));
    }

    @Test
    void aGpuThatDoesNotFitIsNotAllocatedWhateverItsScore() {
        ledger.putNode("n1", node(1, 1000, 1000));
        ledger.observeBound(LedgerTest.bound("large", "n1", uuid(1, 0), new GpuAmount(900, 0, 1, false)));
        judge.likes = (after, free) -> -after.gpuMiB(0);

        assertThat(taken("a")).isEqualTo(uuid(1, 1));
    }

    @Test
    void aCordonedGpuIsNeitherAllocatedNorFreeCapacity() {
        var inventory = Gpus.inventory(4, gpu(1, 0, 1000), gpu(1, 1, 1000));
        ledger.putNode(
                "n1",
                new Sharing(
                        new NodeGpus(inventory, SharingMode.CORE_MEMORY, Set.of(uuid(1, 0))),
                        Placement.FRAGMENTATION,
                        HOST));

        assertThat(taken("a")).isEqualTo(uuid(1, 1));
        scoring.forPod("b", QUARTER, Placement.FRAGMENTATION);
        assertThat(judge.rooms.keySet())
                .singleElement()
                .satisfies(room -> assertThat(room.free()).isEqualTo(750));
    }

    @Test
    void theNodesPlacementAppliesIfThePodHasNone() {
        ledger.putNode(
                "n1", new Sharing(Gpus.inventory(4, gpu(1, 0, 1000), gpu(1, 1, 1000)), Placement.FRAGMENTATION, HOST));
        ledger.observeBound(LedgerTest.bound("half", "n1", uuid(1, 1), new GpuAmount(500, 0, 1, false)));
        judge.likes = (after, free) -> -after.gpuMiB(1);

        assertThat(granted("a", ask("APP:main: gpumem=250"))).isEqualTo(uuid(1, 0));
    }

    @Test
    void aNodeHasTheScoreOfItsBestPlacement() {
        ledger.putNode("n1", node(1, 1000, 1000));
        ledger.putNode("n2", node(2, 1000, 1000));
        ledger.observeBound(LedgerTest.bound("half", "n2", uuid(2, 1), new GpuAmount(500, 0, 1, false)));
        judge.likes = (after, free) -> after.gpuMiB(0);

        assertThat(liking("n1", "a")).isEqualTo(750);
        assertThat(liking("n2", "a")).isEqualTo(500); // on the empty GPU
    }

    @Test
    void ifAnotherPolicySelectsTheGpuThatGpuIsScored() {
        ledger.putNode("n2", node(2, 1000, 1000));
        ledger.observeBound(LedgerTest.bound("half", "n2", uuid(2, 1), new GpuAmount(500, 0, 1, false)));
        judge.likes = (after, free) -> after.gpuMiB(0);
        var binpack = ask(
                Map.of("aliquot.io/node-placement", "fragmentation", "aliquot.io/gpu-placement", "binpack"),
                "APP:main: gpumem=250");

        var cache = scoring.forPod("a", binpack, Placement.FRAGMENTATION);

        assertThat(cache.score("n2")).isEqualTo(250);
    }

    @Test
    void aPodsOwnReservationDoesNotAffectItsScores() {
        ledger.putNode("n1", node(1, 1000));
        PodGpuRequest ask = QUARTER.withHostRequests(new HostResources(1_000, 1 << 30));
        judge.likes = (after, free) -> after.cpuMillis();

        assertThat(liking("n1", "a", ask)).isEqualTo(7_000);
        ledger.reserve(LedgerTest.pod("a"), "n1", ask);
        assertThat(liking("n1", "a", ask)).isEqualTo(7_000);
        assertThat(liking("n1", "b", ask)).isEqualTo(6_000);
    }

    @Test
    void identicalNodesAreEvaluatedOnce() {
        for (int number = 0; number < 10; number++) {
            ledger.putNode("n" + number, node(number, 1000, 1000));
        }
        for (int number = 0; number < 10; number++) {
            liking("n" + number, "a");
        }
        assertThat(judge.weighed).isEqualTo(1);
        judge.version++;
        liking("n0", "a");
        assertThat(judge.weighed).isEqualTo(2);
    }

    /** Regression: the first request evaluated all nodes, which took 0.75 s for 5,000 nodes. */
    @Test
    void afterAModelChangeEachRequestEvaluatesSomeNodesFormerBestFirst() {
        List<String> names = unlikeNodes(1_000);
        judge.likes = (after, free) -> -Math.abs(after.gpuMiB(3) - 2_300);
        evaluateAll(names);
        List<String> before = best(names);

        judge.version++;
        judge.likes = (after, free) -> -Math.abs(after.gpuMiB(3) - 2_301);
        int weighed = judge.weighed;
        List<String> first = best(names);

        assertThat(judge.weighed - weighed).isBetween(1, FeasibilityCache.EVALUATIONS + 4);
        assertThat(first).containsExactlyInAnyOrderElementsOf(before);
        int requests = evaluateAll(names);
        assertThat(requests).isBetween(2, 10);
        assertThat(judge.weighed - weighed).isEqualTo(4 * names.size());
        assertThat(first).isEqualTo(best(names));
    }

    @Test
    void forANewKindOfPodEachRequestEvaluatesSomeNodesFullestFirst() {
        List<String> names = unlikeNodes(1_000);
        ledger.observeBound(LedgerTest.bound("large", "n777", uuid(777, 3), new GpuAmount(900, 0, 1, false)));
        judge.likes = (after, free) -> -after.free();

        assertThat(best(names).get(0)).isEqualTo("n777");
        assertThat(judge.weighed).isBetween(1, FeasibilityCache.EVALUATIONS + 4);
    }

    /** Includes nodes that are not evaluated yet: preferences of the pod may favor them. */
    @Test
    void allFeasibleNodesAreListedAndScored() {
        List<String> names = unlikeNodes(1_000);
        judge.likes = (after, free) -> -after.free();
        FeasibilityCache cache = scoring.forPod("a", QUARTER, Placement.FRAGMENTATION);

        List<String> listed = cache.best(names, names.size(), (node, refuses) -> {});
        assertThat(listed).containsExactlyInAnyOrderElementsOf(names);
        var scores = new HashMap<String, Integer>();
        scoring.forPod("a", QUARTER, Placement.FRAGMENTATION).prioritize(listed, scores::put);

        assertThat(scores).hasSize(names.size());
        assertThat(scores.values()).contains(10, 0);
        assertThat(judge.weighed).isBetween(1, 2 * (FeasibilityCache.EVALUATIONS + 4));
    }

    private List<String> unlikeNodes(int count) {
        List<String> names = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            int miB = 1_001 + number;
            ledger.putNode("n" + number, node(number, miB, miB + 1, miB + 2, miB + 3));
            names.add("n" + number);
        }
        return names;
    }

    private List<String> best(List<String> names) {
        return scoring.forPod("a", QUARTER, Placement.FRAGMENTATION).best(names, 5, (node, refuses) -> {});
    }

    /** Repeats the request until all nodes are evaluated; returns the number of requests. */
    private int evaluateAll(List<String> names) {
        int requests = 0;
        int weighed;
        do {
            weighed = judge.weighed;
            best(names);
            requests++;
        } while (judge.weighed > weighed);
        return requests;
    }

    @Test
    void thePolicySeesTheCpuRequestOfEachPod() {
        ledger.putNode("n1", node(1, 1000));
        judge.likes = (after, free) -> after.cpuMillis();

        assertThat(liking("n1", "a", QUARTER.withHostRequests(new HostResources(1_000, 0))))
                .isEqualTo(7_000);
        assertThat(liking("n1", "a", QUARTER.withHostRequests(new HostResources(2_000, 0))))
                .isEqualTo(6_000);
    }

    @Test
    void eachPodIsObservedOnceAndBoundPodsAreObservedFirst() {
        ledger.putNode("n1", node(1, 1000));
        ledger.observeBound(BoundPods.of(
                LedgerTest.pod("second"),
                "n1",
                0,
                9,
                HOST,
                BoundPods.main(uuid(1, 0), new GpuAmount(20, 0, 1, false))));
        ledger.observeBound(BoundPods.of(
                LedgerTest.pod("first"), "n1", 0, 5, HOST, BoundPods.main(uuid(1, 0), new GpuAmount(10, 0, 1, false))));
        ledger.observeBound(BoundPods.of(LedgerTest.pod("without"), "n1", 0, 1, HOST));

        scoring.observe("a", QUARTER);
        scoring.observe("a", QUARTER);
        scoring.observe("b", QUARTER);

        assertThat(judge.demands).extracting(DemandVector::gpuMiB).containsExactly(10, 20, 250, 250);
    }

    /** Also before any request for scores. */
    @Test
    void aPercentageIsObservedAsAShareOfTheLargestGpu() {
        ledger.putNode("n1", node(1, 1000, 2000));

        scoring.observe("a", ask("APP:main: gpumem-percentage=25"));

        assertThat(judge.demands).extracting(DemandVector::gpuMiB).containsExactly(500);
    }

    @Test
    void equalHistoriesGiveEqualChoices() {
        assertThat(choices()).isEqualTo(choices());
    }

    private List<String> choices() {
        Ledger fresh = ledger();
        var freshScoring = new NodeScoring(fresh, new Fragmentation());
        for (int number = 0; number < NODES; number++) {
            fresh.putNode("n" + number, node(number, 1000, 1000, 1500));
        }
        List<String> choices = new ArrayList<>();
        for (int i = 0; i < 60; i++) {
            PodId pod = LedgerTest.pod("q" + i);
            PodGpuRequest ask = kind(1 + i % 3);
            freshScoring.observe(pod.uid(), ask);
            FeasibilityCache cache = freshScoring.forPod(pod.uid(), ask, Placement.FRAGMENTATION);
            String best = "";
            double most = Double.NEGATIVE_INFINITY;
            for (int number = 0; number < NODES; number++) {
                String node = "n" + number;
                if (cache.score(node) > most) {
                    most = cache.score(node);
                    best = node;
                }
            }
            choices.add(best + fresh.commit(pod, best, ask, 1));
            if (i % 3 == 0) {
                fresh.observeEnded("q" + i / 2);
            }
        }
        return choices;
    }

    @Test
    void concurrentRequestsCallThePolicyFromOneThreadAtATime() throws Exception {
        var pool = Executors.newFixedThreadPool(4);
        try {
            List<Callable<Void>> work = new ArrayList<>();
            for (int thread = 0; thread < 4; thread++) {
                var random = new Random(seed + thread);
                work.add(() -> {
                    for (int step = 0; step < 3_000; step++) {
                        happen(random);
                        PodGpuRequest ask = kind(1 + random.nextInt(3));
                        String uid = pod(random.nextInt(PODS)).uid();
                        scoring.observe(uid, ask);
                        FeasibilityCache cache = scoring.forPod(uid, ask, Placement.FRAGMENTATION);
                        for (int number = 0; number < NODES; number++) {
                            cache.score("n" + number);
                        }
                    }
                    return null;
                });
            }
            for (Future<Void> done : pool.invokeAll(work)) {
                done.get();
            }
        } finally {
            pool.shutdownNow();
        }
        scoring.forPod("anybody", kind(1), Placement.FRAGMENTATION);
        assertThat(judge.rooms).as("-Daliquot.seed=%d", seed).isEqualTo(rooms());
    }

    /** Selecting a GPU takes the policy's lock under a node's lock; listing the bound pods takes the nodes' locks. */
    @Test
    void boundPodsAreListedWithoutThePolicysLock() {
        var scores = new ScoringCache<>(new Fragmentation(), new GpuModels(), new NodeIndex(node -> NodeIndex.UNKNOWN));
        var free = new AtomicBoolean();
        scores.observe("first", QUARTER, () -> {
            var other = new Thread(scores::refresh);
            other.start();
            try {
                other.join(10_000);
                free.set(!other.isAlive());
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            }
            return List.of();
        });
        assertThat(free).isTrue();
    }

    /** Scores stay current while pods and nodes come and go, prices change and the workload is resampled. */
    @Test
    void cachedScoresEqualFreshlyEvaluatedOnes() {
        var fragmentation = new Fragmentation();
        Ledger fresh = ledger();
        var freshScoring = new NodeScoring(fresh, fragmentation);
        var random = new Random(seed);
        var names = new String[40];
        for (int number = 0; number < names.length; number++) {
            names[number] = "n" + number;
            fresh.putNode(names[number], node(number, 1000));
        }
        var models = new GpuModels();
        for (int step = 0; step < 2_000; step++) {
            int number = random.nextInt(names.length);
            PodGpuRequest ask = ask(BY_JUDGE, "APP:main: gpumem=" + (300 + 100 * random.nextInt(3)));
            PodId pod = LedgerTest.pod("p" + step);
            switch (random.nextInt(10)) {
                case 0 -> fresh.removeNode(names[number]);
                case 1, 2 -> fresh.putNode(names[number], node(number, 1000));
                case 3, 4, 5 -> fresh.observeEnded("p" + random.nextInt(step + 1));
                default -> fresh.commit(pod, names[number], ask, 1);
            }
            freshScoring.observe(pod.uid(), ask);
            FeasibilityCache cache = freshScoring.forPod("anybody", ask, Placement.FRAGMENTATION);
            List<String> best = step % 2 == 0 ? List.of() : cache.best(List.of(names), 5, (node, refuses) -> {});
            var likings = new TreeMap<String, Double>();
            for (String name : names) {
                if (cache.feasibility(name) instanceof Feasibility.Fits) {
                    FreeCapacity before = FreeCapacity.of(
                            models.shape(node(0, 1000).cards().list(), HOST),
                            HOST,
                            fresh.view(name).orElseThrow().gpus());
                    DemandVector demand = models.demand(ask);
                    likings.put(name, cache.score(name));
                    assertThat(cache.score(name))
                            .as("-Daliquot.seed=%d, step %d, %s", seed, step, name)
                            .isEqualTo(
                                    fragmentation.score(fragmentation.evaluate(demand, before, before.with(demand, 0)))
                                            + fragmentation.tieBreak(before));
                }
            }
            if (step % 2 == 1) {
                assertThat(best)
                        .as("-Daliquot.seed=%d, step %d", seed, step)
                        .isEqualTo(likings.keySet().stream()
                                .sorted(Comparator.comparing(likings::get).reversed())
                                .limit(5)
                                .toList());
            }
        }
    }

    private double liking(String node, String pod) {
        return liking(node, pod, QUARTER);
    }

    private double liking(String node, String pod, PodGpuRequest ask) {
        FeasibilityCache cache = scoring.forPod(pod, ask, Placement.FRAGMENTATION);
        return cache.score(node);
    }

    /** The GPU of node n1 that is allocated to a pod. */
    private String taken(String pod) {
        return granted(pod, QUARTER);
    }

    private String granted(String pod, PodGpuRequest ask) {
        var granted = (Granted) ledger.commit(LedgerTest.pod(pod), "n1", ask, 1);
        return Gpus.of(granted.containers(), "main").list().get(0).uuid();
    }
}
