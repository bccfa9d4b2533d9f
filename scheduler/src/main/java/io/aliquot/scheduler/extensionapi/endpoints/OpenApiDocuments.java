package io.aliquot.scheduler.extensionapi.endpoints;

import io.aliquot.api.format.Sha256;
import io.aliquot.scheduler.extensionapi.machinery.Discovery;
import io.aliquot.scheduler.extensionapi.machinery.JsonResponse;
import java.util.Map;

/** The description of the group, OpenAPI 3.0, as JSON, and the index that names it. */
public final class OpenApiDocuments {
    public static final String INDEX_PATH = "/openapi/v3";
    public static final String PATH = INDEX_PATH + Discovery.VERSION_PATH;

    private OpenApiDocuments() {}

    public static byte[] document() {
        return JsonResponse.json(OpenApi.document());
    }

    /** The API server asks again for a document when its address in the index changes. */
    public static byte[] index(byte[] document) {
        return JsonResponse.json(Map.of(
                "paths",
                Map.of(
                        Discovery.VERSION_PATH.substring(1),
                        Map.of("serverRelativeURL", PATH + "?hash=" + Sha256.hex(document)))));
    }
}
