package io.aliquot.scheduler.extensionapi.endpoints;

import io.aliquot.api.format.Sha256;
import io.aliquot.scheduler.extensionapi.machinery.Discovery;
import io.aliquot.scheduler.extensionapi.machinery.JsonResponse;
import java.util.Map;

/** Discovery and the description of the group (OpenAPI 3.0), as JSON: what depends on nothing that may be missing. */
public final class Documents {
    static final String OPEN_API_INDEX = "/openapi/v3";
    static final String OPEN_API = OPEN_API_INDEX + Discovery.VERSION_PATH;

    private Documents() {}

    /** Each document by its path. */
    public static Map<String, byte[]> byPath() {
        byte[] openApi = JsonResponse.json(OpenApi.document());
        // The API server asks again for a document when its address in the index changes.
        String address = OPEN_API + "?hash=" + Sha256.hex(openApi);
        return Map.of(
                "/apis",
                JsonResponse.json(Discovery.groups()),
                Discovery.GROUP_PATH,
                JsonResponse.json(Discovery.group()),
                Discovery.VERSION_PATH,
                JsonResponse.json(Discovery.resources()),
                OPEN_API_INDEX,
                JsonResponse.json(Map.of(
                        "paths", Map.of(Discovery.VERSION_PATH.substring(1), Map.of("serverRelativeURL", address)))),
                OPEN_API,
                openApi);
    }
}
