package io.aliquot.scheduler.settings;

import io.aliquot.api.format.Keywords;
import java.util.List;

/** What happens to a pod that uses more than its limits or does not see them, besides an event and a metric. */
public enum OverusePolicy {
    /** Nothing. */
    REPORT,
    /** It is ended. */
    EVICT;

    /** Reads {@code report} for {@link #REPORT}, or the word for {@link #EVICT}. */
    static OverusePolicy parse(String where, String text, String evict) {
        return Keywords.parse(where, text, List.of(values()), policy -> policy == REPORT ? "report" : evict);
    }
}
