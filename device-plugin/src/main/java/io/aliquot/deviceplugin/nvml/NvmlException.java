package io.aliquot.deviceplugin.nvml;

/** NVML can't be opened, or a call of it failed; the message says which, why, and what to do where that is known. */
public final class NvmlException extends Exception {
    private static final long serialVersionUID = 1L;

    private final int code;

    NvmlException(String message, int code) {
        super(message);
        this.code = code;
    }

    /** NVML's return code; -1 when no call was made. */
    int code() {
        return code;
    }
}
