package io.aliquot.scheduler.server;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.http.HttpStatus;
import org.springframework.http.MediaType;
import org.springframework.http.ResponseEntity;
import org.springframework.http.converter.HttpMessageNotReadableException;
import org.springframework.web.ErrorResponse;
import org.springframework.web.bind.annotation.ExceptionHandler;
import org.springframework.web.bind.annotation.RestControllerAdvice;

/** Whatever goes wrong is answered in one line of plain text, never with a stack trace. */
@RestControllerAdvice
final class ErrorAnswers {
    private static final Logger LOG = LoggerFactory.getLogger(ErrorAnswers.class);

    @ExceptionHandler
    ResponseEntity<String> unreadable(HttpMessageNotReadableException e) {
        LOG.warn("refused a body that is not the JSON we expect: {}", e.getMessage());
        return line(HttpStatus.BAD_REQUEST.value(), "the body is not the JSON that this path expects");
    }

    @ExceptionHandler
    ResponseEntity<String> other(Exception e) {
        if (e instanceof ErrorResponse known) { // Spring's own: wrong method, wrong media type
            return line(
                    known.getStatusCode().value(),
                    String.valueOf(known.getBody().getDetail()));
        }
        LOG.error("a request failed", e);
        return line(HttpStatus.INTERNAL_SERVER_ERROR.value(), "internal error; the scheduler's log tells more");
    }

    private static ResponseEntity<String> line(int status, String text) {
        return ResponseEntity.status(status).contentType(MediaType.TEXT_PLAIN).body(text + "\n");
    }
}
