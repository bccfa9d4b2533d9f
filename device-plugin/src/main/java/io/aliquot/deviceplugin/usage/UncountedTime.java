package io.aliquot.deviceplugin.usage;

import java.util.OptionalInt;

/**
 * Notices GPU time of a container that NVML shows and the shim has not counted, because a program bypasses the shim or
 * writes less into the region than it uses. NVML has to show more than {@value #TOLERATED_PERCENT} points beyond what the
 * shim has counted in each of {@value #SAMPLES} samples, so that a figure that is late, or a kernel that the shim counts
 * at its end, is none. And NVML has to agree with itself: its figures for the GPU's processes add up to the one for the GPU,
 * within {@value #AGREEMENT_PERCENT} points on average, which they do not where MPS runs processes at the same time. The
 * shim counting more than NVML is no finding: copies are counted, and need no kernel.
 *
 * <p>Of one container on one GPU. Not thread-safe.
 */
final class UncountedTime {
    static final int SAMPLES = 10;

    private static final double TOLERATED_PERCENT = 10;
    private static final double AGREEMENT_PERCENT = 5;

    private int samples;
    private double uncounted;
    private double disagreement;

    /**
     * Adds the figures since the sample before, in percent of the GPU's time.
     *
     * @param nvml of the container
     * @param counted by the shim
     * @param processes the sum of NVML's figures for all processes
     * @param gpu NVML's figure for the GPU
     * @return the mean of what was not counted in the last {@value #SAMPLES} samples; empty without a finding
     */
    OptionalInt add(double nvml, double counted, double processes, double gpu) {
        if (nvml - counted <= TOLERATED_PERCENT) {
            samples = 0;
            return OptionalInt.empty();
        }
        uncounted = (samples == 0 ? 0 : uncounted) + nvml - counted;
        disagreement = (samples == 0 ? 0 : disagreement) + processes - gpu;
        if (++samples < SAMPLES) {
            return OptionalInt.empty();
        }
        samples = 0;
        return Math.abs(disagreement) <= AGREEMENT_PERCENT * SAMPLES
                ? OptionalInt.of((int) Math.round(uncounted / SAMPLES))
                : OptionalInt.empty();
    }
}
