package io.aliquot.scheduler.extensionapi;

import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import tools.jackson.databind.json.JsonMapper;

/** Writes JSON. Spring's message converters would compare the types that they write with the client's Table types. */
final class JsonResponse {
    private JsonResponse() {}

    static byte[] json(Object body) {
        return JsonMapper.shared().writeValueAsBytes(body);
    }

    static void write(HttpServletResponse response, Object body) throws IOException {
        byte[] json = json(body);
        response.setContentType("application/json");
        response.setContentLength(json.length);
        response.getOutputStream().write(json);
    }
}
