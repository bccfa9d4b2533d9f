package io.aliquot.scheduler.scoring;

import java.util.Arrays;
import java.util.List;
import java.util.function.ToIntFunction;
import org.jspecify.annotations.Nullable;

/**
 * Finds the numbers of nodes' accounts by name. Requests about thousands of nodes mostly repeat the same list object, whose
 * last result is still valid. Thread-safe.
 */
final class NodeIndex {
    static final int UNKNOWN = -1;

    private static final int EMPTY = -1;
    private static final int LAST = Integer.MAX_VALUE;
    /** A name is in the slot of its hash or in one of the next; this many are searched in all. */
    private static final int REACH = 8;

    private final ToIntFunction<String> accounts;

    /** The last list, and its result; empty if the result may be outdated. */
    private List<String> lastNames = List.of();

    private int[] lastNumbers = {};
    private int[] lastRanks = {};

    // Guarded by this. A name's position is the order of its first request; slots contain positions.

    private @Nullable String[] names = {};
    private int[] numbers = {};
    /** The rank of each name in the order of names; valid if {@code ranked}. */
    private int[] ranks = {};

    private int size;
    private boolean ranked;

    // A power of two of slots, several times as many as nodes. Names with one hash use neighboring slots; if one
    // replaced
    // the other, both would have to be looked up again each time.

    private int[] slots = {EMPTY};
    /** Which of the neighboring slots is replaced next if all are in use. */
    private int nextReplaced;

    /**
     * An index of accounts' numbers.
     *
     * @param accounts finds the number of a node's account, {@link #UNKNOWN} if there is none; each account that is closed
     *     must be reported to {@link #forget}
     */
    NodeIndex(ToIntFunction<String> accounts) {
        this.accounts = accounts;
    }

    /** The number of a node's account; {@link #UNKNOWN} if there is none. */
    synchronized int number(String node) {
        int position = slots[slot(node)];
        return isAt(position, node) ? numbers[position] : accounts.applyAsInt(node);
    }

    /**
     * The numbers of many accounts.
     *
     * @param names mostly the same list object
     * @param numbers receives the numbers; may be longer
     * @param ranks receives the ranks by name; nodes without an account come last; may be longer
     */
    @SuppressWarnings("ReferenceEquality") // an equal one is looked up
    synchronized void numbers(List<String> names, int[] numbers, int[] ranks) {
        if (names != lastNames || names.isEmpty()) {
            find(names);
        }
        System.arraycopy(lastNumbers, 0, numbers, 0, names.size());
        System.arraycopy(lastRanks, 0, ranks, 0, names.size());
    }

    private void find(List<String> wanted) {
        ensureCapacity(wanted.size());
        boolean all = true;
        for (int i = 0; i < wanted.size(); i++) {
            lastNumbers[i] = position(wanted.get(i));
            all &= lastNumbers[i] != EMPTY;
        }
        rank();
        for (int i = 0; i < wanted.size(); i++) {
            int position = lastNumbers[i];
            lastNumbers[i] = position == EMPTY ? UNKNOWN : numbers[position];
            lastRanks[i] = position == EMPTY ? LAST : ranks[position];
        }
        // A node without an account may get one, and a mutable list may change.
        lastNames = all && isImmutable(wanted) ? wanted : List.of();
    }

    @SuppressWarnings("ReferenceEquality") // List.copyOf copies only mutable lists
    private static boolean isImmutable(List<String> list) {
        return List.copyOf(list) == list;
    }

    /** The position of a name, added if necessary; {@link #EMPTY} if the node has no account. */
    private int position(String node) {
        int slot = slot(node);
        int position = slots[slot];
        if (isAt(position, node)) {
            return position;
        }
        int number = accounts.applyAsInt(node);
        if (number == UNKNOWN) {
            return EMPTY;
        }
        names[size] = node;
        numbers[size] = number;
        slots[slot] = size;
        ranked = false;
        return size++;
    }

    /** Ensures that this many new names can be added. */
    private void ensureCapacity(int more) {
        if (names.length < 2 * more) {
            slots = new int[Integer.highestOneBit(8 * more)];
            names = new @Nullable String[slots.length / 2];
            numbers = new int[names.length];
            ranks = new int[names.length];
            lastNumbers = new int[names.length];
            lastRanks = new int[names.length];
            clear();
        } else if (size + more > names.length) {
            clear();
        }
    }

    private void clear() {
        Arrays.fill(slots, EMPTY);
        Arrays.fill(names, null);
        size = 0;
        lastNames = List.of();
    }

    private void rank() {
        if (ranked) {
            return;
        }
        String[] sorted = Arrays.stream(names, 0, size)
                .filter(name -> name != null)
                .sorted()
                .toArray(String[]::new);
        for (int position = 0; position < size; position++) {
            String name = names[position];
            if (name != null) {
                ranks[position] = Arrays.binarySearch(sorted, name);
            }
        }
        ranked = true;
    }

    /** The slot that contains the name, or the one to put it into. */
    private int slot(String node) {
        int home = home(node);
        for (int i = 0; i < REACH; i++) {
            int slot = after(home, i);
            if (slots[slot] == EMPTY || isAt(slots[slot], node)) {
                return slot;
            }
        }
        nextReplaced = (nextReplaced + 1) % REACH;
        return after(home, nextReplaced);
    }

    /** The first slot of a name. Names often differ by a number only, and so do their hashes: the golden ratio spreads them. */
    private int home(String node) {
        return (node.hashCode() * 0x9E3779B9) >>> Integer.numberOfLeadingZeros(slots.length - 1);
    }

    private int after(int slot, int steps) {
        return (slot + steps) & (slots.length - 1);
    }

    private boolean isAt(int position, String node) {
        return position != EMPTY && node.equals(names[position]);
    }

    /** An account was closed; its number may be given again afterwards. */
    synchronized void forget(String node) {
        for (int position = 0; position < size; position++) { // all positions, since another name may use its slot
            if (node.equals(names[position])) {
                names[position] = null;
                lastNames = List.of();
            }
        }
    }
}
