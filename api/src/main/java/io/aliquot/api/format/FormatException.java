package io.aliquot.api.format;

/**
 * A text from outside the process that violates its format. The message is complete: what was expected, what was found
 * and, if a user wrote the text, what to write instead.
 */
public final class FormatException extends IllegalArgumentException {
    private static final long serialVersionUID = 1L;
    private static final int MAX_QUOTE = 60;

    public FormatException(String message) {
        super(message);
    }

    public FormatException(String message, Throwable cause) {
        super(message, cause);
    }

    /** {@code expected E, found "F"}; F is shortened and made printable, so that a hostile text cannot flood a log. */
    public static FormatException expected(String expected, String found) {
        return new FormatException("expected " + expected + ", found " + quote(found));
    }

    /** Throws what {@link #expected} returns unless {@code holds}. */
    public static void expect(boolean holds, String expected, Object found) {
        if (!holds) {
            throw expected(expected, String.valueOf(found));
        }
    }

    /** The text in quotation marks, at most {@value #MAX_QUOTE} characters of it, control characters escaped. */
    public static String quote(String text) {
        var shown = new StringBuilder("\"");
        text.codePoints().limit(MAX_QUOTE).forEach(c -> {
            if (c < ' ' || c == 0x7f || !Character.isDefined(c) || Character.getType(c) == Character.SURROGATE) {
                shown.append(String.format("\\u%04x", c));
            } else {
                shown.appendCodePoint(c);
            }
        });
        return shown.append(text.codePointCount(0, text.length()) > MAX_QUOTE ? "…\"" : "\"")
                .toString();
    }
}
