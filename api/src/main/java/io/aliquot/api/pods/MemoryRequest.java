package io.aliquot.api.pods;

import static io.aliquot.api.format.FormatException.expect;

import io.aliquot.api.nodes.Gpu;

/** The device memory that a container requests for each of its vGPUs. */
public sealed interface MemoryRequest {
    /**
     * The memory in MiB if the vGPU is on this GPU.
     *
     * @param cardMiB the memory of the GPU that one vGPU can get
     * @return more than {@code cardMiB} if the request does not fit the GPU
     */
    int on(int cardMiB);

    /** An amount in MiB, 1 to {@value Gpu#LARGEST_MIB}. */
    record Mebibytes(int amount) implements MemoryRequest {
        public Mebibytes {
            expect(amount >= 1 && amount <= Gpu.LARGEST_MIB, "MiB from 1 to " + Gpu.LARGEST_MIB, amount);
        }

        @Override
        public int on(int cardMiB) {
            return amount;
        }
    }

    /** A part of the GPU's memory in percent, 1 to 100; rounded down to a MiB, at least 1 MiB. */
    record Percentage(int percent) implements MemoryRequest {
        public Percentage {
            expect(percent >= 1 && percent <= 100, "a percentage from 1 to 100", percent);
        }

        @Override
        public int on(int cardMiB) {
            return Math.max(1, (int) ((long) cardMiB * percent / 100));
        }
    }

    /** All memory of the GPU. */
    record WholeCard() implements MemoryRequest {
        @Override
        public int on(int cardMiB) {
            return cardMiB;
        }
    }
}
