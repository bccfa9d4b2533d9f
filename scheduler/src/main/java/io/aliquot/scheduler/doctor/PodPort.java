package io.aliquot.scheduler.doctor;

import io.aliquot.scheduler.apiserver.client.ApiServerClient;
import io.aliquot.scheduler.apiserver.client.ApiServerClient.Answer;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.ConnectException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.Optional;

/**
 * A pod's port for metrics and health.
 *
 * @param address the pod's; empty if it has none yet
 */
record PodPort(String namespace, String pod, Optional<String> address, int port) {
    private static final Duration TIMEOUT = Duration.ofSeconds(2);
    private static final int FORBIDDEN = 403;

    /**
     * Reads a path through the API server, which a caller outside the cluster needs, and where the caller may not, as the
     * Job's account may not, directly. The right to do the former, {@code pods/proxy}, includes all ports of all pods.
     *
     * @throws IOException if there is no answer
     */
    Answer get(ApiServerClient apiServer, String path) throws IOException {
        Answer answer = apiServer.get(
                "/api/v1/namespaces/%s/pods/%s:%d/proxy%s".formatted(namespace, pod, port, path),
                "text/plain, application/json",
                TIMEOUT);
        return answer.code() == FORBIDDEN ? directly(path) : answer;
    }

    private Answer directly(String path) throws IOException {
        String host = address.orElseThrow(() -> new ConnectException("the pod has no address"));
        try (HttpClient http = HttpClient.newBuilder().connectTimeout(TIMEOUT).build()) {
            HttpResponse<byte[]> response = http.send(
                    HttpRequest.newBuilder(URI.create("http://" + bracketed(host) + ":" + port + path))
                            .timeout(TIMEOUT)
                            .build(),
                    BodyHandlers.ofByteArray());
            return new Answer(response.statusCode(), Optional.empty(), response.body());
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("interrupted while waiting for " + pod);
        }
    }

    /** An address as in a URL. */
    private static String bracketed(String address) {
        return address.contains(":") ? "[" + address + "]" : address;
    }
}
