package io.aliquot.scheduler.inspection;

import org.springframework.http.HttpHeaders;
import org.springframework.http.HttpStatus;
import org.springframework.http.ProblemDetail;
import org.springframework.web.ErrorResponseException;

/** Ends a request with a status and a sentence that says what to write, or to do, instead. */
final class Refusal extends ErrorResponseException {
    private static final long serialVersionUID = 1L;

    Refusal(HttpStatus status, String detail) {
        super(status, ProblemDetail.forStatusAndDetail(status, detail), null);
        if (status == HttpStatus.SERVICE_UNAVAILABLE) {
            getHeaders().set(HttpHeaders.RETRY_AFTER, "1");
            getHeaders().set(HttpHeaders.CONNECTION, "close"); // over a new one the leader may be reached
        }
    }

    static Refusal badRequest(String detail) {
        return new Refusal(HttpStatus.BAD_REQUEST, detail);
    }

    static Refusal unavailable(String detail) {
        return new Refusal(HttpStatus.SERVICE_UNAVAILABLE, detail);
    }

    static Refusal notFound(String detail) {
        return new Refusal(HttpStatus.NOT_FOUND, detail);
    }
}
