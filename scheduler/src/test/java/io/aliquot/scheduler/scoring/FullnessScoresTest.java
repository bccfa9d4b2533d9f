package io.aliquot.scheduler.scoring;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class FullnessScoresTest {
    @Test
    void theBestNodeScoresTenAndTheOthersScaleLinearlyUpToNine() {
        assertThat(scores(false, 0, 0.9, 0.9, 0.5, 0.1)).containsExactly(10, 9, 5, 0);
    }

    @Test
    void equalNodesDifferByOneSoThatTheReservedNodeWins() {
        assertThat(scores(false, 1, 0.5, 0.5)).containsExactly(9, 10);
    }

    @Test
    void anInfeasibleNodeScoresZeroAndDoesNotAffectTheScale() {
        assertThat(scores(false, 0, 0.5, FullnessScores.NONE, 0.5)).containsExactly(10, 0, 9);
        assertThat(scores(false, -1, FullnessScores.NONE)).containsExactly(0);
    }

    @Test
    void thePreferencesOfThePodOutweighThePolicy() {
        assertThat(scores(true, 0, 0.9, 0.8, 0.1)).containsExactly(2, 1, 0);
    }

    private static List<Integer> scores(boolean preferences, int winner, double... likings) {
        var scores = new FullnessScores(preferences);
        Arrays.stream(likings).forEach(scores::add);
        return IntStream.range(0, likings.length)
                .mapToObj(i -> scores.of(likings[i], i == winner))
                .toList();
    }
}
