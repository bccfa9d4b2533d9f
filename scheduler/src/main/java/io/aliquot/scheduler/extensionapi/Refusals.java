package io.aliquot.scheduler.extensionapi;

import java.util.List;

/** Kubernetes' refusals, with its codes and reasons (k8s.io/apimachinery, pkg/api/errors). */
final class Refusals {
    private Refusals() {}

    static StatusException badRequest(String message) {
        return new StatusException(400, "BadRequest", message);
    }

    static StatusException notFound(String resource, String name) {
        return new StatusException(404, "NotFound", resource + ".gpu.aliquot.io \"" + name + "\" not found");
    }

    static StatusException notAcceptable() {
        return new StatusException(
                406,
                "NotAcceptable",
                "the server offers application/json, and as a table application/json;as=Table;g=meta.k8s.io;v=v1");
    }

    static StatusException conflict(String resource, String name, String why) {
        return new StatusException(
                409,
                "Conflict",
                "Operation cannot be fulfilled on " + resource + ".gpu.aliquot.io \"" + name + "\": " + why);
    }

    static StatusException expired(String message) {
        return new StatusException(410, "Expired", message);
    }

    static StatusException unsupportedPatch(String type) {
        return new StatusException(
                415,
                "UnsupportedMediaType",
                "a gpushare takes no patch of type " + type
                        + "; use a merge patch: kubectl patch --type merge, or a JSON patch: --type json");
    }

    /** A field that is not valid or not the caller's to change. */
    static StatusException invalid(String name, String field, String why) {
        return new StatusException(
                422,
                "Invalid",
                "GpuShare.gpu.aliquot.io \"" + name + "\" is invalid: " + field + ": " + why,
                List.of(new StatusException.Cause("FieldValueInvalid", why, field)));
    }

    /** Of a version that this replica has not seen yet; client-go recognizes the cause and lists without a version. */
    static StatusException tooNew(long version, long newest) {
        return new StatusException(
                504,
                "Timeout",
                "Too large resource version: " + version + ", current: " + newest,
                List.of(new StatusException.Cause("ResourceVersionTooLarge", "Too large resource version", "")));
    }
}
