package io.aliquot.simulator;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.Container;
import java.util.List;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

class TraceTest {
    /** Its GPUs have 30,000 MiB on average. */
    private static final Trace TRACE = new Trace(
            List.of(
                    TestPods.node("small", new UniformGpus(2, "T4", 20_000, 10), 0, 0),
                    TestPods.node("large", new UniformGpus(2, "A100", 40_000, 10), 0, 0)),
            new TreeMap<>(),
            List.of());

    private static final Container WHOLE = TestPods.container("whole", Resources.VGPU, "1");
    private static final Container THIRD = TestPods.container("third", Resources.MEMORY, "10000", Resources.CORES, "5");
    private static final Container CORES =
            TestPods.container("cores", Resources.MEMORY_PERCENTAGE, "10", Resources.CORES, "40");
    private static final Container INIT = TestPods.container("init", Resources.MEMORY_PERCENTAGE, "50");

    private static long requested(List<Container> initContainers, Container... containers) {
        return TRACE.requestedGpu(TestPods.pod("p", TestPods.request(initContainers, List.of(containers))));
    }

    @Test
    void aShareCountsByMemoryOrCoresWhicheverIsMore() {
        assertThat(requested(List.of(), THIRD)).isEqualTo(333);
        assertThat(requested(List.of(), CORES)).isEqualTo(400);
        assertThat(requested(List.of(), WHOLE)).isEqualTo(1000);
        assertThat(requested(List.of(), THIRD, CORES)).isEqualTo(733);
        assertThat(requested(List.of())).isZero();
    }

    @Test
    void laterContainersReuseTheRequestOfAnInitContainer() {
        assertThat(requested(List.of(INIT), THIRD)).isEqualTo(500);
        assertThat(requested(List.of(INIT), THIRD, CORES)).isEqualTo(733);
    }

    @Test
    void moreMemoryThanAnyGpuHasCountsAsAWholeGpu() {
        assertThat(requested(List.of(), TestPods.container("large", Resources.MEMORY, "50000")))
                .isEqualTo(1000);
    }
}
