package io.aliquot.deviceplugin.nvml;

import static io.aliquot.deviceplugin.nvml.NvmlLibrary.SUCCESS;

import com.sun.jna.Memory;
import com.sun.jna.Pointer;
import io.aliquot.api.nodes.Link;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.BitSet;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;

/** How the GPUs of the node are connected: NUMA node, NVLinks, and the path over PCIe. */
final class GpuTopology {
    private static final int PCI_SIZE = 68; // nvmlPciInfo_t
    private static final int PCI_BUS_ID_OFFSET = 36;
    private static final int PCI_BUS_ID_LENGTH = 32;
    private static final String NVIDIA_VENDOR_ID = "0x10de";
    private static final int NUMA_WORDS = 16; // 1024 NUMA nodes
    private static final int AFFINITY_SCOPE_NODE = 0;
    private static final int UNKNOWN_NUMA_NODE = -1;
    private static final int MAX_NVLINKS = 18;
    private static final int NVLINK_TO_SWITCH = 2;

    private final NvmlLibrary library;
    private final Path pciDevices;

    /**
     * Creates the reader.
     *
     * @param sys where the kernel's sysfs is mounted
     */
    GpuTopology(NvmlLibrary library, Path sys) {
        this.library = library;
        pciDevices = sys.resolve("bus/pci/devices");
    }

    /** The PCI bus id in the kernel's form, {@code 0000:3b:00.0}; empty if unknown. */
    String busId(Pointer handle) {
        try (var pci = new Memory(PCI_SIZE)) {
            pci.clear();
            return library.call("nvmlDeviceGetPciInfo_v3", handle, pci) == SUCCESS ? kernelBusId(pci) : "";
        }
    }

    private static String kernelBusId(Memory pci) {
        String id = new String(pci.getByteArray(PCI_BUS_ID_OFFSET, PCI_BUS_ID_LENGTH), StandardCharsets.US_ASCII);
        int end = id.indexOf('\0');
        String text = (end < 0 ? id : id.substring(0, end)).toLowerCase(Locale.ROOT);
        // NVML prints the domain with eight digits, the kernel with four.
        return text.matches("[0-9a-f]{8}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-9a-f]") ? text.substring(4) : "";
    }

    /**
     * The NUMA node that a GPU is attached to, from the kernel or else from NVML; -1 if unknown.
     * (nvmlDeviceGetNumaNodeId is about the GPU's own memory, where that is a NUMA node of its own.)
     */
    int numaNode(Pointer handle, String busId) {
        int node = numaNodeFromKernel(busId);
        return node == UNKNOWN_NUMA_NODE ? numaNodeFromNvml(handle) : node;
    }

    private int numaNodeFromKernel(String busId) {
        Path device = pciDevices.resolve(busId);
        try {
            // The PCI address of a virtual GPU may belong to another device in this kernel.
            if (busId.isEmpty()
                    || !Files.readString(device.resolve("vendor")).strip().equals(NVIDIA_VENDOR_ID)) {
                return UNKNOWN_NUMA_NODE;
            }
            return Math.max(
                    UNKNOWN_NUMA_NODE,
                    Integer.parseInt(
                            Files.readString(device.resolve("numa_node")).strip()));
        } catch (IOException | NumberFormatException e) {
            return UNKNOWN_NUMA_NODE; // a kernel without NUMA, or a GPU without a PCI device
        }
    }

    private int numaNodeFromNvml(Pointer handle) {
        try (var nodes = new Memory((long) NUMA_WORDS * Long.BYTES)) {
            nodes.clear();
            int code = library.call("nvmlDeviceGetMemoryAffinity", handle, NUMA_WORDS, nodes, AFFINITY_SCOPE_NODE);
            if (code != SUCCESS) {
                return UNKNOWN_NUMA_NODE;
            }
            var set = BitSet.valueOf(nodes.getLongArray(0, NUMA_WORDS));
            return set.cardinality() == 1 ? set.nextSetBit(0) : UNKNOWN_NUMA_NODE;
        }
    }

    /**
     * The links from one GPU to every other one.
     *
     * @param handles the handles of all GPUs by UUID
     * @param busIds the bus ids of all GPUs by UUID, as {@link #busId} returns them
     */
    Map<String, Link> links(String uuid, Map<String, Pointer> handles, Map<String, String> busIds) {
        Pointer handle = Optional.ofNullable(handles.get(uuid)).orElseThrow();
        Map<String, Link> links = new HashMap<>();
        NvLinks own = nvLinks(handle);
        handles.forEach((other, otherHandle) -> {
            if (!other.equals(uuid)) {
                int lanes = own.lanesTo.getOrDefault(busIds.getOrDefault(other, "none"), 0);
                if (lanes == 0 && own.toSwitch > 0) {
                    // Through an NVSwitch each GPU reaches each other GPU with all its lanes.
                    lanes = Math.min(own.toSwitch, nvLinks(otherHandle).toSwitch);
                }
                Optional<Link> link =
                        lanes > 0 ? Optional.of(new Link(Link.Kind.NVLINK, lanes)) : pcieLink(handle, otherHandle);
                link.ifPresent(found -> links.put(other, found));
            }
        });
        return links;
    }

    private NvLinks nvLinks(Pointer handle) {
        Map<String, Integer> lanesTo = new HashMap<>();
        int toSwitch = 0;
        try (var pci = new Memory(PCI_SIZE)) {
            for (int link = 0; link < MAX_NVLINKS; link++) {
                if (library.numberIfKnown("nvmlDeviceGetNvLinkState", handle, link)
                                .orElse(0)
                        == 0) {
                    continue;
                }
                OptionalInt type = library.numberIfKnown("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link);
                if (type.equals(OptionalInt.of(NVLINK_TO_SWITCH))) {
                    toSwitch++;
                    continue;
                }
                pci.clear();
                if (library.call("nvmlDeviceGetNvLinkRemotePciInfo_v2", handle, link, pci) == SUCCESS) {
                    lanesTo.merge(kernelBusId(pci), 1, Integer::sum);
                }
            }
        }
        return new NvLinks(lanesTo, toSwitch);
    }

    private Optional<Link> pcieLink(Pointer one, Pointer other) {
        // nvmlGpuTopologyLevel_t
        return switch (library.numberIfKnown("nvmlDeviceGetTopologyCommonAncestor", one, other)
                .orElse(-1)) {
            case 0, 10 -> Optional.of(new Link(Link.Kind.PIX, 0)); // on one board, or at most one bridge
            case 20 -> Optional.of(new Link(Link.Kind.PXB, 0));
            case 30 -> Optional.of(new Link(Link.Kind.PHB, 0));
            case 40 -> Optional.of(new Link(Link.Kind.NODE, 0));
            case 50 -> Optional.of(new Link(Link.Kind.SYS, 0));
            default -> Optional.empty();
        };
    }

    /**
     * The active NVLinks of a GPU.
     *
     * @param lanesTo NVLinks that end at another GPU, by its bus id
     * @param toSwitch NVLinks that end at an NVSwitch
     */
    private record NvLinks(Map<String, Integer> lanesTo, int toSwitch) {}
}
