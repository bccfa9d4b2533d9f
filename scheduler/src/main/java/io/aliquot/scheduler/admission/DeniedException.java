package io.aliquot.scheduler.admission;

/**
 * A pod that may not be. The message is for its author: one sentence, with what to write instead. It may quote what the
 * author wrote, which nobody has validated yet, so it is shortened and made printable.
 */
final class DeniedException extends RuntimeException {
    private static final long serialVersionUID = 1L;
    private static final int LONGEST_MESSAGE = 600;

    DeniedException(String message) {
        super(printable(message));
    }

    DeniedException(String message, Throwable cause) {
        super(printable(message), cause);
    }

    private static String printable(String message) {
        String shown = message.replaceAll("\\p{Cntrl}", "?");
        return shown.length() <= LONGEST_MESSAGE ? shown : shown.substring(0, LONGEST_MESSAGE) + "…";
    }
}
