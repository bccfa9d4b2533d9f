package io.aliquot.api.format;

import java.math.BigDecimal;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A Kubernetes quantity without rounding. The API server stores {@code 3000} in its canonical form {@code 3k}, so both
 * forms have the same value. Grammar: k8s.io/apimachinery, pkg/api/resource/quantity.go.
 *
 * @param value the number multiplied by its suffix
 * @param binary whether the suffix was one of Ki … Ei
 */
public record Quantity(BigDecimal value, boolean binary) {
    private static final Pattern FORM = Pattern.compile(
            "([+-]?(?:[0-9]{1,30}(?:\\.[0-9]{0,30})?|\\.[0-9]{1,30}))(?:([eE][+-]?[0-9]{1,2})|([a-zA-Z]{0,2}))");
    private static final Map<String, Integer> DECIMAL =
            Map.of("n", -9, "u", -6, "m", -3, "", 0, "k", 3, "M", 6, "G", 9, "T", 12, "P", 15, "E", 18);
    private static final Map<String, Integer> BINARY =
            Map.of("Ki", 10, "Mi", 20, "Gi", 30, "Ti", 40, "Pi", 50, "Ei", 60);

    /**
     * Reads a quantity of at most 30 digits on either side of the point.
     *
     * @throws FormatException if the text is not a quantity
     */
    public static Quantity parse(String text) {
        Matcher form = FORM.matcher(text);
        if (form.matches()) {
            var number = new BigDecimal(form.group(1));
            if (form.group(2) != null) {
                return new Quantity(
                        number.scaleByPowerOfTen(Integer.parseInt(form.group(2).substring(1))), false);
            }
            Integer powerOfTen = DECIMAL.get(form.group(3));
            if (powerOfTen != null) {
                return new Quantity(number.scaleByPowerOfTen(powerOfTen), false);
            }
            Integer powerOfTwo = BINARY.get(form.group(3));
            if (powerOfTwo != null) {
                return new Quantity(number.multiply(BigDecimal.valueOf(2).pow(powerOfTwo)), true);
            }
        }
        throw FormatException.expected("a Kubernetes quantity such as 3000 or 3k", text);
    }

    /** As {@link #parse(String)}, of an amount of a resource, with whose name the message of a failure begins. */
    public static Quantity parse(String resource, String text) {
        try {
            return parse(text);
        } catch (FormatException e) {
            throw new FormatException(resource + ": " + e.getMessage(), e);
        }
    }

    /**
     * Reads an amount of a resource that is a whole number.
     *
     * @throws FormatException if it is another number, or not from {@code least} to {@code most}, with what to write instead
     */
    public static int whole(String resource, String text, int least, int most, String unit) {
        Quantity quantity = parse(resource, text);
        if (!quantity.whole()
                || quantity.value.compareTo(BigDecimal.valueOf(least)) < 0
                || quantity.value.compareTo(BigDecimal.valueOf(most)) > 0) {
            throw new FormatException(resource + ": write a whole number from " + least + " to " + most + " (" + unit
                    + ") instead of " + text);
        }
        return quantity.value.intValueExact();
    }

    /** The value as a whole number of 10<sup>-digits</sup>, rounded toward 0: with 3, of thousandths. */
    public long scaled(int digits) {
        return value.movePointRight(digits).longValue();
    }

    public boolean whole() {
        return value.stripTrailingZeros().scale() <= 0;
    }
}
