package io.aliquot.api.nodes;

import io.aliquot.api.format.FormatException;
import java.math.BigDecimal;

/**
 * The over-commit of a node's memory or compute: capacity for vGPUs divided by physical capacity. It is a whole number
 * of hundredths, so that all programs compute the same capacity.
 *
 * @param hundredths {@value #LEAST} to {@value #MOST}
 */
public record Scaling(int hundredths) {
    public static final Scaling ONE = new Scaling(100);

    private static final int LEAST = 10;
    private static final int MOST = 10_000;

    public Scaling {
        if (hundredths < LEAST || hundredths > MOST) {
            throw FormatException.expected(
                    "a scaling from 0.1 to 100",
                    BigDecimal.valueOf(hundredths, 2).toString());
        }
    }

    /**
     * Reads a decimal number with at most two decimals, such as {@code 1.5}.
     *
     * @param where the annotation that the value comes from, for the message
     */
    public static Scaling parse(String where, String text) {
        if (text.matches("[0-9]{1,3}(\\.[0-9]{1,2})?")) {
            int hundredths = new BigDecimal(text).movePointRight(2).intValueExact();
            if (hundredths >= LEAST && hundredths <= MOST) {
                return new Scaling(hundredths);
            }
        }
        throw new FormatException(where + ": " + FormatException.quote(text)
                + " is not a scaling from 0.1 to 100 with at most two decimals; write for example \"1.5\"");
    }

    /** The physical amount times this scaling, rounded down. */
    public long of(long amount) {
        return amount * hundredths / 100;
    }

    /** A decimal number with at least one decimal, such as {@code 1.5}. */
    public String print() {
        return BigDecimal.valueOf(hundredths, 2).doubleValue() + "";
    }
}
