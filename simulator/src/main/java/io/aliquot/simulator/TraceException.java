package io.aliquot.simulator;

/** A trace that can't be replayed; the message says where and what is wrong with it. */
final class TraceException extends RuntimeException {
    TraceException(String message) {
        super(message);
    }

    TraceException(String message, Throwable cause) {
        super(message, cause);
    }
}
