package io.aliquot.simulator;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.simulator.Outcome.Decisions;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;

class OutcomeTest {
    @Test
    void decisionTimesAreReportedAsMedianAnd99thPercentile() {
        long[] upTo101 =
                LongStream.rangeClosed(1, 101).map(i -> (102 - i) * 1_000_000).toArray();
        assertThat(Decisions.of(upTo101)).isEqualTo(new Decisions(51, 100));
        assertThat(Decisions.of(new long[] {2_000_000})).isEqualTo(new Decisions(2, 2));
        assertThat(Decisions.of(new long[0])).isEqualTo(new Decisions(0, 0));
    }
}
