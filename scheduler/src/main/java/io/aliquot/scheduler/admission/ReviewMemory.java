package io.aliquot.scheduler.admission;

import java.util.concurrent.Semaphore;

/**
 * Limits what the reviews under way keep of their pods, each alone and all together, by estimates. Of each review a part
 * is free, and it covers all but unusual pods: however many large pods are under way, small ones are admitted. Thread-safe.
 */
final class ReviewMemory {
    /** In bytes, of one review: pods of up to about 10 containers. */
    static final int FREE = 64 << 10;
    /** In bytes, of one review: about 200 containers, or 65,000 environment variables. */
    static final int MOST = 1 << 20;
    /** In bytes, of all reviews together, beyond {@link #FREE} of each. */
    static final int SHARED = 4 << 20;

    private static final int BLOCK = 64 << 10;

    private final Semaphore blocks = new Semaphore(SHARED / BLOCK);

    Share share() {
        return new Share();
    }

    /** The memory of one review. Not thread-safe. */
    final class Share implements AutoCloseable {
        private int used;
        private int taken;

        /**
         * Adds to what the review keeps.
         *
         * @throws DeniedException if it is more than one review may keep, or if other reviews keep too much now
         */
        void take(int bytes) {
            used += bytes;
            if (used > MOST) {
                throw DeniedException.tooLarge();
            }
            while (used > FREE + taken * BLOCK) {
                if (!blocks.tryAcquire()) {
                    throw DeniedException.busy();
                }
                taken++;
            }
        }

        int used() {
            return used;
        }

        /** Subtracts what has been dropped since {@link #used} was this. */
        void backTo(int before) {
            used = before;
        }

        @Override
        public void close() {
            blocks.release(taken);
        }
    }
}
