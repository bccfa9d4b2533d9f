package io.aliquot.api.pods;

import static io.aliquot.api.format.FormatException.expect;

import io.aliquot.api.format.CommaSeparated;
import java.util.List;

/**
 * A pattern for GPU models. It matches a model whose NVML name contains its words, in any case: {@code A10} matches
 * NVIDIA A10 and not NVIDIA A100-SXM4-80GB, {@code A10*} matches both, and {@code A100-SXM4} the latter.
 *
 * @param words 1 to {@value #MAX_LENGTH} letters, digits, spaces and {@code . _ / ( ) + -}
 * @param openStart whether characters of the same word may precede the first word; a {@code *} before it in the text
 * @param openEnd whether characters of the same word may follow the last word; a {@code *} after it in the text
 */
public record ModelPattern(String words, boolean openStart, boolean openEnd) {
    private static final int MAX_LENGTH = 100;

    public ModelPattern {
        expect(
                words.length() <= MAX_LENGTH && words.matches("[A-Za-z0-9]([A-Za-z0-9 ._/()+-]*[A-Za-z0-9)+])?"),
                "a GPU model such as A100 or RTX 4090",
                words);
    }

    public static ModelPattern parse(String text) {
        boolean openStart = text.startsWith("*");
        boolean openEnd = text.endsWith("*") && text.length() > 1;
        return new ModelPattern(
                text.substring(openStart ? 1 : 0, text.length() - (openEnd ? 1 : 0)), openStart, openEnd);
    }

    /**
     * Reads a comma-separated list.
     *
     * @param where the annotation that they come from, for the message
     */
    public static List<ModelPattern> parseList(String where, String text) {
        return CommaSeparated.parse(where, text, ModelPattern::parse);
    }

    /** Whether the pattern matches a model, given by NVML's product name. */
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
