package io.aliquot.scheduler.admission;

/** A request body that the API server does not send. The message says what was expected. */
final class MalformedReviewException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    MalformedReviewException(String message) {
        super(message);
    }
}
