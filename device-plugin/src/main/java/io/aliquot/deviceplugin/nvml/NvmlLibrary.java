package io.aliquot.deviceplugin.nvml;

import com.sun.jna.Native;
import com.sun.jna.NativeLibrary;
import com.sun.jna.ptr.IntByReference;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.stream.Stream;

/**
 * The binding of NVML's functions, which are looked up by name, because newer drivers add some and virtual machines lack
 * some; and its return codes as messages.
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

    /** Enough for each text: NVML_DEVICE_UUID_V2_BUFFER_SIZE, NVML_DEVICE_NAME_V2_BUFFER_SIZE. */
    private static final int TEXT_LENGTH = 96;

    /**
     * Where drivers put the library, below their root: the folders in which NVIDIA's DRA driver looks
     * (cmd/gpu-kubelet-plugin/root.go), and those to which Debian's packages link by way of /etc, which is not mounted. Folders
     * that may have libraries of 32 bits come last.
     */
    private static final List<String> FOLDERS = List.of(
            "usr/lib64",
            "usr/lib/x86_64-linux-gnu",
            "usr/lib/x86_64-linux-gnu/nvidia/current",
            "usr/lib/aarch64-linux-gnu",
            "usr/lib/aarch64-linux-gnu/nvidia/current",
            "lib64",
            "usr/lib",
            "lib");

    private final NativeLibrary library;

    private NvmlLibrary(NativeLibrary library) {
        this.library = library;
    }

    /** NVML of the driver that is installed below a folder. It needs no other library of the driver. */
    static Path find(Path driverRoot) throws NvmlException {
        return FOLDERS.stream()
                .map(folder -> driverRoot.resolve(folder).resolve(Nvml.LIBRARY))
                .filter(Files::isRegularFile)
                .findFirst()
                .orElseThrow(() -> new NvmlException(
                        NvmlException.Kind.NO_LIBRARY,
                        "the driver root, the chart value devicePlugin.driverRoot, has no " + Nvml.LIBRARY
                                + " in any of "
                                + String.join(", ", FOLDERS)
                                + ": install NVIDIA's driver on this node, and set the value"
                                + " to / for a driver of the host or to /run/nvidia/driver for the GPU Operator's driver"
                                + " container; a node without GPUs should not have the label of Aliquot's nodes (chart"
                                + " value nodeLabel, gpu=on by default)"));
    }

    /**
     * Loads and initializes NVML.
     *
     * @param name the library's name or path
     */
    static NvmlLibrary open(String name) throws NvmlException {
        NvmlLibrary opened;
        try {
            // JNA shares an instance between equal names and options, and closing it would unload it for the other,
            // too.
            opened = new NvmlLibrary(NativeLibrary.getInstance(name, Map.of("instance", new Object())));
            opened.library.getFunction("nvmlInit_v2");
        } catch (UnsatisfiedLinkError e) {
            String reason = String.valueOf(e.getMessage()).lines().findFirst().orElse("");
            throw new NvmlException(
                    NvmlException.Kind.NO_LIBRARY,
                    "cannot open " + name + " (" + reason + "): on a GPU node install NVIDIA's driver and"
                            + " container toolkit and give this pod NVIDIA's runtime (chart value runtimeClass.name"
                            + " where it is not the default), or without that runtime the driver's folder (chart value"
                            + " devicePlugin.driverRoot); a node without GPUs should not have the label of Aliquot's"
                            + " nodes (chart value nodeLabel, gpu=on by default)");
        }
        try {
            opened.must("nvmlInit_v2");
        } catch (NvmlException e) {
            opened.close();
            throw e;
        }
        return opened;
    }

    /** Unloads the library, after {@code nvmlShutdown}. */
    void close() {
        library.close();
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

    /** Calls a function that has to succeed. */
    void must(String name, Object... arguments) throws NvmlException {
        check(name, call(name, arguments));
    }

    /** The text that a function writes into the buffer whose address and length are its last arguments. */
    String text(String name, Object... arguments) throws NvmlException {
        var buffer = new byte[TEXT_LENGTH];
        must(name, with(arguments, buffer, TEXT_LENGTH));
        return Native.toString(buffer);
    }

    /** The number that a function writes to the address that is its last argument. */
    int number(String name, Object... arguments) throws NvmlException {
        var number = new IntByReference();
        must(name, with(arguments, number));
        return number.getValue();
    }

    /** The same; empty if the function fails. */
    OptionalInt numberIfKnown(String name, Object... arguments) {
        var number = new IntByReference();
        return call(name, with(arguments, number)) == SUCCESS ? OptionalInt.of(number.getValue()) : OptionalInt.empty();
    }

    private static Object[] with(Object[] arguments, Object... more) {
        return Stream.concat(Arrays.stream(arguments), Arrays.stream(more)).toArray();
    }

    void check(String call, int code) throws NvmlException {
        if (code != SUCCESS) {
            throw failure(call, code);
        }
    }

    NvmlException failure(String call, int code) {
        String advice = switch (code) {
            case NO_PERMISSION ->
                ": this pod may not use the GPUs; it must run as root, with NVIDIA's runtime or the"
                        + " chart value devicePlugin.driverRoot";
            case DRIVER_NOT_LOADED ->
                ": NVIDIA's kernel driver is not loaded on this node; install it or run modprobe nvidia";
            case LIBRARY_VERSION_MISMATCH ->
                ": the library's version is not that of the loaded driver; after a driver upgrade this pod restarts"
                        + " by itself, else reload the driver or reboot the node";
            default -> "";
        };
        String error = library.getFunction("nvmlErrorString").invokeString(new Object[] {code}, false);
        return new NvmlException(
                code == DRIVER_NOT_LOADED ? NvmlException.Kind.DRIVER_NOT_LOADED : NvmlException.Kind.OTHER,
                call + " returned " + code + ", " + error + advice);
    }
}
