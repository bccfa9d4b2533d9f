package io.aliquot.scheduler.inspection;

import jakarta.servlet.http.HttpServletRequest;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.springframework.core.io.ClassPathResource;
import org.springframework.http.MediaType;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** Serves the API's description: OpenAPI 3.1, written by hand. OpenApiTest compares it with the code. */
@RestController
final class OpenApiController {
    private static final String DOCUMENT = "openapi.json";

    private final byte[] document;

    OpenApiController() {
        try {
            document = new ClassPathResource(DOCUMENT).getContentAsByteArray();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @GetMapping(path = "/api/v1/openapi.json", produces = MediaType.APPLICATION_JSON_VALUE)
    byte[] document(HttpServletRequest request) {
        QueryParameters.of(request);
        return document;
    }
}
