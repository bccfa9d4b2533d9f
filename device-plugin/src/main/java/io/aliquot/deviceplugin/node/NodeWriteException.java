package io.aliquot.deviceplugin.node;

/** The API server did not accept a PATCH of the Node; the message says why. */
public final class NodeWriteException extends Exception {
    private static final long serialVersionUID = 1L;

    public NodeWriteException(String message, Throwable cause) {
        super(message, cause);
    }
}
