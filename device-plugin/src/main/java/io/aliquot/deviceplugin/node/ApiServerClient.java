package io.aliquot.deviceplugin.node;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.aliquot.api.FormatException;
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
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * The API server as a pod sees it: by the environment that the kubelet sets, with the pod's service account.
 *
 * <p>The agent reads and patches one object, on every GPU node. With the library that the scheduler uses, fabric8's client
 * 7.8.0, this process took 130 MB of memory, of which at most 130 are allowed, and 106 without it (JDK 17, one Node, after
 * 1,000 allocations; most of the difference are classes).
 */
public final class ApiServerClient {
    /** Where the kubelet mounts a pod's service account. */
    public static final Path SERVICE_ACCOUNT = Path.of("/var/run/secrets/kubernetes.io/serviceaccount");

    private static final Duration ANSWER = Duration.ofSeconds(15);
    private static final ObjectMapper JSON = new ObjectMapper();

    private final URI base;
    private final HttpClient client;
    private final Optional<Path> token;

    /**
     * Speaks to any server.
     *
     * @param token a file, read for each request since it is replaced before it expires; empty for none
     */
    ApiServerClient(URI base, HttpClient client, Optional<Path> token) {
        this.base = base;
        this.client = client;
        this.token = token;
    }

    /**
     * Finds the server of the pod's cluster.
     *
     * @throws IOException if the service account's files can't be read
     * @throws FormatException if the environment is not a pod's
     */
    public static ApiServerClient ofPod(Map<String, String> environment, Path serviceAccount) throws IOException {
        String host = environment.getOrDefault("KUBERNETES_SERVICE_HOST", "");
        String port = environment.getOrDefault("KUBERNETES_SERVICE_PORT", "");
        if (!host.matches("[0-9a-zA-Z.:-]+") || !port.matches("[0-9]{1,5}")) {
            throw new FormatException("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT: expected the API server's"
                    + " address, found \"" + host + "\" and \"" + port + "\"; this program runs in a pod");
        }
        URI base = URI.create("https://" + (host.contains(":") ? "[" + host + "]" : host) + ":" + port);
        try {
            HttpClient client = HttpClient.newBuilder()
                    .version(HttpClient.Version.HTTP_1_1)
                    .connectTimeout(ANSWER)
                    .sslContext(trusting(serviceAccount.resolve("ca.crt")))
                    .build();
            return new ApiServerClient(base, client, Optional.of(serviceAccount.resolve("token")));
        } catch (GeneralSecurityException e) {
            throw new IOException("cannot use " + serviceAccount.resolve("ca.crt") + ": " + e.getMessage(), e);
        }
    }

    /** Reads an object or a list. */
    JsonNode get(String path) throws IOException, InterruptedException {
        HttpResponse<byte[]> answer =
                client.send(request(path).timeout(ANSWER).build(), HttpResponse.BodyHandlers.ofByteArray());
        return read(path, answer.statusCode(), answer.body());
    }

    /** Merges into an object; answers the whole of it. */
    JsonNode mergePatch(String path, JsonNode patch) throws IOException, InterruptedException {
        HttpRequest request = request(path)
                .timeout(ANSWER)
                .header("Content-Type", "application/merge-patch+json")
                .method("PATCH", HttpRequest.BodyPublishers.ofByteArray(JSON.writeValueAsBytes(patch)))
                .build();
        HttpResponse<byte[]> answer = client.send(request, HttpResponse.BodyHandlers.ofByteArray());
        return read(path, answer.statusCode(), answer.body());
    }

    /** Opens a stream of watch events, a line of JSON each. */
    InputStream watch(String path) throws IOException, InterruptedException {
        HttpResponse<InputStream> answer =
                client.send(request(path).timeout(ANSWER).build(), HttpResponse.BodyHandlers.ofInputStream());
        if (answer.statusCode() != 200) {
            try (InputStream body = answer.body()) {
                read(path, answer.statusCode(), body.readAllBytes());
            }
        }
        return answer.body();
    }

    private HttpRequest.Builder request(String path) throws IOException {
        HttpRequest.Builder request = HttpRequest.newBuilder(base.resolve(path))
                .header("Accept", "application/json")
                .header("User-NodeAgent", "aliquot-device-plugin");
        if (token.isPresent()) {
            request.header(
                    "Authorization", "Bearer " + Files.readString(token.get()).strip());
        }
        return request;
    }

    /** The object, or the server's own words for why not. */
    private static JsonNode read(String path, int status, byte[] body) throws IOException {
        if (status == 200) {
            return JSON.readTree(body);
        }
        String words;
        try {
            words = JSON.readTree(body).path("message").asText();
        } catch (IOException e) {
            words = new String(body, StandardCharsets.UTF_8).lines().findFirst().orElse("");
        }
        throw new IOException("the API server answers " + status + " to " + path + ": " + words);
    }

    private static SSLContext trusting(Path authorities) throws IOException, GeneralSecurityException {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (InputStream file = Files.newInputStream(authorities)) {
            int number = 0;
            for (Certificate certificate :
                    CertificateFactory.getInstance("X.509").generateCertificates(file)) {
                store.setCertificateEntry("authority-" + number++, certificate);
            }
        }
        var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        var context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        return context;
    }
}
