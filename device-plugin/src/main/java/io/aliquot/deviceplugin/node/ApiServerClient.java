package io.aliquot.deviceplugin.node;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.tls.TlsContext;
import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/**
 * An HTTP client for the API server of the cluster that this process runs in; the address comes from the environment
 * that the kubelet sets, the credentials from the pod's service account. Thread-safe.
 *
 * <p>The agent reads and patches one object, on each GPU node. With fabric8's client 7.8.0, which the scheduler uses,
 * this process took 130 MB of memory, and 106 MB without it; the limit is 130 MB (JDK 17, one Node, after 1,000
 * allocations; most of the difference is loaded classes).
 */
public final class ApiServerClient {
    /** Where the kubelet mounts a pod's service account. */
    public static final Path SERVICE_ACCOUNT = Path.of("/var/run/secrets/kubernetes.io/serviceaccount");

    /** The API server refused a request. */
    static final class RefusedException extends IOException {
        private static final long serialVersionUID = 1;

        private final int status;

        RefusedException(int status, String message) {
            super(message);
            this.status = status;
        }

        int status() {
            return status;
        }
    }

    private static final Duration TIMEOUT = Duration.ofSeconds(15);
    private static final JsonMapper JSON = new JsonMapper();

    private final URI base;
    private final HttpClient client;
    private final Path token;
    private final Duration timeout;

    /**
     * Creates a client.
     *
     * @param token the file with the bearer token, read for each request because the kubelet replaces it before it
     *     expires
     * @param timeout of a request, and until a watch begins
     */
    ApiServerClient(URI base, HttpClient client, Path token, Duration timeout) {
        this.base = base;
        this.client = client;
        this.token = token;
        this.timeout = timeout;
    }

    /**
     * Creates a client for the API server of the pod's cluster.
     *
     * @throws IOException if the service account's files cannot be read
     * @throws FormatException if the environment is not that of a pod
     */
    public static ApiServerClient ofPod(Map<String, String> environment, Path serviceAccount) throws IOException {
        String host = environment.getOrDefault("KUBERNETES_SERVICE_HOST", "");
        String port = environment.getOrDefault("KUBERNETES_SERVICE_PORT", "");
        if (!host.matches("[0-9a-zA-Z.:-]+") || !port.matches("[0-9]{1,5}")) {
            throw new FormatException("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT: expected the address of"
                    + " the API server, found \"" + host + "\" and \"" + port + "\"; this program runs in a pod");
        }
        URI base = URI.create("https://" + (host.contains(":") ? "[" + host + "]" : host) + ":" + port);
        try {
            HttpClient client = HttpClient.newBuilder()
                    .version(HttpClient.Version.HTTP_1_1)
                    .connectTimeout(TIMEOUT)
                    .sslContext(TlsContext.of(TlsContext.NO_KEY, TlsContext.trusting(serviceAccount.resolve("ca.crt"))))
                    .build();
            return new ApiServerClient(base, client, serviceAccount.resolve("token"), TIMEOUT);
        } catch (GeneralSecurityException e) {
            throw new IOException("cannot use " + serviceAccount.resolve("ca.crt") + ": " + e.getMessage(), e);
        }
    }

    /** Gets an object or a list. */
    JsonNode get(String path) throws IOException, InterruptedException {
        return send(path, request(path).build());
    }

    /** Applies a JSON merge patch; returns the changed object. */
    JsonNode mergePatch(String path, JsonNode patch) throws IOException, InterruptedException {
        return patch(path, "application/merge-patch+json", patch);
    }

    /** Applies a strategic merge patch, which merges lists by their keys; returns the changed object. */
    JsonNode strategicMergePatch(String path, JsonNode patch) throws IOException, InterruptedException {
        return patch(path, "application/strategic-merge-patch+json", patch);
    }

    private JsonNode patch(String path, String type, JsonNode patch) throws IOException, InterruptedException {
        return send(
                path,
                request(path)
                        .header("Content-Type", type)
                        .method("PATCH", HttpRequest.BodyPublishers.ofByteArray(JSON.writeValueAsBytes(patch)))
                        .build());
    }

    /** Waits for the whole answer; {@link HttpRequest#timeout} waits for its headers only (JDK 25). */
    private JsonNode send(String path, HttpRequest request) throws IOException, InterruptedException {
        CompletableFuture<HttpResponse<byte[]>> answer =
                client.sendAsync(request, HttpResponse.BodyHandlers.ofByteArray());
        try {
            HttpResponse<byte[]> response = answer.get(timeout.toMillis(), TimeUnit.MILLISECONDS);
            return read(path, response.statusCode(), response.body());
        } catch (TimeoutException e) {
            throw new IOException("the API server did not answer " + path + " within " + timeout, e);
        } catch (ExecutionException e) {
            throw e.getCause() instanceof IOException failure ? failure : new IOException(e.getCause());
        } finally {
            answer.cancel(true);
        }
    }

    /** Opens a watch: a stream of events, one line of JSON each. */
    InputStream watch(String path) throws IOException, InterruptedException {
        HttpResponse<InputStream> response =
                client.send(request(path).timeout(timeout).build(), HttpResponse.BodyHandlers.ofInputStream());
        if (response.statusCode() != 200) {
            response.body().close(); // unread, since it may never end; the next list tells the reason
            throw refusal(path, response.statusCode(), "");
        }
        return response.body();
    }

    private HttpRequest.Builder request(String path) throws IOException {
        return HttpRequest.newBuilder(base.resolve(path))
                .header("Accept", "application/json")
                .header("User-Agent", "aliquot-device-plugin")
                .header("Authorization", "Bearer " + Files.readString(token).strip());
    }

    /** Parses the object; throws the message of the API server if there is none. */
    private static JsonNode read(String path, int status, byte[] body) throws IOException {
        if (status == 200) {
            try {
                return JSON.readTree(body);
            } catch (JacksonException e) {
                throw new IOException(
                        "the API server answered " + path + " with no JSON: " + e.getOriginalMessage(), e);
            }
        }
        String message;
        try {
            message = JSON.readTree(body).path("message").asString("");
        } catch (JacksonException e) {
            message =
                    new String(body, StandardCharsets.UTF_8).lines().findFirst().orElse("");
        }
        throw refusal(path, status, message);
    }

    private static IOException refusal(String path, int status, String message) {
        String answer = "the API server answered " + status + " to " + path + ": " + message;
        return status == 403 || status == 404 ? new RefusedException(status, answer) : new IOException(answer);
    }
}
