package io.aliquot.scheduler.pending;

import com.github.benmanes.caffeine.cache.Interner;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Creates sets of node names, one bit for each node. Thousands of pending pods have a set each, of up to all nodes, and
 * few of the sets differ: equal sets are one object. Thread-safe.
 */
public final class NodeSets {
    /**
     * The number of names, about a hundred bytes each, after which the numbering starts over, so that names of deleted
     * nodes are dropped: about six times the nodes of a large cluster.
     */
    private static final int MAX_ENTRIES = 1 << 15;

    private final Interner<NodeSet> known = Interner.newWeakInterner();
    private volatile Numbers numbers = new Numbers();
    private final NodeSet everywhere = new NodeSet(numbers, new BitSet(), true);

    /** The bit of each name, in all sets of one numbering. */
    private static final class Numbers {
        private final Map<String, Integer> byName = new ConcurrentHashMap<>();
        private final List<String> names = new ArrayList<>();

        int of(String name) {
            Integer number = byName.get(name);
            return number != null ? number : byName.computeIfAbsent(name, this::add);
        }

        private int add(String name) {
            synchronized (names) {
                names.add(name);
                return names.size() - 1;
            }
        }
    }

    /**
     * Some nodes, or all present and future ones. Equal sets are one object, unless the numbering started over in
     * between.
     */
    public static final class NodeSet {
        private final Numbers numbers;
        private final BitSet bits;
        private final boolean all;

        private NodeSet(Numbers numbers, BitSet bits, boolean all) {
            this.numbers = numbers;
            this.bits = bits;
            this.all = all;
        }

        public boolean contains(String node) {
            if (all) {
                return true;
            }
            Integer number = numbers.byName.get(node);
            return number != null && bits.get(number);
        }

        /** The names; empty for the set of all nodes. */
        public List<String> names() {
            synchronized (numbers.names) {
                return bits.stream().mapToObj(numbers.names::get).toList();
            }
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof NodeSet that
                    && all == that.all
                    && numbers == that.numbers
                    && bits.equals(that.bits);
        }

        @Override
        public int hashCode() {
            return bits.hashCode();
        }
    }

    NodeSet everywhere() {
        return everywhere;
    }

    NodeSet of(Collection<String> nodes) {
        Numbers now = numbers;
        if (now.byName.size() > Math.max(MAX_ENTRIES, 2 * nodes.size())) {
            now = new Numbers();
            numbers = now;
        }
        var bits = new BitSet();
        for (String node : nodes) {
            bits.set(now.of(node));
        }
        return known.intern(new NodeSet(now, bits, false));
    }
}
