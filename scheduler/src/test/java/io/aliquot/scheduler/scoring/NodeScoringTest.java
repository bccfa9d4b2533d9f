package io.aliquot.scheduler.scoring;

import static io.aliquot.scheduler.placement.Gpus.gpu;
import static io.aliquot.scheduler.placement.Gpus.request;
import static io.aliquot.scheduler.placement.Gpus.uuid;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.SharingMode;
import io.aliquot.api.pods.Placement;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.ledger.Commitment.Granted;
import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerListener;
import io.aliquot.scheduler.ledger.LedgerTest;
import io.aliquot.scheduler.ledger.NodeFacts.Sharing;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.Feasibility;
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
import java.util.Objects;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Supplier;
import java.util.function.ToDoubleFunction;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** The policy learns all nodes and pods, and its scores decide. */
class NodeScoringTest {
    private static final int NODES = 4;
    private static final int PODS = 12;
    private static final Map<String, String> FRAGMENTATION =
            Map.of("aliquot.io/node-placement", "fragmentation", "aliquot.io/gpu-placement", "fragmentation");
    private static final PodGpuRequest QUARTER = request(FRAGMENTATION, "APP:main: gpumem=250");
    private static final HostResources HOST = new HostResources(8_000, 32L << 30);

    private final AtomicLong now = new AtomicLong();
    private final long seed = Long.getLong("aliquot.seed", System.nanoTime());

    /** Records what it learns, and scores as the test says. */
    private static final class RecordingPolicy implements ScoringPolicy {
        final List<DemandVector> demands = new ArrayList<>();
        final AtomicInteger inside = new AtomicInteger();
        final AtomicInteger scored = new AtomicInteger();
        Map<FreeCapacity, Integer> freeCapacities = Map.of();
        Model model = model(after -> 0);

        @Override
        public Model learn(List<DemandVector> pods, Supplier<List<FreeCapacity>> nodes) {
            assertThat(inside.incrementAndGet()).isEqualTo(1);
            demands.addAll(pods);
            freeCapacities =
                    nodes.get().stream().collect(Collectors.toMap(free -> free, free -> 1, Integer::sum, HashMap::new));
            inside.decrementAndGet();
            return model;
        }

        private Model model(ToDoubleFunction<FreeCapacity> scorer) {
            return (demand, before, after) -> {
                scored.incrementAndGet();
                return scorer.applyAsDouble(after);
            };
        }
    }

    private final RecordingPolicy policy = new RecordingPolicy();
    private final Ledger ledger = ledger();
    private final NodeScoring scoring = new NodeScoring(ledger, policy);

    private int pods;

    /** From now on candidates are scored so. */
    private void score(ToDoubleFunction<FreeCapacity> scorer) {
        policy.model = policy.model(scorer);
        scoring.observe("learnt-" + pods++, QUARTER);
    }

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
        PodGpuRequest request = switch (number) {
            case 0 -> request("APP:main: gpumem=100");
            case 1 -> request(FRAGMENTATION, "APP:main: gpumem=400 gpucores=40");
            case 2 -> request(FRAGMENTATION, "APP:main: gpu=2 gpumem=300");
            default -> request(FRAGMENTATION, "APP:main: gpu=1");
        };
        return request.withHostRequests(new HostResources(500L * number, (long) number << 30));
    }

    @Test
    void thePolicyKnowsTheFreeCapacitiesAfterAnyHistory() {
        var random = new Random(seed);
        for (int step = 0; step < 5_000; step++) {
            changeAnything(random);
            if (random.nextInt(4) == 0) {
                scoring.observe("pod-" + step, QUARTER);
                assertThat(policy.freeCapacities)
                        .as("-Daliquot.seed=%d, step %d", seed, step)
                        .isEqualTo(freeCapacities());
            }
        }
    }

    /** From the ledger's views. */
    private Map<FreeCapacity, Integer> freeCapacities() {
        Map<FreeCapacity, Integer> freeCapacities = new HashMap<>();
        for (String name : ledger.nodeNames()) {
            NodeView view = ledger.view(name).orElseThrow();
            if (view.facts() instanceof Sharing sharing && view.agentReady()) {
                HostResources left = sharing.allocatable();
                for (Holding holding : view.holdings()) {
                    left = left.minus(holding.hostRequests());
                }
                FreeCapacity.Shape shape = new GpuModels().shape(sharing.gpus().list(), sharing.allocatable());
                freeCapacities.merge(FreeCapacity.of(shape, left, view.gpus()), 1, Integer::sum);
            }
        }
        return freeCapacities;
    }

    private void changeAnything(Random random) {
        int number = random.nextInt(NODES);
        String node = "n" + number;
        PodId pod = pod(random.nextInt(PODS));
        PodGpuRequest request = kind(random.nextInt(4));
        switch (random.nextInt(10)) {
            case 0 -> ledger.putNode(node, node(number, 1000, 1000 + 500 * random.nextInt(2)));
            case 1 -> ledger.setAgentReady(node, random.nextInt(4) != 0);
            case 2 -> {
                if (random.nextInt(4) == 0) {
                    ledger.removeNode(node);
                }
            }
            case 3 -> ledger.reserve(pod, node, request);
            case 4, 5 -> ledger.commit(pod, node, request, now.incrementAndGet());
            case 6 ->
                ledger.observeBound(BoundPods.of(
                        pod,
                        node,
                        (int) now.incrementAndGet(),
                        (int) now.get(),
                        new HostResources(100, 1 << 20),
                        BoundPods.main(uuid(number, 0), new GpuAmount(100, 5, 1, false))));
            case 7 -> ledger.observeEnded(pod.uid());
            case 8 -> ledger.reserveFor(pod, node, request, Set.of("p3", "p4", "p5"));
            default -> {
                now.addAndGet(Duration.ofSeconds(random.nextInt(4)).toNanos());
                ledger.expire();
            }
        }
    }

    @Test
    void theGpuWithTheBestScoreIsTakenAndOfEqualOnesTheFullest() {
        ledger.putNode("n1", node(1, 1000, 1000, 1000));
        ledger.observeBound(LedgerTest.bound("half", "n1", uuid(1, 1), new GpuAmount(500, 0, 1, false)));

        assertThat(taken("a")).isEqualTo(uuid(1, 1));
        score(after -> after.gpuMiB(1) < 1000 ? 1 : 0); // two GPUs begun
        assertThat(taken("b")).isEqualTo(uuid(1, 0));
    }

    @Test
    void aGpuThatDoesNotFitIsNotTakenWhateverItsScore() {
        ledger.putNode("n1", node(1, 1000, 1000));
        ledger.observeBound(LedgerTest.bound("large", "n1", uuid(1, 0), new GpuAmount(900, 0, 1, false)));
        score(after -> -after.gpuMiB(0));

        assertThat(taken("a")).isEqualTo(uuid(1, 1));
    }

    @Test
    void aCordonedGpuIsNotTakenAndIsNoFreeCapacity() {
        var inventory = Gpus.inventory(4, gpu(1, 0, 1000), gpu(1, 1, 1000));
        ledger.putNode(
                "n1",
                new Sharing(
                        new NodeGpus(inventory, SharingMode.CORE_MEMORY, Set.of(uuid(1, 0))),
                        Placement.FRAGMENTATION,
                        HOST));

        assertThat(taken("a")).isEqualTo(uuid(1, 1));
        score(after -> 0);
        assertThat(policy.freeCapacities.keySet())
                .singleElement()
                .satisfies(free -> assertThat(free.free()).isEqualTo(750));
    }

    @Test
    void theNodesPolicySelectsTheGpuOfAPodWithoutPolicy() {
        ledger.putNode(
                "n1", new Sharing(Gpus.inventory(4, gpu(1, 0, 1000), gpu(1, 1, 1000)), Placement.FRAGMENTATION, HOST));
        ledger.observeBound(LedgerTest.bound("half", "n1", uuid(1, 1), new GpuAmount(500, 0, 1, false)));
        score(after -> -after.gpuMiB(1));

        assertThat(granted("a", request("APP:main: gpumem=250"))).isEqualTo(uuid(1, 0));
    }

    @Test
    void aNodeHasTheScoreOfItsBestCandidate() {
        ledger.putNode("n1", node(1, 1000, 1000));
        ledger.putNode("n2", node(2, 1000, 1000));
        ledger.observeBound(LedgerTest.bound("half", "n2", uuid(2, 1), new GpuAmount(500, 0, 1, false)));
        score(after -> after.gpuMiB(0));

        assertThat(score("n1", "a")).isEqualTo(750);
        assertThat(score("n2", "a")).isEqualTo(500); // on the empty one
    }

    @Test
    void theGpuThatAnotherPolicySelectsIsTheOneScored() {
        ledger.putNode("n2", node(2, 1000, 1000));
        ledger.observeBound(LedgerTest.bound("half", "n2", uuid(2, 1), new GpuAmount(500, 0, 1, false)));
        score(after -> after.gpuMiB(0));
        var binpack = request(
                Map.of("aliquot.io/node-placement", "fragmentation", "aliquot.io/gpu-placement", "binpack"),
                "APP:main: gpumem=250");

        var ranking = scoring.forPod("a", binpack, Placement.FRAGMENTATION);

        assertThat(ranking.score("n2")).isEqualTo(250);
    }

    @Test
    void aPodsOwnReservationIsDisregarded() {
        ledger.putNode("n1", node(1, 1000));
        PodGpuRequest request = QUARTER.withHostRequests(new HostResources(1_000, 1 << 30));
        score(after -> after.cpuMillis());

        assertThat(score("n1", "a", request)).isEqualTo(7_000);
        ledger.reserve(LedgerTest.pod("a"), "n1", request);
        assertThat(score("n1", "a", request)).isEqualTo(7_000);
        assertThat(score("n1", "b", request)).isEqualTo(6_000);
    }

    @Test
    void aNodeIsScoredAgainOnlyIfItOrTheModelHasChanged() {
        ledger.putNode("n1", node(1, 1000, 1000));
        score("n1", "a");
        score("n1", "b");
        assertThat(policy.scored).hasValue(1);

        ledger.observeBound(LedgerTest.bound("half", "n1", uuid(1, 1), new GpuAmount(500, 0, 1, false)));
        score("n1", "a");
        assertThat(policy.scored).hasValue(3); // its GPUs differ now

        scoring.observe("c", QUARTER);
        score("n1", "a");
        assertThat(policy.scored).hasValue(3);
        score(after -> 1);
        score("n1", "a");
        assertThat(policy.scored).hasValue(5);
    }

    /** Once the first request after it scored all nodes: 0.75 s with 5,000 nodes. */
    @Test
    void afterAChangeOfTheModelEachRequestScoresTheFullestNodesAndASampleOfTheOthers() {
        List<String> names = unlikeNodes(1_000);
        ledger.observeBound(LedgerTest.bound("large", "n777", uuid(777, 3), new GpuAmount(900, 0, 1, false)));

        score(after -> -after.free());
        assertThat(bestOfSome(names)).isEqualTo("n777");
        assertThat(bestOfAll(names)).isEqualTo("n777");

        score(after -> after.shape().gpuMiB());
        // The fullest 24 nodes are also the smallest.
        assertThat(Integer.parseInt(bestOfSome(names).substring(1))).isGreaterThan(500);
        assertThat(bestOfAll(names)).isEqualTo("n999");
    }

    private String bestOfSome(List<String> names) {
        policy.scored.set(0);
        String best = best(names).get(0);
        assertThat(policy.scored.get()).isBetween(1, NodeRanking.CANDIDATES + 4);
        return best;
    }

    /** Repeats the request until all nodes have scores. */
    private String bestOfAll(List<String> names) {
        int requests = 1;
        for (int before = 0; policy.scored.get() > before; requests++) {
            before = policy.scored.get();
            best(names);
        }
        assertThat(requests).isBetween(10, 30);
        assertThat(policy.scored.get()).isEqualTo(4 * names.size());
        return best(names).get(0);
    }

    /** Also nodes without a score, since a pod may have node preferences of its own. */
    @Test
    void allNodesThatFitAreListedAndScored() {
        List<String> names = unlikeNodes(1_000);
        score(after -> -after.free());
        NodeRanking ranking = scoring.forPod("a", QUARTER, Placement.FRAGMENTATION);

        List<String> listed = ranking.best(names, names.size(), (node, refuses) -> {});
        assertThat(listed).containsExactlyInAnyOrderElementsOf(names);
        var scores = new HashMap<String, Integer>();
        scoring.forPod("a", QUARTER, Placement.FRAGMENTATION).prioritize(listed, scores::put);

        assertThat(scores).hasSize(names.size());
        assertThat(scores.values()).contains(10, 0);
        assertThat(policy.scored.get()).isBetween(1, 2 * (NodeRanking.CANDIDATES + 4));
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

    @Test
    void kindsThatDifferInCpuAreScoredSeparately() {
        ledger.putNode("n1", node(1, 1000));
        score(after -> after.cpuMillis());

        assertThat(score("n1", "a", QUARTER.withHostRequests(new HostResources(1_000, 0))))
                .isEqualTo(7_000);
        assertThat(score("n1", "a", QUARTER.withHostRequests(new HostResources(2_000, 0))))
                .isEqualTo(6_000);
    }

    @Test
    void aRetriedPodCountsOnceAndBoundPodsCountFirst() {
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

        assertThat(policy.demands).extracting(DemandVector::gpuMiB).containsExactly(10, 20, 250, 250);
    }

    @Test
    void aRequestInPercentCountsAsAPartOfTheLargestGpu() {
        ledger.putNode("n1", node(1, 1000, 2000));

        scoring.observe("a", request("APP:main: gpumem-percentage=25"));

        assertThat(policy.demands).extracting(DemandVector::gpuMiB).containsExactly(500);
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
            PodGpuRequest request = kind(1 + i % 3);
            freshScoring.observe(pod.uid(), request);
            NodeRanking ranking = freshScoring.forPod(pod.uid(), request, Placement.FRAGMENTATION);
            String best = "";
            double most = Double.NEGATIVE_INFINITY;
            for (int number = 0; number < NODES; number++) {
                String node = "n" + number;
                if (ranking.score(node) > most) {
                    most = ranking.score(node);
                    best = node;
                }
            }
            choices.add(best + fresh.commit(pod, best, request, 1));
            if (i % 3 == 0) {
                fresh.observeEnded("q" + i / 2);
            }
        }
        return choices;
    }

    @Test
    void concurrentRequestsTeachThePolicyOneAtATime() throws Exception {
        var pool = Executors.newFixedThreadPool(4);
        try {
            List<Callable<Void>> work = new ArrayList<>();
            for (int thread = 0; thread < 4; thread++) {
                var random = new Random(seed + thread);
                work.add(() -> {
                    for (int step = 0; step < 3_000; step++) {
                        changeAnything(random);
                        PodGpuRequest request = kind(1 + random.nextInt(3));
                        String uid = pod(random.nextInt(PODS)).uid();
                        scoring.observe("of " + Thread.currentThread() + step, request);
                        NodeRanking ranking = scoring.forPod(uid, request, Placement.FRAGMENTATION);
                        for (int number = 0; number < NODES; number++) {
                            ranking.score("n" + number);
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
        scoring.observe("last", QUARTER);
        assertThat(policy.freeCapacities).as("-Daliquot.seed=%d", seed).isEqualTo(freeCapacities());
    }

    /** Pods and nodes come and go, prices move, and the workload is sampled again: no score is older than that. */
    @Test
    void aCachedScoreEqualsANewOneAfterAnyHistory() {
        var fragmentation = new Fragmentation();
        var model = new AtomicReference<ScoringPolicy.Model>();
        Ledger fresh = ledger();
        var freshScoring =
                new NodeScoring(fresh, (pods, nodes) -> model.updateAndGet(before -> fragmentation.learn(pods, nodes)));
        var random = new Random(seed);
        var names = new String[40];
        for (int number = 0; number < names.length; number++) {
            names[number] = "n" + number;
            fresh.putNode(names[number], node(number, 1000));
        }
        var models = new GpuModels();
        for (int step = 0; step < 2_000; step++) {
            int number = random.nextInt(names.length);
            PodGpuRequest request = request(FRAGMENTATION, "APP:main: gpumem=" + (300 + 100 * random.nextInt(3)));
            PodId pod = LedgerTest.pod("p" + step);
            switch (random.nextInt(10)) {
                case 0 -> fresh.removeNode(names[number]);
                case 1, 2 -> fresh.putNode(names[number], node(number, 1000));
                case 3, 4, 5 -> fresh.observeEnded("p" + random.nextInt(step + 1));
                default -> fresh.commit(pod, names[number], request, 1);
            }
            freshScoring.observe(pod.uid(), request);
            NodeRanking ranking = freshScoring.forPod("anybody", request, Placement.FRAGMENTATION);
            List<String> best = step % 2 == 0 ? List.of() : ranking.best(List.of(names), 5, (node, refuses) -> {});
            var scores = new TreeMap<String, Double>();
            for (String name : names) {
                if (ranking.feasibility(name) instanceof Feasibility.Fits) {
                    FreeCapacity before = FreeCapacity.of(
                            models.shape(node(0, 1000).gpus().list(), HOST),
                            HOST,
                            fresh.view(name).orElseThrow().gpus());
                    DemandVector demand = models.demand(request);
                    scores.put(name, ranking.score(name));
                    assertThat(ranking.score(name))
                            .as("-Daliquot.seed=%d, step %d, %s", seed, step, name)
                            .isEqualTo(
                                    Objects.requireNonNull(model.get()).score(demand, before, before.with(demand, 0)));
                }
            }
            if (step % 2 == 1) {
                assertThat(best)
                        .as("-Daliquot.seed=%d, step %d", seed, step)
                        .isEqualTo(scores.keySet().stream()
                                .sorted(Comparator.comparing(scores::get).reversed())
                                .limit(5)
                                .toList());
            }
        }
    }

    private double score(String node, String pod) {
        return score(node, pod, QUARTER);
    }

    private double score(String node, String pod, PodGpuRequest request) {
        NodeRanking ranking = scoring.forPod(pod, request, Placement.FRAGMENTATION);
        return ranking.score(node);
    }

    /** The GPU of node n1 that a pod gets. */
    private String taken(String pod) {
        return granted(pod, QUARTER);
    }

    private String granted(String pod, PodGpuRequest request) {
        var granted = (Granted) ledger.commit(LedgerTest.pod(pod), "n1", request, 1);
        return Gpus.of(granted.containers(), "main").list().get(0).uuid();
    }
}
