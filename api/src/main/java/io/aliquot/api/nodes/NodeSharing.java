package io.aliquot.api.nodes;

import static io.aliquot.api.format.FormatException.expect;

import io.aliquot.api.format.CommaSeparated;
import io.aliquot.api.format.FormatException;
import io.aliquot.api.format.GpuUuids;
import io.aliquot.api.format.Keywords;
import io.aliquot.api.names.Annotations;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * How the GPUs of a node are shared: by the node's mode, a label, and by exceptions for single GPUs, the annotation
 * {@link Annotations#GPU_SHARE}: {@code GPU=MODE} or {@code GPU=MODE:SLOTS}, with commas between them. A GPU is its UUID or its
 * index.
 *
 * @param mode of the GPUs without exception
 * @param exceptions by UUID or index
 */
public record NodeSharing(SharingMode mode, Map<String, OfGpu> exceptions) {
    /** The other modes concern a node as a whole. */
    private static final List<SharingMode> OF_ONE_GPU =
            List.of(SharingMode.CORE_MEMORY, SharingMode.MEMORY, SharingMode.EXCLUSIVE);

    private static final String EXAMPLE = "\"0=exclusive, 1=memory:4\"";

    /**
     * How one GPU is shared.
     *
     * @param slots at most; the node's also hold
     */
    public record OfGpu(SharingMode mode, int slots) {}

    public NodeSharing {
        exceptions = Map.copyOf(exceptions);
    }

    /** All GPUs of a node alike. */
    public static NodeSharing all(SharingMode mode) {
        return new NodeSharing(mode, Map.of());
    }

    /**
     * Reads a node's labels and annotations.
     *
     * @throws FormatException if one of them is invalid
     */
    public static NodeSharing of(Map<String, String> labels, Map<String, String> annotations) {
        SharingMode mode = SharingMode.of(labels);
        String text = annotations.get(Annotations.GPU_SHARE);
        Map<String, OfGpu> exceptions = new HashMap<>();
        if (text != null && !text.isBlank()) {
            for (Map.Entry<String, OfGpu> one : CommaSeparated.parse(Annotations.GPU_SHARE, text, NodeSharing::parse)) {
                if (exceptions.put(one.getKey(), one.getValue()) != null) {
                    throw new FormatException(Annotations.GPU_SHARE + ": GPU " + one.getKey() + " is there twice");
                }
            }
        }
        return new NodeSharing(mode, exceptions);
    }

    private static Map.Entry<String, OfGpu> parse(String text) {
        String[] parts = text.split("=", -1);
        expect(parts.length == 2, "a GPU's index or UUID, = and its mode, such as " + EXAMPLE, text);
        String gpu = parts[0].strip();
        String[] how = parts[1].strip().split(":", -1);
        expect(how.length <= 2, "a mode and at most one number of slots, such as " + EXAMPLE, text);
        SharingMode mode =
                Keywords.parse("GPU " + FormatException.quote(gpu), how[0].strip(), OF_ONE_GPU, SharingMode::print);
        int slots =
                how.length == 1 ? SlotCount.MOST : SlotCount.parse("GPU " + FormatException.quote(gpu), how[1].strip());
        return Map.entry(
                gpu.matches("[0-9]{1,4}") ? String.valueOf(Integer.parseInt(gpu)) : GpuUuids.check(gpu),
                new OfGpu(mode, slots));
    }

    /**
     * The mode of one of the node's GPUs. Of MIG instances and cards, {@code mig} is the instances', and cards are exclusive;
     * in {@code mig-shim} both are shared as {@code core-memory}. In all other modes instances are exclusive.
     */
    public SharingMode mode(Gpu gpu) {
        boolean card = gpu.instance().isEmpty();
        SharingMode mode = exception(gpu).mode();
        return switch (mode) {
            case MIG -> card ? SharingMode.EXCLUSIVE : SharingMode.MIG;
            case MIG_SHIM -> SharingMode.CORE_MEMORY;
            case CORE_MEMORY, MEMORY, NONE, EXCLUSIVE, TOPOLOGY -> card ? mode : SharingMode.EXCLUSIVE;
        };
    }

    /** The number of vGPUs of one of the node's GPUs, at most {@code ofNode}. */
    public int slots(Gpu gpu, int ofNode) {
        return Math.min(ofNode, exception(gpu).slots());
    }

    /** The UUID goes before the index. */
    private OfGpu exception(Gpu gpu) {
        OfGpu byIndex = exceptions.getOrDefault(String.valueOf(gpu.index()), new OfGpu(mode, SlotCount.MOST));
        return exceptions.getOrDefault(gpu.uuid(), byIndex);
    }

    /** The GPUs of the exceptions that are not among these. */
    public Set<String> unknown(Collection<Gpu> gpus) {
        Set<String> unknown = new HashSet<>(exceptions.keySet());
        for (Gpu gpu : gpus) {
            unknown.remove(gpu.uuid());
            unknown.remove(String.valueOf(gpu.index()));
        }
        return unknown;
    }

    /** For people: the mode, and where it differs from the node's, {@code core-memory, 0=exclusive}. */
    public String print() {
        var text = new StringBuilder(mode.print());
        exceptions.entrySet().stream().sorted(Map.Entry.comparingByKey()).forEach(one -> {
            text.append(", ")
                    .append(one.getKey())
                    .append('=')
                    .append(one.getValue().mode().print());
            if (one.getValue().slots() < SlotCount.MOST) {
                text.append(':').append(one.getValue().slots());
            }
        });
        return text.toString();
    }
}
