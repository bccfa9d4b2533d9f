package io.aliquot.scheduler.server.errors;

/** A request that failed by a bug. The port that received it logs it, once, with its subject. */
public final class FailedRequestException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private final String request;
    private final transient Object subject;

    /**
     * Describes the request.
     *
     * @param subject what the request is about; an argument of the log line, so that its fields appear in JSON logs
     */
    public FailedRequestException(String request, Object subject, Throwable cause) {
        super(request + " failed " + subject, cause);
        this.request = request;
        this.subject = subject;
    }

    String request() {
        return request;
    }

    Object subject() {
        return subject;
    }
}
