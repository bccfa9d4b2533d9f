package io.aliquot.scheduler.scoring.fragmentation;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.scoring.fragmentation.WorkloadSampler.Sample;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

class WorkloadSamplerTest {
    private static final DemandVector SMALL = new DemandVector(1_000, 1_024, 1, false, 4_096, 10, DemandVector.ANY);
    private static final DemandVector HALF = new DemandVector(4_000, 8_192, 1, false, 20_480, 50, DemandVector.ANY);
    private static final DemandVector WHOLE = new DemandVector(12_000, 8_192, 1, true, 0, 0, DemandVector.ANY);

    private final WorkloadSampler mix = new WorkloadSampler(4, 50);

    @Test
    void theSampleHasEachDemandAsOftenAsItWasObserved() {
        see(2_000, SMALL, HALF, HALF, HALF);

        Sample sample = mix.sample();
        long halves = Arrays.stream(sample.futures)
                .flatMapToInt(Arrays::stream)
                .filter(demand -> sample.demands[demand].equals(HALF))
                .count();
        assertThat(halves).isBetween(140L, 160L); // of 200
    }

    @Test
    void aSteadyWorkloadIsSampledOnce() {
        see(2_000, SMALL, HALF, WHOLE);
        Sample sample = mix.sample();
        see(20_000, SMALL, HALF, WHOLE);

        assertThat(mix.sample()).isSameAs(sample);
    }

    @Test
    void aChangedWorkloadIsSampledAgainAndThePastFades() {
        see(4_000, SMALL);
        see(20_000, HALF, WHOLE);

        Sample sample = mix.sample();
        double past = 0;
        for (int i = 0; i < sample.demands.length; i++) {
            past += sample.demands[i].equals(SMALL) ? sample.frequencies[i] : 0;
        }
        assertThat(past).isLessThan(0.1);
    }

    private void see(int times, DemandVector... demands) {
        var random = new Random(1);
        for (int i = 0; i < times; i++) {
            mix.observe(List.of(demands).get(random.nextInt(demands.length)));
        }
    }
}
