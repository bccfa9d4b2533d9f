package io.aliquot.scheduler.inspection;

import org.springframework.http.HttpHeaders;
import org.springframework.http.HttpStatus;
import org.springframework.http.ProblemDetail;
import org.springframework.web.ErrorResponseException;

/** Ends a request with a status and a sentence that tells the caller what to write or do instead. */
public final class ApiException extends ErrorResponseException {
    private static final long serialVersionUID = 1L;

    ApiException(HttpStatus status, String detail) {
        super(status, ProblemDetail.forStatusAndDetail(status, detail), null);
        if (status == HttpStatus.SERVICE_UNAVAILABLE) {
            getHeaders().set(HttpHeaders.RETRY_AFTER, "1");
            getHeaders().set(HttpHeaders.CONNECTION, "close"); // a new connection may reach the leader
        }
    }

    static ApiException badRequest(String detail) {
        return new ApiException(HttpStatus.BAD_REQUEST, detail);
    }

    static ApiException conflict(String detail) {
        return new ApiException(HttpStatus.CONFLICT, detail);
    }

    public static ApiException unavailable(String detail) {
        return new ApiException(HttpStatus.SERVICE_UNAVAILABLE, detail);
    }

    static ApiException notFound(String detail) {
        return new ApiException(HttpStatus.NOT_FOUND, detail);
    }
}
