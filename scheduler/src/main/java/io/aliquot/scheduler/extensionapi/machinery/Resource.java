package io.aliquot.scheduler.extensionapi.machinery;

import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.ApiObject;
import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.Column;
import java.time.Duration;
import java.time.Instant;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/**
 * A resource of the group.
 *
 * @param <T> an object as the store keeps it
 */
public abstract class Resource<T> {
    private final String kind;
    private final List<Column> columns;
    private final Map<String, Function<T, String>> fields;
    private final WatchCache<T> store;

    /**
     * Describes the resource.
     *
     * @param fields the fields that a field selector may name, with their values
     */
    protected Resource(
            String kind, List<Column> columns, Map<String, Function<T, String>> fields, WatchCache<T> store) {
        this.kind = kind;
        this.columns = columns;
        this.fields = fields;
        this.store = store;
    }

    public final String kind() {
        return kind;
    }

    /** Its name in paths. */
    public final String plural() {
        return kind.toLowerCase(Locale.ROOT) + "s";
    }

    final List<Column> columns() {
        return columns;
    }

    final Map<String, Function<T, String>> fields() {
        return fields;
    }

    public final WatchCache<T> store() {
        return store;
    }

    /** Brings the store up to date, if {@link #isMadeOnDemand}. */
    public void refresh() {}

    /** Brings figures up to date that the store does not have, of objects that are about to be printed for one reader. */
    public void refreshFigures(Collection<T> objects) {}

    /** As {@link #refresh}, for many callers that need no more than a recent state. */
    protected void refreshForWatchers() {
        refresh();
    }

    /** Whether the store changes only when it is refreshed. */
    protected boolean isMadeOnDemand() {
        return false;
    }

    /** Empty for an object of a cluster-scoped resource. */
    protected String namespace(T object) {
        return "";
    }

    protected abstract Map<String, String> labels(T object);

    /** The object as it is now, with usage. */
    public abstract ApiObject print(T object);

    /** The cells of an object that this resource printed, in the order of the columns. */
    protected abstract List<Object> cells(ApiObject printed);

    protected static Column column(String name, String type, int priority, String description) {
        return new Column(name, type, name.equals("Name") ? "name" : "", description, priority);
    }

    /** As kubectl writes ages (k8s.io/apimachinery, duration.HumanDuration), with one unit less. */
    protected static String age(@Nullable String created, Instant now) {
        if (created == null) {
            return "<unknown>";
        }
        Duration age = Duration.between(Instant.parse(created), now);
        if (age.toSeconds() < 120) {
            return Math.max(0, age.toSeconds()) + "s";
        }
        if (age.toMinutes() < 120) {
            return age.toMinutes() + "m";
        }
        return age.toHours() < 48 ? age.toHours() + "h" : age.toDays() + "d";
    }

    /** {@code part / whole}, with {@code -} for an unknown part. */
    protected static String fraction(@Nullable Object part, @Nullable Object whole, String unit) {
        if (whole == null) {
            return "-";
        }
        return (part == null ? "-" : part) + "/" + whole + unit;
    }
}
