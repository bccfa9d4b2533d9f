package io.aliquot.scheduler.extensionapi.machinery;

import org.springframework.http.InvalidMediaTypeException;
import org.springframework.http.MediaType;

/** The form in which a client wants objects: as they are, or as rows of a table. */
enum Format {
    OBJECTS,
    TABLE;

    /**
     * Reads the header {@code Accept}; of several forms the first one counts, as in the API server.
     *
     * @throws StatusException with code 406 if the client accepts none of them
     */
    static Format accepted(String header) {
        try {
            for (MediaType accepted : MediaType.parseMediaTypes(header.isBlank() ? "*/*" : header)) {
                String as = accepted.getParameter("as");
                if (!accepted.includes(MediaType.APPLICATION_JSON)) {
                    continue;
                }
                if (as == null) {
                    return OBJECTS;
                }
                if (as.equals("Table")
                        && "meta.k8s.io".equals(accepted.getParameter("g"))
                        && "v1".equals(accepted.getParameter("v"))) {
                    return TABLE;
                }
            }
        } catch (InvalidMediaTypeException e) {
            // as one that the server does not have
        }
        throw StatusException.notAcceptable();
    }
}
