package io.aliquot.scheduler.extensionapi.machinery;

import io.aliquot.scheduler.server.errors.Problems;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.springframework.http.HttpHeaders;
import org.springframework.http.HttpStatus;
import org.springframework.http.HttpStatusCode;
import org.springframework.http.ProblemDetail;
import org.springframework.web.ErrorResponseException;

/**
 * Ends a request with a Kubernetes Status (meta/v1), whose message tells the caller what to write or do instead. Codes
 * are those of k8s.io/apimachinery, pkg/api/errors, and {@link Problems} adds their reasons.
 */
public final class StatusException extends ErrorResponseException {
    private static final long serialVersionUID = 1L;
    private static final int RETRY_SECONDS = 1;

    public StatusException(int code, String message) {
        this(code, message, Map.of());
    }

    /** {@code cause} is empty, or one of the details' causes: a part of the reason, perhaps with the path of a field. */
    private StatusException(int code, String message, Map<String, String> cause) {
        super(HttpStatusCode.valueOf(code), problem(code, message, details(code, cause)), null);
        if (isTemporary(code)) {
            // client-go repeats a request that is answered with this header (client-go 1.35, rest/with_retry.go).
            getHeaders().set(HttpHeaders.RETRY_AFTER, Integer.toString(RETRY_SECONDS));
        }
        if (code == HttpStatus.SERVICE_UNAVAILABLE.value()) {
            getHeaders().set(HttpHeaders.CONNECTION, "close"); // a new connection may reach another replica
        }
    }

    public static StatusException badRequest(String message) {
        return new StatusException(400, message);
    }

    public static StatusException notFound(String resource, String name) {
        return new StatusException(404, resource + "." + Discovery.GROUP + " \"" + name + "\" not found");
    }

    static StatusException notAcceptable() {
        return new StatusException(
                406, "the server offers application/json, and as a table application/json;as=Table;g=meta.k8s.io;v=v1");
    }

    public static StatusException conflict(String resource, String name, String why) {
        return new StatusException(
                409,
                "Operation cannot be fulfilled on " + resource + "." + Discovery.GROUP + " \"" + name + "\": " + why);
    }

    public static StatusException expired(String message) {
        return new StatusException(410, message);
    }

    static StatusException unsupportedPatch(String type) {
        return new StatusException(
                415, "a gpushare takes no patch of type " + type + "; use a merge patch: kubectl patch --type merge");
    }

    /** A field that is not valid or not the caller's to change. */
    public static StatusException invalid(String name, String field, String why) {
        return new StatusException(
                422,
                "GpuShare." + Discovery.GROUP + " \"" + name + "\" is invalid: " + field + ": " + why,
                Map.of("reason", "FieldValueInvalid", "message", why, "field", field));
    }

    /** Of a version that this replica has not seen yet; client-go recognizes the cause and lists without a version. */
    public static StatusException tooNew(long version, long newest) {
        return new StatusException(
                504,
                "Too large resource version: " + version + ", current: " + newest,
                Map.of("reason", "ResourceVersionTooLarge", "message", "Too large resource version"));
    }

    public static StatusException tooManyRequests(String message) {
        return new StatusException(429, message);
    }

    public static StatusException unauthorized(String message) {
        return new StatusException(401, message);
    }

    public static StatusException unavailable(String message) {
        return new StatusException(503, message);
    }

    private static boolean isTemporary(int code) {
        return code == HttpStatus.SERVICE_UNAVAILABLE.value() || code == HttpStatus.TOO_MANY_REQUESTS.value();
    }

    private static ProblemDetail problem(int code, String message, Map<String, Object> details) {
        ProblemDetail problem = ProblemDetail.forStatusAndDetail(HttpStatusCode.valueOf(code), message);
        problem.setProperty(Problems.DETAILS, details);
        return problem;
    }

    private static Map<String, Object> details(int code, Map<String, String> cause) {
        var details = new LinkedHashMap<String, Object>();
        if (!cause.isEmpty()) {
            details.put("causes", List.of(cause));
        }
        if (isTemporary(code)) {
            details.put("retryAfterSeconds", RETRY_SECONDS);
        }
        return details;
    }
}
