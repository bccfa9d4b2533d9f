package io.aliquot.scheduler.kubernetes.client;

import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.http.BasicBuilder;
import io.fabric8.kubernetes.client.http.Interceptor;
import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.net.ConnectException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import org.apache.hc.client5.http.classic.methods.HttpUriRequestBase;
import org.apache.hc.client5.http.config.RequestConfig;
import org.apache.hc.client5.http.impl.classic.CloseableHttpClient;
import org.apache.hc.client5.http.impl.io.PoolingHttpClientConnectionManager;
import org.apache.hc.client5.http.protocol.HttpClientContext;
import org.apache.hc.core5.http.ClassicHttpRequest;
import org.apache.hc.core5.http.ClassicHttpResponse;
import org.apache.hc.core5.http.ContentType;
import org.apache.hc.core5.http.Header;
import org.apache.hc.core5.http.HttpEntity;
import org.apache.hc.core5.http.HttpException;
import org.apache.hc.core5.http.HttpHeaders;
import org.apache.hc.core5.http.HttpHost;
import org.apache.hc.core5.http.impl.io.HttpRequestExecutor;
import org.apache.hc.core5.http.io.HttpClientConnection;
import org.apache.hc.core5.http.io.HttpResponseInformationCallback;
import org.apache.hc.core5.http.io.entity.ByteArrayEntity;
import org.apache.hc.core5.http.io.entity.EntityUtils;
import org.apache.hc.core5.http.protocol.HttpContext;
import org.apache.hc.core5.util.TimeValue;
import org.apache.hc.core5.util.Timeout;
import org.jspecify.annotations.Nullable;

/*
 * fabric8's HTTP clients hand each request, and each event of a watch, from thread to thread, which took a third of the
 * CPU time that a pod costs this process. Apache's classic client works on the caller's thread.
 */
/**
 * Blocking HTTP requests to the API server with the address, credentials, certificates and proxies of a fabric8
 * {@link Config}. A request is sent once; only after status 401 it is sent again, if the token has been replaced
 * meanwhile. Thread-safe.
 */
public final class ApiServerClient implements Closeable {
    private static final int UNAUTHORIZED = 401;
    private static final String CONNECTION = "aliquot.connection";

    private final Config config;
    private final LongSupplier nanoTime;
    private final HttpHost server;
    private final String pathPrefix;
    private final Collection<Interceptor> interceptors;
    private final PoolingHttpClientConnectionManager connections;
    private final CloseableHttpClient http;

    /** A complete response. */
    @SuppressWarnings("ArrayRecordComponent") // responses are not compared
    public record Answer(int code, Optional<String> retryAfter, byte[] body) {
        public boolean isSuccessful() {
            return successful(code);
        }

        public String text() {
            return new String(body, StandardCharsets.UTF_8);
        }
    }

    /** A response without an end. Any thread may close it, also while another one reads. */
    public record Stream(int code, InputStream body, Closeable connection) implements Closeable {
        public boolean isSuccessful() {
            return successful(code);
        }

        @Override
        public void close() throws IOException {
            connection.close();
        }
    }

    private static boolean successful(int code) {
        return code >= 200 && code < 300;
    }

    public ApiServerClient(Config config, LongSupplier nanoTime) {
        this(config, nanoTime, HttpSettings.IDLE_LIMIT);
    }

    /** {@code idleLimit} is the age at which an idle connection is closed. */
    ApiServerClient(Config config, LongSupplier nanoTime, Duration idleLimit) {
        this.config = config;
        this.nanoTime = nanoTime;
        URI address = URI.create(config.getMasterUrl());
        this.server = new HttpHost(address.getScheme(), address.getHost(), address.getPort());
        String path = address.getRawPath() == null ? "" : address.getRawPath();
        this.pathPrefix = path.endsWith("/") ? path.substring(0, path.length() - 1) : path;
        var settings = new HttpSettings(config);
        this.interceptors = settings.getInterceptors().values();
        this.connections = settings.connections();
        this.http = settings.client(connections, new RecordingExecutor(), idleLimit);
    }

    /** Puts the connection into the context; from then on the request may have reached the API server. */
    private static final class RecordingExecutor extends HttpRequestExecutor {
        @Override
        public ClassicHttpResponse execute(
                ClassicHttpRequest request,
                HttpClientConnection connection,
                HttpResponseInformationCallback informationCallback,
                HttpContext context)
                throws IOException, HttpException {
            if (!request.getMethod().equals("CONNECT")) { // of a proxy
                context.setAttribute(CONNECTION, connection);
            }
            return super.execute(request, connection, informationCallback, context);
        }
    }

    /**
     * Sends {@code body} and waits for the response.
     *
     * @param path below the server's address, with its query
     * @param timeout for the whole request, but each read of a slow response may take as long again
     * @throws ConnectException if nothing was sent
     * @throws IOException if the request may have reached the server
     */
    public Answer send(String method, String path, ContentType type, String body, Duration timeout) throws IOException {
        var entity = new ByteArrayEntity(body.getBytes(StandardCharsets.UTF_8), type);
        return answer(
                () -> {
                    HttpUriRequestBase request = request(method, path, "application/json");
                    request.setEntity(entity);
                    return request;
                },
                timeout,
                false);
    }

    /** Reads {@code path} in the content type {@code accept}; the response may come compressed. */
    public Answer get(String path, String accept, Duration timeout) throws IOException {
        return answer(() -> request("GET", path, accept), timeout, true);
    }

    private Answer answer(Supplier<HttpUriRequestBase> request, Duration timeout, boolean compressed)
            throws IOException {
        try (ClassicHttpResponse response =
                exchange(request, timeout, compressed).response()) {
            Header retryAfter = response.getFirstHeader(HttpHeaders.RETRY_AFTER);
            return new Answer(
                    response.getCode(),
                    Optional.ofNullable(retryAfter).map(Header::getValue),
                    response.getEntity() == null ? new byte[0] : EntityUtils.toByteArray(response.getEntity()));
        } catch (IOException e) {
            connections.closeIdle(TimeValue.ZERO_MILLISECONDS); // the same cause has probably broken them
            throw e;
        }
    }

    /**
     * Reads a response that goes on until one of both sides closes the connection.
     *
     * @param timeout until the response begins
     */
    public Stream stream(String path, String accept, Duration timeout) throws IOException {
        Exchange exchange = exchange(() -> request("GET", path, accept), timeout, false);
        if (exchange.context().getAttribute(CONNECTION) instanceof HttpClientConnection connection) {
            connection.setSocketTimeout(Timeout.INFINITE);
        }
        HttpEntity entity = exchange.response().getEntity();
        return new Stream(
                exchange.response().getCode(),
                entity == null ? InputStream.nullInputStream() : entity.getContent(),
                exchange.request()::abort); // closes the socket at once; response.close() waits for the response's end
    }

    /** A request and the response whose head has arrived. */
    private record Exchange(HttpUriRequestBase request, HttpContext context, ClassicHttpResponse response) {}

    private Exchange exchange(Supplier<HttpUriRequestBase> request, Duration timeout, boolean compressed)
            throws IOException {
        long end = nanoTime.getAsLong() + timeout.toNanos();
        Exchange first = exchange(request.get(), end, compressed);
        if (first.response().getCode() != UNAUTHORIZED || !hasNewToken(first.request())) {
            return first;
        }
        first.request().abort();
        return exchange(request.get(), end, compressed);
    }

    private Exchange exchange(HttpUriRequestBase request, long end, boolean compressed) throws IOException {
        request.setConfig(timeouts(end, compressed));
        var context = HttpClientContext.create();
        try {
            return new Exchange(request, context, http.executeOpen(server, request, context));
        } catch (IOException e) {
            if (context.getAttribute(CONNECTION) != null || e instanceof ConnectException) {
                throw e;
            }
            var nothingSent = new ConnectException(String.valueOf(e.getMessage()));
            nothingSent.initCause(e);
            throw nothingSent;
        }
    }

    /** Reads the token's source, which fabric8 otherwise does once a minute. */
    private boolean hasNewToken(ClassicHttpRequest refused) {
        String token = config.refresh().getAutoOAuthToken();
        Header sent = refused.getFirstHeader(HttpHeaders.AUTHORIZATION);
        if (token == null || sent == null || sent.getValue().equals("Bearer " + token)) {
            return false;
        }
        config.setAutoOAuthToken(token);
        return true;
    }

    @SuppressWarnings("deprecation") // the replacement is one timeout for all requests
    private RequestConfig timeouts(long end, boolean compressed) {
        // At least 1 ms, because 0 means no timeout.
        Timeout left = Timeout.ofMilliseconds(Math.max(1, TimeUnit.NANOSECONDS.toMillis(end - nanoTime.getAsLong())));
        return RequestConfig.custom()
                .setConnectionRequestTimeout(left)
                .setConnectTimeout(left)
                .setResponseTimeout(left)
                .setProtocolUpgradeEnabled(false)
                .setContentCompressionEnabled(compressed)
                .build();
    }

    private HttpUriRequestBase request(String method, String path, String accept) {
        var request = new HttpUriRequestBase(method, URI.create(pathPrefix + path));
        request.setHeader(HttpHeaders.ACCEPT, accept);
        var headers = new Headers(request);
        interceptors.forEach(interceptor -> interceptor.before(headers, null, headers));
        return request;
    }

    /** Receives the headers of fabric8's interceptors, which read the token's source again once a minute. */
    private record Headers(HttpUriRequestBase request) implements BasicBuilder, Interceptor.RequestTags {
        @Override
        public BasicBuilder uri(URI uri) {
            throw new UnsupportedOperationException("expected headers only, found the address " + uri);
        }

        @Override
        public BasicBuilder header(String name, String value) {
            request.addHeader(name, value);
            return this;
        }

        @Override
        public BasicBuilder setHeader(String name, String value) {
            request.setHeader(name, value);
            return this;
        }

        @Override
        public <T> @Nullable T getTag(Class<T> type) {
            return null;
        }
    }

    @Override
    public void close() throws IOException {
        http.close();
    }
}
