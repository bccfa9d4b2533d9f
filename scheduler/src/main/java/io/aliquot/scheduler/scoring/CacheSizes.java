package io.aliquot.scheduler.scoring;

/** Sizes of caches: smaller in a small heap, so that caches do not take the memory that the ledger needs. */
public final class CacheSizes {
    private static final long BYTES = Runtime.getRuntime().maxMemory() / 16;

    private CacheSizes() {}

    /**
     * The number of entries that fit into a sixteenth of the heap.
     *
     * @param most upper limit
     * @param bytes size of an entry
     */
    public static int limit(int most, int bytes) {
        return (int) Math.min(most, BYTES / bytes);
    }
}
