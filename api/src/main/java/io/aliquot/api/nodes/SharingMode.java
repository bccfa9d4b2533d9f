package io.aliquot.api.nodes;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.format.Keywords;
import io.aliquot.api.names.Labels;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** How a node's GPUs are shared: the node's label {@link Labels#SHARE}. */
public enum SharingMode {
    /** By memory and compute. */
    CORE_MEMORY,
    /** By memory; compute is neither reserved nor limited. */
    MEMORY,
    /** No GPU of the node is allocated. */
    NONE,
    /** Only whole cards are allocated. */
    EXCLUSIVE,
    /** As {@link #CORE_MEMORY}; a container with several GPUs gets those with the best links. */
    TOPOLOGY,
    /** Memory and compute request a MIG instance that is large enough, as a whole; cards are allocated whole. */
    MIG,
    /** As {@link #CORE_MEMORY}; MIG instances are shared like cards. */
    MIG_SHIM;

    private static final List<String> UNSUPPORTED = List.of("mps");

    /**
     * ACK's values (Container Service for Kubernetes: labels used by ACK to control GPUs). ACK's {@code share} sets no
     * limits; Aliquot limits memory to the request all the same.
     */
    private static final Map<String, SharingMode> ACK = Map.of(
            "default", EXCLUSIVE, "core_mem", CORE_MEMORY, "cgpu", MEMORY, "share", MEMORY, "topology", TOPOLOGY);

    /**
     * Reads a value of {@link Labels#SHARE}.
     *
     * @param where the label that the value comes from, for the message
     */
    public static SharingMode parse(String where, String text) {
        if (UNSUPPORTED.contains(text)) {
            throw new FormatException(where + ": " + FormatException.quote(text)
                    + " is not supported yet: its GPUs would be shared by NVIDIA's daemon instead of the shim; allowed:"
                    + " core-memory, memory, none, exclusive, topology, mig, mig-shim");
        }
        return Keywords.parse(where, text, List.of(values()), SharingMode::print);
    }

    /** Reads a value of ACK's label {@link Labels#ACK_SHARE}. */
    public static SharingMode parseAck(String text) {
        SharingMode mode = ACK.get(text);
        if (mode == null) {
            throw new FormatException(Labels.ACK_SHARE + ": " + FormatException.quote(text)
                    + (text.equals("mps") ? " is not supported yet" : " is unknown")
                    + "; allowed: default, core_mem, cgpu, share, topology");
        }
        return mode;
    }

    /** The mode by a node's labels: Aliquot's label, else ACK's, else {@link #CORE_MEMORY}. */
    public static SharingMode of(Map<String, String> nodeLabels) {
        String own = nodeLabels.get(Labels.SHARE);
        String ack = nodeLabels.get(Labels.ACK_SHARE);
        if (own != null) {
            return parse(Labels.SHARE, own);
        }
        return ack == null ? CORE_MEMORY : parseAck(ack);
    }

    public String print() {
        return name().toLowerCase(Locale.ROOT).replace('_', '-');
    }
}
