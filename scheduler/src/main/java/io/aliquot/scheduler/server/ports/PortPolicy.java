package io.aliquot.scheduler.server.ports;

import java.time.Duration;
import java.util.Optional;
import java.util.Set;
import java.util.regex.Pattern;
import org.springframework.http.HttpStatus;
import org.springframework.http.ProblemDetail;

/**
 * The requests that one port accepts.
 *
 * @param paths exact paths, as sent
 * @param below a prefix of further paths; empty for none
 * @param largestBody in bytes
 */
record PortPolicy(Set<String> paths, String below, int largestBody) {
    /** The read timeout within a request. */
    static final Duration READ_TIMEOUT = Duration.ofSeconds(10);
    /** The timeout between two requests of a connection. */
    static final Duration IDLE_TIMEOUT = Duration.ofMinutes(2);
    /** From the head of a request to the end of its answer. The API server waits 30 s for a webhook at most. */
    static final Duration REQUEST_TIMEOUT = Duration.ofSeconds(30);
    /** In bytes: of a refused body, this much is read and discarded, so that kube-scheduler reads the answer. */
    static final int DISCARDED = 64 << 20;

    /** 8 MiB: a pod (1.5 MiB at most in etcd) and the names of 20,000 nodes. */
    static final PortPolicy EXTENDER =
            new PortPolicy(Set.of("/filter", "/prioritize", "/bind", "/preempt"), "", 8 << 20);
    /**
     * 8 MiB: a review of an update has the pod before and after it, and the API server itself accepts no request over 3
     * (k8s.io/apiserver, MaxRequestBodyBytes).
     */
    static final PortPolicy WEBHOOKS =
            new PortPolicy(Set.of("/admission/gpu", "/admission/update", "/admission/void"), "", 8 << 20);

    /** The same port where it serves the aggregated API, too. */
    static final PortPolicy WEBHOOKS_AND_API = new PortPolicy(
            Set.of(
                    "/admission/gpu",
                    "/admission/update",
                    "/admission/void",
                    "/apis",
                    "/openapi/v3",
                    "/openapi/v3/apis/gpu.aliquot.io/v1alpha1"),
            "/apis/",
            8 << 20);

    /** Accepts nothing. */
    static final PortPolicy NONE = new PortPolicy(Set.of(), "", 0);

    static final PortPolicy HEALTH = new PortPolicy(Set.of("/livez", "/readyz", "/metrics"), "", 0);

    /**
     * What two parsers of a path may read differently. The API server has authorized the path as it reads it; no name
     * of an object of Kubernetes needs an escape.
     */
    private static final Pattern AMBIGUOUS = Pattern.compile("[;%\\\\]|//|/\\.{1,2}(/|$)");

    PortPolicy {
        paths = Set.copyOf(paths);
    }

    /**
     * Checks a request before any handler sees it; returns the answer to a refused one.
     *
     * @param path as sent; no path of this process needs escapes, so an escaped one does not match
     * @param length of the body in bytes, 0 for none, negative if unknown
     */
    Optional<ProblemDetail> refusal(String path, long length) {
        if (!below.isEmpty() && AMBIGUOUS.matcher(path).find()) {
            return problem(
                    HttpStatus.BAD_REQUEST, "expected a path without escapes, semicolons, and empty or dot segments");
        }
        if (!paths.contains(path) && (below.isEmpty() || !path.startsWith(below))) {
            return problem(HttpStatus.NOT_FOUND, "nothing here");
        }
        if (length > largestBody) {
            return problem(
                    HttpStatus.CONTENT_TOO_LARGE,
                    "expected a body of at most " + largestBody + " bytes, found " + length);
        }
        // Go's HTTP client, which kube-scheduler and the API server use, always sends the length of a JSON body.
        return length < 0 ? problem(HttpStatus.LENGTH_REQUIRED, "expected a Content-Length") : Optional.empty();
    }

    private static Optional<ProblemDetail> problem(HttpStatus status, String why) {
        return Optional.of(ProblemDetail.forStatusAndDetail(status, why));
    }
}
