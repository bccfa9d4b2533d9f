package io.aliquot.scheduler.settings;

import io.aliquot.api.names.FormatException;
import java.util.Arrays;
import java.util.Locale;
import java.util.stream.Collectors;

/** What happens to a pod with a container that uses more GPU memory than its limit, besides an event and a metric. */
public enum OverusePolicy {
    /** Nothing. */
    REPORT,
    /** It is evicted. */
    EVICT;

    static OverusePolicy parse(String where, String text) {
        return Arrays.stream(values())
                .filter(policy -> policy.print().equals(text))
                .findFirst()
                .orElseThrow(() -> new FormatException(where + ": \"" + text + "\" is unknown; allowed: "
                        + Arrays.stream(values()).map(OverusePolicy::print).collect(Collectors.joining(", "))));
    }

    private String print() {
        return name().toLowerCase(Locale.ROOT);
    }
}
