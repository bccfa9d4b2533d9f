package io.aliquot.deviceplugin.nvml;

/**
 * NVML cannot be opened, or one of its calls failed. The message names the call and the reason and, where known, what
 * to do.
 */
public final class NvmlException extends Exception {
    private static final long serialVersionUID = 1L;

    /** What a caller does about it. */
    enum Kind {
        /** The library cannot be loaded; it may come with a restart of the container. */
        NO_LIBRARY,
        /** The kernel's part of the driver is not loaded. */
        DRIVER_NOT_LOADED,
        OTHER
    }

    private final Kind kind;

    NvmlException(String message) {
        this(Kind.OTHER, message);
    }

    NvmlException(Kind kind, String message) {
        super(message);
        this.kind = kind;
    }

    Kind kind() {
        return kind;
    }
}
