package io.aliquot.scheduler.inspection;

import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * Authentication and authorization of the API's callers by the API server. Calls return within seconds, or throw an
 * {@link ApiException} with status 503 if the API server gives no answer.
 */
public interface AccessReviews {
    /** An authenticated user, as TokenReview reports it. */
    record Caller(String user, String uid, List<String> groups, Map<String, List<String>> extra) {
        public Caller {
            groups = List.copyOf(groups);
            extra = Map.copyOf(extra);
        }
    }

    /**
     * A verb on a resource of the core API group, as in SubjectAccessReview.
     *
     * @param namespace empty for all namespaces
     * @param name empty for all objects
     */
    record Access(String verb, String resource, String namespace, String name) {
        /** A phrase such as "get pods train in namespace team". */
        @Override
        public String toString() {
            return verb + " " + resource + (name.isEmpty() ? "" : " " + name)
                    + (namespace.isEmpty() ? "" : " in namespace " + namespace);
        }
    }

    /** The user of a bearer token; empty if the token is invalid or has expired. */
    Optional<Caller> authenticate(String token);

    boolean isAllowed(Caller caller, Access access);
}
