package io.aliquot.scheduler.scoring;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class PriorityScaleTest {
    @Test
    void theBestGetsTenAndTheOthersUpToNineLinearly() {
        assertThat(scores(false, 0, 0.9, 0.9, 0.5, 0.1)).containsExactly(10, 9, 5, 0);
    }

    @Test
    void equalNodesDifferByOneSoThatTheWinnerIsTheOneExpected() {
        assertThat(scores(false, 1, 0.5, 0.5)).containsExactly(9, 10);
    }

    @Test
    void aNodeThatDoesNotFitGetsZeroAndDoesNotStretchTheScale() {
        assertThat(scores(false, 0, 0.5, PriorityScale.NONE, 0.5)).containsExactly(10, 0, 9);
        assertThat(scores(false, -1, PriorityScale.NONE)).containsExactly(0);
    }

    @Test
    void aPodsOwnPreferencesOutweighThePolicy() {
        assertThat(scores(true, 0, 0.9, 0.8, 0.1)).containsExactly(2, 1, 0);
    }

    private static List<Integer> scores(boolean preferences, int winner, double... fullness) {
        var scores = new PriorityScale(preferences);
        Arrays.stream(fullness).forEach(scores::add);
        return IntStream.range(0, fullness.length)
                .mapToObj(i -> scores.of(fullness[i], i == winner))
                .toList();
    }
}
