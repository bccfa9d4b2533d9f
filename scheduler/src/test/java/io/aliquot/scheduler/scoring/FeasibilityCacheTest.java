package io.aliquot.scheduler.scoring;

import static io.aliquot.scheduler.placement.Gpus.gpu;
import static io.aliquot.scheduler.placement.Gpus.request;
import static io.aliquot.scheduler.placement.Gpus.uuid;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.pods.Placement;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerListener;
import io.aliquot.scheduler.ledger.LedgerTest;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.scoring.fragmentation.Fragmentation;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

/** Cached answers equal the nodes' answers. */
class FeasibilityCacheTest {
    private static final int NODES = 4;
    /** The same string objects in each request, as in the extender. */
    private static final List<String> NAMES = List.of("n0", "n1", "n2", "n3", "n4");

    private static final int PODS = 12;
    private static final int STEPS = 20_000;
    private static final int THREADS = 4;
    private static final int KINDS = 5;

    private final AtomicLong now = new AtomicLong();
    private final AtomicLong version = new AtomicLong();
    private final Ledger ledger = new Ledger(now::get, new LedgerListener() {
        @Override
        public void capacityFreed(String node) {}

        @Override
        public void overallocated(String node, String gpu) {}
    });
    private final NodeScoring scoring = new NodeScoring(ledger, new Fragmentation());

    private final long seed = Long.getLong("aliquot.seed", System.nanoTime());

    /** A new object each time: two pods are of one kind because their requests are equal, not identical. */
    private static PodGpuRequest kind(int number) {
        return switch (number) {
            case 0 -> request("APP:main: gpumem=100");
            case 1 -> request("APP:main: gpumem=400 gpucores=40");
            case 2 -> request("APP:main: gpu=2 gpumem=300");
            case 3 -> request(Map.of("aliquot.io/gpu-placement", "fragmentation"), "APP:main: gpumem=200");
            default -> request("APP:main: gpu=1");
        };
    }

    @Test
    void cachedAnswersEqualTheNodesAnswersAfterAnyHistory() {
        var random = new Random(seed);
        for (int step = 0; step < STEPS; step++) {
            changeAnything(random);
            String uid = pod(random.nextInt(PODS)).uid();
            compare(uid, random.nextInt(KINDS));
        }
    }

    /** With this many nodes a few dozen kinds are cached. */
    @Test
    void kindsBeyondTheLimitOfTheCacheAreAnsweredToo() {
        for (int node = 0; node < 2_000; node++) {
            ledger.putNode("n" + node, LedgerTest.sharing(4, gpu(node, 0, 1000, true)));
        }
        for (int kind = 0; kind < 5_000; kind++) {
            PodGpuRequest request = request("APP:main: gpumem=" + (100 + kind));
            assertThat(scoring.forPod("anybody", request, Placement.BINPACK).feasibility("n0"))
                    .as("kind %d", kind)
                    .hasToString(ledger.feasibility("n0", "anybody", request).toString());
        }
    }

    @Test
    void concurrentRequestsAndChangesLeaveNoOutdatedAnswer() throws Exception {
        var pool = Executors.newFixedThreadPool(THREADS);
        try {
            for (int round = 0; round < 20; round++) {
                List<Callable<Void>> work = new ArrayList<>();
                for (int thread = 0; thread < THREADS; thread++) {
                    var random = new Random(seed + 100L * round + thread);
                    work.add(() -> {
                        for (int step = 0; step < 500; step++) {
                            changeAnything(random);
                            NodeRanking ranking = scoring.forPod(
                                    pod(random.nextInt(PODS)).uid(), kind(random.nextInt(KINDS)), Placement.BINPACK);
                            for (int node = 0; node <= NODES; node++) {
                                ranking.feasibility("n" + node);
                            }
                        }
                        return null;
                    });
                }
                for (Future<Void> done : pool.invokeAll(work)) {
                    done.get();
                }
                for (int pod = 0; pod < PODS; pod++) {
                    for (int kind = 0; kind < KINDS; kind++) {
                        compare(pod(pod).uid(), kind);
                    }
                }
            }
        } finally {
            pool.shutdownNow();
        }
    }

    private void compare(String uid, int kind) {
        for (Placement policy : Placement.values()) {
            NodeRanking ranking = scoring.forPod(uid, kind(kind), policy);
            for (int node = 0; node <= NODES; node++) {
                assertThat(ranking.feasibility(NAMES.get(node)))
                        .as("-Daliquot.seed=%d, pod %s, kind %d, node %d, %s", seed, uid, kind, node, policy)
                        .hasToString(
                                ledger.feasibility("n" + node, uid, kind(kind)).toString());
            }
        }
    }

    private static PodId pod(int number) {
        return LedgerTest.pod("p" + number);
    }

    private void changeAnything(Random random) {
        int n = random.nextInt(NODES);
        String node = "n" + n;
        PodId pod = pod(random.nextInt(PODS));
        PodGpuRequest request = kind(random.nextInt(KINDS));
        switch (random.nextInt(14)) {
            case 0 ->
                ledger.putNode(
                        node,
                        LedgerTest.sharing(
                                3 + random.nextInt(3),
                                gpu(n, 0, 1000, random.nextBoolean()),
                                gpu(n, 1, 1000 + 500 * random.nextInt(2))));
            case 1 -> ledger.setAgentReady(node, random.nextInt(4) != 0);
            case 2 -> {
                if (random.nextInt(4) == 0) {
                    ledger.removeNode(node);
                }
            }
            case 3, 4 -> ledger.reserve(pod, node, request);
            case 5, 6 -> ledger.commit(pod, node, request, version.incrementAndGet());
            case 7 ->
                ledger.observeBound(BoundPods.of(
                        pod,
                        node,
                        version.incrementAndGet(),
                        BoundPods.main(
                                uuid(n, random.nextInt(2)),
                                new GpuAmount(100L * (1 + random.nextInt(4)), random.nextInt(40), 1, false))));
            case 8, 9 -> ledger.observeEnded(pod.uid());
            case 10 -> ledger.observeUnbound(pod.uid(), version.incrementAndGet());
            case 11 -> ledger.feasibilityWithout(node, pod.uid(), request, Set.of("p0", "p1", "p2"));
            case 12 -> ledger.reserveFor(pod, node, request, Set.of("p3", "p4", "p5"));
            default -> {
                now.addAndGet(Duration.ofSeconds(random.nextInt(4)).toNanos());
                ledger.expire();
            }
        }
    }
}
