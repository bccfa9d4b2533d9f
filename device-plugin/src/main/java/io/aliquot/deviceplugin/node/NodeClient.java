package io.aliquot.deviceplugin.node;

import java.util.Map;
import java.util.Optional;

/** Our own Node in the API server. */
public interface NodeClient extends AutoCloseable {
    /** The Node as last seen; empty before the first look. Never waits. */
    Optional<NodeView> latest();

    /**
     * Writes an annotation.
     *
     * @throws NodeWriteException if the API server didn't take it
     */
    void annotate(String key, String value) throws NodeWriteException;

    /**
     * Writes resources into the status, capacity and allocatable alike; others stay as they are.
     *
     * @throws NodeWriteException if the API server didn't take it
     */
    void putResources(Map<String, Long> resources) throws NodeWriteException;

    @Override
    void close();
}
