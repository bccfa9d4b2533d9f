package io.aliquot.simulator;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.pods.GpuRequest;
import io.aliquot.api.pods.MemoryRequest;
import io.aliquot.api.pods.Placement;
import io.aliquot.scheduler.simulation.PlacementEngine;
import io.aliquot.scheduler.simulation.PodRequest;
import io.aliquot.scheduler.simulation.SimulatedCluster;
import io.aliquot.scheduler.simulation.SimulatedNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;

class UnschedulableReasonTest {
    private static final long MIB = 1 << 20;

    private static final SimulatedCluster CLUSTER = new SimulatedCluster(List.of(node("a", "A"), node("b", "B")));

    private static final GpuRequest HALF_GPU = TestPods.mebibytes(500, 0);
    private static final PodRequest HALF = TestPods.request(HALF_GPU, 1_000, 1_024 * MIB);
    private static final PodRequest WHOLE = TestPods.request(TestPods.WHOLE_GPU, 1_000, 1_024 * MIB);
    private static final PodRequest WHOLE_OF_MODEL_A =
            PodRequest.of(Optional.of(TestPods.WHOLE_GPU), Map.of(Annotations.USE_GPU_MODEL, "A"), 1_000, 1_024 * MIB);
    private static final PodRequest ALL_CPU = PodRequest.of(Optional.empty(), Map.of(), 8_000, 1_024 * MIB);
    private static final PodRequest ALL_MEMORY = PodRequest.of(Optional.empty(), Map.of(), 1_000, 32_768 * MIB);

    private static SimulatedNode node(String name, String model) {
        return TestPods.node(name, new UniformGpus(2, model, Trace.WHOLE, 100), 8_000, 32_768 * MIB);
    }

    /** A node, and the pods on it. */
    private record Used(String node, List<PodRequest> pods) {}

    private static Used used(String node, PodRequest... pods) {
        return new Used(node, List.of(pods));
    }

    private static UnschedulableReason reason(PodRequest pod, Used... nodes) {
        PlacementEngine engine = CLUSTER.engine(Placement.SPREAD);
        var groups = new ArrayList<Replay.NodeGroup>();
        for (Used node : nodes) {
            for (PodRequest placed : node.pods()) {
                engine.bind(engine.arrive(placed), node.node());
            }
            groups.add(new Replay.NodeGroup(engine.capacity(node.node()), 1));
        }
        return UnschedulableReason.of(CLUSTER.demand(pod), groups);
    }

    @Test
    void theReasonIsTheOneThatWithholdsMostOfTheFreeGpu() {
        assertThat(reason(WHOLE, used("a", ALL_CPU))).isEqualTo(UnschedulableReason.CPU);
        assertThat(reason(WHOLE, used("a", ALL_MEMORY))).isEqualTo(UnschedulableReason.MEMORY);
        assertThat(reason(WHOLE, used("a", HALF, HALF))).isEqualTo(UnschedulableReason.FRAGMENTED);
        assertThat(reason(WHOLE, used("a", WHOLE, HALF))).isEqualTo(UnschedulableReason.FULL);
        assertThat(reason(WHOLE_OF_MODEL_A, used("a", WHOLE, WHOLE), used("b"))).isEqualTo(UnschedulableReason.MODEL);
        assertThat(reason(WHOLE, used("a", HALF, HALF), used("b", ALL_CPU))).isEqualTo(UnschedulableReason.CPU);
    }

    @Test
    void aPodThatFitsOnNoEmptyNodeNeverFits() {
        PodRequest three =
                TestPods.request(new GpuRequest(3, new MemoryRequest.WholeCard(), 0, true), 1_000, 1_024 * MIB);

        assertThat(reason(three, used("a"), used("b"))).isEqualTo(UnschedulableReason.NEVER);
    }

    @Test
    void aPodWithoutGpusLacksCpuOrMemory() {
        assertThat(reason(ALL_CPU, used("a", ALL_CPU))).isEqualTo(UnschedulableReason.CPU);
        assertThat(reason(ALL_MEMORY, used("a", ALL_MEMORY))).isEqualTo(UnschedulableReason.MEMORY);
    }
}
