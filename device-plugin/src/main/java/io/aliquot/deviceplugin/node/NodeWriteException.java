package io.aliquot.deviceplugin.node;

/** A PATCH of the Node that the API server did not take; the message is a sentence. */
public final class NodeWriteException extends Exception {
    private static final long serialVersionUID = 1L;

    public NodeWriteException(String message, Throwable cause) {
        super(message, cause);
    }
}
