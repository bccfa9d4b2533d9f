package io.aliquot.deviceplugin.nvml;

import static io.aliquot.deviceplugin.nvml.NvmlLibrary.FUNCTION_NOT_FOUND;
import static io.aliquot.deviceplugin.nvml.NvmlLibrary.GPU_IS_LOST;
import static io.aliquot.deviceplugin.nvml.NvmlLibrary.INSUFFICIENT_SIZE;
import static io.aliquot.deviceplugin.nvml.NvmlLibrary.INVALID_ARGUMENT;
import static io.aliquot.deviceplugin.nvml.NvmlLibrary.NOT_FOUND;
import static io.aliquot.deviceplugin.nvml.NvmlLibrary.NOT_SUPPORTED;
import static io.aliquot.deviceplugin.nvml.NvmlLibrary.RESET_REQUIRED;
import static io.aliquot.deviceplugin.nvml.NvmlLibrary.SUCCESS;
import static io.aliquot.deviceplugin.nvml.NvmlLibrary.TIMEOUT;

import com.sun.jna.Memory;
import com.sun.jna.Pointer;
import com.sun.jna.ptr.IntByReference;
import com.sun.jna.ptr.LongByReference;
import com.sun.jna.ptr.PointerByReference;
import io.aliquot.api.format.FormatException;
import io.aliquot.api.nodes.GpuHealth.Recovery;
import io.aliquot.api.nodes.GpuKind;
import io.aliquot.api.nodes.Link;
import io.aliquot.deviceplugin.nvml.GpuCondition.Fault;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.jspecify.annotations.Nullable;

/**
 * NVIDIA Management Library (NVML), opened: GPUs, their condition, and XID errors. Constants, structures and meanings are
 * those of nvml.h and the NVML API reference (docs.nvidia.com/deploy/nvml-api).
 *
 * <p>Thread-safe, as NVML is; call {@link #close} only when no other call is running.
 */
public final class Nvml implements AutoCloseable {
    private static final Logger LOG = System.getLogger(Nvml.class.getName());

    /** In each container to which NVIDIA's runtime gives the driver. */
    public static final String LIBRARY = "libnvidia-ml.so.1";

    private static final long BYTES_PER_MIB = 1L << 20;

    private static final int MEMORY_V1_SIZE = 24; // nvmlMemory_t: total, free, used
    private static final int MEMORY_V2_SIZE = 40; // nvmlMemory_v2_t: version, total, reserved, free, used
    private static final int MEMORY_V2 = MEMORY_V2_SIZE | 2 << 24;
    private static final int EVENT_SIZE = 32; // nvmlEventData_t: device, type, data, GPU instance, compute instance
    private static final int EVENT_GPU_INSTANCE = 24;
    private static final int NO_GPU_INSTANCE = -1; // nvmlEventData_t: 0xFFFFFFFF
    private static final long XID_CRITICAL_ERROR = 8;

    // nvmlFieldValue_t: field, scope, timestamp, latency, type of the value, return code, value
    private static final int FIELD_VALUE_SIZE = 40;
    private static final int FIELD_VALUE_RETURN = 28;
    private static final int FIELD_VALUE_VALUE = 32;
    private static final int FIELD_RECOVERY_ACTION = 230; // NVML_FI_DEV_GET_GPU_RECOVERY_ACTION

    // nvmlDeviceGpuRecoveryAction_t; 1: reset
    private static final int ACTION_NONE = 0;
    private static final int ACTION_REBOOT = 2;
    private static final int ACTION_DRAIN_P2P = 3;
    private static final int ACTION_DRAIN_AND_RESET = 4;

    private static final int COMPUTE_MODE_DEFAULT = 0; // nvmlComputeMode_t
    private static final int COMPUTE_MODE_PROHIBITED = 2;

    private static final int UNCORRECTED = 1; // nvmlMemoryErrorType_t
    private static final int VOLATILE = 0; // nvmlEccCounterType_t
    private static final long CLOCKS_THERMAL = 0x20 | 0x40; // nvmlClocksEventReason: SwThermal-, HwThermalSlowdown
    private static final long CLOCKS_POWER_BRAKE = 0x80; // HwPowerBrakeSlowdown
    // nvmlDeviceAttributes_t: SMs, five kinds of engines, slices of the GPU and of the compute instance, MiB
    private static final int ATTRIBUTES_SIZE = 40;
    private static final int ATTRIBUTES_GPU_SLICES = 24;
    private static final int ATTRIBUTES_COMPUTE_SLICES = 28;
    private static final int ATTRIBUTES_MIB = 32;
    private static final String PROFILE_IN_NAME = " MIG "; // NVIDIA A100-SXM4-80GB MIG 1g.10gb

    /** The {@link PhysicalGpu#index} of the first card's first instance. */
    static final int INSTANCES_FROM = 100;

    private static final int INSTANCES_OF_CARD = 10; // a card has at most 7

    private final NvmlLibrary library;
    private final GpuTopology topology;
    private final UsageReader usageReader;
    private final FeatureReader featureReader;

    /** The properties of each GPU that do not change, by UUID; read once. */
    private final Map<String, Properties> properties = new HashMap<>();

    /** The last known mode of each card: one that is lost does not tell it. */
    private final Map<Pointer, MigMode> modes = new ConcurrentHashMap<>();

    /** Compute instances that share the memory of a GPU instance with others, so they are left out. */
    private final Set<String> unsupported = new HashSet<>();

    /** Cards in MIG mode without an instance; each is logged once. */
    private final Set<String> empty = new HashSet<>();

    /** GPUs whose properties could not be read yet, and why; each is logged once. */
    private final Map<String, String> unreadable = new HashMap<>();

    private @Nullable Pointer eventSet;

    private Nvml(NvmlLibrary library, GpuTopology topology, Path sys) {
        this.library = library;
        this.topology = topology;
        usageReader = new UsageReader(library);
        featureReader = new FeatureReader(library, topology, sys);
    }

    /**
     * Opens and initializes NVML. At most one may be open in a process.
     *
     * @param library the library's name or path
     * @param sys where the kernel's sysfs is mounted
     * @throws NvmlException if the library is missing, is not NVML, or finds no driver
     */
    public static Nvml open(String library, Path sys) throws NvmlException {
        NvmlLibrary opened = NvmlLibrary.open(library);
        return new Nvml(opened, new GpuTopology(opened, sys), sys);
    }

    /**
     * The same with the library of a driver that is installed below a folder, where no runtime gives this container the driver.
     *
     * @param driverRoot as NVIDIA's components call it: {@code /} of the host or of a driver container, wherever it is mounted
     */
    public static Nvml openBelow(Path driverRoot, Path sys) throws NvmlException {
        return open(NvmlLibrary.find(driverRoot).toString(), sys);
    }

    /** The version of the loaded driver. */
    public String driverVersion() throws NvmlException {
        return library.text("nvmlSystemGetDriverVersion");
    }

    /**
     * The GPUs that NVML lists, with their condition; of a card in MIG mode its instances instead. A GPU that does not
     * return its UUID, and an instance that has never returned its memory, is left out; {@link
     * io.aliquot.deviceplugin.inventory.InventoryBuilder} keeps a known one as unhealthy. Reading their condition makes no
     * CUDA context.
     *
     * @throws NvmlException if NVML as a whole fails
     */
    public synchronized Listing gpus() throws NvmlException {
        Devices devices = devices();
        devices.list.removeIf(device -> unsupported.contains(device.uuid));
        if (!devices.list.stream().map(Device::uuid).allMatch(properties::containsKey)) {
            readProperties(devices.list);
            devices.list.removeIf(device -> unsupported.contains(device.uuid));
        }
        var gpus = new ArrayList<PhysicalGpu>();
        for (Device device : devices.list) {
            Properties known = properties.get(device.uuid);
            if (known != null) {
                gpus.add(new PhysicalGpu(
                        device.uuid,
                        device.index,
                        known.model,
                        known.memoryMiB,
                        known.leastContextMiB,
                        known.numaNode,
                        condition(device),
                        known.links,
                        known.kind));
            } else if (!device.isInstance()) {
                gpus.add(withoutProperties(device));
            }
        }
        boolean complete = devices.complete && gpus.size() == devices.list.size();
        boolean described = complete && gpus.stream().allMatch(gpu -> gpu.memoryMiB() > 0);
        Set<String> migCards = new HashSet<>(devices.cards.keySet());
        devices.list.forEach(device -> migCards.remove(device.uuid));
        boolean mps = devices.cards.values().stream().anyMatch(this::hasMpsPrograms);
        return new Listing(gpus, complete, migCards, mps, described ? features(devices.cards) : NodeFeatures.UNKNOWN);
    }

    /** NVML tells how many there are by refusing an array of length 0. */
    private boolean hasMpsPrograms(Pointer card) {
        var count = new IntByReference(0);
        String name = "nvmlDeviceGetMPSComputeRunningProcesses";
        int code = library.callNewest(List.of(name + "_v3", name + "_v2"), card, count, Pointer.NULL);
        return code == INSUFFICIENT_SIZE && count.getValue() > 0;
    }

    private PhysicalGpu withoutProperties(Device card) {
        GpuCondition condition = condition(card);
        if (condition.faults().isEmpty()) {
            var fault = new Fault(unreadable.getOrDefault(card.uuid, "NVML does not describe it"), Recovery.PROBE);
            condition = new GpuCondition(false, List.of(fault), false, Set.of());
        }
        return new PhysicalGpu(
                card.uuid, card.index, nameIfReadable(card.handle), 0, 0, -1, condition, Map.of(), GpuKind.CARD);
    }

    private String nameIfReadable(Pointer handle) {
        try {
            return library.text("nvmlDeviceGetName", handle);
        } catch (NvmlException e) {
            return "unknown model";
        }
    }

    private NodeFeatures features(Map<String, Pointer> cards) {
        try {
            return featureReader.read(driverVersion(), cards);
        } catch (NvmlException e) {
            LOG.log(Level.DEBUG, "NVML does not describe all GPUs: {0}", e.getMessage());
            return NodeFeatures.UNKNOWN;
        }
    }

    /**
     * The GPUs of one reading.
     *
     * @param complete whether no GPU that NVML lists was left out
     * @param migCards the UUIDs of the cards in MIG mode
     * @param mps whether programs use a GPU through NVIDIA's MPS
     * @param features of all these GPUs; unknown if one was left out or is not described
     */
    public record Listing(
            List<PhysicalGpu> gpus, boolean complete, Set<String> migCards, boolean mps, NodeFeatures features) {
        public Listing {
            gpus = List.copyOf(gpus);
            migCards = Set.copyOf(migCards);
        }
    }

    /**
     * How the GPUs are used now. A GPU that does not list its processes is left out.
     *
     * @param since by UUID, the time after which processes' utilization is wanted: {@link GpuUsage.Utilization#endMicros}
     *     of an earlier call; a missing one returns whatever the driver has
     * @throws NvmlException if NVML as a whole fails
     */
    public List<GpuUsage> usage(Map<String, Long> since) throws NvmlException {
        var usage = new ArrayList<GpuUsage>();
        for (Device device : devices().list) {
            try {
                usage.add(usageReader.read(device.uuid, device.handle, since.getOrDefault(device.uuid, 0L)));
            } catch (NvmlException e) {
                LOG.log(Level.DEBUG, "GPU {0} does not return its processes: {1}", device.uuid, e.getMessage());
            }
        }
        return usage;
    }

    /** The cards and instances that return their UUID. */
    private Devices devices() throws NvmlException {
        var devices = new ArrayList<Device>();
        var cards = new LinkedHashMap<String, Pointer>();
        boolean complete = true;
        int count = count();
        for (int index = 0; index < count; index++) {
            try {
                Pointer handle = handle(index);
                var card = new Device(index, uuid(handle), handle, handle);
                cards.put(card.uuid, handle);
                if (migMode(handle).on()) {
                    Devices instances = instances(card);
                    warnIfEmpty(card.uuid, instances);
                    devices.addAll(instances.list);
                    complete &= instances.complete;
                } else {
                    devices.add(card);
                }
            } catch (NvmlException e) {
                complete = false;
                LOG.log(Level.DEBUG, "GPU {0} does not return its UUID: {1}", index, e.getMessage());
            }
        }
        return new Devices(devices, cards, complete);
    }

    /**
     * The instances of a card that return their UUID; one may be destroyed meanwhile. NVML does not promise that their indexes
     * are contiguous.
     */
    private Devices instances(Device card) throws NvmlException {
        var instances = new ArrayList<Device>();
        boolean complete = true;
        int most = mostInstances(card.handle);
        for (int number = 0; number < most; number++) {
            var handle = new PointerByReference();
            int code = library.call("nvmlDeviceGetMigDeviceHandleByIndex", card.handle, number, handle);
            if (code == NOT_FOUND || code == INVALID_ARGUMENT) {
                continue;
            }
            library.check("nvmlDeviceGetMigDeviceHandleByIndex", code);
            int index = INSTANCES_FROM + card.index * INSTANCES_OF_CARD + number;
            try {
                instances.add(new Device(index, uuid(handle.getValue()), handle.getValue(), card.handle));
            } catch (NvmlException e) {
                complete = false;
                LOG.log(
                        Level.DEBUG,
                        "Instance {0} of {1} does not return its UUID: {2}",
                        number,
                        card.uuid,
                        e.getMessage());
            }
        }
        return new Devices(instances, Map.of(card.uuid, card.handle), complete);
    }

    private int mostInstances(Pointer card) throws NvmlException {
        return library.number("nvmlDeviceGetMaxMigDeviceCount", card);
    }

    private synchronized void warnIfEmpty(String card, Devices instances) {
        if (!instances.list.isEmpty() || !instances.complete) {
            empty.remove(card);
        } else if (empty.add(card)) {
            LOG.log(
                    Level.WARNING,
                    "GPU {0} is in MIG mode and has no instance, so it gives nothing to pods: create instances with"
                            + " nvidia-smi mig -cgi, or turn the mode off with nvidia-smi -mig 0",
                    card);
        }
    }

    /** Registers for critical XID errors: {@link #nextXid} returns those from now on. */
    void listenForXids() throws NvmlException {
        eventSet();
    }

    /**
     * Waits for the next critical XID error of any GPU.
     *
     * @return the error for each GPU that it is about, which are all instances of a card in MIG mode if NVML does not name
     *     one; empty if none came within {@code timeout}; also, after that time, if the driver does not report XID errors
     */
    List<Xid> nextXid(Duration timeout) throws NvmlException, InterruptedException {
        Optional<Pointer> set = eventSet();
        try (var event = new Memory(EVENT_SIZE)) {
            event.clear();
            int code = set.isPresent()
                    ? library.call("nvmlEventSetWait_v2", set.get(), event, (int) timeout.toMillis())
                    : FUNCTION_NOT_FOUND;
            if (code == FUNCTION_NOT_FOUND) {
                Thread.sleep(timeout.toMillis());
                return List.of();
            }
            if (code == TIMEOUT) {
                return List.of();
            }
            library.check("nvmlEventSetWait_v2", code);
            if (event.getLong(8) != XID_CRITICAL_ERROR) {
                return List.of();
            }
            Pointer device = event.getPointer(0);
            int instance = event.getInt(EVENT_GPU_INSTANCE);
            return (device == null ? List.of("") : affected(device, instance))
                    .stream().map(uuid -> new Xid(event.getLong(16), uuid)).toList();
        }
    }

    private List<String> affected(Pointer card, int instance) {
        if (!migMode(card).on()) {
            return List.of(uuidIfReadable(card));
        }
        try {
            Devices all = instances(new Device(0, uuidIfReadable(card), card, card));
            List<String> named = all.list.stream()
                    .filter(device -> instance == gpuInstance(device.handle))
                    .map(Device::uuid)
                    .toList();
            if (!named.isEmpty()) {
                return named;
            }
            return all.complete ? all.list.stream().map(Device::uuid).toList() : List.of("");
        } catch (NvmlException e) {
            LOG.log(Level.WARNING, "Cannot list the instances of a GPU with an XID error: {0}", e.getMessage());
            return List.of("");
        }
    }

    private int gpuInstance(Pointer handle) {
        return library.numberIfKnown("nvmlDeviceGetGpuInstanceId", handle).orElse(NO_GPU_INSTANCE - 1);
    }

    /**
     * A critical error that the driver reported.
     *
     * @param number NVIDIA's
     * @param uuid the GPU's; empty if unknown, because a GPU that fell off the bus may not return it: it may be any GPU
     */
    public record Xid(long number, String uuid) {}

    @Override
    public synchronized void close() {
        if (eventSet != null) {
            tryCall("nvmlEventSetFree", eventSet);
            eventSet = null;
        }
        tryCall("nvmlShutdown");
        library.close();
    }

    private void tryCall(String name, Object... arguments) {
        try {
            library.must(name, arguments);
        } catch (NvmlException e) {
            LOG.log(Level.WARNING, e.getMessage());
        }
    }

    private int count() throws NvmlException {
        return library.number("nvmlDeviceGetCount_v2");
    }

    private Pointer handle(int index) throws NvmlException {
        var handle = new PointerByReference();
        library.must("nvmlDeviceGetHandleByIndex_v2", index, handle);
        return handle.getValue();
    }

    private synchronized Optional<Pointer> eventSet() throws NvmlException {
        if (eventSet == null) {
            var set = new PointerByReference();
            int code = library.call("nvmlEventSetCreate", set);
            if (code == FUNCTION_NOT_FOUND) {
                return Optional.empty();
            }
            library.check("nvmlEventSetCreate", code);
            int count = count();
            for (int index = 0; index < count; index++) {
                registerForXids(index, set.getValue());
            }
            eventSet = set.getValue();
        }
        return Optional.ofNullable(eventSet);
    }

    private void registerForXids(int index, Pointer set) {
        var level = Level.WARNING;
        try {
            int code = library.call("nvmlDeviceRegisterEvents", handle(index), XID_CRITICAL_ERROR, set);
            level = code == NOT_SUPPORTED ? Level.INFO : level;
            library.check("nvmlDeviceRegisterEvents", code);
        } catch (NvmlException e) {
            LOG.log(level, "GPU {0} will not report XID errors: {1}", index, e.getMessage());
        }
    }

    private void readProperties(List<Device> devices) throws NvmlException {
        Map<String, Pointer> cards = new LinkedHashMap<>();
        Map<String, String> busIds = new HashMap<>();
        for (Device device : devices) {
            busIds.put(device.uuid, topology.busId(device.card));
            if (!device.isInstance()) {
                cards.put(device.uuid, device.handle);
            }
        }
        for (Device device : devices) {
            String uuid = device.uuid;
            Pointer handle = device.handle;
            try {
                String name = library.text("nvmlDeviceGetName", handle);
                int numa = topology.numaNode(device.card, busIds.getOrDefault(uuid, ""));
                properties.put(
                        uuid,
                        device.isInstance()
                                ? instanceProperties(device, name, numa)
                                : new Properties(
                                        name,
                                        Math.toIntExact(usableMemory(handle) / BYTES_PER_MIB),
                                        leastContextMiB(handle, 1),
                                        numa,
                                        topology.links(uuid, cards, busIds),
                                        GpuKind.CARD));
                unreadable.remove(uuid);
            } catch (NvmlException e) {
                if (unreadable.put(uuid, String.valueOf(e.getMessage())) == null) {
                    LOG.log(Level.WARNING, "Cannot read the properties of GPU {0}: {1}", uuid, e.getMessage());
                }
            }
        }
    }

    /**
     * What NVML tells of an instance by its own handle and by its card's.
     *
     * @throws NvmlException also for one of several compute instances of a GPU instance, which share its memory
     */
    private Properties instanceProperties(Device device, String name, int numa) throws NvmlException {
        int cardSlices = mostInstances(device.card);
        try (var attributes = new Memory(ATTRIBUTES_SIZE)) {
            attributes.clear();
            library.must("nvmlDeviceGetAttributes_v2", device.handle, attributes);
            int slices = attributes.getInt(ATTRIBUTES_GPU_SLICES);
            int at = name.lastIndexOf(PROFILE_IN_NAME);
            if (at < 0 || slices != attributes.getInt(ATTRIBUTES_COMPUTE_SLICES)) {
                unsupported.add(device.uuid);
                throw new NvmlException("it is one of several compute instances, or has no profile in its name " + name
                        + "; Aliquot takes GPU instances with one compute instance of the same size");
            }
            int memoryMiB = Math.toIntExact(attributes.getLong(ATTRIBUTES_MIB));
            var instance = new GpuKind.MigInstance(
                    uuid(device.card),
                    name.substring(at + PROFILE_IN_NAME.length()),
                    slices,
                    cardSlices,
                    attributes.getInt(0),
                    Math.toIntExact(usableMemory(device.card) / BYTES_PER_MIB));
            int context = Math.min(memoryMiB, leastContextMiB(device.card, (double) slices / cardSlices));
            return new Properties(name, memoryMiB, context, numa, Map.of(), instance);
        } catch (FormatException e) {
            throw new NvmlException(String.valueOf(e.getMessage()));
        }
    }

    private GpuCondition condition(Device device) {
        Pointer handle = device.card;
        try (var memory = new Memory(MEMORY_V1_SIZE)) {
            int code = library.call("nvmlDeviceGetMemoryInfo", device.handle, memory);
            if (code != SUCCESS) {
                return new GpuCondition(false, List.of(unreadable(code)), false, Set.of());
            }
        }
        var faults = new ArrayList<Fault>();
        MigMode mode = migMode(handle);
        if (mode.on() != mode.pending()) {
            faults.add(new Fault(
                    "MIG mode of its card is to be turned " + (mode.pending() ? "on" : "off")
                            + " at the next reset of the card; reset it, or take the change back with nvidia-smi -mig",
                    Recovery.PROBE));
        }
        computeMode(handle).ifPresent(faults::add);
        Optional<Integer> action = recoveryAction(handle);
        action.flatMap(Nvml::requested).ifPresent(faults::add);
        addRemapping(handle, faults);
        if (uncorrectableEccErrors(handle) > 0) {
            faults.add(new Fault("it had uncorrectable ECC errors since it was last reset; reset it", Recovery.RESET));
        }
        return new GpuCondition(true, faults, action.isPresent(), slowdowns(handle));
    }

    private Fault unreadable(int code) {
        return switch (code) {
            case GPU_IS_LOST ->
                new Fault("it has fallen off the bus or is otherwise inaccessible (NVML: GPU is lost)", Recovery.PROBE);
            case RESET_REQUIRED ->
                new Fault("it must be reset before it can be used again (NVML: reset required)", Recovery.RESET);
            default ->
                new Fault(
                        "NVML cannot read its memory: "
                                + library.failure("nvmlDeviceGetMemoryInfo", code)
                                        .getMessage(),
                        Recovery.PROBE);
        };
    }

    /**
     * What is wrong with the compute mode, which root of the host may set; empty if several programs can use the GPU. NVIDIA's
     * MPS daemon sets an exclusive mode (github.com/NVIDIA/k8s-device-plugin, cmd/mps-control-daemon/mps/daemon.go), because
     * its programs share one process.
     */
    private Optional<Fault> computeMode(Pointer card) {
        int mode = library.numberIfKnown("nvmlDeviceGetComputeMode", card).orElse(COMPUTE_MODE_DEFAULT);
        if (mode == COMPUTE_MODE_DEFAULT) {
            return Optional.empty();
        }
        String problem = mode == COMPUTE_MODE_PROHIBITED
                ? "its compute mode lets no program use it"
                : "its compute mode lets one program at a time use it, as NVIDIA's MPS daemon sets it; end the daemon if there is one";
        return Optional.of(new Fault(problem + "; set it back with nvidia-smi -c DEFAULT", Recovery.PROBE));
    }

    /** Which recovery the driver asks for; empty if this driver does not tell. */
    private Optional<Integer> recoveryAction(Pointer handle) {
        try (var field = new Memory(FIELD_VALUE_SIZE)) {
            field.clear();
            field.setInt(0, FIELD_RECOVERY_ACTION);
            int code = library.call("nvmlDeviceGetFieldValues", handle, 1, field);
            return code == SUCCESS && field.getInt(FIELD_VALUE_RETURN) == SUCCESS
                    ? Optional.of(field.getInt(FIELD_VALUE_VALUE))
                    : Optional.empty();
        }
    }

    private static Optional<Fault> requested(int action) {
        return switch (action) {
            case ACTION_NONE -> Optional.empty();
            case ACTION_REBOOT -> Optional.of(new Fault("the driver asks for a reboot of the node", Recovery.REBOOT));
            case ACTION_DRAIN_P2P ->
                Optional.of(
                        new Fault("the driver asks to end the programs that use peer-to-peer access", Recovery.PROBE));
            case ACTION_DRAIN_AND_RESET ->
                Optional.of(new Fault("the driver asks to drain the GPU and to reset it", Recovery.RESET));
            default -> Optional.of(new Fault("the driver asks for a reset of the GPU", Recovery.RESET));
        };
    }

    private void addRemapping(Pointer handle, List<Fault> faults) {
        var correctable = new IntByReference();
        var uncorrectable = new IntByReference();
        var pending = new IntByReference();
        var failed = new IntByReference();
        int code = library.call("nvmlDeviceGetRemappedRows", handle, correctable, uncorrectable, pending, failed);
        if (code == SUCCESS && failed.getValue() != 0) {
            faults.add(new Fault("the remapping of a row of its memory failed; have it replaced", Recovery.RESET));
        } else if (code == SUCCESS && pending.getValue() != 0) {
            faults.add(new Fault("a row of its memory is to be remapped; reset it", Recovery.RESET));
        }
    }

    private long uncorrectableEccErrors(Pointer handle) {
        var count = new LongByReference();
        int code = library.call("nvmlDeviceGetTotalEccErrors", handle, UNCORRECTED, VOLATILE, count);
        return code == SUCCESS ? count.getValue() : 0;
    }

    private Set<GpuCondition.Slowdown> slowdowns(Pointer handle) {
        var reasons = new LongByReference();
        int code = library.callNewest(
                List.of("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
                handle,
                reasons);
        var slowdowns = EnumSet.noneOf(GpuCondition.Slowdown.class);
        if (code == SUCCESS && (reasons.getValue() & CLOCKS_THERMAL) != 0) {
            slowdowns.add(GpuCondition.Slowdown.THERMAL);
        }
        if (code == SUCCESS && (reasons.getValue() & CLOCKS_POWER_BRAKE) != 0) {
            slowdowns.add(GpuCondition.Slowdown.POWER_BRAKE);
        }
        return slowdowns;
    }

    private record MigMode(boolean on, boolean pending) {}

    private MigMode migMode(Pointer card) {
        var current = new IntByReference();
        var pending = new IntByReference();
        if (library.call("nvmlDeviceGetMigMode", card, current, pending) == SUCCESS) {
            modes.put(card, new MigMode(current.getValue() == 1, pending.getValue() == 1));
        }
        return modes.getOrDefault(card, new MigMode(false, false));
    }

    private String uuid(Pointer handle) throws NvmlException {
        return library.text("nvmlDeviceGetUUID", handle);
    }

    private String uuidIfReadable(Pointer handle) {
        try {
            return uuid(handle);
        } catch (NvmlException e) {
            LOG.log(Level.WARNING, "A GPU with an XID error does not return its UUID: {0}", e.getMessage());
            return "";
        }
    }

    /**
     * In bytes, without what the driver reserves for itself. Version 1 of the structure, that of drivers before 510, does not
     * tell what that is.
     */
    private long usableMemory(Pointer handle) throws NvmlException {
        try (var memory = new Memory(MEMORY_V2_SIZE)) {
            memory.clear();
            memory.setInt(0, MEMORY_V2);
            int code = library.call("nvmlDeviceGetMemoryInfo_v2", handle, memory);
            if (code != NOT_SUPPORTED && code != FUNCTION_NOT_FOUND) {
                library.check("nvmlDeviceGetMemoryInfo_v2", code);
                return memory.getLong(8) - memory.getLong(16);
            }
            library.must("nvmlDeviceGetMemoryInfo", handle, memory);
            return memory.getLong(0);
        }
    }

    /**
     * See {@link ContextMemory}; 0 if the driver does not tell.
     *
     * @param part of the card's compute
     */
    private int leastContextMiB(Pointer handle, double part) {
        var major = new IntByReference();
        var minor = new IntByReference();
        var cores = new IntByReference();
        return library.call("nvmlDeviceGetCudaComputeCapability", handle, major, minor) == SUCCESS
                        && library.call("nvmlDeviceGetNumGpuCores", handle, cores) == SUCCESS
                ? ContextMemory.leastMiB(major.getValue(), minor.getValue(), (int) (cores.getValue() * part))
                : 0;
    }

    /**
     * A card, or an instance with the handle of its card.
     *
     * @param card of a card its own handle
     */
    private record Device(int index, String uuid, Pointer handle, Pointer card) {
        boolean isInstance() {
            return !handle.equals(card);
        }
    }

    /**
     * What can be allocated, and all cards.
     *
     * @param cards their handles by UUID, in the order of their indexes
     */
    private record Devices(List<Device> list, Map<String, Pointer> cards, boolean complete) {}

    private record Properties(
            String model, int memoryMiB, int leastContextMiB, int numaNode, Map<String, Link> links, GpuKind kind) {}
}
