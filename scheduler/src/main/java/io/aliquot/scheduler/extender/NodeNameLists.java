package io.aliquot.scheduler.extender;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import tools.jackson.core.JsonParser;
import tools.jackson.core.JsonToken;
import tools.jackson.databind.DeserializationContext;
import tools.jackson.databind.ValueDeserializer;

/*
 * How lists are recognized. kube-scheduler sends the names of all nodes that passed its own filters with every pod, mostly
 * the same names, in a different order each time. A list is therefore identified by the sum of the hashes of its names,
 * whatever their order. Names read by Jackson and looked up one by one cost 42 us of CPU time more for each pod with 1,000
 * nodes (98 and 140 us for filter and prioritize with their JSON; JMH, both variants in one run), 8 % of a pod; with 100
 * nodes nothing. The sum has 64 bits and is keyed. If two sets had the same sum, the answer would name a node that
 * kube-scheduler had not sent; kube-scheduler would reject it and retry the pod.
 */
/** Reads a list of node names. Names that were read before, in any order, are the same list object. */
final class NodeNameLists extends ValueDeserializer<List<String>> {
    /** The most names in cached lists, some 4 MB. */
    private static final int NAMES = 1 << 16;

    private final long key = new SecureRandom().nextLong() | 1;
    private final Cache<Long, List<String>> lists = Caffeine.newBuilder()
            .maximumWeight(NAMES)
            .weigher((Long sum, List<String> names) -> 32 + names.size())
            .executor(Runnable::run)
            .build();

    /** Those that are at rest: each is used by one reader. */
    private final Queue<Letters> letters = new ConcurrentLinkedQueue<>();

    /** A list's names, one after another. */
    private static final class Letters {
        private char[] text = new char[1 << 10];
        private int[] ends = new int[1 << 6];
        private int count;

        void add(char[] name, int offset, int length) {
            int start = count == 0 ? 0 : ends[count - 1];
            if (text.length - start < length) {
                text = Arrays.copyOf(text, 2 * (start + length));
            }
            if (ends.length == count) {
                ends = Arrays.copyOf(ends, 2 * count);
            }
            System.arraycopy(name, offset, text, start, length);
            ends[count++] = start + length;
        }
    }

    @Override
    public List<String> deserialize(JsonParser in, DeserializationContext context) {
        if (!in.isExpectedStartArrayToken()) {
            throw context.wrongTokenException(in, List.class, JsonToken.START_ARRAY, "expected node names");
        }
        Letters read = Objects.requireNonNullElseGet(letters.poll(), Letters::new);
        read.count = 0;
        long sum = 0;
        for (JsonToken token = in.nextToken(); token != JsonToken.END_ARRAY; token = in.nextToken()) {
            if (token != JsonToken.VALUE_STRING) {
                throw context.wrongTokenException(in, String.class, JsonToken.VALUE_STRING, "expected a node's name");
            }
            char[] text = in.getStringCharacters();
            int offset = in.getStringOffset();
            int length = in.getStringLength();
            read.add(text, offset, length);
            sum += hash(text, offset, length);
        }
        List<String> names = lists.get(sum, any -> list(read));
        letters.add(read);
        return names;
    }

    /** Spread over all 64 bits, or sums of those of alike names would be alike (the finalizer of MurmurHash3). */
    private long hash(char[] text, int offset, int length) {
        long hash = key; // an empty name counts, too
        for (int i = offset; i < offset + length; i++) {
            hash = hash * key + text[i];
        }
        hash = (hash ^ (hash >>> 33)) * 0xff51afd7ed558ccdL;
        hash = (hash ^ (hash >>> 33)) * 0xc4ceb9fe1a85ec53L;
        return hash ^ (hash >>> 33);
    }

    private List<String> list(Letters read) {
        var names = new String[read.count];
        int start = 0;
        for (int i = 0; i < names.length; i++) {
            names[i] = new String(read.text, start, read.ends[i] - start);
            start = read.ends[i];
        }
        return List.of(names);
    }
}
