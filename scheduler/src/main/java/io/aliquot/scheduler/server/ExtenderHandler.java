package io.aliquot.scheduler.server;

import java.io.InputStream;

/** Answers the requests to the extender's port. */
public interface ExtenderHandler {
    /**
     * Reads the body of a request and returns the answer. Called from many threads at once.
     *
     * @param path one of {@link PortPolicy#EXTENDER}
     * @return JSON
     * @throws tools.jackson.core.JacksonException if the body is not what the path expects
     * @throws org.springframework.web.server.ResponseStatusException for another status, with a message
     */
    byte[] answer(String path, InputStream body);
}
