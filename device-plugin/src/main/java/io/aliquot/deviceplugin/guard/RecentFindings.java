package io.aliquot.deviceplugin.guard;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import io.aliquot.api.usage.PodContainer;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.api.usage.UsageReport.Finding;
import io.aliquot.api.usage.UsageReport.Problem;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.LongSupplier;

/**
 * What was wrong with containers in the last two minutes, for the scheduler, which writes events about it. Thread-safe. At
 * most {@value UsageReport#MOST_FINDINGS}: of more, those that were found first stay.
 */
public final class RecentFindings {
    /** Longer than the scheduler may take to ask again after a failed attempt. */
    private static final Duration KEPT = Duration.ofMinutes(2);

    private final LongSupplier nanoTime;

    @GuardedBy("this")
    private final Map<Key, Found> found = new LinkedHashMap<>();

    private record Key(PodContainer container, Class<? extends Problem> kind) {}

    private record Found(Finding finding, long at) {}

    /**
     * Without findings.
     *
     * @param nanoTime a clock such as {@link System#nanoTime}
     */
    public RecentFindings(LongSupplier nanoTime) {
        this.nanoTime = nanoTime;
    }

    /** Adds what is wrong now; an earlier problem of the same kind of this container goes. */
    public synchronized void add(PodContainer container, Problem problem) {
        var key = new Key(container, problem.getClass());
        forgetOld();
        if (found.size() < UsageReport.MOST_FINDINGS || found.containsKey(key)) {
            found.put(key, new Found(new Finding(container, problem), nanoTime.getAsLong()));
        }
    }

    /** The findings of the last two minutes. */
    public synchronized List<Finding> list() {
        forgetOld();
        return found.values().stream().map(Found::finding).toList();
    }

    @GuardedBy("this")
    private void forgetOld() {
        long now = nanoTime.getAsLong();
        found.values().removeIf(one -> now - one.at > KEPT.toNanos());
    }
}
