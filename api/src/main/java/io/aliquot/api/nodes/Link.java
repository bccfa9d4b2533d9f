package io.aliquot.api.nodes;

import io.aliquot.api.format.FormatException;
import java.util.Locale;

/**
 * The connection between two GPUs of a node, as {@code nvidia-smi topo -m} shows it.
 *
 * @param lanes the number of NVLinks, 1 to 99; 0 for other kinds
 */
public record Link(Kind kind, int lanes) {
    /** Fastest first. */
    public enum Kind {
        NVLINK,
        /** At most one PCIe bridge. */
        PIX,
        /** Several PCIe bridges. */
        PXB,
        /** A PCIe host bridge. */
        PHB,
        /** Host bridges of one NUMA domain. */
        NODE,
        /** The interconnect between NUMA domains. */
        SYS
    }

    public Link {
        if ((kind == Kind.NVLINK) != (lanes > 0) || lanes < 0 || lanes > 99) {
            throw FormatException.expected("1 to 99 lanes of NVLink, else 0", kind + " with " + lanes);
        }
    }

    public static Link parse(String text) {
        if (text.matches("nvlink[1-9][0-9]?")) {
            return new Link(Kind.NVLINK, Integer.parseInt(text.substring("nvlink".length())));
        }
        for (Kind kind : Kind.values()) {
            if (kind != Kind.NVLINK && text.equals(name(kind))) {
                return new Link(kind, 0);
            }
        }
        throw FormatException.expected("nvlink<n>, pix, pxb, phb, node or sys", text);
    }

    public String print() {
        return name(kind) + (lanes > 0 ? lanes : "");
    }

    private static String name(Kind kind) {
        return kind.name().toLowerCase(Locale.ROOT);
    }
}
