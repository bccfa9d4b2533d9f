package io.aliquot.scheduler.settings;

/** What happens to a pod with a container that uses more GPU memory than its limit, besides an event and a metric. */
public enum OverusePolicy {
    /** Nothing. */
    REPORT,
    /** It is ended. */
    EVICT;

    static OverusePolicy parse(String where, String text) {
        return Settings.oneOf(values(), where, text);
    }
}
