package io.aliquot.deviceplugin.kubelet;

import java.time.Duration;
import java.util.function.LongSupplier;

/**
 * Compares the Node's allocatable {@code aliquot.io/vgpu} with the slots that this plugin advertises. They may differ
 * for a while, since the kubelet updates the Node's status periodically.
 *
 * <p>Not thread-safe.
 */
final class AllocatableCheck {
    enum Verdict {
        AGREES,
        /** They differ, but not for long enough. */
        TOLERATED,
        /** The Node has none although slots are advertised: the kubelet has dropped the registration. */
        REGISTRATION_LOST,
        /** The Node has another number: another device plugin has registered the resource. */
        OTHER_PLUGIN
    }

    private final LongSupplier nanoTime;
    private final Duration tolerance;
    private long toleratedSince;

    AllocatableCheck(LongSupplier nanoTime, Duration tolerance) {
        this.nanoTime = nanoTime;
        this.tolerance = tolerance;
        restart();
    }

    /** Tolerates a difference from now on, because the advertised slots or the registration have changed. */
    void restart() {
        toleratedSince = nanoTime.getAsLong();
    }

    /** Compares; each verdict but {@link Verdict#TOLERATED} starts the tolerance again. */
    Verdict compare(long allocatable, int advertised) {
        if (allocatable != advertised && nanoTime.getAsLong() - toleratedSince <= tolerance.toNanos()) {
            return Verdict.TOLERATED;
        }
        restart();
        if (allocatable == advertised) {
            return Verdict.AGREES;
        }
        return allocatable == 0 ? Verdict.REGISTRATION_LOST : Verdict.OTHER_PLUGIN;
    }
}
