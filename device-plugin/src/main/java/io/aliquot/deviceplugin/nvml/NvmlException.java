package io.aliquot.deviceplugin.nvml;

/**
 * NVML cannot be opened, or one of its calls failed. The message names the call and the reason and, where known, what
 * to do.
 */
public final class NvmlException extends Exception {
    private static final long serialVersionUID = 1L;

    NvmlException(String message) {
        super(message);
    }
}
