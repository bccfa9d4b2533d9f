package io.aliquot.scheduler.server.errors;

import jakarta.servlet.http.HttpServletRequest;
import org.springframework.http.HttpHeaders;
import org.springframework.http.HttpStatusCode;
import org.springframework.http.MediaType;
import org.springframework.http.ProblemDetail;
import org.springframework.http.ResponseEntity;
import org.springframework.http.converter.HttpMessageNotReadableException;
import org.springframework.web.ErrorResponse;
import org.springframework.web.bind.annotation.ExceptionHandler;
import org.springframework.web.bind.annotation.RestControllerAdvice;
import org.springframework.web.context.request.async.AsyncRequestNotUsableException;
import tools.jackson.core.JacksonException;

/** Answers failed requests as {@link Problems} says, without a stack trace. */
@RestControllerAdvice
final class ErrorResponses {
    @ExceptionHandler
    ResponseEntity<?> unreadable(HttpServletRequest request, HttpMessageNotReadableException e) {
        return answer(request, Problems.unreadable(e), HttpHeaders.EMPTY);
    }

    @ExceptionHandler
    ResponseEntity<?> unreadable(HttpServletRequest request, JacksonException e) {
        return answer(request, Problems.unreadable(e), HttpHeaders.EMPTY);
    }

    /** The client closed its connection during the answer, as a browser does whose user goes on: there is no error. */
    @ExceptionHandler
    void clientGone(AsyncRequestNotUsableException e) {}

    @ExceptionHandler
    ResponseEntity<?> other(HttpServletRequest request, Exception e) {
        if (e instanceof ErrorResponse known) { // of Spring, such as a wrong method or media type, and of the API
            return answer(request, known.getBody(), known.getHeaders());
        }
        return answer(request, Problems.failed(e), HttpHeaders.EMPTY);
    }

    private static ResponseEntity<?> answer(HttpServletRequest request, ProblemDetail problem, HttpHeaders headers) {
        var answer = ResponseEntity.status(HttpStatusCode.valueOf(problem.getStatus()))
                .headers(headers);
        return Problems.asStatus(request)
                ? answer.contentType(MediaType.APPLICATION_JSON).body(Problems.status(problem))
                : answer.contentType(MediaType.TEXT_PLAIN).body(Problems.line(problem));
    }
}
