package io.aliquot.scheduler.extensionapi.webpage;

import io.aliquot.api.format.Sha256;
import io.aliquot.scheduler.extensionapi.machinery.Discovery;
import io.aliquot.scheduler.extensionapi.machinery.StatusException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.springframework.core.io.Resource;
import org.springframework.core.io.support.PathMatchingResourcePatternResolver;
import org.springframework.http.CacheControl;
import org.springframework.http.HttpHeaders;
import org.springframework.http.HttpMethod;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RequestMapping;
import org.springframework.web.bind.annotation.RequestMethod;
import org.springframework.web.bind.annotation.RestController;

/*
 * To RBAC a file is an object of the resource "ui": the path of one has no further segments, and the folder, which
 * answers with the page, is a list of that resource. Behind kubectl proxy the page shares its origin with the user's
 * whole API, so the headers allow no script, style or address but this server's, and no other page may frame it. No
 * answer has a header of CORS: a foreign page cannot send a PATCH.
 */
/** Serves the files of the web page: GET and HEAD. The page reads the objects with the identity of its user. */
@RestController
public final class WebPageController {
    private static final String FOLDER = Discovery.VERSION_PATH + "/ui/";
    private static final String POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
            + "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
    private static final Map<String, String> TYPES = Map.of(
            "html", "text/html;charset=utf-8",
            "js", "text/javascript;charset=utf-8",
            "css", "text/css;charset=utf-8",
            "svg", "image/svg+xml");

    private final Map<String, ResponseEntity<byte[]>> files = new HashMap<>();

    WebPageController() {
        try {
            for (Resource resource : new PathMatchingResourcePatternResolver().getResources("classpath:ui/*.*")) {
                String name = String.valueOf(resource.getFilename());
                Optional.ofNullable(TYPES.get(name.substring(name.lastIndexOf('.') + 1)))
                        .ifPresent(type -> files.put(name, answer(resource, type)));
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static ResponseEntity<byte[]> answer(Resource resource, String type) {
        try {
            byte[] content = resource.getContentAsByteArray();
            return ResponseEntity.ok()
                    .header(HttpHeaders.CONTENT_TYPE, type)
                    .header("Content-Security-Policy", POLICY)
                    .header("X-Content-Type-Options", "nosniff")
                    .header("Referrer-Policy", "no-referrer")
                    .cacheControl(CacheControl.noCache())
                    .eTag(Sha256.hex(content))
                    .body(content);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Spring would answer OPTIONS itself. */
    @RequestMapping(
            path = {FOLDER, FOLDER + "{name}"},
            method = {RequestMethod.GET, RequestMethod.HEAD, RequestMethod.OPTIONS})
    ResponseEntity<byte[]> file(HttpMethod method, @PathVariable Map<String, String> path) {
        if (method.equals(HttpMethod.OPTIONS)) {
            throw new StatusException(405, "the page's files are read with GET and HEAD");
        }
        String name = path.getOrDefault("name", "index.html");
        return Optional.ofNullable(files.get(name)).orElseThrow(() -> StatusException.notFound("ui", name));
    }
}
