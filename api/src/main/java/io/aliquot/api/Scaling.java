package io.aliquot.api;

import java.math.BigDecimal;

/**
 * How much of something is sold per one that there is, to the hundredth, so that everybody who counts with it gets the
 * same.
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
     * Reads a decimal number such as {@code 1.5}.
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

    /** What {@code amount} becomes, rounded down. */
    public long of(long amount) {
        return amount * hundredths / 100;
    }

    /** Such as {@code 1.5}, always with a decimal. */
    public String print() {
        return BigDecimal.valueOf(hundredths, 2).doubleValue() + "";
    }
}
