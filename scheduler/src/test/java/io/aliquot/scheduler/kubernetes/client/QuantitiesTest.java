package io.aliquot.scheduler.kubernetes.client;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fabric8.kubernetes.api.model.Quantity;
import java.math.BigDecimal;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Compared with fabric8's own amounts, which are exact. */
class QuantitiesTest {
    @ParameterizedTest
    @ValueSource(
            strings = {
                "0",
                "1",
                "007",
                "1500m",
                "999m",
                "1234567890123",
                "65786884Ki",
                "512Mi",
                "16Gi",
                "9007199254740992",
                "9223372036854775",
                "8589934591Mi",
                "1.5",
                "0.5Gi",
                "100u",
                "2500000n",
                "3k",
                "64M",
                "2G",
                "1Ti",
                "1e3",
                "1E",
                "-1",
                "-500m",
                "123456789012345678"
            })
    void amountsAreExactAndRoundedDown(String text) {
        Quantity quantity = Quantity.parse(text);
        BigDecimal exact = quantity.getNumericalAmount();
        assertThat(Quantities.whole(quantity)).isEqualTo(exact.longValue());
        assertThat(Quantities.thousandths(quantity))
                .isEqualTo(exact.multiply(BigDecimal.valueOf(1000)).longValue());
    }

    @Test
    void anAbsentQuantityIsZero() {
        assertThat(Quantities.whole(null)).isZero();
        assertThat(Quantities.thousandths(null)).isZero();
    }

    @Test
    void aMalformedQuantityIsRefused() {
        assertThatThrownBy(() -> Quantities.whole(new Quantity("much"))).isInstanceOf(NumberFormatException.class);
    }
}
