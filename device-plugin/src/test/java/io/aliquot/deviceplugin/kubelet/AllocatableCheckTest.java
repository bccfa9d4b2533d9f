package io.aliquot.deviceplugin.kubelet;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.deviceplugin.kubelet.AllocatableCheck.Verdict;
import java.time.Duration;
import org.junit.jupiter.api.Test;

final class AllocatableCheckTest {
    private static final Duration TOLERANCE = Duration.ofSeconds(75);

    private long now = Long.MAX_VALUE - Duration.ofSeconds(10).toNanos(); // overflows in each test
    private final AllocatableCheck check = new AllocatableCheck(() -> now, TOLERANCE);

    @Test
    void aDifferenceIsToleratedForAWhile() {
        now += TOLERANCE.toNanos();

        assertThat(check.compare(0, 20)).isEqualTo(Verdict.TOLERATED);
        assertThat(check.compare(2, 20)).isEqualTo(Verdict.TOLERATED);
    }

    @Test
    void noAllocatableSlotsMeanThatTheRegistrationIsLost() {
        now += TOLERANCE.toNanos() + 1;

        assertThat(check.compare(0, 20)).isEqualTo(Verdict.REGISTRATION_LOST);
        assertThat(check.compare(0, 20)).isEqualTo(Verdict.TOLERATED);
    }

    @Test
    void anotherNumberMeansAnotherPlugin() {
        now += TOLERANCE.toNanos() + 1;

        assertThat(check.compare(2, 20)).isEqualTo(Verdict.OTHER_PLUGIN);
    }

    @Test
    void agreementStartsTheToleranceAgain() {
        now += TOLERANCE.toNanos() + 1;

        assertThat(check.compare(20, 20)).isEqualTo(Verdict.AGREES);
        assertThat(check.compare(2, 20)).isEqualTo(Verdict.TOLERATED);
    }
}
