package io.aliquot.scheduler.settings;

/** What happens to a pod with a container that does not see the files that limit it, besides an event and a metric. */
public enum UnlimitedPolicy {
    /** Nothing. */
    REPORT,
    /** It is ended. */
    END;

    static UnlimitedPolicy parse(String where, String text) {
        return Settings.oneOf(values(), where, text);
    }
}
