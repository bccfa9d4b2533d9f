package io.aliquot.deviceplugin.nvml;

import com.sun.jna.Native;
import com.sun.jna.NativeLibrary;
import com.sun.jna.Pointer;
import com.sun.jna.ptr.IntByReference;
import com.sun.jna.ptr.PointerByReference;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * The binding of NVML's functions, and its return codes as messages. Functions that every driver has are bound
 * directly; functions that newer drivers add or virtual machines lack are looked up by name and may be absent.
 *
 * <p>At most one is open in a process, because JNA binds the functions to the class {@link Calls}.
 */
final class NvmlLibrary {
    // nvmlReturn_t in nvml.h
    static final int SUCCESS = 0;
    static final int INVALID_ARGUMENT = 2;
    static final int NOT_SUPPORTED = 3;
    static final int NOT_FOUND = 6;
    static final int INSUFFICIENT_SIZE = 7;
    static final int TIMEOUT = 10;
    static final int FUNCTION_NOT_FOUND = 13;
    static final int GPU_IS_LOST = 15;
    static final int RESET_REQUIRED = 16;

    private static final int NO_PERMISSION = 4;
    private static final int DRIVER_NOT_LOADED = 9;
    private static final int LIBRARY_VERSION_MISMATCH = 18;

    /** JNA binds the functions to a class, and so to the process: a second one would call functions that are unloaded. */
    private static final AtomicBoolean OPEN = new AtomicBoolean();

    private final NativeLibrary library;

    private NvmlLibrary(NativeLibrary library) {
        this.library = library;
    }

    /**
     * Loads and initializes NVML.
     *
     * @param name the library's name or path
     */
    static NvmlLibrary open(String name) throws NvmlException {
        if (!OPEN.compareAndSet(false, true)) {
            throw new NvmlException("NVML is still open in this process");
        }
        boolean opened = false;
        try {
            NvmlLibrary library = load(name);
            opened = true;
            return library;
        } finally {
            OPEN.set(opened);
        }
    }

    private static NvmlLibrary load(String name) throws NvmlException {
        NativeLibrary library;
        try {
            library = NativeLibrary.getInstance(name);
            Native.register(Calls.class, library);
        } catch (UnsatisfiedLinkError e) {
            String reason = String.valueOf(e.getMessage()).lines().findFirst().orElse("");
            throw new NvmlException(
                    NvmlException.Kind.NO_LIBRARY,
                    "cannot open " + name + " (" + reason + "): on a GPU node install NVIDIA's driver and"
                            + " container toolkit and give this pod NVIDIA's runtime (chart value runtimeClass.name"
                            + " where it is not the default); a node without GPUs should not have the label of Aliquot's"
                            + " nodes (chart value nodeLabel, gpu=on by default)");
        }
        int code = Calls.nvmlInit_v2();
        if (code != SUCCESS) {
            NvmlException failure = failure("nvmlInit_v2", code);
            Native.unregister(Calls.class);
            library.close();
            throw failure;
        }
        return new NvmlLibrary(library);
    }

    /** Unloads the library, after {@code nvmlShutdown}. */
    void close() {
        Native.unregister(Calls.class);
        library.close();
        OPEN.set(false);
    }

    /** Calls a function by name; returns {@link #FUNCTION_NOT_FOUND} if this driver lacks it. */
    int call(String name, Object... arguments) {
        try {
            return library.getFunction(name).invokeInt(arguments);
        } catch (UnsatisfiedLinkError e) {
            return FUNCTION_NOT_FOUND; // an older driver
        }
    }

    /** Calls the first of these functions that this driver has. */
    int callNewest(List<String> names, Object... arguments) {
        return names.stream()
                .map(name -> call(name, arguments))
                .filter(code -> code != FUNCTION_NOT_FOUND)
                .findFirst()
                .orElse(FUNCTION_NOT_FOUND);
    }

    static void check(String call, int code) throws NvmlException {
        if (code != SUCCESS) {
            throw failure(call, code);
        }
    }

    static NvmlException failure(String call, int code) {
        String advice = switch (code) {
            case NO_PERMISSION -> ": this pod may not use the GPUs; it must run as root with NVIDIA's runtime";
            case DRIVER_NOT_LOADED ->
                ": NVIDIA's kernel driver is not loaded on this node; install it or run modprobe nvidia";
            case LIBRARY_VERSION_MISMATCH ->
                ": the library's version is not that of the loaded driver; after a driver upgrade this pod restarts"
                        + " by itself, else reload the driver or reboot the node";
            default -> "";
        };
        return new NvmlException(
                code == DRIVER_NOT_LOADED ? NvmlException.Kind.DRIVER_NOT_LOADED : NvmlException.Kind.OTHER,
                call + " returned " + code + ", " + Calls.nvmlErrorString(code) + advice);
    }

    /** Functions that every driver of the last ten years has. */
    static final class Calls {
        private Calls() {}

        static native int nvmlInit_v2();

        static native int nvmlShutdown();

        static native int nvmlSystemGetDriverVersion(byte[] text, int length);

        static native String nvmlErrorString(int code);

        static native int nvmlDeviceGetCount_v2(IntByReference count);

        static native int nvmlDeviceGetHandleByIndex_v2(int index, PointerByReference device);

        static native int nvmlDeviceGetUUID(Pointer device, byte[] text, int length);

        static native int nvmlDeviceGetName(Pointer device, byte[] text, int length);

        static native int nvmlDeviceGetMemoryInfo(Pointer device, Pointer memory);
    }
}
