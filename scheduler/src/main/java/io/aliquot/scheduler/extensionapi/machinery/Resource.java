package io.aliquot.scheduler.extensionapi.machinery;

import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.ApiObject;
import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.Column;
import java.time.Duration;
import java.time.Instant;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/**
 * A resource of the group.
 *
 * @param <T> an object as the store keeps it
 */
public interface Resource<T> {
    /** Its name in paths. */
    String plural();

    String kind();

    List<Column> columns();

    WatchCache<T> store();

    /** Brings the store up to date, if {@link #isMadeOnDemand}. */
    default void refresh() {}

    /** Brings figures up to date that the store does not have, of objects that are about to be printed for one reader. */
    default void refreshFigures(Collection<T> objects) {}

    /** As {@link #refresh}, for many callers that need no more than a recent state. */
    default void refreshForWatchers() {
        refresh();
    }

    /** Whether the store changes only when it is refreshed. */
    default boolean isMadeOnDemand() {
        return false;
    }

    /** Empty for an object of a cluster-scoped resource. */
    default String namespace(T object) {
        return "";
    }

    Map<String, String> labels(T object);

    /** The fields that a field selector may name, with their values. */
    Map<String, Function<T, String>> fields();

    /** The object as it is now, with usage. */
    ApiObject print(T object);

    /** The cells of an object that this resource printed, in the order of the columns. */
    List<Object> cells(ApiObject printed);

    static Column column(String name, String type, int priority, String description) {
        return new Column(name, type, name.equals("Name") ? "name" : "", description, priority);
    }

    /** As kubectl writes ages (k8s.io/apimachinery, duration.HumanDuration), with one unit less. */
    static String age(@Nullable String created, Instant now) {
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
    static String fraction(@Nullable Object part, @Nullable Object whole, String unit) {
        if (whole == null) {
            return "-";
        }
        return (part == null ? "-" : part) + "/" + whole + unit;
    }
}
