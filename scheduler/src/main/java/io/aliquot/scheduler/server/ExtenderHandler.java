package io.aliquot.scheduler.server;

import java.io.InputStream;

/** What the extender's port answers. */
public interface ExtenderHandler {
    /**
     * Reads a request's body and answers it; from many threads at once.
     *
     * @param path one of {@link PortPolicy#EXTENDER}
     * @return JSON
     * @throws tools.jackson.core.JacksonException where the body is not what the path expects
     * @throws org.springframework.web.server.ResponseStatusException for another status, in words
     */
    byte[] answer(String path, InputStream body);
}
