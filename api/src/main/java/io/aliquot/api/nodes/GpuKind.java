package io.aliquot.api.nodes;

import static io.aliquot.api.format.FormatException.expect;

import io.aliquot.api.format.GpuUuids;
import java.util.regex.Pattern;

/** What a {@link Gpu} of an inventory is: a card, or a part of one that the hardware separates. */
public sealed interface GpuKind {
    /** A whole card, not in MIG mode. */
    Card CARD = new Card();

    /** A whole card, not in MIG mode. */
    record Card() implements GpuKind {}

    /**
     * A MIG instance. Its card is not in the inventory, because nothing can use it as a whole.
     *
     * @param card the card's UUID
     * @param profile as NVIDIA names it, such as {@code 1g.10gb+me}
     * @param slices of compute, 1 to {@code cardSlices}
     * @param cardSlices the card's slices of compute: 7, or 4 of an A30
     * @param multiprocessors of the instance, as NVML reports them; profiles of the same slices may differ
     * @param cardMiB the card's device memory
     */
    record MigInstance(String card, String profile, int slices, int cardSlices, int multiprocessors, int cardMiB)
            implements GpuKind {
        private static final Pattern PROFILE = Pattern.compile("[1-9][0-9]?g\\.[1-9][0-9]{0,3}gb([+-][a-z.]{1,10})?");
        private static final int MOST_SLICES = 64;

        public MigInstance {
            GpuUuids.check(card);
            expect(PROFILE.matcher(profile).matches(), "a MIG profile such as 1g.10gb", profile);
            expect(
                    cardSlices >= 1 && cardSlices <= MOST_SLICES && slices >= 1 && slices <= cardSlices,
                    "slices from 1 to those of the card",
                    slices + " of " + cardSlices);
            expect(
                    multiprocessors >= 1 && cardMiB >= 1 && cardMiB <= Gpu.LARGEST_MIB,
                    "multiprocessors and memory of the card",
                    multiprocessors + " and " + cardMiB);
        }

        /** The profile as it is in names of resources, such as {@code 1g.10gb.me}. */
        public String profileInResources() {
            return profile.replace('+', '.');
        }

        /** Its compute in percent of the card's, by slices, rounded up: 15 for one of seven. */
        public int percent() {
            return (slices * 100 + cardSlices - 1) / cardSlices;
        }

        /** Cores of the card, in percent, as cores of the instance, rounded up; more than 100 if it has fewer. */
        public int coresOf(int cardCores) {
            int own = percent();
            return (cardCores * 100 + own - 1) / own;
        }
    }
}
