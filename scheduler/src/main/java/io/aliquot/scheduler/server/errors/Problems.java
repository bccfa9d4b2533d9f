package io.aliquot.scheduler.server.errors;

import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.core.NestedExceptionUtils;
import org.springframework.http.HttpStatus;
import org.springframework.http.MediaType;
import org.springframework.http.ProblemDetail;
import tools.jackson.databind.json.JsonMapper;

/** Answers to failed requests: a Kubernetes Status on the aggregated API's paths, a line of text elsewhere. */
public final class Problems {
    /** The property of a problem with the details of its Status, a map. */
    public static final String DETAILS = "details";

    /** The answer after an internal error. */
    public static final String INTERNAL = "internal error; the scheduler's log tells more";

    private static final Logger LOG = LoggerFactory.getLogger(Problems.class);

    private Problems() {}

    /** Logs and answers a body that is not what its path expects. */
    public static ProblemDetail unreadable(Exception why) {
        if (NestedExceptionUtils.getMostSpecificCause(why) instanceof IOException) { // the client has gone
            LOG.debug("a body has not come to its end: {}", why.getMessage());
        } else {
            LOG.warn("refused a body that is not the expected JSON: {}", why.getMessage());
        }
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

    static boolean asStatus(HttpServletRequest request) {
        String path = request.getRequestURI();
        return path.startsWith("/apis") || path.startsWith("/openapi");
    }

    /** The JSON of a Status (meta/v1). */
    public static Map<String, Object> status(ProblemDetail problem) {
        Map<String, Object> properties = Objects.requireNonNullElse(problem.getProperties(), Map.of());
        var fields = new LinkedHashMap<String, Object>();
        fields.put("kind", "Status");
        fields.put("apiVersion", "v1");
        fields.put("metadata", Map.of());
        fields.put("status", "Failure");
        fields.put("message", String.valueOf(problem.getDetail()));
        fields.put("reason", reason(problem.getStatus()));
        if (properties.get(DETAILS) instanceof Map<?, ?> details && !details.isEmpty()) {
            fields.put("details", details);
        }
        fields.put("code", problem.getStatus());
        return fields;
    }

    /** StatusReason (k8s.io/apimachinery, pkg/apis/meta/v1/types.go). */
    public static String reason(int code) {
        return switch (code) {
            case 400 -> "BadRequest";
            case 401 -> "Unauthorized";
            case 403 -> "Forbidden";
            case 404 -> "NotFound";
            case 405 -> "MethodNotAllowed";
            case 406 -> "NotAcceptable";
            case 409 -> "Conflict";
            case 410 -> "Expired";
            case 413 -> "RequestEntityTooLarge";
            case 415 -> "UnsupportedMediaType";
            case 422 -> "Invalid";
            case 429 -> "TooManyRequests";
            case 500 -> "InternalError";
            case 503 -> "ServiceUnavailable";
            case 504 -> "Timeout";
            default -> "";
        };
    }

    /** Answers a request that is refused before a controller sees it. */
    public static void write(HttpServletRequest request, HttpServletResponse response, ProblemDetail problem)
            throws IOException {
        response.setStatus(problem.getStatus());
        if (asStatus(request)) {
            response.setContentType(MediaType.APPLICATION_JSON_VALUE);
            response.getOutputStream().write(JsonMapper.shared().writeValueAsBytes(status(problem)));
        } else {
            response.setContentType("text/plain;charset=utf-8");
            response.getOutputStream().write(line(problem).getBytes(StandardCharsets.UTF_8));
        }
    }
}
