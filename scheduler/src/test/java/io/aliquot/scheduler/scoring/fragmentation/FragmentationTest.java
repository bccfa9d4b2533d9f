package io.aliquot.scheduler.scoring.fragmentation;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.placement.FreeCapacity.Shape;
import io.aliquot.scheduler.scoring.ScoreTerm;
import io.aliquot.scheduler.scoring.ScoringPolicy;
import java.util.ArrayList;
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
    private final List<FreeCapacity> nodes = new ArrayList<>();

    @Test
    void halvesShareAGpuIfWholeOnesAreRequested() {
        FreeCapacity node = FreeCapacity.of(NODE).with(HALF, 0); // its fullest GPU is half full
        nodes.add(node);
        see(10, HALF, WHOLE);

        assertThat(cost(HALF, node, 0)).isLessThan(cost(HALF, node, 1));
    }

    @Test
    void memoryWithoutCoresIsNotUsableCapacity() {
        DemandVector computing = new DemandVector(1_000, 1_024, 1, false, 4_096, 90, DemandVector.ANY);
        DemandVector remembering = new DemandVector(1_000, 1_024, 1, false, 36_864, 10, DemandVector.ANY);
        FreeCapacity node = FreeCapacity.of(NODE).with(computing, 0).with(remembering, 1);
        int withRemembering = node.gpuMiB(0) < node.gpuMiB(1) ? 0 : 1;
        nodes.add(node);
        see(10, computing, remembering, WHOLE);

        // The two fit on one GPU exactly.
        assertThat(cost(computing, node, withRemembering)).isLessThan(cost(computing, node, 2));
        assertThat(cost(remembering, node, 1 - withRemembering)).isLessThan(cost(remembering, node, 2));
    }

    @Test
    void aPodWithoutGpuGoesWhereMuchCpuIsFree() {
        FreeCapacity scarce = FreeCapacity.of(NODE); // 12 CPUs for each GPU, which is what the pods want
        FreeCapacity plenty = FreeCapacity.of(new Shape(128_000, 393_216, 2, 40_960, 100, 0));
        nodes.addAll(List.of(scarce, plenty));
        see(10, WHOLE);

        assertThat(cost(CPU, plenty, 0)).isCloseTo(0, within(0.01));
        assertThat(cost(CPU, scarce, 0)).isGreaterThan(900);
    }

    @Test
    void theLastNodeForEightGpusIsLeftToPodsThatNeedIt() {
        FreeCapacity empty = FreeCapacity.of(NODE);
        FreeCapacity begun = empty.with(WHOLE, 0);
        nodes.addAll(List.of(empty, begun));
        see(10, HALF, HALF, HALF, EIGHT);

        assertThat(cost(WHOLE, begun, 1)).isLessThan(cost(WHOLE, empty, 0));
    }

    @Test
    void aModelThatSomePodsRequireIsLeftToThem() {
        DemandVector insisting = new DemandVector(4_000, 8_192, 1, true, 0, 0, 0b10);
        FreeCapacity common = FreeCapacity.of(NODE);
        FreeCapacity wanted = FreeCapacity.of(new Shape(96_000, 393_216, 8, 40_960, 100, 1));
        nodes.addAll(List.of(common, wanted));
        see(10, WHOLE, insisting);

        assertThat(cost(WHOLE, common, 0)).isLessThan(cost(WHOLE, wanted, 0));
    }

    @Test
    void ofNodesWithEqualCostsTheFullerOneIsBetter() {
        FreeCapacity empty = FreeCapacity.of(NODE);
        FreeCapacity begun = empty.with(WHOLE, 0);

        assertThat(cost(WHOLE, begun, 1)).isLessThan(cost(WHOLE, empty, 0)); // nothing is known of pods yet
    }

    @Test
    void aModelStaysUntilTheWorkloadOrTheFreeCapacityHasMoved() {
        for (int i = 0; i < 100; i++) {
            nodes.add(FreeCapacity.of(NODE));
        }
        see(2_000, HALF, WHOLE, EIGHT);
        ScoringPolicy.Model model = model();

        nodes.set(0, FreeCapacity.of(NODE).with(HALF, 0));
        see(100, HALF, WHOLE, EIGHT);
        assertThat(model()).isSameAs(model);

        for (int i = 0; i < 20; i++) {
            nodes.set(i, FreeCapacity.of(NODE).with(HALF, 0)); // a fifth fewer nodes for eight GPUs
        }
        see(1, HALF, WHOLE, EIGHT);
        ScoringPolicy.Model scarcer = model();
        assertThat(scarcer).isNotSameAs(model);
        FreeCapacity empty = FreeCapacity.of(NODE);
        assertThat(scarcer.score(HALF, empty, empty.with(HALF, 0)))
                .isLessThan(model.score(HALF, empty, empty.with(HALF, 0)));

        see(3_000, HALF);
        assertThat(model()).isNotSameAs(scarcer);
    }

    @Test
    void theTermsAddUpToTheScore() {
        FreeCapacity node = FreeCapacity.of(NODE);
        nodes.add(node);
        see(10, HALF, WHOLE);
        List<ScoreTerm> terms = model().terms(HALF, node, node.with(HALF, 0));

        assertThat(terms).extracting(ScoreTerm::name).containsExactly("waste", "scarcity");
        assertThat(terms.stream().mapToDouble(ScoreTerm::thousandths).sum())
                .isCloseTo(cost(HALF, node, 0), within(0.01));
    }

    @Test
    void equalHistoriesGiveEqualScores() {
        var other = new Fragmentation();
        var random = new Random(3);
        FreeCapacity node = FreeCapacity.of(NODE);
        nodes.addAll(List.of(node, node.with(WHOLE, 0)));
        ScoringPolicy.Model others = other.learn(List.of(), () -> nodes);
        for (int i = 0; i < 500; i++) {
            DemandVector demand = List.of(HALF, WHOLE, EIGHT, CPU).get(random.nextInt(4));
            policy.learn(List.of(demand), () -> nodes);
            others = other.learn(List.of(demand), () -> nodes);
        }

        assertThat(-others.score(HALF, node, node.with(HALF, 0))).isEqualTo(cost(HALF, node, 0));
    }

    private void see(int times, DemandVector... demands) {
        for (int i = 0; i < times; i++) {
            for (DemandVector demand : demands) {
                policy.learn(List.of(demand), () -> nodes);
            }
        }
    }

    private ScoringPolicy.Model model() {
        return policy.learn(List.of(), () -> nodes);
    }

    private double cost(DemandVector demand, FreeCapacity node, int gpu) {
        return -model().score(demand, node, node.with(demand, gpu));
    }
}
