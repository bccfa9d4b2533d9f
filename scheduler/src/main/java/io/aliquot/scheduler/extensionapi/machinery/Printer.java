package io.aliquot.scheduler.extensionapi.machinery;

import com.fasterxml.jackson.annotation.JsonInclude;
import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.ApiObject;
import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.ListMetadata;
import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.ObjectList;
import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.PartialObjectMetadata;
import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.Row;
import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.Table;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/** Makes the answer to a client from printed objects: as they are, or as a table. */
public record Printer(Resource<?> resource, Format format, String includeObject) {
    public static Printer of(Resource<?> resource, @Nullable String accept, Query query) {
        return new Printer(resource, Format.accepted(accept == null ? "" : accept), query.includeObject());
    }

    public Object one(ApiObject object) {
        return switch (format) {
            case OBJECTS -> object;
            case TABLE ->
                table(
                        new ListMetadata(object.metadata().resourceVersion(), null, null),
                        List.of(object),
                        Function.identity());
        };
    }

    /** The answer prints the objects while it is written. */
    public <T> Object list(ListMetadata metadata, List<T> objects, Function<T, ApiObject> print) {
        return switch (format) {
            case OBJECTS ->
                new ObjectList(
                        Discovery.GROUP_VERSION,
                        resource.kind() + "List",
                        metadata,
                        () -> objects.stream().map(print).iterator());
            case TABLE -> table(metadata, objects, print);
        };
    }

    /** The object of a bookmark. */
    Object bookmark(String version, @Nullable Map<String, String> annotations) {
        return switch (format) {
            case OBJECTS ->
                new Bookmark(Discovery.GROUP_VERSION, resource.kind(), new BookmarkMetadata(version, annotations));
            case TABLE -> table(new ListMetadata(version, null, null), List.<ApiObject>of(), Function.identity());
        };
    }

    private record Bookmark(String apiVersion, String kind, BookmarkMetadata metadata) {}

    @JsonInclude(JsonInclude.Include.NON_NULL)
    private record BookmarkMetadata(
            String resourceVersion, @Nullable Map<String, String> annotations) {}

    private <T> Table table(ListMetadata metadata, List<T> objects, Function<T, ApiObject> print) {
        return new Table(
                metadata,
                resource.columns(),
                () -> objects.stream().map(print).map(this::row).iterator());
    }

    private Row row(ApiObject object) {
        return new Row(
                resource.cells(object),
                switch (includeObject) {
                    case "None" -> null;
                    case "Object" -> object;
                    default -> new PartialObjectMetadata(object.metadata());
                });
    }
}
