package io.aliquot.scheduler.kubernetes.client;

import io.fabric8.kubernetes.api.model.Quantity;
import java.math.BigDecimal;
import org.jspecify.annotations.Nullable;

/** Amounts of resources as whole numbers, rounded down; 0 for an absent one. */
public final class Quantities {
    private Quantities() {}

    public static long whole(@Nullable Quantity quantity) {
        return amount(quantity).longValue();
    }

    /** In thousandths, such as millicores. */
    public static long thousandths(@Nullable Quantity quantity) {
        return amount(quantity).movePointRight(3).longValue();
    }

    private static BigDecimal amount(@Nullable Quantity quantity) {
        return quantity == null ? BigDecimal.ZERO : quantity.getNumericalAmount();
    }
}
