package io.aliquot.scheduler.extensionapi;

import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.Map;
import org.springframework.http.HttpHeaders;
import org.springframework.http.MediaType;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RequestHeader;
import org.springframework.web.bind.annotation.RestController;
import tools.jackson.databind.json.JsonMapper;

/** Answers discovery, which depends on nothing that may be missing. */
@RestController
final class DiscoveryController {
    private static final JsonMapper JSON = JsonMapper.shared();

    @GetMapping("/apis")
    void groups(@RequestHeader(name = HttpHeaders.ACCEPT, defaultValue = "") String accept, HttpServletResponse answer)
            throws IOException {
        var aggregated = Discovery.aggregatedType(accept);
        if (aggregated.isPresent()) {
            write(answer, aggregated.get(), Discovery.aggregated());
        } else {
            write(answer, MediaType.APPLICATION_JSON_VALUE, Discovery.groups());
        }
    }

    @GetMapping(Discovery.GROUP_PATH)
    void group(HttpServletResponse answer) throws IOException {
        write(answer, MediaType.APPLICATION_JSON_VALUE, Discovery.group());
    }

    @GetMapping(Discovery.VERSION_PATH)
    void resources(HttpServletResponse answer) throws IOException {
        write(answer, MediaType.APPLICATION_JSON_VALUE, Discovery.resources());
    }

    private static void write(HttpServletResponse answer, String type, Map<String, Object> body) throws IOException {
        byte[] json = JSON.writeValueAsBytes(body);
        // Not setContentType, which Tomcat would parse and write differently.
        answer.setHeader(HttpHeaders.CONTENT_TYPE, type);
        answer.setContentLength(json.length);
        answer.getOutputStream().write(json);
    }
}
