package io.aliquot.scheduler.server;

import jakarta.servlet.http.HttpServletRequest;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.http.HttpHeaders;
import org.springframework.http.HttpStatus;
import org.springframework.http.HttpStatusCode;
import org.springframework.http.MediaType;
import org.springframework.http.ProblemDetail;
import org.springframework.http.ResponseEntity;
import org.springframework.http.converter.HttpMessageNotReadableException;
import org.springframework.web.ErrorResponse;
import org.springframework.web.bind.annotation.ExceptionHandler;
import org.springframework.web.bind.annotation.RestControllerAdvice;

/** Whatever goes wrong is answered in a few words, as {@link Problems} says, never with a stack trace. */
@RestControllerAdvice
final class ErrorAnswers {
    private static final Logger LOG = LoggerFactory.getLogger(ErrorAnswers.class);

    @ExceptionHandler
    ResponseEntity<?> unreadable(HttpServletRequest request, HttpMessageNotReadableException e) {
        LOG.warn("refused a body that is not the JSON we expect: {}", e.getMessage());
        return answer(
                request,
                ProblemDetail.forStatusAndDetail(
                        HttpStatus.BAD_REQUEST, "the body is not the JSON that this path expects"),
                HttpHeaders.EMPTY);
    }

    @ExceptionHandler
    ResponseEntity<?> other(HttpServletRequest request, Exception e) {
        if (e instanceof ErrorResponse known) { // Spring's own: wrong method, wrong media type; and the API's
            return answer(request, known.getBody(), known.getHeaders());
        }
        LOG.error("a request failed", e);
        return answer(
                request,
                ProblemDetail.forStatusAndDetail(
                        HttpStatus.INTERNAL_SERVER_ERROR, "internal error; the scheduler's log tells more"),
                HttpHeaders.EMPTY);
    }

    private static ResponseEntity<?> answer(HttpServletRequest request, ProblemDetail problem, HttpHeaders headers) {
        var answer = ResponseEntity.status(HttpStatusCode.valueOf(problem.getStatus()))
                .headers(headers);
        return Problems.asJson(request)
                ? answer.contentType(MediaType.APPLICATION_PROBLEM_JSON).body(problem)
                : answer.contentType(MediaType.TEXT_PLAIN).body(problem.getDetail() + "\n");
    }
}
