package io.aliquot.scheduler.extender;

import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;
import tools.jackson.core.JsonParser;
import tools.jackson.core.JsonToken;

/*
 * kube-scheduler sends the names of all its nodes with every pod. A name that was read before is the same object again:
 * no garbage, its hash is known, and whoever looks it up compares references. Where all slots that a name may have are
 * taken it takes the place of another, so that names nobody sends any more cost nothing; with slots for some six times the
 * nodes of a large cluster that hardly happens. Racing readers at worst make a name anew.
 */
/** Reads a list of node names. */
final class NodeNames {
    private static final int BITS = 15;
    /** A name is in the slot that its hash tells or in one of those behind it, of so many in all. */
    private static final int REACH = 8;

    private final @Nullable String[] known = new @Nullable String[1 << BITS];
    /** Who makes room where all are taken; not the same again and again, so that names that come often find a place. */
    private int turn;
    /** How long the list was the last time. */
    private volatile int usual = 16;

    /** Whose beginning is the current token. */
    List<String> read(JsonParser in) {
        if (in.currentToken() != JsonToken.START_ARRAY) {
            throw WireReader.wrong(in, "a list of node names");
        }
        var names = new ArrayList<String>(usual);
        for (JsonToken token = in.nextToken(); token != JsonToken.END_ARRAY; token = in.nextToken()) {
            if (token != JsonToken.VALUE_STRING) {
                throw WireReader.wrong(in, "a node's name");
            }
            names.add(name(in.getStringCharacters(), in.getStringOffset(), in.getStringLength()));
        }
        usual = names.size();
        return names;
    }

    private String name(char[] text, int offset, int length) {
        int hash = 0;
        for (int i = 0; i < length; i++) {
            hash = 31 * hash + text[offset + i];
        }
        int home = (hash * 0x9E3779B9) >>> (Integer.SIZE - BITS); // alike names have hashes alike: spread
        for (int i = 0; i < REACH; i++) {
            int slot = behind(home, i);
            String there = known[slot];
            if (there == null) {
                return put(slot, new String(text, offset, length));
            }
            if (same(there, text, offset, length)) {
                return there;
            }
        }
        turn = (turn + 1) % REACH;
        return put(behind(home, turn), new String(text, offset, length));
    }

    private String put(int slot, String name) {
        known[slot] = name;
        return name;
    }

    private int behind(int slot, int steps) {
        return (slot + steps) & (known.length - 1);
    }

    private static boolean same(String name, char[] text, int offset, int length) {
        if (name.length() != length) {
            return false;
        }
        for (int i = 0; i < length; i++) {
            if (name.charAt(i) != text[offset + i]) {
                return false;
            }
        }
        return true;
    }
}
