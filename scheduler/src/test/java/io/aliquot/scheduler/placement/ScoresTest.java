package io.aliquot.scheduler.placement;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

class ScoresTest {
    @Test
    void theBestGetsTenAndTheOthersUpToNineLinearly() {
        assertThat(Scores.of(new double[] {0.9, 0.9, 0.5, 0.1}, 0, false)).containsExactly(10, 9, 5, 0);
    }

    @Test
    void equalNodesDifferByOneSoThatTheWinnerIsTheOneExpected() {
        assertThat(Scores.of(new double[] {0.5, 0.5}, 1, false)).containsExactly(9, 10);
    }

    @Test
    void aNodeThatThePodCannotHaveGetsNothingAndDoesNotStretchTheScale() {
        assertThat(Scores.of(new double[] {0.5, Scores.NONE, 0.5}, 0, false)).containsExactly(10, 0, 9);
        assertThat(Scores.of(new double[] {Scores.NONE}, -1, false)).containsExactly(0);
    }

    @Test
    void aPodsOwnPreferencesOutweighThePolicy() {
        assertThat(Scores.of(new double[] {0.9, 0.8, 0.1}, 0, true)).containsExactly(2, 1, 0);
    }

    @Test
    void ofNodesWithEqualGpusTheHostDecides() {
        assertThat(Scores.fullness(0.5, 0.6)).isGreaterThan(Scores.fullness(0.5, 0.4));
        assertThat(Scores.fullness(0.9, 0.0)).isGreaterThan(Scores.fullness(0.5, 1.0));
    }
}
