package io.aliquot.scheduler.kubernetes.client;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.time.Instant;
import java.time.format.DateTimeParseException;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Beside java.time's own. */
class TimesTest {
    private static final long LAST = Instant.parse("9999-12-31T23:59:59Z").getEpochSecond();

    @Test
    void whatIsPrintedIsReadAgain() {
        var random = new Random(1);
        for (int i = 0; i < 100_000; i++) {
            Instant time = Instant.ofEpochSecond(i < 50_000 ? random.nextLong(LAST) : -500 + i);
            assertThat(Times.print(time.getEpochSecond())).isEqualTo(time.toString());
            assertThat(Times.parse(time.toString())).isEqualTo(time);
        }
        assertThat(Times.print(-1)).isEqualTo("1969-12-31T23:59:59Z");
        assertThat(Times.print(LAST + 1)).isEqualTo("+10000-01-01T00:00:00Z");
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "2024-02-29T12:00:00Z",
                "2016-12-31T23:59:60Z",
                "2026-11-23T24:00:00Z",
                "2026-11-23T10:26:35.123456789Z",
                "2026-11-23T10:26:35+01:00",
                "+10000-01-01T00:00:00Z"
            })
    void unusualTimesAreReadAsJavaReadsThem(String text) {
        assertThat(Times.parse(text)).isEqualTo(Instant.parse(text));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "",
                "now",
                "2026-13-01T00:00:00Z",
                "2026-00-01T00:00:00Z",
                "2025-02-29T00:00:00Z",
                "2026-11-23T25:00:00Z",
                "2026-11-23T10:60:00Z",
                "2026-11-23 10:26:35Z",
                "2026-11-23T10:26:35z0"
            })
    void whatIsNoTimeIsRefused(String text) {
        assertThatThrownBy(() -> Times.parse(text)).isInstanceOf(DateTimeParseException.class);
    }
}
