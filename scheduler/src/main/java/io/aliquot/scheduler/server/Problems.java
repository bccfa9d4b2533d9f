package io.aliquot.scheduler.server;

import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import org.springframework.http.MediaType;
import org.springframework.http.ProblemDetail;
import tools.jackson.databind.json.JsonMapper;

/** What is answered where something is wrong: problem+json (RFC 9457) below {@value #API}, a line of text elsewhere. */
public final class Problems {
    static final String API = "/api/v1/";

    private Problems() {}

    static boolean asJson(HttpServletRequest request) {
        return request.getRequestURI().startsWith(API);
    }

    /** For those who turn a request away before a controller sees it. */
    public static void write(HttpServletRequest request, HttpServletResponse response, ProblemDetail problem)
            throws IOException {
        response.setStatus(problem.getStatus());
        if (asJson(request)) {
            var fields = new LinkedHashMap<String, Object>();
            fields.put("title", String.valueOf(problem.getTitle()));
            fields.put("status", problem.getStatus());
            fields.put("detail", String.valueOf(problem.getDetail()));
            response.setContentType(MediaType.APPLICATION_PROBLEM_JSON_VALUE);
            response.getOutputStream().write(JsonMapper.shared().writeValueAsBytes(fields));
        } else {
            response.setContentType("text/plain;charset=utf-8");
            response.getOutputStream().write((problem.getDetail() + "\n").getBytes(StandardCharsets.UTF_8));
        }
    }
}
