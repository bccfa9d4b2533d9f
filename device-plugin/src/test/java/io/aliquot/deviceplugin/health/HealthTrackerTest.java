package io.aliquot.deviceplugin.health;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.GpuHealth;
import io.aliquot.api.nodes.GpuHealth.Recovery;
import io.aliquot.api.nodes.GpuHealth.Unhealthy;
import io.aliquot.api.nodes.GpuKind;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.Scaling;
import io.aliquot.api.nodes.VisibleDevices;
import io.aliquot.api.usage.UsageHistory.HealthChange;
import io.aliquot.deviceplugin.nvml.GpuCondition;
import io.aliquot.deviceplugin.nvml.NodeFeatures;
import io.aliquot.deviceplugin.nvml.Nvml;
import io.aliquot.deviceplugin.nvml.NvmlReading;
import io.aliquot.deviceplugin.nvml.PhysicalGpu;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Set;
import org.junit.jupiter.api.Test;

final class HealthTrackerTest {
    private static final String UUID = "GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001";
    private static final String BOOT = "dc93c6bb-6b52-4d2a-9d0e-0b0c4c1b2a3d";
    private static final String OTHER_BOOT = "00000000-6b52-4d2a-9d0e-0b0c4c1b2a3d";
    private static final Instant NOW = Instant.parse("2026-11-26T17:00:00Z");
    private static final Map<String, String> NO_ANNOTATIONS = Map.of();
    private static final Map<String, String> CLEAR_ALL = Map.of("aliquot.io/clear-gpu-errors", "all");
    private static final Map<String, String> CLEAR_ONE = Map.of("aliquot.io/clear-gpu-errors", UUID);

    private long now = Long.MAX_VALUE - Duration.ofSeconds(1).toNanos(); // overflows in some tests
    private final HealthHistory history = new HealthHistory();
    private final List<String> applicationXids = new ArrayList<>();
    private final HealthTracker tracker = tracker(Set.of(), Set.of());

    @Test
    void eachChangeOfHealthIsInTheHistoryOnce() {
        assess(tracker, reading(true, "550", 0), List.of(), Gpu.HEALTHY, NO_ANNOTATIONS);
        assertThat(history.of(UUID)).as("healthy from the start").isEmpty();

        GpuHealth broken = assess(tracker, reading(true, "550", 0), List.of(xid(48)), Gpu.HEALTHY, NO_ANNOTATIONS);
        assess(tracker, reading(true, "550", 0), List.of(), broken, NO_ANNOTATIONS);
        now += Duration.ofSeconds(10).toNanos();
        assess(tracker, reading(true, "550", 0), List.of(), broken, NO_ANNOTATIONS);

        assertThat(history.of(UUID))
                .containsExactly(
                        new HealthChange(NOW, false, "XID 48 (double bit ECC error)"), new HealthChange(NOW, true, ""));
    }

    @Test
    void aGpuThatIsUnhealthyAtTheStartHasBeenSinceTheInventorySays() {
        history.add(Map.of(UUID, new Unhealthy("lost", NOW.minusSeconds(60))), NOW);

        assertThat(history.of(UUID)).containsExactly(new HealthChange(NOW.minusSeconds(60), false, "lost"));
    }

    @Test
    void aProbeThatBeganRightAfterAnXidDoesNotEndItAndALaterOneDoes() {
        GpuHealth broken = assess(tracker, reading(true, "550", 0), List.of(xid(48)), Gpu.HEALTHY, NO_ANNOTATIONS);
        assertThat(broken)
                .isEqualTo(new Unhealthy("XID 48 (double bit ECC error)", NOW, OptionalInt.of(48), Recovery.RESET));

        now += Duration.ofSeconds(9).toNanos();
        assertThat(assess(tracker, reading(true, "550", 0), List.of(), broken, NO_ANNOTATIONS))
                .isEqualTo(broken);
        now += Duration.ofSeconds(1).toNanos();
        assertThat(assess(tracker, reading(true, "550", 0), List.of(), broken, NO_ANNOTATIONS))
                .isEqualTo(Gpu.HEALTHY);
    }

    @Test
    void withAnOldDriverAnErrorEndsWithTheFirstReadingOfAnotherVersionOrOfAReloadedDriver() {
        GpuHealth broken = broken(Recovery.RESET);

        assertThat(assess(tracker, reading(false, "470", 0), List.of(), broken, NO_ANNOTATIONS))
                .isEqualTo(broken);
        assertThat(assess(tracker, reading(false, "470", 1), List.of(), broken, NO_ANNOTATIONS))
                .isEqualTo(Gpu.HEALTHY);
        assertThat(assess(tracker, reading(false, "470", 1), List.of(), broken, NO_ANNOTATIONS))
                .isEqualTo(broken);
        assertThat(assess(tracker, reading(false, "471", 1), List.of(), broken, NO_ANNOTATIONS))
                .isEqualTo(Gpu.HEALTHY);
    }

    @Test
    void anErrorEndsWithAnotherBoot() {
        GpuHealth broken = broken(Recovery.REBOOT);
        Inventory previous = inventory(broken, "470").withDriver(OTHER_BOOT, "470");
        Inventory unknown = inventory(broken, "470").withDriver("", "470");

        assertThat(tracker.assess(reading(false, "470", 0), now, List.of(), Optional.of(previous), NO_ANNOTATIONS))
                .containsEntry(UUID, Gpu.HEALTHY);
        assertThat(tracker.assess(reading(false, "470", 0), now, List.of(), Optional.of(unknown), NO_ANNOTATIONS))
                .containsEntry(UUID, broken);
    }

    @Test
    void theAnnotationClearsErrorsOnceWhenItIsSetOrChanged() {
        GpuHealth broken = broken(Recovery.REBOOT);
        NvmlReading reading = reading(false, "470", 0);

        assertThat(assess(tracker, reading, List.of(), broken, NO_ANNOTATIONS)).isEqualTo(broken);
        assertThat(assess(tracker, reading, List.of(), broken, CLEAR_ALL)).isEqualTo(Gpu.HEALTHY);
        assertThat(assess(tracker, reading, List.of(), broken, CLEAR_ALL)).isEqualTo(broken);
        assertThat(assess(tracker, reading, List.of(), broken, CLEAR_ONE)).isEqualTo(Gpu.HEALTHY);
        assertThat(assess(tracker, reading, List.of(), broken, NO_ANNOTATIONS)).isEqualTo(broken);
        assertThat(assess(tracker, reading, List.of(), broken, CLEAR_ONE)).isEqualTo(Gpu.HEALTHY);
    }

    @Test
    void anAnnotationThatIsThereAtTheStartOrInvalidOrNamesAnotherGpuClearsNothing() {
        GpuHealth broken = broken(Recovery.RESET);
        NvmlReading reading = reading(false, "470", 0);

        assertThat(assess(tracker, reading, List.of(), broken, CLEAR_ALL)).isEqualTo(broken);
        assertThat(assess(tracker, reading, List.of(), broken, Map.of("aliquot.io/clear-gpu-errors", "some")))
                .isEqualTo(broken);
        assertThat(assess(
                        tracker,
                        reading,
                        List.of(),
                        broken,
                        Map.of("aliquot.io/clear-gpu-errors", "GPU-8f6e8f0c-0002-4a5b-9c3d-000000000001")))
                .isEqualTo(broken);
    }

    @Test
    void anXidWithoutAGpuAndOneThatTheAdministratorIgnoresMakeNoGpuUnhealthy() {
        HealthTracker lenient = tracker(Set.of(48), Set.of(31));
        NvmlReading reading = reading(true, "550", 0);

        assertThat(assess(tracker, reading, List.of(new Nvml.Xid(79, "")), Gpu.HEALTHY, NO_ANNOTATIONS))
                .isEqualTo(Gpu.HEALTHY);
        assertThat(assess(lenient, reading, List.of(xid(48)), Gpu.HEALTHY, NO_ANNOTATIONS))
                .isEqualTo(Gpu.HEALTHY);
        assertThat(assess(lenient, reading, List.of(xid(31)), Gpu.HEALTHY, NO_ANNOTATIONS)
                        .healthy())
                .isFalse();
    }

    @Test
    void theErrorOfAProgramIsPassedOnAndNoOther() {
        NvmlReading reading = reading(true, "550", 0);

        assess(tracker, reading, List.of(xid(31), xid(48), xid(63), new Nvml.Xid(31, "")), Gpu.HEALTHY, NO_ANNOTATIONS);

        assertThat(applicationXids).hasSize(1).first().asString().startsWith(UUID + " XID 31");
    }

    private HealthTracker tracker(Set<Integer> ignored, Set<Integer> fatal) {
        return new HealthTracker(
                XidTable.load(ignored, fatal),
                BOOT,
                Duration.ofSeconds(10),
                history,
                (gpu, xid) -> applicationXids.add(gpu + " " + xid.print()),
                InstantSource.fixed(NOW),
                () -> now);
    }

    private GpuHealth assess(
            HealthTracker tracker,
            NvmlReading reading,
            List<Nvml.Xid> xids,
            GpuHealth former,
            Map<String, String> annotations) {
        String driver =
                reading instanceof NvmlReading.Gpus gpus && gpus.driver().startsWith("5") ? "550" : "470";
        return tracker.assess(reading, now, xids, Optional.of(inventory(former, driver)), annotations)
                .getOrDefault(UUID, Gpu.HEALTHY);
    }

    private static GpuHealth broken(Recovery recovery) {
        return new Unhealthy("XID 1", NOW, OptionalInt.of(1), recovery);
    }

    private static Nvml.Xid xid(int number) {
        return new Nvml.Xid(number, UUID);
    }

    private static NvmlReading reading(boolean reportsRecovery, String driver, int loads) {
        var condition = new GpuCondition(true, List.of(), reportsRecovery, Set.of());
        var gpu = new PhysicalGpu(UUID, 0, "NVIDIA A100", 40_960, 216, -1, condition, Map.of(), GpuKind.CARD);
        var listing = new Nvml.Listing(List.of(gpu), true, Set.of(), false, NodeFeatures.UNKNOWN);
        return new NvmlReading.Gpus(listing, driver, loads);
    }

    private static Inventory inventory(GpuHealth health, String driver) {
        var gpu = new Gpu(UUID, 0, "NVIDIA A100", 40_960, 0, -1, health, Gpu.SHIM, Map.of());
        return new Inventory(new VisibleDevices("{uuid}"), Scaling.ONE, Scaling.ONE, 10, List.of(gpu))
                .withDriver(BOOT, driver);
    }
}
