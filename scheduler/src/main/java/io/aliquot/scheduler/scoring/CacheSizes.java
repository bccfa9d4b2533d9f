package io.aliquot.scheduler.scoring;

/** Limits of caches, scaled to the heap, so that in a small heap they leave memory for data that cannot be dropped. */
public final class CacheSizes {
    private static final long BYTES = Runtime.getRuntime().maxMemory() / 16;

    private CacheSizes() {}

    /**
     * The number of entries that fit into a sixteenth of the maximum heap.
     *
     * @param most upper limit, however large the heap is
     * @param bytes size of one entry
     */
    public static int limit(int most, int bytes) {
        return (int) Math.min(most, BYTES / bytes);
    }
}
