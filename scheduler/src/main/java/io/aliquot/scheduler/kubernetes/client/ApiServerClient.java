package io.aliquot.scheduler.kubernetes.client;

import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.http.BasicBuilder;
import io.fabric8.kubernetes.client.http.Interceptor;
import io.fabric8.kubernetes.client.internal.SSLUtils;
import io.fabric8.kubernetes.client.utils.HttpClientUtils;
import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.net.ConnectException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.time.Duration;
import java.util.Collection;
import java.util.Deque;
import java.util.Optional;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.zip.GZIPInputStream;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.SSLSocketFactory;
import org.apache.hc.core5.http.ClassicHttpResponse;
import org.apache.hc.core5.http.ContentType;
import org.apache.hc.core5.http.Header;
import org.apache.hc.core5.http.HttpEntity;
import org.apache.hc.core5.http.HttpException;
import org.apache.hc.core5.http.HttpHeaders;
import org.apache.hc.core5.http.impl.io.DefaultBHttpClientConnection;
import org.apache.hc.core5.http.impl.io.DefaultBHttpClientConnectionFactory;
import org.apache.hc.core5.http.impl.io.HttpRequestExecutor;
import org.apache.hc.core5.http.io.entity.ByteArrayEntity;
import org.apache.hc.core5.http.message.BasicClassicHttpRequest;
import org.apache.hc.core5.http.protocol.DefaultHttpProcessor;
import org.apache.hc.core5.http.protocol.HttpCoreContext;
import org.apache.hc.core5.http.protocol.HttpProcessor;
import org.apache.hc.core5.http.protocol.RequestContent;
import org.apache.hc.core5.http.protocol.RequestTargetHost;
import org.apache.hc.core5.io.CloseMode;
import org.apache.hc.core5.net.URIAuthority;
import org.apache.hc.core5.util.Timeout;
import org.jspecify.annotations.Nullable;

/*
 * The client's own HTTP hands each request, and each word of a watch, from thread to thread, which was a good third of
 * all that a pod costs this program. Here the thread that asks writes to the socket and reads from it.
 */
/**
 * Requests to the API server, as the client's user and as it is configured, proxies aside. Nothing is ever sent twice,
 * but for what the server would not look at because our token had been replaced by another. Thread-safe: a request has a
 * connection to itself, and the next one may have it after that.
 */
public final class ApiServerClient {
    private static final HttpProcessor HEADERS =
            new DefaultHttpProcessor(RequestContent.INSTANCE, RequestTargetHost.INSTANCE);
    private static final int UNAUTHORIZED = 401;
    private static final int TLS_PORT = 443;
    private static final int PLAIN_PORT = 80;
    private static final int BUFFER = 16 * 1024;
    /** So long an idle connection is taken to be there still; after that it is looked at first. */
    private static final Duration FRESH = Duration.ofSeconds(1);

    private final Config config;
    private final URI server;
    private final int port;
    private final Optional<SSLSocketFactory> tls;
    private final Collection<Interceptor> identity;
    private final DefaultBHttpClientConnectionFactory connections = new DefaultBHttpClientConnectionFactory();
    private final HttpRequestExecutor executor = new HttpRequestExecutor();
    /** The one that was used last is the first. */
    private final Deque<Idle> idle = new ConcurrentLinkedDeque<>();

    /** {@code socket} is the bare one, below TLS. */
    private record Connection(DefaultBHttpClientConnection http, Socket socket) implements Closeable {
        /** At once, whoever may be reading from it: TLS would wait for him. */
        @Override
        public void close() throws IOException {
            socket.close();
            http.close(CloseMode.IMMEDIATE);
        }
    }

    private record Idle(Connection connection, long since) {}

    /** What the server says. */
    @SuppressWarnings("ArrayRecordComponent") // nobody compares answers
    public record Answer(int code, Optional<String> retryAfter, byte[] body) {
        public boolean isSuccessful() {
            return successful(code);
        }

        public String text() {
            return new String(body, StandardCharsets.UTF_8);
        }
    }

    /** An answer that goes on and on, until one of both sides closes it; that may be done at any time. */
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

    public ApiServerClient(Config config) {
        this.config = config;
        this.server = URI.create(config.getMasterUrl());
        boolean encrypted = "https".equals(server.getScheme());
        this.port = server.getPort() > 0 ? server.getPort() : encrypted ? TLS_PORT : PLAIN_PORT;
        this.tls = encrypted ? Optional.of(sockets(config)) : Optional.empty();
        this.identity =
                HttpClientUtils.createApplicableInterceptors(config, null).values();
    }

    private static SSLSocketFactory sockets(Config config) {
        try {
            return SSLUtils.sslContext(config).getSocketFactory();
        } catch (GeneralSecurityException | IOException e) {
            throw new KubernetesClientException("cannot use the API server's certificates", e);
        }
    }

    /**
     * Sends {@code body} and waits for the answer.
     *
     * @param path below the server's address, with its query
     * @param patience for all of it, where the server takes its time once, and not at each step
     * @throws ConnectException where nothing was sent
     * @throws IOException where the request may have reached the server, or not
     */
    public Answer send(String method, String path, ContentType type, String body, Duration patience)
            throws IOException {
        var entity = new ByteArrayEntity(body.getBytes(StandardCharsets.UTF_8), type);
        return answer(
                () -> {
                    BasicClassicHttpRequest request = request(method, path, "application/json");
                    request.setEntity(entity);
                    return request;
                },
                patience);
    }

    /** Reads what is there, as the server's content type {@code accept}. */
    public Answer get(String path, String accept, Duration patience) throws IOException {
        return answer(
                () -> {
                    BasicClassicHttpRequest request = request("GET", path, accept);
                    request.setHeader(HttpHeaders.ACCEPT_ENCODING, "gzip");
                    return request;
                },
                patience);
    }

    private Answer answer(Supplier<BasicClassicHttpRequest> request, Duration patience) throws IOException {
        long end = System.nanoTime() + patience.toNanos();
        BasicClassicHttpRequest first = request.get();
        Answer answer = answer(first, end);
        return answer.code() == UNAUTHORIZED && hasNewToken(first) ? answer(request.get(), end) : answer;
    }

    /** Looks at where the token comes from, which otherwise is done once a minute. */
    private boolean hasNewToken(BasicClassicHttpRequest refused) {
        String token = config.refresh().getAutoOAuthToken();
        Header sent = refused.getFirstHeader(HttpHeaders.AUTHORIZATION);
        if (token == null || sent == null || sent.getValue().equals("Bearer " + token)) {
            return false;
        }
        config.setAutoOAuthToken(token);
        return true;
    }

    private Answer answer(BasicClassicHttpRequest request, long end) throws IOException {
        Connection connection = connection(end);
        boolean reusable = false;
        try {
            connection.http().setSocketTimeout(Timeout.ofMilliseconds(millisUntil(end)));
            var context = HttpCoreContext.create();
            try (ClassicHttpResponse response = ask(request, connection, context)) {
                byte[] body = body(response.getEntity());
                Header retryAfter = response.getFirstHeader(HttpHeaders.RETRY_AFTER);
                reusable = executor.keepAlive(request, response, connection.http(), context);
                return new Answer(
                        response.getCode(), Optional.ofNullable(retryAfter).map(Header::getValue), body);
            }
        } finally {
            if (reusable) {
                idle.addFirst(new Idle(connection, System.nanoTime()));
            } else {
                connection.close();
                closeIdle(); // what befell this one has befallen the others, too, for all we know
            }
        }
    }

    private void closeIdle() throws IOException {
        for (Idle next = idle.pollFirst(); next != null; next = idle.pollFirst()) {
            next.connection().close();
        }
    }

    /** At least one: 0 would be for ever. */
    private static int millisUntil(long end) {
        return (int) Math.max(1, TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime()));
    }

    /** Whole, its end included, so that the connection can be used again. */
    private static byte[] body(@Nullable HttpEntity entity) throws IOException {
        if (entity == null) {
            return new byte[0];
        }
        try (InputStream sent = entity.getContent()) {
            return "gzip".equals(entity.getContentEncoding())
                    ? new GZIPInputStream(sent, BUFFER).readAllBytes()
                    : sent.readAllBytes();
        }
    }

    /**
     * Reads what comes, for as long as it comes, over a connection of its own.
     *
     * @param patience until the answer begins
     */
    public Stream stream(String path, String accept, Duration patience) throws IOException {
        BasicClassicHttpRequest first = request("GET", path, accept);
        Stream stream = stream(first, patience);
        if (stream.code() != UNAUTHORIZED || !hasNewToken(first)) {
            return stream;
        }
        stream.close();
        return stream(request("GET", path, accept), patience);
    }

    private Stream stream(BasicClassicHttpRequest request, Duration patience) throws IOException {
        Connection connection = open(System.nanoTime() + patience.toNanos());
        try {
            ClassicHttpResponse response = ask(request, connection, HttpCoreContext.create());
            connection.http().setSocketTimeout(Timeout.INFINITE);
            HttpEntity entity = response.getEntity();
            return new Stream(
                    response.getCode(),
                    entity == null ? InputStream.nullInputStream() : entity.getContent(),
                    connection);
        } catch (IOException e) {
            connection.close();
            throw e;
        }
    }

    private ClassicHttpResponse ask(BasicClassicHttpRequest request, Connection connection, HttpCoreContext context)
            throws IOException {
        try {
            executor.preProcess(request, HEADERS, context);
            return executor.execute(request, connection.http(), context);
        } catch (HttpException e) {
            throw new IOException("the API server's answer is no HTTP", e);
        }
    }

    private BasicClassicHttpRequest request(String method, String path, String accept) {
        String prefix = server.getRawPath() == null ? "" : server.getRawPath();
        var request = new BasicClassicHttpRequest(
                method, prefix.endsWith("/") ? prefix.substring(0, prefix.length() - 1) + path : prefix + path);
        request.setAuthority(new URIAuthority(server.getHost(), port));
        request.setHeader(HttpHeaders.ACCEPT, accept);
        var headers = new Headers(request);
        identity.forEach(interceptor -> interceptor.before(headers, null, headers));
        return request;
    }

    /** What the client's interceptors add: who we are, with a token that they read again once a minute. */
    private record Headers(BasicClassicHttpRequest request) implements BasicBuilder, Interceptor.RequestTags {
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

    private Connection connection(long end) throws IOException {
        for (Idle next = idle.pollFirst(); next != null; next = idle.pollFirst()) {
            if (usable(next)) {
                return next.connection();
            }
            next.connection().close();
        }
        return open(end);
    }

    private static boolean usable(Idle idle) {
        try {
            return System.nanoTime() - idle.since() < FRESH.toNanos()
                    || !idle.connection().http().isStale();
        } catch (IOException e) {
            return false;
        }
    }

    private Connection open(long end) throws IOException {
        var socket = new Socket();
        try {
            socket.setTcpNoDelay(true);
            socket.connect(new InetSocketAddress(server.getHost(), port), millisUntil(end));
            socket.setSoTimeout(millisUntil(end)); // for TLS to be agreed on
            if (tls.isEmpty()) {
                return new Connection(connections.createConnection(socket), socket);
            }
            var encrypted = (SSLSocket) tls.get().createSocket(socket, server.getHost(), port, true);
            var parameters = encrypted.getSSLParameters();
            if (!config.isDisableHostnameVerification()) {
                parameters.setEndpointIdentificationAlgorithm("HTTPS");
            }
            encrypted.setSSLParameters(parameters);
            encrypted.startHandshake();
            return new Connection(connections.createConnection(encrypted, socket), socket);
        } catch (IOException e) {
            socket.close();
            throw (ConnectException) new ConnectException(e.getMessage()).initCause(e);
        }
    }
}
