package io.aliquot.deviceplugin.health;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.GpuHealth;
import io.aliquot.api.nodes.GpuHealth.Recovery;
import io.aliquot.api.nodes.GpuHealth.Unhealthy;
import io.aliquot.deviceplugin.health.HealthRules.Observation;
import io.aliquot.deviceplugin.health.HealthRules.Since;
import io.aliquot.deviceplugin.nvml.GpuCondition;
import io.aliquot.deviceplugin.nvml.GpuCondition.Fault;
import io.aliquot.deviceplugin.nvml.NodeFeatures;
import io.aliquot.deviceplugin.nvml.Nvml;
import io.aliquot.deviceplugin.nvml.NvmlReading;
import java.time.Instant;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

final class HealthRulesTest {
    private static final Instant EARLIER = Instant.parse("2026-11-26T16:00:00Z");
    private static final Instant NOW = Instant.parse("2026-11-26T17:00:00Z");
    private static final Since REBOOTED = new Since(true, true, false);
    private static final Since DRIVER_LOADED = new Since(false, true, false);
    private static final Since CLEARED = new Since(false, false, true);
    private static final Unhealthy NEEDS_RESET =
            new Unhealthy("XID 48 (double bit ECC error)", EARLIER, OptionalInt.of(48), Recovery.RESET);
    private static final Unhealthy NEEDS_REBOOT =
            new Unhealthy("XID 79 (GPU has fallen off the bus)", EARLIER, OptionalInt.of(79), Recovery.REBOOT);
    private static final Unhealthy NEEDS_PROBE =
            new Unhealthy("XID 1234", EARLIER, OptionalInt.of(1234), Recovery.PROBE);

    /** What a reading says about the GPU. */
    private record Probe(NvmlReading reading, Optional<GpuCondition> condition) {}

    private static final NvmlReading ANSWER =
            new NvmlReading.Gpus(new Nvml.Listing(List.of(), true, Set.of(), false, NodeFeatures.UNKNOWN), "", 0);
    private static final Probe NOT_LISTED = new Probe(ANSWER, Optional.empty());
    private static final Probe NOT_ASKED = new Probe(new NvmlReading.NotAsked("a driver upgrade"), Optional.empty());

    private final XidTable table = XidTable.load(Set.of(), Set.of());

    @ParameterizedTest
    @ValueSource(ints = {13, 31, 43, 63, 94, 154})
    void aGpuStaysHealthyAfterAnXidOfAnApplicationOrOneThatOnlyInforms(int xid) {
        assertThat(after(Gpu.HEALTHY, good(), Since.NOTHING, xid)).isEqualTo(Gpu.HEALTHY);
    }

    @ParameterizedTest
    @CsvSource({
        "48, XID 48 (double bit ECC error), RESET",
        "64, XID 64 (GPU memory remapping failure), RESET",
        "74, XID 74 (NVLink error), RESET",
        "79, XID 79 (GPU has fallen off the bus), REBOOT",
        "95, XID 95 (uncontained memory error), RESET",
        "119, XID 119 (GSP RPC timeout), RESET",
        "1234, XID 1234, PROBE"
    })
    void aGpuIsUnhealthyAfterAnyOtherXidEvenIfTheProbeSucceeds(int xid, String reason, Recovery recovery) {
        GpuHealth health = after(Gpu.HEALTHY, good(), Since.NOTHING, xid);

        assertThat(health).isEqualTo(new Unhealthy(reason, NOW, OptionalInt.of(xid), recovery));
    }

    @Test
    void ofSeveralXidsTheWorstCountsAndTheTimeIsThatOfTheFirst() {
        GpuHealth both = after(Gpu.HEALTHY, good(), Since.NOTHING, 79, 48);
        GpuHealth later = after(NEEDS_PROBE, good(), Since.NOTHING, 48);
        GpuHealth milder = after(NEEDS_REBOOT, good(), Since.NOTHING, 48);

        assertThat(both).isEqualTo(new Unhealthy(NEEDS_REBOOT.reason(), NOW, OptionalInt.of(79), Recovery.REBOOT));
        assertThat(later).isEqualTo(NEEDS_RESET);
        assertThat(milder).isEqualTo(NEEDS_REBOOT);
    }

    @Test
    void ifTheDriverTellsTheRecoveryASuccessfulProbeEndsAnyXid() {
        for (Unhealthy unhealthy : List.of(NEEDS_PROBE, NEEDS_RESET, NEEDS_REBOOT)) {
            assertThat(after(unhealthy, good(), Since.NOTHING)).isEqualTo(Gpu.HEALTHY);
        }
    }

    @Test
    void aProbeRightAfterAnXidDoesNotCount() {
        var early = new Observation(good().reading, good().condition, List.of(), false, Since.NOTHING, NOW);

        assertThat(HealthRules.next(NEEDS_RESET, early)).isEqualTo(NEEDS_RESET);
    }

    @Test
    void withAnOldDriverAnXidThatNeedsAResetLastsUntilTheDriverIsLoadedAnew() {
        assertThat(after(NEEDS_RESET, oldDriver(), Since.NOTHING)).isEqualTo(NEEDS_RESET);
        assertThat(after(NEEDS_RESET, oldDriver(), DRIVER_LOADED)).isEqualTo(Gpu.HEALTHY);
        assertThat(after(NEEDS_RESET, oldDriver(), REBOOTED)).isEqualTo(Gpu.HEALTHY);
        assertThat(after(NEEDS_RESET, oldDriver(), CLEARED)).isEqualTo(Gpu.HEALTHY);
    }

    @Test
    void withAnOldDriverAnXidThatNeedsARebootLastsUntilTheNodeReboots() {
        assertThat(after(NEEDS_REBOOT, oldDriver(), Since.NOTHING)).isEqualTo(NEEDS_REBOOT);
        assertThat(after(NEEDS_REBOOT, oldDriver(), DRIVER_LOADED)).isEqualTo(NEEDS_REBOOT);
        assertThat(after(NEEDS_REBOOT, oldDriver(), REBOOTED)).isEqualTo(Gpu.HEALTHY);
        assertThat(after(NEEDS_REBOOT, oldDriver(), CLEARED)).isEqualTo(Gpu.HEALTHY);
    }

    @Test
    void anXidThatNeedsNoResetEndsWithASuccessfulProbeWithAnyDriver() {
        assertThat(after(NEEDS_PROBE, oldDriver(), Since.NOTHING)).isEqualTo(Gpu.HEALTHY);
    }

    @Test
    void aGpuIsUnhealthyAsLongAsNvmlReportsAFault() {
        Probe faulty = listed(
                true,
                new Fault("it is slow", Recovery.PROBE),
                new Fault("a row of its memory is to be remapped", Recovery.RESET));

        GpuHealth health = after(Gpu.HEALTHY, faulty, Since.NOTHING);

        assertThat(health)
                .isEqualTo(new Unhealthy(
                        "a row of its memory is to be remapped", NOW, OptionalInt.empty(), Recovery.RESET));
        assertThat(after(health, faulty, CLEARED)).isEqualTo(health);
        assertThat(after(health, good(), Since.NOTHING)).isEqualTo(Gpu.HEALTHY);
        assertThat(after(NEEDS_RESET, faulty, Since.NOTHING)).isEqualTo(NEEDS_RESET);
        assertThat(after(NEEDS_RESET, faulty, REBOOTED)
                        .unhealthy()
                        .orElseThrow()
                        .reason())
                .isEqualTo("a row of its memory is to be remapped");
    }

    @Test
    void aGpuThatIsNotListedOrCannotBeReadIsUnhealthySinceItWasFirstSo() {
        GpuHealth gone = after(Gpu.HEALTHY, NOT_LISTED, Since.NOTHING);
        GpuHealth unread = after(new Unhealthy("x", EARLIER), unavailable("NVML does\nnot answer"), Since.NOTHING);

        assertThat(gone).isEqualTo(new Unhealthy("NVML does not list it any more", NOW));
        assertThat(unread).isEqualTo(new Unhealthy("NVML does not answer", EARLIER));
        assertThat(after(gone, good(), Since.NOTHING)).isEqualTo(Gpu.HEALTHY);
        assertThat(after(NEEDS_RESET, NOT_LISTED, Since.NOTHING)).isEqualTo(NEEDS_RESET);
        assertThat(after(NEEDS_RESET, unavailable("n"), Since.NOTHING)).isEqualTo(NEEDS_RESET);
    }

    @Test
    void whileNvmlIsNotAskedNothingChanges() {
        for (GpuHealth health : List.of(Gpu.HEALTHY, NEEDS_RESET, new Unhealthy("x", EARLIER))) {
            assertThat(after(health, NOT_ASKED, Since.NOTHING)).isEqualTo(health);
        }
    }

    /** For example, the agent starts after a reboot and NVML is not open yet. */
    @ParameterizedTest
    @EnumSource(
            value = Recovery.class,
            names = {"RESET", "REBOOT"})
    void anErrorThatEndsWhileNvmlDoesNotAnswerStillNeedsAProbe(Recovery recovery) {
        var before = new Unhealthy("XID 79", EARLIER, OptionalInt.of(79), recovery);

        GpuHealth notAsked = after(before, NOT_ASKED, REBOOTED);
        GpuHealth unavailable = after(before, unavailable("no driver"), REBOOTED);

        assertThat(notAsked).isEqualTo(new Unhealthy("XID 79", EARLIER));
        assertThat(unavailable).isEqualTo(new Unhealthy("no driver", EARLIER));
        assertThat(after(notAsked, oldDriver(), Since.NOTHING)).isEqualTo(Gpu.HEALTHY);
        assertThat(after(unavailable, oldDriver(), Since.NOTHING)).isEqualTo(Gpu.HEALTHY);
    }

    @Test
    void aLongReasonIsShortened() {
        GpuHealth health = after(Gpu.HEALTHY, unavailable("x".repeat(500)), Since.NOTHING);

        assertThat(health.unhealthy().orElseThrow().reason()).hasSize(300).endsWith("x…");
    }

    private GpuHealth after(GpuHealth former, Probe probe, Since since, int... xids) {
        return HealthRules.next(
                former,
                new Observation(
                        probe.reading,
                        probe.condition,
                        Arrays.stream(xids).mapToObj(table::of).toList(),
                        xids.length == 0,
                        since,
                        NOW));
    }

    private static Probe good() {
        return listed(true);
    }

    private static Probe oldDriver() {
        return listed(false);
    }

    private static Probe listed(boolean reportsRecovery, Fault... faults) {
        return new Probe(ANSWER, Optional.of(new GpuCondition(true, List.of(faults), reportsRecovery, Set.of())));
    }

    private static Probe unavailable(String reason) {
        return new Probe(new NvmlReading.Unavailable(reason), Optional.empty());
    }
}
