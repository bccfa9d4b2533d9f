package io.aliquot.deviceplugin.nvml;

import static io.aliquot.deviceplugin.nvml.NvmlLibrary.SUCCESS;

import com.sun.jna.Memory;
import com.sun.jna.Pointer;
import com.sun.jna.ptr.IntByReference;
import io.aliquot.deviceplugin.nvml.NodeFeatures.Mig;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;

/**
 * Reads {@link NodeFeatures}. They do not change while NVML lists the same GPUs in the same MIG modes, and are read once. Not
 * thread-safe.
 */
final class FeatureReader {
    private static final int MEMORY_SIZE = 24; // nvmlMemory_t: total, free, used
    private static final long BYTES_PER_MIB = 1L << 20;
    private static final int VIRTUALIZATION_MODE_VGPU = 2; // NVML_GPU_VIRTUALIZATION_MODE_VGPU

    private final NvmlLibrary library;
    private final GpuTopology topology;
    private final Path sys;
    private Map<String, Mig> known = Map.of();
    private NodeFeatures features = NodeFeatures.UNKNOWN;

    FeatureReader(NvmlLibrary library, GpuTopology topology, Path sys) {
        this.library = library;
        this.topology = topology;
        this.sys = sys;
    }

    /**
     * Reads the features.
     *
     * @param handles of all GPUs that NVML lists, by UUID, in the order of their indexes
     * @throws NvmlException if NVML does not describe a GPU
     */
    NodeFeatures read(String driver, Map<String, Pointer> handles) throws NvmlException {
        Map<String, Mig> modes = new LinkedHashMap<>();
        handles.forEach((uuid, handle) -> modes.put(uuid, mig(handle)));
        if (!modes.equals(known)) {
            List<NodeFeatures.Gpu> gpus = new ArrayList<>();
            for (Map.Entry<String, Mig> gpu : modes.entrySet()) {
                gpus.add(gpu(Optional.ofNullable(handles.get(gpu.getKey())).orElseThrow(), gpu.getValue()));
            }
            features = new NodeFeatures(
                    driver,
                    library.number("nvmlSystemGetCudaDriverVersion"),
                    firstLine(sys.resolve("class/dmi/id/product_name")),
                    gpus);
            known = modes;
        }
        return features;
    }

    private NodeFeatures.Gpu gpu(Pointer handle, Mig mig) throws NvmlException {
        var major = new IntByReference();
        var minor = new IntByReference();
        library.must("nvmlDeviceGetCudaComputeCapability", handle, major, minor);
        OptionalInt virtualization = library.numberIfKnown("nvmlDeviceGetVirtualizationMode", handle);
        String busId = topology.busId(handle);
        return new NodeFeatures.Gpu(
                library.text("nvmlDeviceGetName", handle),
                totalMemory(handle) / BYTES_PER_MIB,
                major.getValue(),
                minor.getValue(),
                mig,
                busId.isEmpty() ? "" : firstLine(sys.resolve("bus/pci/devices/" + busId + "/class")),
                virtualization.equals(OptionalInt.of(VIRTUALIZATION_MODE_VGPU)));
    }

    private Mig mig(Pointer handle) {
        var current = new IntByReference();
        if (library.call("nvmlDeviceGetMigMode", handle, current, new IntByReference()) != SUCCESS) {
            return Mig.NOT_CAPABLE;
        }
        return current.getValue() == 0 ? Mig.OFF : Mig.ON;
    }

    private long totalMemory(Pointer handle) throws NvmlException {
        try (var memory = new Memory(MEMORY_SIZE)) {
            library.must("nvmlDeviceGetMemoryInfo", handle, memory);
            return memory.getLong(0);
        }
    }

    private static String firstLine(Path file) {
        try {
            return Files.readString(file).strip();
        } catch (IOException e) {
            return "";
        }
    }
}
