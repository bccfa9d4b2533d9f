package io.aliquot.lab;

import static io.aliquot.lab.LabScripts.bash;
import static org.assertj.core.api.Assertions.assertThat;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import io.aliquot.lab.LabScripts.Result;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executors;
import java.util.function.Predicate;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** {@code ./aliquot release} to a registry of this test's own, behind a proxy that can fail: {@code --long release}. */
@LongTier.Only
class ReleaseTest {
    private static final Path ROOT = Path.of("..").toAbsolutePath().normalize();
    private static final List<String> REPOSITORIES =
            List.of("aliquot-scheduler", "aliquot-device-plugin", "aliquot-fake-driver", "charts/aliquot");
    private static final HttpClient CLIENT = HttpClient.newHttpClient();
    private static final Set<String> HEADERS_OF_A_CONNECTION =
            Set.of("connection", "host", "content-length", "transfer-encoding", "expect", "upgrade", "http2-settings");

    @TempDir
    @SuppressWarnings("NullAway.Init")
    private static Path folder;

    @SuppressWarnings("NullAway.Init")
    private static HttpServer proxy;

    /** What the proxy stands before. */
    @SuppressWarnings("NullAway.Init")
    private static volatile Registry registry;

    /** The method and path of each request, such as {@code PUT /v2/r/charts/aliquot/manifests/0.2.0}. */
    private static final ConcurrentLinkedQueue<String> REQUESTS = new ConcurrentLinkedQueue<>();

    private static volatile Predicate<String> fails = request -> false;

    @BeforeAll
    static void publishesARelease() throws Exception {
        registry = Registry.onMachine(folder);
        proxy = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        proxy.setExecutor(Executors.newVirtualThreadPerTaskExecutor());
        proxy.createContext("/", ReleaseTest::forward);
        proxy.start();
        for (String name : List.of("right", "other")) {
            assertThat(bash("cd '" + folder
                                    + "' && COSIGN_PASSWORD=secret $(release_program cosign) generate-key-pair --output-key-prefix "
                                    + name + " 2>&1")
                            .success())
                    .isTrue();
        }
        Result released = bash("COSIGN_PASSWORD=secret '" + ROOT + "/aliquot' release --registry " + repository()
                + " --key '" + folder.resolve("right.key") + "' < /dev/null 2>&1");
        System.out.println(released.output());
        assertThat(released.success()).as(released.output()).isTrue();
    }

    @AfterAll
    static void stop() {
        if (proxy != null) {
            proxy.stop(0);
        }
        if (registry != null) {
            registry.close();
        }
    }

    @BeforeEach
    void nothingFails() {
        fails = request -> false;
        REQUESTS.clear();
    }

    /** The images, and the versions of Kubernetes, are those of the published chart, as a user gets it. */
    @Test
    void imagesTxtIsWhatThePublishedChartNames() throws Exception {
        Set<String> named = new TreeSet<>();
        for (String kubernetes : bash("kubernetes_versions").output().strip().split("\n", -1)) {
            String yaml = bash("$(helm_program) template aliquot oci://" + repository()
                            + "/charts/aliquot --plain-http --version "
                            + version() + " --namespace aliquot --kube-version " + kubernetes
                            + " --values ../charts/aliquot/ci/fake-driver-values.yaml 2> /dev/null")
                    .output();
            Pattern.compile("(?m)^ *image: \"(.*)\"$")
                    .matcher(yaml)
                    .results()
                    .forEach(image -> named.add(image.group(1)));
        }

        assertThat(Files.readAllLines(ROOT.resolve("target/release/images.txt")))
                .containsExactlyElementsOf(named);
        assertThat(named)
                .filteredOn(image -> image.startsWith(repository()))
                .hasSize(3)
                .allMatch(image -> image.contains("@sha256:"));
    }

    /** That before stays whole under its tags, and the repeated command sends no layer again. */
    @ParameterizedTest
    @CsvSource({
        "a layer,    PATCH, /v2/r/aliquot-device-plugin/blobs/uploads/.*",
        "a manifest, PUT,   /v2/r/aliquot-device-plugin/manifests/sha256:.*",
        "the chart,  PUT,   /v2/r/charts/aliquot/manifests/sha256:.*"
    })
    void aRegistryThatFailsKeepsTheReleaseBefore(String what, String method, String path) throws Exception {
        Map<String, String> released = digests(repository());
        Registry whole = registry;
        try (var fresh = Registry.onMachine(folder)) {
            registry = fresh;
            for (String name : REPOSITORIES) {
                crane("push --index ../target/release/layouts/aliquot-fake-driver " + repository() + "/" + name + ":"
                        + version());
            }
            Map<String, String> before = digests(repository());
            fails = request -> request.matches(method + " " + path);

            Result result = bash("publish_release " + repository() + " '' 2>&1");

            assertThat(result.success()).as(what).isFalse();
            assertThat(result.output())
                    .contains("What the registry had before is as it was")
                    .contains("Repeat the command: ./aliquot release --registry " + repository() + " ...");
            assertThat(digests(repository())).isEqualTo(before).doesNotContainValue(released.get("aliquot-scheduler"));
            fails = request -> false;
            REQUESTS.clear();

            assertThat(bash("publish_release " + repository() + " '' 2>&1").success())
                    .isTrue();

            assertThat(digests(repository())).isEqualTo(released);
            assertThat(REQUESTS).noneMatch(request -> request.startsWith("PATCH /v2/r/aliquot-scheduler/"));
        } finally {
            registry = whole;
        }
    }

    @Test
    void signaturesAndAttestationsPassWithTheirKeyAlone() throws Exception {
        for (String name : REPOSITORIES) {
            assertThat(cosign("verify --key right.pub", name).success())
                    .as(name)
                    .isTrue();
            assertThat(cosign("verify-attestation --type slsaprovenance1 --key right.pub", name)
                            .success())
                    .as(name)
                    .isTrue();
            Result other = cosign("verify --key other.pub", name);
            assertThat(other.success()).isFalse();
            assertThat(other.output()).contains("no matching signatures");
        }
    }

    /** One byte of the manifest, in the registry's own folder. */
    @Test
    void anImageThatWasChangedFailsTheVerification() throws Exception {
        String copy = repository().replace("/r", "/changed") + "/aliquot-fake-driver";
        crane("copy --all-tags " + repository() + "/aliquot-fake-driver " + copy);
        Path manifest = Files.createTempFile(folder, "manifest", ".json");
        Files.writeString(
                manifest,
                bash("$(release_program crane) manifest " + copy + ":" + version())
                        .output()
                        .replaceFirst("\"amd64\"", "\"amd65\""));
        HttpResponse<String> put = CLIENT.send(
                HttpRequest.newBuilder(
                                URI.create("http://" + copy.replaceFirst("/", "/v2/") + "/manifests/" + version()))
                        .header("Content-Type", "application/vnd.oci.image.index.v1+json")
                        .PUT(HttpRequest.BodyPublishers.ofFile(manifest))
                        .build(),
                HttpResponse.BodyHandlers.ofString());
        assertThat(put.statusCode()).as(put.body()).isEqualTo(201);

        Result changed =
                bash("cd '" + folder + "' && $(release_program cosign) verify --key right.pub --insecure-ignore-tlog "
                        + copy + ":" + version() + " 2>&1");

        assertThat(changed.success()).isFalse();
        assertThat(changed.output()).contains("no signatures found");
    }

    @Test
    void theFilesHaveTheirChecksums() throws Exception {
        assertThat(bash("cd ../target/release && sha256sum --check --quiet SHA256SUMS")
                        .success())
                .isTrue();
        assertThat(bash("cut -d ' ' -f 3 ../target/release/SHA256SUMS").output().lines())
                .contains(
                        "aliquot-" + version() + ".tgz",
                        "images.txt",
                        "notes.md",
                        "provenance.json",
                        "sbom/aliquot-scheduler-amd64.spdx.json");
        assertThat(Files.readString(ROOT.resolve("target/release/sbom/aliquot-device-plugin-amd64.spdx.json")))
                .contains("\"libc6\"")
                .contains("grpc-netty-shaded");
    }

    /** The checkout at another path, in another time zone, with an empty build cache and later. */
    @Test
    void anotherCheckoutGivesTheSameDigests() throws Exception {
        Path other = Files.createDirectories(folder.resolve("a/checkout/elsewhere"));
        assertThat(bash("git -C '" + ROOT
                                + "' ls-files --cached --others --exclude-standard -z | tar --create --directory '"
                                + ROOT
                                + "' --null --ignore-failed-read --files-from - | tar --extract --touch --directory '"
                                + other + "'")
                        .success())
                .isTrue();
        // The packages come from the mirror once; their checksums are in the lock file.
        Path images = Files.createDirectories(folder.resolve("cache/aliquot/images"));
        Files.createSymbolicLink(
                images.resolve("packages"), Path.of(bash("echo $cache").output(), "images/packages"));
        Result built = bash(
                "export XDG_CACHE_HOME='" + folder.resolve("cache") + "' TZ=Asia/Kathmandu; cd '" + other
                        + "' && bash -c '. lab/all.sh; check_jdk; build_aliquot && build_native_arm64 && mkdir -p \"$cache/images/tmp\" &&"
                        + " for image in \"${release_images[@]}\"; do contained write_layout \"$image\" \"$lab/$image\" $(image_architectures \"$image\") & wait $! || exit 1; done' 2>&1");
        assertThat(built.success()).as(built.output()).isTrue();

        for (String image : REPOSITORIES.subList(0, 3)) {
            assertThat(Files.readString(other.resolve(".lab/" + image + "/index.json")))
                    .as(image)
                    .isEqualTo(Files.readString(ROOT.resolve("target/release/layouts/" + image + "/index.json")));
        }
    }

    private static Map<String, String> digests(String repository) {
        return REPOSITORIES.stream()
                .collect(Collectors.toMap(
                        name -> name, name -> crane("digest " + repository + "/" + name + ":" + version())));
    }

    private static String crane(String command) {
        Result result = bash("$(release_program crane) " + command + " 2> /dev/null");
        assertThat(result.success()).as(command).isTrue();
        return result.output();
    }

    private static Result cosign(String command, String name) {
        return bash("cd '" + folder + "' && $(release_program cosign) " + command + " --insecure-ignore-tlog "
                + repository() + "/" + name + ":" + version() + " 2>&1");
    }

    private static String repository() {
        return "127.0.0.1:" + proxy.getAddress().getPort() + "/r";
    }

    private static String version() {
        return bash("project_version").output();
    }

    private static void forward(HttpExchange exchange) throws IOException {
        String request = exchange.getRequestMethod() + " " + exchange.getRequestURI();
        REQUESTS.add(request);
        byte[] body = exchange.getRequestBody().readAllBytes();
        if (fails.test(request)) {
            exchange.close(); // as a registry that was killed
            return;
        }
        HttpRequest.Builder forwarded = HttpRequest.newBuilder(
                        URI.create("http://" + registry.address() + exchange.getRequestURI()))
                .method(exchange.getRequestMethod(), HttpRequest.BodyPublishers.ofByteArray(body));
        exchange.getRequestHeaders().forEach((name, values) -> {
            if (!HEADERS_OF_A_CONNECTION.contains(name.toLowerCase(Locale.ROOT))) {
                values.forEach(value -> forwarded.header(name, value));
            }
        });
        try {
            HttpResponse<byte[]> response = CLIENT.send(forwarded.build(), HttpResponse.BodyHandlers.ofByteArray());
            response.headers().map().forEach((name, values) -> {
                if (!name.equalsIgnoreCase("content-length")) {
                    exchange.getResponseHeaders().put(name, values);
                }
            });
            boolean head = exchange.getRequestMethod().equals("HEAD");
            if (head) {
                response.headers()
                        .firstValue("content-length")
                        .ifPresent(length -> exchange.getResponseHeaders().set("Content-Length", length));
            }
            exchange.sendResponseHeaders(
                    response.statusCode(), head || response.body().length == 0 ? -1 : response.body().length);
            if (!head) {
                exchange.getResponseBody().write(response.body());
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } finally {
            exchange.close();
        }
    }
}
