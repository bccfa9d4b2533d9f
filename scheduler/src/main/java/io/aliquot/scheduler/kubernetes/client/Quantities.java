package io.aliquot.scheduler.kubernetes.client;

import io.fabric8.kubernetes.api.model.Quantity;
import java.math.BigDecimal;
import org.jspecify.annotations.Nullable;

/**
 * Amounts of resources as whole numbers, rounded down: nearly all are whole numbers of a common unit and need no decimal
 * fractions of any length, which fabric8 makes of each.
 */
public final class Quantities {
    private static final int THOUSAND = 1000;

    private Quantities() {}

    /** 0 where there is none. */
    public static long whole(@Nullable Quantity quantity) {
        return in(quantity, 1);
    }

    /** The same in thousandths. */
    public static long thousandths(@Nullable Quantity quantity) {
        return in(quantity, THOUSAND);
    }

    /** {@code parts} of a whole are the unit: 1 or 1000. */
    private static long in(@Nullable Quantity quantity, int parts) {
        if (quantity == null) {
            return 0;
        }
        long common = common(quantity);
        return common >= 0
                ? common / (THOUSAND / parts)
                : quantity.getNumericalAmount()
                        .multiply(BigDecimal.valueOf(parts))
                        .longValue();
    }

    /** In thousandths; less than 0 for what it does not know. */
    private static long common(Quantity quantity) {
        long unit = thousandthsOf(quantity.getFormat());
        long number = number(quantity.getAmount());
        return unit > 0 && number <= Long.MAX_VALUE / unit ? number * unit : -1;
    }

    /** k8s.io/apimachinery, pkg/api/resource, suffix.go. */
    private static long thousandthsOf(@Nullable String suffix) {
        return switch (String.valueOf(suffix)) {
            case "m" -> 1;
            case "" -> THOUSAND;
            case "Ki" -> (1L << 10) * THOUSAND;
            case "Mi" -> (1L << 20) * THOUSAND;
            case "Gi" -> (1L << 30) * THOUSAND;
            default -> 0;
        };
    }

    /** Less than 0 where there is more to it than up to 18 digits. */
    private static long number(@Nullable String text) {
        if (text == null || text.isEmpty() || text.length() > 18) {
            return -1;
        }
        long number = 0;
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c < '0' || c > '9') {
                return -1;
            }
            number = number * 10 + c - '0';
        }
        return number;
    }
}
