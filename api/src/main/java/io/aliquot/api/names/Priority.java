package io.aliquot.api.names;

/** The priority of a container's kernels on a GPU: 0 to {@value #HIGHEST}, higher first. */
public final class Priority {
    public static final int LOWEST = 0;
    public static final int HIGHEST = 1_000_000;

    private Priority() {}

    /**
     * Reads a whole number.
     *
     * @param where the annotation or resource that the value comes from, for the message
     */
    public static int parse(String where, String text) {
        if (text.matches("[0-9]{1,7}")) {
            int priority = Integer.parseInt(text);
            if (priority <= HIGHEST) {
                return priority;
            }
        }
        throw new FormatException(where + ": " + FormatException.quote(text) + " is not a priority from " + LOWEST
                + " to " + HIGHEST + ", higher first; write for example \"1\"");
    }
}
