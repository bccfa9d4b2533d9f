package io.aliquot.scheduler.extensionapi.endpoints;

import io.aliquot.scheduler.extensionapi.machinery.Discovery;
import io.aliquot.scheduler.extensionapi.machinery.JsonResponse;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import org.springframework.http.HttpHeaders;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RequestHeader;
import org.springframework.web.bind.annotation.RestController;

/** Answers discovery, which depends on nothing that may be missing. */
@RestController
public final class DiscoveryController {
    @GetMapping("/apis")
    void groups(@RequestHeader(name = HttpHeaders.ACCEPT, defaultValue = "") String accept, HttpServletResponse answer)
            throws IOException {
        var aggregated = Discovery.aggregatedType(accept);
        if (aggregated.isPresent()) {
            JsonResponse.write(answer, aggregated.get(), Discovery.aggregated());
        } else {
            JsonResponse.write(answer, Discovery.groups());
        }
    }

    @GetMapping(Discovery.GROUP_PATH)
    void group(HttpServletResponse answer) throws IOException {
        JsonResponse.write(answer, Discovery.group());
    }

    @GetMapping(Discovery.VERSION_PATH)
    void resources(HttpServletResponse answer) throws IOException {
        JsonResponse.write(answer, Discovery.resources());
    }
}
