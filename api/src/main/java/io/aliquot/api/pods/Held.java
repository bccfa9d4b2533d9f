package io.aliquot.api.pods;

import com.fasterxml.jackson.annotation.JsonValue;
import java.util.Locale;

/** Whether a container holds a share of a GPU or the whole card. */
public enum Held {
    /** Not said yet. */
    UNKNOWN,
    SHARE,
    WHOLE_CARD;

    public static Held of(boolean exclusive) {
        return exclusive ? WHOLE_CARD : SHARE;
    }

    /** What a container holds that holds both: a whole card only if both are, a share if one is. */
    public Held and(Held other) {
        if (this == SHARE || other == SHARE) {
            return SHARE;
        }
        return this == other ? this : UNKNOWN;
    }

    @JsonValue
    public String print() {
        return name().toLowerCase(Locale.ROOT);
    }
}
