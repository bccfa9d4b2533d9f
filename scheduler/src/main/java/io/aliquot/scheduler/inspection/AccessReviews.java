package io.aliquot.scheduler.inspection;

import java.util.List;
import java.util.Map;
import java.util.Optional;

/** What only the API server knows of those who ask. Calls return within seconds. */
public interface AccessReviews {
    /** Somebody the API server knows. */
    record Caller(String user, String uid, List<String> groups, Map<String, List<String>> extra) {
        public Caller {
            groups = List.copyOf(groups);
            extra = Map.copyOf(extra);
        }
    }

    /**
     * What somebody wants to do, in the words of the cluster's own rules.
     *
     * @param namespace empty: in all
     * @param name empty: to any
     */
    record Deed(String verb, String resource, String namespace, String name) {
        /** For a sentence. */
        @Override
        public String toString() {
            return verb + " " + resource + (name.isEmpty() ? "" : " " + name)
                    + (namespace.isEmpty() ? "" : " in namespace " + namespace);
        }
    }

    /** Whose token this is; empty where it is nobody's, or no longer. */
    Optional<Caller> whose(String token) throws UnansweredException;

    boolean allowed(Caller caller, Deed deed) throws UnansweredException;
}
