package io.aliquot.scheduler.extensionapi;

import static org.assertj.core.api.Assertions.assertThat;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.HashSet;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.springframework.context.ConfigurableApplicationContext;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** The web page's files over HTTP. A real browser opens them in the lab's tests. */
class WebPageHttpTest {
    private static final String UI = "/apis/gpu.aliquot.io/v1alpha1/ui/";
    private static final String ORIGIN = "https://other.example";

    private static final HttpClient CLIENT = HttpClient.newHttpClient();
    private static ConfigurableApplicationContext context;

    @BeforeAll
    static void start() {
        context = ObjectsProgram.start();
    }

    @AfterAll
    static void stop() {
        context.close();
    }

    @ParameterizedTest
    @CsvSource({
        "'', text/html",
        "index.html, text/html",
        "app.js, text/javascript",
        "style.css, text/css",
        "icon.svg, image/svg+xml",
        "standalone.module.js, text/javascript",
        "uPlot.esm.js, text/javascript",
        "uPlot.min.css, text/css"
    })
    void aFileHasItsTypeAndTheHeadersThatProtectItsUser(String name, String type) throws Exception {
        HttpResponse<String> file = send("GET", UI + name, Map.of());

        assertThat(file.statusCode()).isEqualTo(200);
        assertThat(file.body()).isNotEmpty();
        assertThat(header(file, "Content-Type")).startsWith(type);
        assertThat(header(file, "Content-Security-Policy").split("; "))
                .containsExactlyInAnyOrder(
                        "default-src 'none'",
                        "script-src 'self'",
                        "style-src 'self'",
                        "connect-src 'self'",
                        "img-src 'self' data:",
                        "frame-ancestors 'none'",
                        "base-uri 'none'",
                        "form-action 'none'");
        assertThat(header(file, "X-Content-Type-Options")).isEqualTo("nosniff");
        assertThat(header(file, "Referrer-Policy")).isEqualTo("no-referrer");
        assertThat(header(file, "Cache-Control")).isEqualTo("no-cache");
    }

    @Test
    void aKnownVersionIsNotSentAgain() throws Exception {
        HttpResponse<String> file = send("GET", UI + "app.js", Map.of());
        HttpResponse<String> again = send("GET", UI + "app.js", Map.of("If-None-Match", header(file, "ETag")));

        assertThat(again.statusCode()).isEqualTo(304);
        assertThat(again.body()).isEmpty();
        assertThat(send("GET", UI + "app.js", Map.of("If-None-Match", "\"other\""))
                        .statusCode())
                .isEqualTo(200);
    }

    @Test
    void theFolderAnswersWithThePage() throws Exception {
        assertThat(send("GET", UI, Map.of()).body())
                .isEqualTo(send("GET", UI + "index.html", Map.of()).body());
    }

    @Test
    void headTellsTheLengthOnly() throws Exception {
        HttpResponse<String> head = send("HEAD", UI + "index.html", Map.of());

        assertThat(head.statusCode()).isEqualTo(200);
        assertThat(head.body()).isEmpty();
        assertThat(header(head, "Content-Length"))
                .isEqualTo(Integer.toString(
                        send("GET", UI + "index.html", Map.of()).body().length()));
    }

    @ParameterizedTest
    @ValueSource(strings = {"POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
    void otherMethodsAreRefused(String method) throws Exception {
        HttpResponse<String> answer = send(method, UI + "index.html", Map.of());

        assertThat(answer.statusCode()).isEqualTo(405);
        assertThat(status(answer).get("reason").asString()).isEqualTo("MethodNotAllowed");
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "nothing.js",
                "index.html/",
                "folder/index.html",
                "application.properties",
                "..",
                "../../application.properties",
                "%2e%2e%2fapplication.properties"
            })
    void otherNamesAreNoFiles(String name) throws Exception {
        HttpResponse<String> answer = send("GET", UI + name, Map.of());

        assertThat(answer.statusCode()).isIn(400, 404);
        assertThat(answer.body()).doesNotContain("management.");
        if (name.equals("nothing.js")) {
            assertThat(status(answer).get("message").asString())
                    .contains("nothing.js")
                    .contains("not found");
        }
    }

    /** Behind kubectl proxy another page could otherwise use its user's rights. */
    @ParameterizedTest
    @CsvSource({
        "OPTIONS, ui/index.html, GET",
        "OPTIONS, gpus, GET",
        "OPTIONS, namespaces/team/gpushares/p1-2, PATCH",
        "GET, ui/index.html, ''",
        "GET, gpus, ''",
        "PATCH, namespaces/team/gpushares/p1-2, ''"
    })
    void noAnswerAllowsAnotherOrigin(String method, String path, String wanted) throws Exception {
        var headers = new java.util.HashMap<>(Map.of("Origin", ORIGIN));
        if (!wanted.isEmpty()) {
            headers.put("Access-Control-Request-Method", wanted);
            headers.put("Access-Control-Request-Headers", "content-type");
        }
        HttpResponse<String> answer = send(method, "/apis/gpu.aliquot.io/v1alpha1/" + path, headers);

        assertThat(answer.headers().map().keySet())
                .extracting(name -> name.toLowerCase(Locale.ROOT))
                .noneMatch(name -> name.startsWith("access-control-"));
    }

    @Test
    void thePageLoadsNothingThatIsNotServedAndNothingFromElsewhere() throws Exception {
        Set<String> loaded = new HashSet<>(Set.of("index.html"));
        Set<String> left = new HashSet<>(loaded);
        while (!left.isEmpty()) {
            String name = left.iterator().next();
            left.remove(name);
            HttpResponse<String> file = send("GET", UI + name, Map.of());
            assertThat(file.statusCode()).as(name).isEqualTo(200);
            Matcher reference = Pattern.compile(
                            "(?:href=\"|src=\"|from ?['\"]|import\\(['\"])(?:\\./)?([^'\"#?$]+)['\"]")
                    .matcher(name.startsWith("uPlot") ? "" : file.body());
            while (reference.find()) {
                assertThat(reference.group(1)).as("in " + name).matches("[A-Za-z.]+");
                if (loaded.add(reference.group(1))) {
                    left.add(reference.group(1));
                }
            }
        }
        assertThat(loaded).contains("app.js", "api.js", "style.css", "standalone.module.js");
    }

    private static JsonNode status(HttpResponse<String> answer) {
        JsonNode status = JsonMapper.shared().readTree(answer.body());
        assertThat(status.get("kind").asString()).isEqualTo("Status");
        return status;
    }

    private static String header(HttpResponse<String> answer, String name) {
        return answer.headers().firstValue(name).orElse("");
    }

    private static HttpResponse<String> send(String method, String path, Map<String, String> headers) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(ObjectsProgram.url(context) + path))
                .method(method, method.equals("PATCH") ? BodyPublishers.ofString("{}") : BodyPublishers.noBody());
        headers.forEach(request::header);
        return CLIENT.send(request.build(), BodyHandlers.ofString());
    }
}
