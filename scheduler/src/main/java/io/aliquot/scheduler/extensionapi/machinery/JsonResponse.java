package io.aliquot.scheduler.extensionapi.machinery;

import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import tools.jackson.core.exc.JacksonIOException;
import tools.jackson.databind.json.JsonMapper;

/** Writes JSON. Spring's message converters would compare the types that they write with the client's Table types. */
public final class JsonResponse {
    private JsonResponse() {}

    public static byte[] json(Object body) {
        return JsonMapper.shared().writeValueAsBytes(body);
    }

    public static void write(HttpServletResponse response, Object body) throws IOException {
        byte[] json = json(body);
        response.setContentType("application/json");
        response.setContentLength(json.length);
        response.getOutputStream().write(json);
    }

    /** Writes a large body without all of it in memory, so that a few lists of tens of thousands of objects fit. */
    public static void stream(HttpServletResponse response, Object body) throws IOException {
        response.setContentType("application/json");
        try {
            JsonMapper.shared().writeValue(response.getOutputStream(), body);
        } catch (JacksonIOException e) { // an IOException of the stream: the client is gone
            throw e.getCause();
        }
    }
}
