package io.aliquot.scheduler.placement;

import static io.aliquot.api.Placement.BINPACK;
import static io.aliquot.api.Placement.SPREAD;
import static org.assertj.core.api.Assertions.assertThat;

import java.util.Map;
import org.junit.jupiter.api.Test;

class ScoresTest {
    @Test
    void theBestGetsTenAndTheOthersUpToNineLinearly() {
        assertThat(Scores.of(Map.of("a", 0.9, "b", 0.9, "c", 0.5, "d", 0.1), "a", false))
                .isEqualTo(Map.of("a", 10, "b", 9, "c", 5, "d", 0));
    }

    @Test
    void equalNodesDifferByOneSoThatTheWinnerIsTheOneExpected() {
        assertThat(Scores.of(Map.of("a", 0.5, "b", 0.5), "b", false)).isEqualTo(Map.of("a", 9, "b", 10));
    }

    @Test
    void aPodsOwnPreferencesOutweighThePolicy() {
        assertThat(Scores.of(Map.of("a", 0.9, "b", 0.8, "c", 0.1), "a", true))
                .isEqualTo(Map.of("a", 2, "b", 1, "c", 0));
    }

    @Test
    void binpackLikesFullNodesAndSpreadEmptyOnes() {
        assertThat(Scores.liking(BINPACK, 0.9)).isGreaterThan(Scores.liking(BINPACK, 0.1));
        assertThat(Scores.liking(SPREAD, 0.9)).isLessThan(Scores.liking(SPREAD, 0.1));
    }

    @Test
    void ofNodesWithEqualGpusTheHostDecides() {
        assertThat(Scores.fullness(0.5, 0.6)).isGreaterThan(Scores.fullness(0.5, 0.4));
        assertThat(Scores.fullness(0.9, 0.0)).isGreaterThan(Scores.fullness(0.5, 1.0));
    }
}
