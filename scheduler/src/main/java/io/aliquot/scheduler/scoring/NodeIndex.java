package io.aliquot.scheduler.scoring;

import java.util.Arrays;
import java.util.List;
import java.util.function.ToIntFunction;
import org.jspecify.annotations.Nullable;

/**
 * Finds the numbers of nodes' accounts. Whoever asks about thousands of nodes again and again does so by the same strings:
 * one that is the very same needs no comparison, letter by letter, with another one elsewhere in memory; and mostly by the
 * same list, of which what was found the last time is true still. Thread-safe.
 */
final class NodeIndex {
    static final int UNKNOWN = -1;

    private static final int EMPTY = -1;
    private static final int LAST = Integer.MAX_VALUE;
    /** A name is in the slot that its hash tells or in one of those behind it, of so many in all. */
    private static final int REACH = 8;

    private final ToIntFunction<String> accounts;

    /** What was asked about the last time, and what was found; nothing where that may not be so any more. */
    private List<String> asked = List.of();

    private int[] found = {};
    private int[] foundRanks = {};

    // All guarded by this. Names have places, in the order in which they were first asked for; slots tell these.

    private @Nullable String[] names = {};
    private int[] numbers = {};
    /** Of each name among all, by name; void while there are names without one. */
    private int[] ranks = {};

    private int size;
    private boolean ranked;

    // A power of two of slots, several times as many as there are nodes. Names that share one have slots side by
    // side: if one took the other's, both would be looked up elsewhere in memory again and again.

    private int[] places = {EMPTY};
    /** Who makes room where all are taken; not the same again and again. */
    private int turn;

    /**
     * An index of accounts' numbers.
     *
     * @param accounts finds the number of a node's account, {@link #UNKNOWN} if there is none; each account that is closed
     *     must be reported to {@link #forget}
     */
    NodeIndex(ToIntFunction<String> accounts) {
        this.accounts = accounts;
    }

    /** The account of a node; {@link #UNKNOWN} where there is none. */
    synchronized int number(String node) {
        int place = places[slot(node)];
        return isAt(place, node) ? numbers[place] : accounts.applyAsInt(node);
    }

    /**
     * The same for many, who will be asked for again by the same strings.
     *
     * @param into their numbers; may be longer
     * @param order their ranks by name among those that have numbers, others come last; may be longer
     */
    @SuppressWarnings("ReferenceEquality") // an equal one is looked up
    synchronized void numbers(List<String> of, int[] into, int[] order) {
        if (of != asked || of.isEmpty()) {
            find(of);
        }
        System.arraycopy(found, 0, into, 0, of.size());
        System.arraycopy(foundRanks, 0, order, 0, of.size());
    }

    private void find(List<String> of) {
        makeRoom(of.size());
        boolean all = true;
        for (int i = 0; i < of.size(); i++) {
            found[i] = place(of.get(i));
            all &= found[i] != EMPTY;
        }
        rank();
        for (int i = 0; i < of.size(); i++) {
            int place = found[i];
            found[i] = place == EMPTY ? UNKNOWN : numbers[place];
            foundRanks[i] = place == EMPTY ? LAST : ranks[place];
        }
        // One without an account may get one; one that can be changed may be another the next time.
        asked = all && isImmutable(of) ? of : List.of();
    }

    @SuppressWarnings("ReferenceEquality") // by its contract it copies others
    private static boolean isImmutable(List<String> list) {
        return List.copyOf(list) == list;
    }

    /** Where it is now; {@link #EMPTY} for one without an account. */
    private int place(String node) {
        int slot = slot(node);
        int place = places[slot];
        if (isAt(place, node)) {
            return place;
        }
        int number = accounts.applyAsInt(node);
        if (number == UNKNOWN) {
            return EMPTY;
        }
        names[size] = node;
        numbers[size] = number;
        places[slot] = size;
        ranked = false;
        return size++;
    }

    /** For so many names that it has not seen. */
    private void makeRoom(int of) {
        if (names.length < 2 * of) {
            places = new int[Integer.highestOneBit(8 * of)];
            names = new @Nullable String[places.length / 2];
            numbers = new int[names.length];
            ranks = new int[names.length];
            found = new int[names.length];
            foundRanks = new int[names.length];
            clear();
        } else if (size + of > names.length) {
            clear();
        }
    }

    private void clear() {
        Arrays.fill(places, EMPTY);
        Arrays.fill(names, null);
        size = 0;
        asked = List.of();
    }

    private void rank() {
        if (ranked) {
            return;
        }
        String[] sorted = Arrays.stream(names, 0, size)
                .filter(name -> name != null)
                .sorted()
                .toArray(String[]::new);
        for (int place = 0; place < size; place++) {
            String name = names[place];
            if (name != null) {
                ranks[place] = Arrays.binarySearch(sorted, name);
            }
        }
        ranked = true;
    }

    /** Where it is, or may be. */
    private int slot(String node) {
        int home = home(node);
        for (int i = 0; i < REACH; i++) {
            int slot = behind(home, i);
            if (places[slot] == EMPTY || isAt(places[slot], node)) {
                return slot;
            }
        }
        turn = (turn + 1) % REACH;
        return behind(home, turn);
    }

    /** Names are often alike but for a number, and so are their hashes: a golden ratio spreads them. */
    private int home(String node) {
        return (node.hashCode() * 0x9E3779B9) >>> Integer.numberOfLeadingZeros(places.length - 1);
    }

    private int behind(int slot, int steps) {
        return (slot + steps) & (places.length - 1);
    }

    @SuppressWarnings("ReferenceEquality") // an equal one is looked up
    private boolean isAt(int place, String node) {
        return place != EMPTY && names[place] == node;
    }

    /** An account is closed, and is not among the others any more; its number may be given again afterwards. */
    synchronized void forget(String node) {
        for (int place = 0; place < size; place++) { // of all: another name may have taken its slot
            if (node.equals(names[place])) {
                names[place] = null;
                asked = List.of();
            }
        }
    }
}
