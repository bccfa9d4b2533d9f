package io.aliquot.scheduler.scoring.fragmentation;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.placement.FreeCapacity.Shape;
import io.aliquot.scheduler.scoring.PriceSnapshot;
import io.aliquot.scheduler.scoring.fragmentation.Fragmentation.Evaluation;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

class FragmentationTest {
    private static final Shape NODE = new Shape(96_000, 393_216, 8, 40_960, 100, 0);
    private static final DemandVector HALF = new DemandVector(4_000, 8_192, 1, false, 20_480, 50, DemandVector.ANY);
    private static final DemandVector WHOLE = new DemandVector(12_000, 8_192, 1, true, 0, 0, DemandVector.ANY);
    private static final DemandVector EIGHT = new DemandVector(32_000, 8_192, 8, true, 0, 0, DemandVector.ANY);
    private static final DemandVector CPU = new DemandVector(16_000, 8_192, 0, false, 0, 0, DemandVector.ANY);

    private final Fragmentation policy = new Fragmentation();

    @Test
    void halvesShareAGpuIfWholeOnesAreRequested() {
        see(10, HALF, WHOLE);
        FreeCapacity node = FreeCapacity.of(NODE).with(HALF, 0); // its fullest GPU is half full
        policy.nodeAdded(node);

        assertThat(cost(HALF, node, 0)).isLessThan(cost(HALF, node, 1));
    }

    @Test
    void memoryWithoutCoresIsNotUsableCapacity() {
        DemandVector computing = new DemandVector(1_000, 1_024, 1, false, 4_096, 90, DemandVector.ANY);
        DemandVector remembering = new DemandVector(1_000, 1_024, 1, false, 36_864, 10, DemandVector.ANY);
        see(10, computing, remembering, WHOLE);
        FreeCapacity node = FreeCapacity.of(NODE).with(computing, 0).with(remembering, 1);
        int withRemembering = node.gpuMiB(0) < node.gpuMiB(1) ? 0 : 1;
        policy.nodeAdded(node);

        // The two fit on one GPU exactly.
        assertThat(cost(computing, node, withRemembering)).isLessThan(cost(computing, node, 2));
        assertThat(cost(remembering, node, 1 - withRemembering)).isLessThan(cost(remembering, node, 2));
    }

    @Test
    void aPodWithoutGpuGoesWhereMuchCpuIsFree() {
        see(10, WHOLE);
        FreeCapacity scarce = FreeCapacity.of(NODE); // 12 CPUs for each GPU, which is what the pods want
        FreeCapacity plenty = FreeCapacity.of(new Shape(128_000, 393_216, 2, 40_960, 100, 0));
        policy.nodeAdded(scarce);
        policy.nodeAdded(plenty);

        assertThat(cost(CPU, plenty, 0)).isZero();
        assertThat(cost(CPU, scarce, 0)).isGreaterThan(900);
    }

    @Test
    void theLastNodeForEightGpusIsLeftToPodsThatNeedIt() {
        see(10, HALF, HALF, HALF, EIGHT);
        FreeCapacity empty = FreeCapacity.of(NODE);
        FreeCapacity begun = empty.with(WHOLE, 0);
        policy.nodeAdded(empty);
        policy.nodeAdded(begun);

        assertThat(cost(WHOLE, begun, 1)).isLessThan(cost(WHOLE, empty, 0));
    }

    @Test
    void aModelThatSomePodsRequireIsLeftToThem() {
        DemandVector insisting = new DemandVector(4_000, 8_192, 1, true, 0, 0, 0b10);
        see(10, WHOLE, insisting);
        FreeCapacity common = FreeCapacity.of(NODE);
        FreeCapacity wanted = FreeCapacity.of(new Shape(96_000, 393_216, 8, 40_960, 100, 1));
        policy.nodeAdded(common);
        policy.nodeAdded(wanted);

        assertThat(cost(WHOLE, common, 0)).isLessThan(cost(WHOLE, wanted, 0));
    }

    /** Before, such pods went where CPU was plenty, and those that required the model were refused. */
    @Test
    void otherPodsAvoidAModelThatIsShort() {
        FreeCapacity common = FreeCapacity.of(NODE);
        FreeCapacity wanted = FreeCapacity.of(new Shape(128_000, 393_216, 2, 40_960, 100, 1));
        for (int i = 0; i < 20; i++) {
            policy.nodeAdded(common);
            policy.nodeAdded(wanted);
        }
        DemandVector busy = new DemandVector(24_000, 8_192, 1, true, 0, 0, DemandVector.ANY);
        DemandVector requiring = new DemandVector(4_000, 8_192, 1, true, 0, 0, 0b10);
        see(400, WHOLE, WHOLE, busy, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, requiring);

        assertThat(cost(busy, wanted, 0)).isLessThan(cost(busy, common, 0)); // a tenth requires a fifth of the GPUs

        see(4_000, WHOLE, requiring);

        assertThat(cost(busy, wanted, 0)).isGreaterThan(cost(busy, common, 0));
        assertThat(cost(requiring, wanted, 0)).isLessThan(100); // it pays nothing for what is kept for it
    }

    @Test
    void idlenessCountsWherePodsEndAndMoreInAnEmptierCluster() {
        see(10, WHOLE);
        FreeCapacity empty = FreeCapacity.of(NODE);
        policy.nodeAdded(empty);
        change(empty, empty.with(EIGHT, 0));
        change(empty.with(EIGHT, 0), empty);
        double alone = idleness(HALF, empty); // half a GPU is left that no pod wants
        policy.nodeAdded(empty.with(EIGHT, 0));

        assertThat(alone).isPositive();
        assertThat(idleness(WHOLE, empty)).isZero();
        assertThat(idleness(HALF, empty)).isEqualTo(alone / 16); // half is free, to the fourth power
    }

    @Test
    void idlenessDoesNotCountWhereNoPodEnds() {
        see(10, WHOLE);
        FreeCapacity empty = FreeCapacity.of(NODE);
        policy.nodeAdded(empty);
        policy.nodeAdded(empty);
        change(empty, empty.with(EIGHT, 0));

        assertThat(idleness(HALF, empty)).isZero();
    }

    private void change(FreeCapacity before, FreeCapacity after) {
        policy.nodeRemoved(before);
        policy.nodeAdded(after);
    }

    private double idleness(DemandVector demand, FreeCapacity node) {
        return policy.idleness(evaluate(policy, demand, node, 0));
    }

    @Test
    void equalHistoriesGiveEqualCosts() {
        var other = new Fragmentation();
        var random = new Random(3);
        for (int i = 0; i < 500; i++) {
            DemandVector demand = List.of(HALF, WHOLE, EIGHT, CPU).get(random.nextInt(4));
            policy.observe(demand);
            other.observe(demand);
        }
        policy.nodeAdded(FreeCapacity.of(NODE));
        other.nodeAdded(FreeCapacity.of(NODE));

        assertThat(other.modelVersion()).isEqualTo(policy.modelVersion());
        assertThat(other.cost(evaluate(other, HALF, FreeCapacity.of(NODE), 0)))
                .isEqualTo(cost(HALF, FreeCapacity.of(NODE), 0));
    }

    /** All nodes were once looked at by one call. */
    @Test
    void aNewSampleTakesEffectOnceAllNodesAreCountedSomeAtEachCall() {
        var random = new Random(5);
        for (int i = 0; i < 400; i++) {
            policy.observe(new DemandVector(4_000, 8_192, 1, false, 1_000 + 50 * i, 1, DemandVector.ANY));
        }
        FreeCapacity last = FreeCapacity.of(NODE);
        for (int i = 0; i < 600; i++) {
            last = FreeCapacity.of(new Shape(96_000, 393_216 + i, 8, 40_960, 100, 0));
            policy.nodeAdded(last);
        }

        int calls = 1;
        while (policy.modelVersion() == 0) {
            calls++;
            policy.nodeRemoved(last);
            last = last.with(HALF, random.nextInt(8));
            policy.nodeAdded(last);
        }

        assertThat(calls).isBetween(3, 10);
        assertThat(policy.modelVersion()).isEqualTo(1);
        var afresh = new Fragmentation();
        for (int i = 0; i < 400; i++) {
            afresh.observe(new DemandVector(4_000, 8_192, 1, false, 1_000 + 50 * i, 1, DemandVector.ANY));
        }
        afresh.nodeAdded(last);
        for (int i = 0; i < 599; i++) {
            afresh.nodeAdded(FreeCapacity.of(new Shape(96_000, 393_216 + i, 8, 40_960, 100, 0)));
        }
        while (afresh.modelVersion() == 0) {}
        assertThat(policy.scarcity(policy.evaluate(HALF, last, last.with(HALF, 0))))
                .isEqualTo(afresh.scarcity(afresh.evaluate(HALF, last, last.with(HALF, 0))));
    }

    /** The incrementally updated state equals the state computed from the current free capacities. */
    @Test
    void scarcityDependsOnTheFreeCapacitiesAndNotOnTheirHistory() {
        see(20, HALF, WHOLE, EIGHT);
        var random = new Random(7);
        List<FreeCapacity> nodes =
                new ArrayList<>(List.of(FreeCapacity.of(NODE), FreeCapacity.of(NODE), FreeCapacity.of(NODE)));
        nodes.forEach(policy::nodeAdded);
        for (int i = 0; i < 30; i++) {
            DemandVector demand = List.of(HALF, WHOLE, CPU).get(random.nextInt(3));
            FreeCapacity best = nodes.stream()
                    .filter(node -> node.fits(demand))
                    .min(Comparator.comparingDouble(node -> cost(demand, node, first(demand, node))))
                    .orElse(null);
            if (best != null) {
                nodes.remove(best);
                policy.nodeRemoved(best);
                FreeCapacity after = best.with(demand, first(demand, best));
                nodes.add(after);
                policy.nodeAdded(after);
            }
        }
        var fresh = new Fragmentation();
        for (int i = 0; i < 20; i++) {
            List.of(HALF, WHOLE, EIGHT).forEach(fresh::observe);
        }
        nodes.forEach(fresh::nodeAdded);
        for (FreeCapacity node : nodes) {
            if (node.fits(HALF)) {
                Evaluation evaluation = evaluate(fresh, HALF, node, first(HALF, node));
                assertThat(fresh.cost(evaluation)).isEqualTo(cost(HALF, node, first(HALF, node)));
            }
        }
    }

    /** By which it is told without looking whether a evaluation can be among the best. */
    @Test
    void noScoreExceedsItsUpperBoundAfterAnyHistory() {
        long seed = System.nanoTime();
        var random = new Random(seed);
        see(20, HALF, WHOLE, EIGHT);
        List<FreeCapacity> nodes = new ArrayList<>();
        for (int i = 0; i < 300; i++) {
            FreeCapacity begun = FreeCapacity.of(NODE).with(HALF, random.nextInt(8));
            nodes.add(i % 3 == 0 ? FreeCapacity.of(NODE) : i % 3 == 1 ? begun : begun.with(WHOLE, 3));
        }
        nodes.forEach(policy::nodeAdded);
        Evaluation evaluation = evaluate(policy, HALF, FreeCapacity.of(NODE), 0);
        double last = policy.score(evaluation);
        PriceSnapshot then = policy.prices();
        double priced = policy.priceCost(evaluation);
        double most = 0;
        double least = Double.MAX_VALUE;
        for (int i = 0; i < 2_000; i++) {
            happen(nodes, random);
            policy.observe(HALF);
            double weighed = policy.idleCost(evaluation);
            double over = policy.prices().upperBound(last, then, priced, weighed, weighed);
            double single = policy.upperBound(evaluation);
            double now = policy.score(evaluation);
            assertThat(now)
                    .as("seed %d, step %d", seed, i)
                    .isLessThanOrEqualTo(over)
                    .isLessThanOrEqualTo(single);
            most = Math.max(most, now);
            least = Math.min(least, now);
            if (i % 10 == 0) {
                last = now;
                then = policy.prices();
                priced = policy.priceCost(evaluation);
            }
        }
        assertThat(most - least).as("seed %d: scores do change", seed).isGreaterThan(1);
    }

    @Test
    void aChangeOfOneOfManyNodesHardlyMovesTheUpperBoundsOfOthers() {
        see(20, HALF, WHOLE, EIGHT);
        FreeCapacity begun = FreeCapacity.of(NODE).with(WHOLE, 0);
        for (int i = 0; i < 255; i++) {
            policy.nodeAdded(begun);
        }
        Evaluation evaluation = evaluate(policy, HALF, begun, 0);
        double before = policy.score(evaluation);
        PriceSnapshot then = policy.prices();
        double priced = policy.priceCost(evaluation);
        change(begun, FreeCapacity.of(NODE));

        assertThat(policy.prices()).isNotSameAs(then);
        double weighed = policy.idleCost(evaluation);
        assertThat(policy.prices().upperBound(before, then, priced, weighed, weighed))
                .isBetween(policy.score(evaluation), before + priced / 10);
        assertThat(policy.score(evaluation)).isGreaterThan(before); // what it takes has become less scarce
    }

    /** So that it needn't be looked at again. */
    @Test
    void aDominatedCandidateNeverHasAHigherScore() {
        see(20, HALF, WHOLE, EIGHT, new DemandVector(1_000, 1_024, 1, false, 4_096, 90, DemandVector.ANY));
        long seed = Long.getLong("aliquot.seed", System.nanoTime());
        var random = new Random(seed);
        var nodes = new ArrayList<FreeCapacity>();
        for (int i = 0; i < 20; i++) {
            nodes.add(FreeCapacity.of(NODE));
            policy.nodeAdded(FreeCapacity.of(NODE));
        }
        int outdone = 0;
        int neither = 0;
        for (int step = 0; step < 2_000; step++) {
            happen(nodes, random);
            // Any two places, be it of different nodes.
            Evaluation evaluation = anywhere(nodes, random);
            Evaluation other = anywhere(nodes, random);
            if (policy.dominates(evaluation, other)) {
                outdone++;
                for (int later = 0; later < 5; later++) {
                    assertThat(policy.score(evaluation))
                            .as("-Daliquot.seed=%d, step %d", seed, step)
                            .isGreaterThanOrEqualTo(policy.score(other));
                    happen(nodes, random);
                }
            } else if (!policy.dominates(other, evaluation)) {
                neither++;
            }
        }
        assertThat(outdone).as("-Daliquot.seed=%d", seed).isGreaterThan(100);
        assertThat(neither).as("-Daliquot.seed=%d", seed).isGreaterThan(100);
    }

    private Evaluation anywhere(List<FreeCapacity> nodes, Random random) {
        while (true) {
            FreeCapacity node = nodes.get(random.nextInt(nodes.size()));
            DemandVector demand = random.nextBoolean() ? HALF : WHOLE;
            int gpu = random.nextInt(node.gpus());
            if (node.fits(demand) && node.holds(gpu, demand)) {
                return evaluate(policy, demand, node, gpu);
            }
        }
    }

    /** Nodes fill up and are emptied, come and go. */
    private void happen(List<FreeCapacity> nodes, Random random) {
        for (int change = 0; change < 5; change++) {
            FreeCapacity before = nodes.remove(random.nextInt(nodes.size()));
            policy.nodeRemoved(before);
            DemandVector demand = random.nextBoolean() ? HALF : WHOLE;
            FreeCapacity after = random.nextInt(3) > 0 && before.fits(demand)
                    ? before.with(demand, first(demand, before))
                    : FreeCapacity.of(NODE);
            nodes.add(after);
            policy.nodeAdded(after);
        }
        if (random.nextInt(10) == 0 && nodes.size() > 100) {
            policy.nodeRemoved(nodes.remove(0));
        } else if (random.nextInt(5) == 0) {
            nodes.add(FreeCapacity.of(NODE));
            policy.nodeAdded(FreeCapacity.of(NODE));
        }
    }

    private static int first(DemandVector demand, FreeCapacity node) {
        int gpu = 0;
        while (demand.gpus() > 0 && !node.holds(gpu, demand)) {
            gpu++;
        }
        return gpu;
    }

    private void see(int times, DemandVector... demands) {
        for (int i = 0; i < times; i++) {
            List.of(demands).forEach(policy::observe);
        }
    }

    private double cost(DemandVector demand, FreeCapacity node, int gpu) {
        return policy.cost(evaluate(policy, demand, node, gpu));
    }

    private static Evaluation evaluate(Fragmentation policy, DemandVector demand, FreeCapacity node, int gpu) {
        policy.modelVersion();
        return policy.evaluate(demand, node, node.with(demand, gpu));
    }
}
