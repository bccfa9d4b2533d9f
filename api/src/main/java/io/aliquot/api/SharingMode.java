package io.aliquot.api;

import java.util.List;
import java.util.Locale;
import java.util.Map;

/** What a node's GPUs are shared by: {@link Labels#SHARE} on the node. */
public enum SharingMode {
    /** Memory and compute. */
    CORE_MEMORY,
    /** Memory alone: compute is neither reserved nor limited. */
    MEMORY,
    /** The node gives no GPUs. */
    NONE,
    /** Whole cards alone. */
    EXCLUSIVE,
    /** As {@link #CORE_MEMORY}; a container's several GPUs are those that reach each other best. */
    TOPOLOGY;

    private static final List<String> NOT_YET = List.of("mig", "mps");

    /**
     * ACK's words (Container Service for Kubernetes: labels used by ACK to control GPUs). Its {@code share} isolates
     * nothing; here the memory that a pod asks for is its limit all the same.
     */
    private static final Map<String, SharingMode> ACK = Map.of(
            "default", EXCLUSIVE, "core_mem", CORE_MEMORY, "cgpu", MEMORY, "share", MEMORY, "topology", TOPOLOGY);

    /**
     * Reads one by its name.
     *
     * @param where the label that the value comes from, for the message
     */
    public static SharingMode parse(String where, String text) {
        if (NOT_YET.contains(text)) {
            throw new FormatException(where + ": " + FormatException.quote(text)
                    + " is not supported yet: its GPUs would be shared by the hardware or by NVIDIA's daemon instead of"
                    + " the shim; allowed: core-memory, memory, none, exclusive, topology");
        }
        return Keywords.parse(where, text, List.of(values()), SharingMode::print);
    }

    /** Reads one by ACK's name for it, the value of {@link Labels#ACK_SHARE}. */
    public static SharingMode parseAck(String text) {
        SharingMode share = ACK.get(text);
        if (share == null) {
            throw new FormatException(Labels.ACK_SHARE + ": " + FormatException.quote(text)
                    + (text.equals("mps") ? " is not supported yet" : " is unknown")
                    + "; allowed: default, core_mem, cgpu, share, topology");
        }
        return share;
    }

    /** What a node's labels say, of which ours counts where both are there; {@link #CORE_MEMORY} where none is. */
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
