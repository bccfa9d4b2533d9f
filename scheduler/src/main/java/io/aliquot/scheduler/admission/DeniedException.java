package io.aliquot.scheduler.admission;

/**
 * A refusal of a pod. The message is one sentence for the pod's author that says what to write instead. It may quote
 * the pod, which the API server has not validated yet, so it is shortened and control characters are replaced.
 */
final class DeniedException extends RuntimeException {
    private static final long serialVersionUID = 1L;
    private static final int MAX_LENGTH = 600;

    DeniedException(String message) {
        super(printable(message));
    }

    DeniedException(String message, Throwable cause) {
        super(printable(message), cause);
    }

    private static String printable(String message) {
        String shown = message.replaceAll("\\p{Cntrl}", "?");
        return shown.length() <= MAX_LENGTH ? shown : shown.substring(0, MAX_LENGTH) + "…";
    }
}
