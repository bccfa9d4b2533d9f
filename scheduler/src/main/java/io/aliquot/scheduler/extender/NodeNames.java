package io.aliquot.scheduler.extender;

import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;
import tools.jackson.core.JsonParser;
import tools.jackson.core.JsonToken;

/*
 * kube-scheduler sends the names of all its nodes with every pod. A name that was read before is the same object again:
 * no garbage, its hash is known, and whoever looks it up compares references. A slot holds one name and a new one takes
 * the place of another, so that names nobody sends any more cost nothing; with slots for some ten times the nodes of a
 * large cluster few names share one. Racing readers at worst make a name anew.
 */
/** Reads a list of node names. */
final class NodeNames {
    private static final int SLOTS = 1 << 16;

    private final @Nullable String[] known = new @Nullable String[SLOTS];
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
        int slot = (hash ^ (hash >>> 16)) & (SLOTS - 1);
        String there = known[slot];
        if (there != null && same(there, text, offset, length)) {
            return there;
        }
        var name = new String(text, offset, length);
        known[slot] = name;
        return name;
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
