package io.aliquot.scheduler.kubernetes.client;

import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.RequestConfigBuilder;
import io.fabric8.kubernetes.client.http.HttpClient;
import io.fabric8.kubernetes.client.http.HttpRequest;
import io.fabric8.kubernetes.client.http.HttpResponse;
import java.io.ByteArrayInputStream;
import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.net.ConnectException;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpTimeoutException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.zip.GZIPInputStream;

/*
 * Why fabric8's own resources do not do: they know JSON only, and they hide whether a request that failed was sent.
 */
/**
 * Blocking HTTP requests to the API server over fabric8's HTTP client, which is the JDK's and has the address,
 * credentials, certificates and proxies of the configuration. A request is sent once; only after status 401 it is sent
 * again, with the token as its source has it then. Thread-safe.
 */
public final class ApiServerClient {
    private static final String JSON = "application/json";

    private final HttpClient http;
    private final String server;

    /** A complete response. */
    @SuppressWarnings("ArrayRecordComponent") // responses are not compared
    public record Answer(int code, Optional<String> retryAfter, byte[] body) {
        public boolean isSuccessful() {
            return HttpResponse.isSuccessful(code);
        }

        public String text() {
            return new String(body, StandardCharsets.UTF_8);
        }
    }

    /** A response without an end. Any thread may close it, also while another one reads. */
    public record Stream(int code, InputStream body) implements Closeable {
        public boolean isSuccessful() {
            return HttpResponse.isSuccessful(code);
        }

        @Override
        public void close() throws IOException {
            body.close();
        }
    }

    public ApiServerClient(KubernetesClient kubernetes) {
        this.http = kubernetes
                .newClient(
                        new RequestConfigBuilder(kubernetes.getConfiguration().getRequestConfig())
                                .withRequestRetryBackoffLimit(0)
                                .build())
                .adapt(KubernetesClient.class)
                .getHttpClient();
        String address = kubernetes.getConfiguration().getMasterUrl();
        this.server = address.endsWith("/") ? address.substring(0, address.length() - 1) : address;
    }

    /**
     * Sends {@code body} and waits for the response.
     *
     * @param path below the server's address, with its query
     * @param type the content type of {@code body}
     * @param timeout for the whole request
     * @throws ConnectException if nothing was sent
     * @throws IOException if the request may have reached the server
     */
    public Answer send(String method, String path, String type, String body, Duration timeout) throws IOException {
        return answer(request(path, JSON).method(method, type, body), timeout);
    }

    /** Reads {@code path} in the content type {@code accept}; the response may come compressed. */
    public Answer get(String path, String accept, Duration timeout) throws IOException {
        return answer(request(path, accept).setHeader("Accept-Encoding", "gzip"), timeout);
    }

    private Answer answer(HttpRequest.Builder request, Duration timeout) throws IOException {
        HttpResponse<byte[]> response = send(request, byte[].class, timeout);
        byte[] body = response.body();
        if ("gzip".equals(response.header("Content-Encoding"))) {
            try (var decompressed = new GZIPInputStream(new ByteArrayInputStream(body))) {
                body = decompressed.readAllBytes();
            }
        }
        return new Answer(response.code(), Optional.ofNullable(response.header("Retry-After")), body);
    }

    /**
     * Reads a response that goes on until one of both sides closes the connection.
     *
     * @param timeout until the response begins
     */
    public Stream stream(String path, String accept, Duration timeout) throws IOException {
        HttpResponse<InputStream> response = send(request(path, accept).forStreaming(), InputStream.class, timeout);
        return new Stream(response.code(), response.body());
    }

    private HttpRequest.Builder request(String path, String accept) {
        return http.newHttpRequestBuilder().uri(server + path).setHeader("Accept", accept);
    }

    private <T> HttpResponse<T> send(HttpRequest.Builder request, Class<T> body, Duration timeout) throws IOException {
        // At least 1 ms, because 0 means no timeout.
        request.timeout(Math.max(1, timeout.toMillis()), TimeUnit.MILLISECONDS);
        CompletableFuture<HttpResponse<T>> response = http.sendAsync(request.build(), body);
        try {
            return response.get(timeout.toNanos(), TimeUnit.NANOSECONDS);
        } catch (InterruptedException e) {
            response.cancel(true);
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("interrupted while waiting for the API server");
        } catch (TimeoutException e) {
            response.cancel(true);
            throw new HttpTimeoutException("no response within " + timeout);
        } catch (ExecutionException e) {
            Throwable cause = e.getCause();
            if (cause instanceof HttpConnectTimeoutException) {
                var nothingSent = new ConnectException(cause.getMessage());
                nothingSent.initCause(cause);
                throw nothingSent;
            }
            throw cause instanceof IOException failure ? failure : new IOException(cause);
        }
    }
}
