package io.aliquot.scheduler.extender;

import com.github.benmanes.caffeine.cache.Interner;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Sets of nodes, a bit for each. Thousands of waiting pods have one each, of up to all nodes, and few of the sets
 * differ: equal ones are one object. Thread-safe.
 */
final class NodeSets {
    /** Grows with the names that a cluster has ever used, some tens of bytes each. */
    private final Map<String, Integer> numbers = new ConcurrentHashMap<>();

    private final List<String> names = new ArrayList<>();
    private final Interner<NodeSet> known = Interner.newWeakInterner();

    private final NodeSet everywhere = new NodeSet(new BitSet(), true);

    /** Some nodes, or all there are or will be. Equal ones are the same object. */
    final class NodeSet {
        private final BitSet bits;
        private final boolean all;

        private NodeSet(BitSet bits, boolean all) {
            this.bits = bits;
            this.all = all;
        }

        boolean contains(String node) {
            if (all) {
                return true;
            }
            Integer number = numbers.get(node);
            return number != null && bits.get(number);
        }

        /** Of those that were named; none where it is all. */
        List<String> names() {
            synchronized (names) {
                return bits.stream().mapToObj(names::get).toList();
            }
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof NodeSet that && all == that.all && bits.equals(that.bits);
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
        var bits = new BitSet();
        for (String node : nodes) {
            bits.set(number(node));
        }
        return known.intern(new NodeSet(bits, false));
    }

    private int number(String node) {
        Integer number = numbers.get(node);
        return number != null ? number : numbers.computeIfAbsent(node, this::add);
    }

    private int add(String node) {
        synchronized (names) {
            names.add(node);
            return names.size() - 1;
        }
    }
}
