package io.aliquot.scheduler.server;

import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.http.HttpStatus;
import org.springframework.http.MediaType;
import org.springframework.http.ProblemDetail;
import tools.jackson.databind.json.JsonMapper;

/** Answers to failed requests: problem+json (RFC 9457) below {@value #API}, a line of text elsewhere. */
public final class Problems {
    static final String API = "/api/v1/";

    /** The answer after an internal error. */
    public static final String INTERNAL = "internal error; the scheduler's log tells more";

    private static final Logger LOG = LoggerFactory.getLogger(Problems.class);

    private Problems() {}

    /** Logs and answers a body that is not what its path expects. */
    public static ProblemDetail unreadable(Exception why) {
        LOG.warn("refused a body that is not the expected JSON: {}", why.getMessage());
        return ProblemDetail.forStatusAndDetail(
                HttpStatus.BAD_REQUEST, "the body is not the JSON that this path expects");
    }

    /** Logs and answers an internal error. */
    public static ProblemDetail failed(Exception why) {
        if (why instanceof FailedRequestException request) {
            LOG.error("{} failed {}", request.request(), request.subject(), request.getCause());
        } else {
            LOG.error("a request failed", why);
        }
        return ProblemDetail.forStatusAndDetail(HttpStatus.INTERNAL_SERVER_ERROR, INTERNAL);
    }

    static String line(ProblemDetail problem) {
        return problem.getDetail() + "\n";
    }

    static boolean asJson(HttpServletRequest request) {
        return request.getRequestURI().startsWith(API);
    }

    /** Answers a request that is refused before a controller sees it. */
    public static void write(HttpServletRequest request, HttpServletResponse response, ProblemDetail problem)
            throws IOException {
        response.setStatus(problem.getStatus());
        if (asJson(request)) {
            var fields = new LinkedHashMap<String, Object>();
            fields.put("title", String.valueOf(problem.getTitle()));
            fields.put("status", problem.getStatus());
            fields.put("detail", String.valueOf(problem.getDetail()));
            response.setContentType(MediaType.APPLICATION_PROBLEM_JSON_VALUE);
            response.getOutputStream().write(JsonMapper.shared().writeValueAsBytes(fields));
        } else {
            response.setContentType("text/plain;charset=utf-8");
            response.getOutputStream().write(line(problem).getBytes(StandardCharsets.UTF_8));
        }
    }
}
