package io.aliquot.scheduler.ledger;

import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Finds the numbers of nodes' accounts. Whoever asks about thousands of nodes again and again does so by the same strings:
 * one that is the very same needs no comparison, letter by letter, with another one elsewhere in memory. Thread-safe.
 */
final class Directory {
    static final int UNKNOWN = -1;

    private final Map<String, NodeAccount> nodes;

    // Guarded by this. A power of two of slots, several times as many as there are nodes, so that few names share one.

    private @Nullable String[] names = new @Nullable String[2];
    private int[] numbers = new int[2];

    /** A directory of these open accounts, by name; it is to be told of each that leaves. */
    Directory(Map<String, NodeAccount> nodes) {
        this.nodes = nodes;
    }

    /** The account of a node; {@link #UNKNOWN} where there is none. */
    synchronized int number(String node) {
        // Names are often alike but for a number, and so are their hashes: a golden ratio spreads them.
        int slot = slot(node);
        if (isAt(slot, node)) {
            return numbers[slot];
        }
        NodeAccount account = nodes.get(node);
        if (account == null) {
            return UNKNOWN;
        }
        names[slot] = node;
        numbers[slot] = account.number;
        return account.number;
    }

    @SuppressWarnings("ReferenceEquality") // an equal one is looked up
    private boolean isAt(int slot, String node) {
        return names[slot] == node;
    }

    private int slot(String node) {
        return (node.hashCode() * 0x9E3779B9) >>> Integer.numberOfLeadingZeros(names.length - 1);
    }

    /** The same for many, into an array that may be longer. */
    synchronized void numbers(List<String> of, int[] into) {
        grow(of.size());
        for (int i = 0; i < of.size(); i++) {
            into[i] = number(of.get(i));
        }
    }

    private void grow(int nodes) {
        if (names.length < 4 * nodes) {
            names = new @Nullable String[Integer.highestOneBit(8 * nodes)];
            numbers = new int[names.length];
        }
    }

    /** An account is closed, and is not among the others any more; its number may be given again afterwards. */
    synchronized void forget(String node) {
        int slot = slot(node);
        if (node.equals(names[slot])) {
            names[slot] = null;
        }
    }
}
