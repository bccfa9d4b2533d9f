package io.aliquot.scheduler.extensionapi.endpoints;

import io.aliquot.scheduler.extensionapi.machinery.Discovery;
import jakarta.servlet.http.HttpServletRequest;
import java.util.Map;
import org.springframework.http.MediaType;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** Serves the {@link Documents}. */
@RestController
public final class DocumentsController {
    private final Map<String, byte[]> documents = Documents.byPath();

    @GetMapping({"/apis", Discovery.GROUP_PATH, Discovery.VERSION_PATH, Documents.OPEN_API_INDEX, Documents.OPEN_API})
    ResponseEntity<byte[]> document(HttpServletRequest request) {
        return ResponseEntity.ok()
                .contentType(MediaType.APPLICATION_JSON)
                .body(documents.get(request.getServletPath()));
    }
}
