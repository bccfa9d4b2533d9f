package io.aliquot.scheduler.inspection;

/** The API server could not be reached, or answered with an error; the same call may succeed later. */
public final class ApiServerUnavailableException extends Exception {
    private static final long serialVersionUID = 1L;

    public ApiServerUnavailableException(String message, Throwable cause) {
        super(message, cause);
    }
}
