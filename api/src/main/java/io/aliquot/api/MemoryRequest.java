package io.aliquot.api;

/** How much of a card's memory a vGPU asks for. */
public sealed interface MemoryRequest {
    /** The MiB this means on a card with {@code cardMiB}; more than the card has where it can't fit. */
    int on(int cardMiB);

    /** So many MiB, 1 to {@value Vgpu#LARGEST_MIB}. */
    record Mebibytes(int amount) implements MemoryRequest {
        @Override
        public int on(int cardMiB) {
            return amount;
        }
    }

    /** So many percent of the card, 1 to 100, rounded down to a MiB but never to nothing. */
    record Percentage(int percent) implements MemoryRequest {
        @Override
        public int on(int cardMiB) {
            return Math.max(1, (int) ((long) cardMiB * percent / 100));
        }
    }

    /** All of it. */
    record WholeCard() implements MemoryRequest {
        @Override
        public int on(int cardMiB) {
            return cardMiB;
        }
    }
}
