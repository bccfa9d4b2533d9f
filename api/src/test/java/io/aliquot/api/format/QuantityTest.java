package io.aliquot.api.format;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.math.BigInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class QuantityTest {
    @ParameterizedTest
    @CsvSource({
        "0, 0, 0",
        "007, 7, 7000",
        "1500m, 1, 1500",
        "999m, 0, 999",
        "-500m, 0, -500",
        "65786884Ki, 67365769216, 67365769216000",
        "16Gi, 17179869184, 17179869184000",
        "1.5, 1, 1500",
        "0.5Gi, 536870912, 536870912000",
        "100u, 0, 0",
        "2500000n, 0, 2",
        "3k, 3000, 3000000",
        "1Ti, 1099511627776, 1099511627776000",
        "1e3, 1000, 1000000",
        "123456789012345678, 123456789012345678, 123456789012345678000",
    })
    void amountsAreExactAndRoundedTowardZero(String text, long whole, BigInteger thousandths) {
        assertThat(Quantity.parse(text).scaled(0)).isEqualTo(whole);
        assertThat(Quantity.parse(text).scaled(3)).isEqualTo(thousandths.longValue());
    }

    @Test
    void aMalformedQuantityIsRefused() {
        assertThatThrownBy(() -> Quantity.parse("much")).isInstanceOf(FormatException.class);
    }
}
