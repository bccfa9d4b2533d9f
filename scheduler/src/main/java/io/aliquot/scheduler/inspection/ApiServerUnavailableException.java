package io.aliquot.scheduler.inspection;

/** The API server couldn't be asked, or wouldn't say. */
public final class UnansweredException extends Exception {
    private static final long serialVersionUID = 1L;

    public UnansweredException(String message, Throwable cause) {
        super(message, cause);
    }
}
