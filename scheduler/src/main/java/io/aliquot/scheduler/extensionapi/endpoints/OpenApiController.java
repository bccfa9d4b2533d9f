package io.aliquot.scheduler.extensionapi.endpoints;

import org.springframework.http.MediaType;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** Serves the description of the group, OpenAPI 3.0, for {@code kubectl explain}. */
@RestController
public final class OpenApiController {
    private final byte[] document = OpenApiDocuments.document();
    private final byte[] index = OpenApiDocuments.index(document);

    @GetMapping(OpenApiDocuments.INDEX_PATH)
    ResponseEntity<byte[]> index() {
        return json(index);
    }

    @GetMapping(OpenApiDocuments.PATH)
    ResponseEntity<byte[]> document() {
        return json(document);
    }

    private static ResponseEntity<byte[]> json(byte[] body) {
        return ResponseEntity.ok().contentType(MediaType.APPLICATION_JSON).body(body);
    }
}
