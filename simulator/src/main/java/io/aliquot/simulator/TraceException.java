package io.aliquot.simulator;

/** An input that cannot be replayed; the message says where it is wrong and what was expected. */
final class TraceException extends RuntimeException {
    TraceException(String message) {
        super(message);
    }

    TraceException(String message, Throwable cause) {
        super(message, cause);
    }
}
