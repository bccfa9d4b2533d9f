package io.aliquot.deviceplugin.usage;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.usage.PodContainer;
import io.aliquot.api.usage.UsageReport.ApplicationXid;
import io.aliquot.deviceplugin.attribution.ContainerName;
import io.aliquot.deviceplugin.health.XidTable;
import io.aliquot.deviceplugin.nvml.GpuUsage;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import org.junit.jupiter.api.Test;

final class ApplicationXidsTest {
    private static final String GPU = "GPU-00000000-0000-0000-0000-00000000000a";
    private static final String OTHER_GPU = "GPU-00000000-0000-0000-0000-00000000000b";
    private static final XidTable.Entry PAGE_FAULT =
            XidTable.load(Set.of(), Set.of()).of(31);

    private long now = Long.MAX_VALUE - Duration.ofSeconds(5).toNanos(); // overflows in some tests
    private final ApplicationXids xids = new ApplicationXids(() -> now);

    @Test
    void anErrorBelongsToTheContainerThatAloneUsesTheGpu() {
        sample(GPU, "train");
        xids.add(GPU, PAGE_FAULT);
        assertThat(xids.recent()).as("before the next sample").isEmpty();
        sample(GPU, "train");

        assertThat(xids.recent())
                .containsExactly(new ApplicationXid(
                        GPU, 31, PAGE_FAULT.meaning(), new PodContainer("team", "train", "uid-train", "main")));
        sample(GPU, "train");
        assertThat(xids.recent()).as("once").hasSize(1);
        pass(Duration.ofSeconds(121));
        assertThat(xids.recent()).isEmpty();
    }

    @Test
    void theProcessMayHaveEndedBeforeTheErrorIsReported() {
        sample(GPU, "train");
        sample(GPU);
        xids.add(GPU, PAGE_FAULT);
        sample(GPU);

        assertThat(xids.recent()).hasSize(1);
    }

    @Test
    void noContainerIsBlamedIfAnotherOneUsedTheGpuInTheLastSecondsOrAppearsInTheNextSample() {
        sample(GPU, "other");
        sample(GPU, "train");
        xids.add(GPU, PAGE_FAULT);
        sample(GPU, "train");
        pass(Duration.ofSeconds(11));
        sample(GPU, "train");
        xids.add(GPU, PAGE_FAULT);
        sample(GPU, "train", "other");

        assertThat(xids.recent()).isEmpty();
    }

    @Test
    void noContainerIsBlamedIfAProcessOutsideOfAllSharesUsesTheGpu() {
        sample(GPU, "train", "");
        xids.add(GPU, PAGE_FAULT);
        sample(GPU, "train", "");

        assertThat(xids.recent()).isEmpty();
    }

    @Test
    void anErrorOfAnUnusedGpuAndOneBeforeALongPauseBelongToNoContainer() {
        sample(OTHER_GPU, "train");
        xids.add(GPU, PAGE_FAULT);
        sample(OTHER_GPU, "train");
        xids.add(GPU, PAGE_FAULT);
        pass(Duration.ofSeconds(11));
        sample(GPU, "train");

        assertThat(xids.recent()).isEmpty();
    }

    /** A sample, a second after the last one, with a process of each of these pods; "": of the host. */
    private void sample(String gpu, String... pods) {
        pass(Duration.ofSeconds(1));
        List<GpuUsage.GpuProcess> processes = new ArrayList<>();
        List<NodeUsage.OfContainer> uses = new ArrayList<>();
        for (String pod : pods) {
            processes.add(new GpuUsage.GpuProcess(processes.size() + 1, OptionalLong.empty()));
            if (!pod.isEmpty()) {
                uses.add(new NodeUsage.OfContainer(
                        new ContainerName("team", pod, "main"),
                        "uid-" + pod,
                        Optional.empty(),
                        gpu,
                        OptionalLong.empty(),
                        OptionalLong.empty(),
                        OptionalLong.empty(),
                        0,
                        0,
                        OptionalDouble.empty(),
                        0,
                        0,
                        1));
            }
        }
        var nvml =
                new GpuUsage(gpu, OptionalInt.empty(), OptionalInt.empty(), OptionalInt.empty(), processes, List.of());
        xids.add(new NodeUsage(List.of(new NodeUsage.OfGpu(nvml, 0, 0)), uses));
    }

    private void pass(Duration time) {
        now += time.toNanos();
    }
}
