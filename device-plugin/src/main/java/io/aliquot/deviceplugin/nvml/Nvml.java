package io.aliquot.deviceplugin.nvml;

import com.sun.jna.Function;
import com.sun.jna.Memory;
import com.sun.jna.Native;
import com.sun.jna.NativeLibrary;
import com.sun.jna.Pointer;
import com.sun.jna.ptr.IntByReference;
import com.sun.jna.ptr.PointerByReference;
import io.aliquot.api.Link;
import java.io.IOException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/**
 * NVIDIA's management library, opened. What every driver has is bound directly; what came later or is missing in virtual
 * machines is looked up by name and may be absent. Constants, structures and meanings: nvml.h and the NVML API reference
 * (docs.nvidia.com/deploy/nvml-api).
 *
 * <p>Thread-safe, as NVML is; {@link #close} only when no other call is under way.
 */
public final class Nvml implements AutoCloseable {
    private static final Logger LOG = System.getLogger(Nvml.class.getName());

    private static final int SUCCESS = 0;
    private static final int NOT_SUPPORTED = 3;
    private static final int NO_PERMISSION = 4;
    private static final int DRIVER_NOT_LOADED = 9;
    private static final int TIMEOUT = 10;
    private static final int FUNCTION_NOT_FOUND = 13;
    private static final int GPU_IS_LOST = 15;
    private static final int RESET_REQUIRED = 16;
    private static final int LIBRARY_VERSION_MISMATCH = 18;

    private static final int UUID_LENGTH = 96;
    private static final int NAME_LENGTH = 96;
    private static final long MIB = 1L << 20;

    private static final int MEMORY_V1_SIZE = 24; // total, free, used
    private static final int MEMORY_V2_SIZE = 40; // version, total, reserved, free, used
    private static final int MEMORY_V2 = MEMORY_V2_SIZE | 2 << 24;
    private static final int PCI_SIZE = 68;
    private static final int PCI_BUS_ID_AT = 36;
    private static final int PCI_BUS_ID_LENGTH = 32;
    private static final int EVENT_SIZE = 32; // device, type, data, GPU instance, compute instance
    private static final long EVENT_XID = 8;
    private static final int NVLINKS = 18;
    private static final String NVIDIA = "0x10de";
    private static final int NUMA_WORDS = 16; // 1024 domains
    private static final int AFFINITY_SCOPE_NODE = 0;
    private static final int NVLINK_TO_GPU = 0;
    private static final int NVLINK_TO_SWITCH = 2;

    private final NativeLibrary library;
    private final Path pciDevices;
    /** What doesn't change about a GPU, by UUID: asked once. */
    private final Map<String, Fixed> known = new HashMap<>();

    /** GPUs that have never told enough to be used, so that the log says it once. */
    private final Set<String> unknown = new HashSet<>();

    private Optional<Pointer> events = Optional.empty();

    private Nvml(NativeLibrary library, Path pciDevices) {
        this.library = library;
        this.pciDevices = pciDevices;
    }

    /**
     * Opens and initialises the library. One at a time in a process: the functions are bound to a class.
     *
     * @param name the library's name or path
     * @param sys where the kernel's sysfs is mounted
     */
    public static Nvml open(String name, Path sys) throws NvmlException {
        NativeLibrary library;
        try {
            library = NativeLibrary.getInstance(name);
            Native.register(Calls.class, library);
        } catch (UnsatisfiedLinkError e) {
            String reason = String.valueOf(e.getMessage()).lines().findFirst().orElse("");
            throw new NvmlException(
                    "cannot open " + name + " (" + reason + "): on a GPU node install NVIDIA's driver and container"
                            + " toolkit and give this pod NVIDIA's runtime (chart value runtimeClass.name where it is"
                            + " not the default); a node without GPUs should not have the label gpu=on",
                    -1);
        }
        var nvml = new Nvml(library, sys.resolve("bus/pci/devices"));
        try {
            nvml.check("nvmlInit_v2", Calls.nvmlInit_v2());
        } catch (NvmlException e) {
            Native.unregister(Calls.class);
            library.close();
            throw e;
        }
        return nvml;
    }

    /**
     * The GPUs that answer. One that is so lost that it doesn't even tell its UUID is left out; the caller remembers
     * whom it has seen.
     *
     * @throws NvmlException if NVML as a whole fails
     */
    public synchronized List<PhysicalGpu> gpus() throws NvmlException {
        var count = new IntByReference();
        check("nvmlDeviceGetCount_v2", Calls.nvmlDeviceGetCount_v2(count));
        Map<String, Device> devices = new LinkedHashMap<>();
        for (int index = 0; index < count.getValue(); index++) {
            try {
                var handle = new PointerByReference();
                check("nvmlDeviceGetHandleByIndex_v2", Calls.nvmlDeviceGetHandleByIndex_v2(index, handle));
                devices.put(uuid(handle.getValue()), new Device(index, handle.getValue()));
            } catch (NvmlException e) {
                LOG.log(Level.DEBUG, "GPU {0} does not answer: {1}", index, e.getMessage());
            }
        }
        if (!known.keySet().containsAll(devices.keySet())) {
            learn(devices);
        }
        var gpus = new ArrayList<PhysicalGpu>();
        devices.forEach((uuid, device) -> {
            Fixed fixed = known.get(uuid);
            if (fixed != null) {
                gpus.add(new PhysicalGpu(
                        uuid,
                        device.index,
                        fixed.model,
                        fixed.memoryMiB,
                        fixed.numa,
                        trouble(device.handle),
                        fixed.links));
            }
        });
        return gpus;
    }

    /**
     * Waits for the next critical XID error of these GPUs.
     *
     * @return empty when none came in time, or where the driver tells of none (then it has waited all the same)
     */
    Optional<Xid> nextXid(Duration wait) throws NvmlException, InterruptedException {
        Optional<Pointer> set = eventSet();
        Optional<Function> function = function("nvmlEventSetWait_v2");
        if (set.isEmpty() || function.isEmpty()) {
            Thread.sleep(wait.toMillis());
            return Optional.empty();
        }
        try (var event = new Memory(EVENT_SIZE)) {
            event.clear();
            int code = function.get().invokeInt(new Object[] {set.get(), event, (int) wait.toMillis()});
            if (code == TIMEOUT) {
                return Optional.empty();
            }
            check("nvmlEventSetWait_v2", code);
            if (event.getLong(8) != EVENT_XID) {
                return Optional.empty();
            }
            Pointer device = event.getPointer(0);
            // A GPU that fell off the bus may not tell its name any more: then it could be any of them.
            return Optional.of(new Xid(event.getLong(16), device == null ? "" : uuidOrEmpty(device)));
        }
    }

    /**
     * A critical error that the driver reported.
     *
     * @param number NVIDIA's
     * @param uuid the GPU's; empty where unknown
     */
    record Xid(long number, String uuid) {}

    @Override
    public synchronized void close() {
        events.ifPresent(set -> function("nvmlEventSetFree").ifPresent(free -> {
            int code = free.invokeInt(new Object[] {set});
            if (code != SUCCESS) {
                LOG.log(Level.WARNING, failure("nvmlEventSetFree", code).getMessage());
            }
        }));
        events = Optional.empty();
        int code = Calls.nvmlShutdown();
        if (code != SUCCESS) {
            LOG.log(Level.WARNING, failure("nvmlShutdown", code).getMessage());
        }
        Native.unregister(Calls.class);
        library.close();
    }

    private synchronized Optional<Pointer> eventSet() throws NvmlException {
        Optional<Function> create = function("nvmlEventSetCreate");
        Optional<Function> register = function("nvmlDeviceRegisterEvents");
        if (events.isPresent() || create.isEmpty() || register.isEmpty()) {
            return events;
        }
        var set = new PointerByReference();
        check("nvmlEventSetCreate", create.get().invokeInt(new Object[] {set}));
        var count = new IntByReference();
        check("nvmlDeviceGetCount_v2", Calls.nvmlDeviceGetCount_v2(count));
        for (int index = 0; index < count.getValue(); index++) {
            var handle = new PointerByReference();
            int code = Calls.nvmlDeviceGetHandleByIndex_v2(index, handle);
            if (code == SUCCESS) {
                code = register.get().invokeInt(new Object[] {handle.getValue(), EVENT_XID, set.getValue()});
            }
            if (code != SUCCESS) {
                LOG.log(
                        code == NOT_SUPPORTED ? Level.INFO : Level.WARNING,
                        "GPU {0} will not report XID errors: {1}",
                        index,
                        failure("nvmlDeviceRegisterEvents", code).getMessage());
            }
        }
        events = Optional.of(set.getValue());
        return events;
    }

    private void learn(Map<String, Device> devices) throws NvmlException {
        Map<String, String> busIds = new HashMap<>();
        devices.forEach((uuid, device) -> busIds.put(uuid, busId(device.handle)));
        for (var entry : devices.entrySet()) {
            String uuid = entry.getKey();
            Pointer handle = entry.getValue().handle;
            var name = new byte[NAME_LENGTH];
            check("nvmlDeviceGetName", Calls.nvmlDeviceGetName(handle, name, NAME_LENGTH));
            try {
                int memoryMiB = Math.toIntExact(totalMemory(handle) / MIB);
                int numa = numa(handle, busIds.getOrDefault(uuid, ""));
                known.put(
                        uuid, new Fixed(Native.toString(name), memoryMiB, numa, links(uuid, handle, devices, busIds)));
                unknown.remove(uuid);
            } catch (NvmlException e) {
                if (unknown.add(uuid)) {
                    LOG.log(Level.WARNING, "GPU {0} does not tell its memory: {1}", uuid, e.getMessage());
                }
            }
        }
    }

    private String trouble(Pointer handle) {
        var mig = new IntByReference();
        var later = new IntByReference();
        Optional<Function> mode = function("nvmlDeviceGetMigMode");
        if (mode.isPresent()
                && mode.get().invokeInt(new Object[] {handle, mig, later}) == SUCCESS
                && mig.getValue() == 1) {
            return "it is in MIG mode, which is not supported yet; turn it off with nvidia-smi -mig 0";
        }
        try (var memory = new Memory(MEMORY_V1_SIZE)) {
            return switch (Calls.nvmlDeviceGetMemoryInfo(handle, memory)) {
                case SUCCESS -> "";
                case GPU_IS_LOST -> "it has fallen off the bus or is otherwise inaccessible (NVML: GPU is lost)";
                case RESET_REQUIRED -> "it must be reset before it can be used again (NVML: reset required)";
                default -> "NVML cannot tell its memory";
            };
        }
    }

    private String uuid(Pointer handle) throws NvmlException {
        var text = new byte[UUID_LENGTH];
        check("nvmlDeviceGetUUID", Calls.nvmlDeviceGetUUID(handle, text, UUID_LENGTH));
        return Native.toString(text);
    }

    private String uuidOrEmpty(Pointer handle) {
        try {
            return uuid(handle);
        } catch (NvmlException e) {
            LOG.log(Level.WARNING, "A GPU with an XID error does not tell its name: {0}", e.getMessage());
            return "";
        }
    }

    /** In bytes; by the second version of the structure where there is one, whose total is nvidia-smi's. */
    private long totalMemory(Pointer handle) throws NvmlException {
        Optional<Function> second = function("nvmlDeviceGetMemoryInfo_v2");
        try (var memory = new Memory(MEMORY_V2_SIZE)) {
            memory.clear();
            if (second.isPresent()) {
                memory.setInt(0, MEMORY_V2);
                int code = second.get().invokeInt(new Object[] {handle, memory});
                if (code != NOT_SUPPORTED && code != FUNCTION_NOT_FOUND) {
                    check("nvmlDeviceGetMemoryInfo_v2", code);
                    return memory.getLong(8);
                }
            }
            check("nvmlDeviceGetMemoryInfo", Calls.nvmlDeviceGetMemoryInfo(handle, memory));
            return memory.getLong(0);
        }
    }

    /** As the kernel writes it, {@code 0000:3b:00.0}; empty where NVML doesn't tell. */
    private String busId(Pointer handle) {
        Optional<Function> function = function("nvmlDeviceGetPciInfo_v3");
        if (function.isEmpty()) {
            return "";
        }
        try (var pci = new Memory(PCI_SIZE)) {
            pci.clear();
            return function.get().invokeInt(new Object[] {handle, pci}) == SUCCESS ? kernelsBusId(pci) : "";
        }
    }

    private static String kernelsBusId(Memory pci) {
        String id = new String(pci.getByteArray(PCI_BUS_ID_AT, PCI_BUS_ID_LENGTH), StandardCharsets.US_ASCII);
        int end = id.indexOf('\0');
        String text = (end < 0 ? id : id.substring(0, end)).toLowerCase(Locale.ROOT);
        // NVML's domain has eight digits, the kernel's four.
        return text.matches("[0-9a-f]{8}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-9a-f]") ? text.substring(4) : "";
    }

    /**
     * The NUMA domain that a GPU hangs on: the kernel's word, else NVML's. (Not nvmlDeviceGetNumaNodeId, which tells of
     * the GPU's own memory where that is a domain of its own.)
     */
    private int numa(Pointer handle, String busId) {
        int domain = kernelsNuma(busId);
        return domain >= 0 ? domain : nvmlsNuma(handle);
    }

    private int kernelsNuma(String busId) {
        Path device = pciDevices.resolve(busId);
        try {
            // A virtual GPU may have the address that something else has here.
            if (busId.isEmpty()
                    || !Files.readString(device.resolve("vendor")).strip().equals(NVIDIA)) {
                return -1;
            }
            return Math.max(
                    -1,
                    Integer.parseInt(
                            Files.readString(device.resolve("numa_node")).strip()));
        } catch (IOException | NumberFormatException e) {
            return -1; // a kernel without NUMA, or a GPU without a PCI device
        }
    }

    private int nvmlsNuma(Pointer handle) {
        Optional<Function> affinity = function("nvmlDeviceGetMemoryAffinity");
        if (affinity.isEmpty()) {
            return -1;
        }
        try (var nodes = new Memory((long) NUMA_WORDS * Long.BYTES)) {
            nodes.clear();
            if (affinity.get().invokeInt(new Object[] {handle, NUMA_WORDS, nodes, AFFINITY_SCOPE_NODE}) != SUCCESS) {
                return -1;
            }
            var set = BitSet.valueOf(nodes.getLongArray(0, NUMA_WORDS));
            return set.cardinality() == 1 ? set.nextSetBit(0) : -1;
        }
    }

    private Map<String, Link> links(
            String uuid, Pointer handle, Map<String, Device> devices, Map<String, String> busIds) {
        Map<String, Link> links = new HashMap<>();
        NvLinks own = nvLinks(handle);
        devices.forEach((other, device) -> {
            if (!other.equals(uuid)) {
                int lanes = own.lanesTo.getOrDefault(busIds.getOrDefault(other, "none"), 0);
                if (lanes == 0 && own.toSwitch > 0) {
                    // Through a switch every GPU of it reaches every other with all its lanes.
                    lanes = Math.min(own.toSwitch, nvLinks(device.handle).toSwitch);
                }
                Optional<Link> link =
                        lanes > 0 ? Optional.of(new Link(Link.Kind.NVLINK, lanes)) : pciLink(handle, device.handle);
                link.ifPresent(found -> links.put(other, found));
            }
        });
        return links;
    }

    private NvLinks nvLinks(Pointer handle) {
        Map<String, Integer> lanesTo = new HashMap<>();
        int toSwitch = 0;
        Optional<Function> state = function("nvmlDeviceGetNvLinkState");
        Optional<Function> remote = function("nvmlDeviceGetNvLinkRemotePciInfo_v2");
        Optional<Function> remoteType = function("nvmlDeviceGetNvLinkRemoteDeviceType");
        if (state.isPresent() && remote.isPresent()) {
            try (var pci = new Memory(PCI_SIZE)) {
                for (int link = 0; link < NVLINKS; link++) {
                    var active = new IntByReference();
                    if (state.get().invokeInt(new Object[] {handle, link, active}) != SUCCESS
                            || active.getValue() == 0) {
                        continue;
                    }
                    var type = new IntByReference(NVLINK_TO_GPU);
                    if (remoteType.isPresent()
                            && remoteType.get().invokeInt(new Object[] {handle, link, type}) == SUCCESS
                            && type.getValue() == NVLINK_TO_SWITCH) {
                        toSwitch++;
                        continue;
                    }
                    pci.clear();
                    if (remote.get().invokeInt(new Object[] {handle, link, pci}) == SUCCESS) {
                        lanesTo.merge(kernelsBusId(pci), 1, Integer::sum);
                    }
                }
            }
        }
        return new NvLinks(lanesTo, toSwitch);
    }

    private Optional<Link> pciLink(Pointer one, Pointer other) {
        Optional<Function> ancestor = function("nvmlDeviceGetTopologyCommonAncestor");
        var level = new IntByReference();
        if (ancestor.isEmpty() || ancestor.get().invokeInt(new Object[] {one, other, level}) != SUCCESS) {
            return Optional.empty();
        }
        // nvmlGpuTopologyLevel_t
        return switch (level.getValue()) {
            case 0, 10 -> Optional.of(new Link(Link.Kind.PIX, 0)); // one board, or one bridge
            case 20 -> Optional.of(new Link(Link.Kind.PXB, 0));
            case 30 -> Optional.of(new Link(Link.Kind.PHB, 0));
            case 40 -> Optional.of(new Link(Link.Kind.NODE, 0));
            case 50 -> Optional.of(new Link(Link.Kind.SYS, 0));
            default -> Optional.empty();
        };
    }

    private Optional<Function> function(String name) {
        try {
            return Optional.of(library.getFunction(name));
        } catch (UnsatisfiedLinkError e) {
            return Optional.empty(); // an older driver
        }
    }

    private void check(String call, int code) throws NvmlException {
        if (code != SUCCESS) {
            throw failure(call, code);
        }
    }

    private static NvmlException failure(String call, int code) {
        String advice = switch (code) {
            case NO_PERMISSION -> ": this pod may not use the GPUs; it must run as root with NVIDIA's runtime";
            case DRIVER_NOT_LOADED ->
                ": NVIDIA's kernel driver is not loaded on this node; install it or run modprobe nvidia";
            case LIBRARY_VERSION_MISMATCH ->
                ": the node's driver was updated while an older one was loaded; reboot the node";
            default -> "";
        };
        return new NvmlException(call + " answers " + code + ", " + Calls.nvmlErrorString(code) + advice, code);
    }

    private record Device(int index, Pointer handle) {}

    private record Fixed(String model, int memoryMiB, int numa, Map<String, Link> links) {}

    /** Active NVLinks of a GPU: lanes by the bus id at their other end, and those that end at a switch. */
    private record NvLinks(Map<String, Integer> lanesTo, int toSwitch) {}

    /** What every driver of the last ten years has. */
    private static final class Calls {
        static native int nvmlInit_v2();

        static native int nvmlShutdown();

        static native String nvmlErrorString(int code);

        static native int nvmlDeviceGetCount_v2(IntByReference count);

        static native int nvmlDeviceGetHandleByIndex_v2(int index, PointerByReference device);

        static native int nvmlDeviceGetUUID(Pointer device, byte[] text, int length);

        static native int nvmlDeviceGetName(Pointer device, byte[] text, int length);

        static native int nvmlDeviceGetMemoryInfo(Pointer device, Pointer memory);
    }
}
