package io.aliquot.scheduler.kubernetes.client;

import java.time.Instant;
import java.time.LocalDate;
import java.time.format.DateTimeParseException;

/*
 * java.time's own formatters made a quarter of what reading a pod costs, and some hundred methods that the JVM has to
 * compile while it starts.
 */
/** Times as the API writes them: RFC 3339 in UTC, whole seconds (k8s.io/apimachinery, pkg/apis/meta/v1, Time). */
public final class Times {
    private static final String SHAPE = "0000-00-00T00:00:00Z";
    private static final int DAY = 24 * 60 * 60;

    private Times() {}

    /** As {@link Instant#toString()} has it. */
    public static String print(long epochSecond) {
        int second = (int) Math.floorMod(epochSecond, (long) DAY);
        var text = new StringBuilder(SHAPE.length())
                .append(LocalDate.ofEpochDay(Math.floorDiv(epochSecond, (long) DAY)))
                .append('T');
        twoDigits(text, second / 3600).append(':');
        twoDigits(text, second / 60 % 60).append(':');
        return twoDigits(text, second % 60).append('Z').toString();
    }

    private static StringBuilder twoDigits(StringBuilder text, int number) {
        return text.append((char) ('0' + number / 10)).append((char) ('0' + number % 10));
    }

    /**
     * Any time that {@link Instant#parse} reads.
     *
     * @throws DateTimeParseException where it is none
     */
    public static Instant parse(String text) {
        if (isOfTheUsualShape(text)) {
            int month = number(text, 5);
            int day = number(text, 8);
            int hour = number(text, 11);
            int minute = number(text, 14);
            int second = number(text, 17);
            // The rest, such as leap seconds and the end of February, is for those who know about it.
            if (month >= 1 && month <= 12 && day >= 1 && day <= 28 && hour < 24 && minute < 60 && second < 60) {
                long days = LocalDate.of(number(text, 0) * 100 + number(text, 2), month, day)
                        .toEpochDay();
                return Instant.ofEpochSecond(days * DAY + hour * 3600L + minute * 60L + second);
            }
        }
        return Instant.parse(text);
    }

    private static boolean isOfTheUsualShape(String text) {
        if (text.length() != SHAPE.length()) {
            return false;
        }
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            char wanted = SHAPE.charAt(i);
            if (wanted == '0' ? c < '0' || c > '9' : c != wanted) {
                return false;
            }
        }
        return true;
    }

    /** Of two digits. */
    private static int number(String text, int at) {
        return (text.charAt(at) - '0') * 10 + text.charAt(at + 1) - '0';
    }
}
