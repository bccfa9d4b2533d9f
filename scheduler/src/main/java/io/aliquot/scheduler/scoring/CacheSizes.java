package io.aliquot.scheduler.scoring;

/** How much may be remembered to save time: less in a small heap, so that it never costs the room for what must be kept. */
public final class CacheSizes {
    private static final long BYTES = Runtime.getRuntime().maxMemory() / 16;

    private CacheSizes() {}

    /**
     * As many as a sixteenth of the heap holds.
     *
     * @param most however large the heap is
     * @param bytes of each
     */
    public static int most(int most, int bytes) {
        return (int) Math.min(most, BYTES / bytes);
    }
}
