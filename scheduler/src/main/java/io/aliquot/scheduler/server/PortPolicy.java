package io.aliquot.scheduler.server;

import java.time.Duration;
import java.util.Optional;
import java.util.Set;
import org.springframework.http.HttpStatus;
import org.springframework.http.ProblemDetail;

/**
 * What one port answers.
 *
 * @param paths exactly, as sent
 * @param below whatever path begins with it, too; empty for none
 * @param largestBody in bytes
 */
record PortPolicy(Set<String> paths, String below, int largestBody) {
    /** How long a client may be silent within a request. */
    static final Duration PATIENCE = Duration.ofSeconds(10);
    /** And between two of them. */
    static final Duration IDLE = Duration.ofMinutes(2);
    /** What is read and thrown away of a body that was refused, so that its sender gets to see why; in bytes. */
    static final int SWALLOWED = 64 << 20;

    /** 8 MiB: a pod (1.5 MiB at most in etcd) and the names of 20,000 nodes. */
    static final PortPolicy EXTENDER =
            new PortPolicy(Set.of("/filter", "/prioritize", "/bind", "/preempt"), "", 8 << 20);
    /** 4 MiB: the API server itself accepts no request over 3 (k8s.io/apiserver, MaxRequestBodyBytes). */
    static final PortPolicy WEBHOOKS = new PortPolicy(Set.of("/admission/gpu", "/admission/void"), "", 4 << 20);

    /** Answers nothing. */
    static final PortPolicy NONE = new PortPolicy(Set.of(), "", 0);

    static final PortPolicy HEALTH = new PortPolicy(Set.of("/livez", "/readyz", "/metrics"), "", 0);
    /** 256 KiB: new shares of a pod's containers on all GPUs of a node. */
    static final PortPolicy API = new PortPolicy(Set.of(), Problems.API, 256 << 10);

    PortPolicy {
        paths = Set.copyOf(paths);
    }

    /**
     * Why a request is turned away before anything else sees it; empty where it is not.
     *
     * @param path as sent: none of our paths needs escapes, so whoever sends them wants to confuse somebody
     * @param length of its body in bytes, 0 for none, negative where that is not told
     */
    Optional<ProblemDetail> refuses(String path, long length) {
        if (!paths.contains(path) && (below.isEmpty() || !path.startsWith(below))) {
            return problem(HttpStatus.NOT_FOUND, "nothing here");
        }
        if (length > largestBody) {
            return problem(
                    HttpStatus.CONTENT_TOO_LARGE,
                    "expected a body of at most " + largestBody + " bytes, found " + length);
        }
        // Go's clients, and so kube-scheduler and the API server, always tell the length of a JSON body.
        return length < 0 ? problem(HttpStatus.LENGTH_REQUIRED, "expected a Content-Length") : Optional.empty();
    }

    private static Optional<ProblemDetail> problem(HttpStatus status, String why) {
        return Optional.of(ProblemDetail.forStatusAndDetail(status, why));
    }
}
