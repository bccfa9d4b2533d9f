package io.aliquot.api;

import java.util.List;

/**
 * Models of GPUs: those whose name, as NVML tells it, has these words in it, whatever their case. {@code A10} means
 * NVIDIA A10 and not NVIDIA A100-SXM4-80GB; {@code A10*} means both, {@code A100-SXM4} the latter.
 *
 * @param words 1 to {@value #LONGEST} letters, digits, spaces and {@code . _ / ( ) + -}
 * @param openStart whether the first word may begin earlier, a {@code *} before it in the text
 * @param openEnd whether the last word may go on, a {@code *} after it in the text
 */
public record ModelPattern(String words, boolean openStart, boolean openEnd) {
    private static final int LONGEST = 100;

    public ModelPattern {
        if (words.length() > LONGEST || !words.matches("[A-Za-z0-9]([A-Za-z0-9 ._/()+-]*[A-Za-z0-9)+])?")) {
            throw FormatException.expected("a GPU's model or words of it, such as A100 or RTX 4090", words);
        }
    }

    public static ModelPattern parse(String text) {
        boolean openStart = text.startsWith("*");
        boolean openEnd = text.endsWith("*") && text.length() > 1;
        return new ModelPattern(
                text.substring(openStart ? 1 : 0, text.length() - (openEnd ? 1 : 0)), openStart, openEnd);
    }

    /**
     * Reads patterns with commas between them.
     *
     * @param where the annotation that they come from, for the message
     */
    public static List<ModelPattern> parseList(String where, String text) {
        return CommaSeparated.parse(where, text, ModelPattern::parse);
    }

    /** Whether a GPU of this name is meant. */
    public boolean matches(String model) {
        for (int at = 0; at <= model.length() - words.length(); at++) {
            int end = at + words.length();
            if (model.regionMatches(true, at, words, 0, words.length())
                    && (openStart || at == 0 || !inWord(model.charAt(at - 1)))
                    && (openEnd || end == model.length() || !inWord(model.charAt(end)))) {
                return true;
            }
        }
        return false;
    }

    public String print() {
        return (openStart ? "*" : "") + words + (openEnd ? "*" : "");
    }

    private static boolean inWord(char c) {
        return Character.isLetterOrDigit(c);
    }
}
