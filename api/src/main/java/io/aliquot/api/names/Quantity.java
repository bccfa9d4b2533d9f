package io.aliquot.api.names;

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

    /** The value as a whole number of 10<sup>-digits</sup>, rounded toward 0: with 3, of thousandths. */
    public long scaled(int digits) {
        return value.movePointRight(digits).longValue();
    }

    public boolean whole() {
        return value.stripTrailingZeros().scale() <= 0;
    }
}
