package io.aliquot.scheduler.extensionapi.endpoints;

import io.aliquot.api.names.Sha256;
import io.aliquot.scheduler.extensionapi.machinery.Discovery;
import io.aliquot.scheduler.extensionapi.machinery.JsonResponse;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.springframework.http.MediaType;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** Serves the description of the group, OpenAPI 3.0, for {@code kubectl explain}. */
@RestController
public final class OpenApiController {
    private static final String PATH = "/openapi/v3" + Discovery.VERSION_PATH;

    private final byte[] document = JsonResponse.json(OpenApi.document());
    /** The API server asks again for a document when its address in the index changes. */
    private final Map<String, Object> index;

    OpenApiController() {
        String hash = Sha256.hex(new String(document, StandardCharsets.UTF_8));
        index = Map.of(
                "paths",
                Map.of(Discovery.VERSION_PATH.substring(1), Map.of("serverRelativeURL", PATH + "?hash=" + hash)));
    }

    @GetMapping("/openapi/v3")
    ResponseEntity<byte[]> index() {
        return json(JsonResponse.json(index));
    }

    @GetMapping(PATH)
    ResponseEntity<byte[]> document() {
        return json(document);
    }

    private static ResponseEntity<byte[]> json(byte[] body) {
        return ResponseEntity.ok().contentType(MediaType.APPLICATION_JSON).body(body);
    }
}
