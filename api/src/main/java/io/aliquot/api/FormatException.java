package io.aliquot.api;

/**
 * A text from outside that is not what its format says. The message stands on its own: what was expected, what was
 * found and, where a user wrote it, what to write instead.
 */
public final class FormatException extends IllegalArgumentException {
    private static final long serialVersionUID = 1L;
    private static final int LONGEST_QUOTE = 60;

    public FormatException(String message) {
        super(message);
    }

    public FormatException(String message, Throwable cause) {
        super(message, cause);
    }

    /** {@code expected E, found "F"}, with F shortened and made printable, so that a hostile text can't flood a log. */
    static FormatException expected(String expected, String found) {
        return new FormatException("expected " + expected + ", found " + quote(found));
    }

    static String quote(String text) {
        var shown = new StringBuilder("\"");
        text.codePoints().limit(LONGEST_QUOTE).forEach(c -> {
            if (c < ' ' || c == 0x7f || !Character.isDefined(c) || Character.getType(c) == Character.SURROGATE) {
                shown.append(String.format("\\u%04x", c));
            } else {
                shown.appendCodePoint(c);
            }
        });
        return shown.append(text.codePointCount(0, text.length()) > LONGEST_QUOTE ? "…\"" : "\"")
                .toString();
    }
}
