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

    /** A name is in the slot that its hash tells or in one of those behind it, of so many in all. */
    private static final int REACH = 8;

    private final Map<String, NodeAccount> nodes;

    // Guarded by this. A power of two of slots, several times as many as there are nodes. Names that share one have
    // places side by side: if one took the other's, both would be looked up elsewhere in memory again and again.

    private @Nullable String[] names = new @Nullable String[2];
    private int[] numbers = new int[2];
    /** Who makes room where all are taken; not the same again and again. */
    private int turn;

    /** A directory of these open accounts, by name; it is to be told of each that leaves. */
    Directory(Map<String, NodeAccount> nodes) {
        this.nodes = nodes;
    }

    /** The account of a node; {@link #UNKNOWN} where there is none. */
    synchronized int number(String node) {
        int slot = slot(node);
        return isAt(slot, node) ? numbers[slot] : number(nodes.get(node));
    }

    private static int number(@Nullable NodeAccount account) {
        return account == null ? UNKNOWN : account.number;
    }

    /** The same for many, who will be asked for again by the same strings, into an array that may be longer. */
    synchronized void numbers(List<String> of, int[] into) {
        grow(of.size());
        for (int i = 0; i < of.size(); i++) {
            String node = of.get(i);
            int slot = slot(node);
            if (!isAt(slot, node)) {
                numbers[slot] = number(nodes.get(node));
                names[slot] = numbers[slot] == UNKNOWN ? null : node;
            }
            into[i] = numbers[slot];
        }
    }

    /** Where it is, or may be. */
    private int slot(String node) {
        int home = home(node);
        for (int i = 0; i < REACH; i++) {
            int slot = behind(home, i);
            if (names[slot] == null || isAt(slot, node)) {
                return slot;
            }
        }
        turn = (turn + 1) % REACH;
        return behind(home, turn);
    }

    /** Names are often alike but for a number, and so are their hashes: a golden ratio spreads them. */
    private int home(String node) {
        return (node.hashCode() * 0x9E3779B9) >>> Integer.numberOfLeadingZeros(names.length - 1);
    }

    private int behind(int slot, int steps) {
        return (slot + steps) & (names.length - 1);
    }

    @SuppressWarnings("ReferenceEquality") // an equal one is looked up
    private boolean isAt(int slot, String node) {
        return names[slot] == node;
    }

    private void grow(int nodes) {
        if (names.length < 4 * nodes) {
            names = new @Nullable String[Integer.highestOneBit(8 * nodes)];
            numbers = new int[names.length];
        }
    }

    /** An account is closed, and is not among the others any more; its number may be given again afterwards. */
    synchronized void forget(String node) {
        int home = home(node);
        for (int i = 0; i < REACH; i++) {
            int slot = behind(home, i);
            if (node.equals(names[slot])) {
                names[slot] = null;
            }
        }
    }
}
