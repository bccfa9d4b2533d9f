package io.aliquot.scheduler.server;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.hc.core5.http.ClassicHttpRequest;
import org.apache.hc.core5.http.ClassicHttpResponse;
import org.apache.hc.core5.http.ContentType;
import org.apache.hc.core5.http.HeaderElements;
import org.apache.hc.core5.http.HttpEntity;
import org.apache.hc.core5.http.HttpException;
import org.apache.hc.core5.http.HttpHeaders;
import org.apache.hc.core5.http.config.CharCodingConfig;
import org.apache.hc.core5.http.config.Http1Config;
import org.apache.hc.core5.http.impl.io.DefaultBHttpServerConnectionFactory;
import org.apache.hc.core5.http.impl.io.HttpService;
import org.apache.hc.core5.http.io.HttpServerConnection;
import org.apache.hc.core5.http.io.entity.ByteArrayEntity;
import org.apache.hc.core5.http.io.support.BasicHttpServerExpectationDecorator;
import org.apache.hc.core5.http.message.BasicClassicHttpResponse;
import org.apache.hc.core5.http.protocol.HttpCoreContext;
import org.apache.hc.core5.http.protocol.HttpProcessorBuilder;
import org.apache.hc.core5.http.protocol.RequestValidateHost;
import org.apache.hc.core5.http.protocol.ResponseConnControl;
import org.apache.hc.core5.http.protocol.ResponseContent;
import org.apache.hc.core5.http.protocol.ResponseDate;
import org.apache.hc.core5.util.Timeout;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.context.SmartLifecycle;
import org.springframework.http.HttpStatus;
import org.springframework.http.ProblemDetail;
import org.springframework.web.server.ResponseStatusException;
import tools.jackson.core.JacksonException;

/*
 * This port is not a connector of Tomcat: there one thread polls all connections and hands each request to another,
 * which took a third of the CPU time of a pod's three requests. kube-scheduler keeps few connections, so each has its
 * own thread.
 *
 * Answers are sent with their length, not in chunks. kube-scheduler's JSON decoder stops at the end of the JSON and
 * would leave the last chunk unread, so that the next request would need a new connection.
 */
/**
 * The extender's port, plain HTTP/1.1 on 127.0.0.1. It refuses everything but a POST to the path of a verb with a line
 * of text.
 */
final class ExtenderPort implements SmartLifecycle, Liveness {
    private static final Logger LOG = LoggerFactory.getLogger(ExtenderPort.class);
    private static final PortPolicy POLICY = PortPolicy.EXTENDER;

    /** Further connections wait. kube-scheduler opens one for each pod whose Binding is in progress. */
    private static final int MOST_CONNECTIONS = 64;

    private static final Timeout IDLE_TIMEOUT = Timeout.of(PortPolicy.IDLE_TIMEOUT);
    private static final Duration LAST_ANSWERS = Duration.ofSeconds(10);
    /** The pause after a failed accept, for example without free file descriptors. */
    private static final Duration ACCEPT_PAUSE = Duration.ofMillis(100);

    private final ExtenderHandler handler;
    private final int port;
    private final DefaultBHttpServerConnectionFactory protocol = new DefaultBHttpServerConnectionFactory(
            "http",
            Http1Config.custom()
                    .setBufferSize(16 << 10) // fits most answers with their headers
                    .setMaxLineLength(8 << 10)
                    .setMaxHeaderCount(100)
                    .build(),
            CharCodingConfig.DEFAULT);
    private final HttpService service = new HttpService(
            HttpProcessorBuilder.create()
                    .add(RequestValidateHost.INSTANCE)
                    .addAll(ResponseDate.INSTANCE, ResponseContent.INSTANCE, ResponseConnControl.INSTANCE)
                    .build(),
            new BasicHttpServerExpectationDecorator(
                    (request, answer, context) -> answer.submitResponse(answer(request))));
    private final ExecutorService threads = Executors.newCachedThreadPool(work -> new Thread(work, "extender"));
    /** One permit for each open connection, and one for the accept in progress. */
    private final Semaphore permits = new Semaphore(MOST_CONNECTIONS);
    /** Connections between two requests. */
    private final Set<Socket> idle = ConcurrentHashMap.newKeySet();

    private final ServerSocket listener;
    private volatile boolean running;
    private volatile boolean acceptEnded;
    private volatile boolean stopping;

    /** Listens from {@link #start} on; with port 0 the system chooses the port. */
    ExtenderPort(ExtenderHandler handler, int port) {
        this.handler = handler;
        this.port = port;
        try {
            this.listener = new ServerSocket();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    InetSocketAddress address() {
        return (InetSocketAddress) listener.getLocalSocketAddress();
    }

    @Override
    public boolean isRunning() {
        return running;
    }

    @Override
    public void start() {
        var address = new InetSocketAddress(InetAddress.getLoopbackAddress(), port);
        try {
            listener.setReuseAddress(true);
            listener.bind(address, MOST_CONNECTIONS);
        } catch (IOException e) {
            throw new UncheckedIOException("cannot listen on " + address, e);
        }
        running = true;
        threads.execute(this::accept);
    }

    /** Completes the requests in progress and closes idle connections. */
    @Override
    public void stop() {
        stopping = true;
        try {
            listener.close();
        } catch (IOException e) {
            LOG.debug("closing the port", e);
        }
        idle.forEach(ExtenderPort::closeInput);
        try {
            if (!permits.tryAcquire(MOST_CONNECTIONS, LAST_ANSWERS.toMillis(), TimeUnit.MILLISECONDS)) {
                LOG.warn("not all of kube-scheduler's requests were answered within {}", LAST_ANSWERS);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        threads.shutdown();
        running = false;
    }

    /** A thread that reads from the socket finds the end of the stream. */
    private static void closeInput(Socket client) {
        try {
            client.shutdownInput();
        } catch (IOException e) {
            LOG.debug("a connection has ended already", e);
        }
    }

    private void accept() {
        try {
            while (!stopping) {
                permits.acquireUninterruptibly();
                acceptOne();
            }
        } finally {
            acceptEnded = !stopping;
        }
    }

    private void acceptOne() {
        try {
            Socket client = listener.accept();
            threads.execute(() -> serve(client));
        } catch (IOException e) {
            permits.release();
            if (!stopping) {
                LOG.warn("cannot accept connections: {}", e.getMessage());
                pauseAccept();
            }
        }
    }

    @Override
    public Optional<String> broken() {
        return acceptEnded
                ? Optional.of("the thread that accepts kube-scheduler's connections has ended")
                : Optional.empty();
    }

    private static void pauseAccept() {
        try {
            TimeUnit.NANOSECONDS.sleep(ACCEPT_PAUSE.toNanos());
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void serve(Socket client) {
        try (client;
                HttpServerConnection connection = protocol.createConnection(client)) {
            client.setTcpNoDelay(true);
            client.setSoTimeout((int) PortPolicy.READ_TIMEOUT.toMillis());
            while (hasRequest(client, connection)) {
                service.handleRequest(connection, HttpCoreContext.create());
            }
        } catch (IOException | HttpException e) {
            LOG.debug("a connection ended", e); // usually closed by the client
        } finally {
            permits.release();
        }
    }

    /** Waits for the first byte of the next request; false at the end of the connection or of the server. */
    private boolean hasRequest(Socket client, HttpServerConnection connection) throws IOException {
        idle.add(client);
        try {
            return !stopping && connection.isOpen() && connection.isDataAvailable(IDLE_TIMEOUT);
        } finally {
            idle.remove(client);
        }
    }

    private ClassicHttpResponse answer(ClassicHttpRequest request) throws IOException {
        ClassicHttpResponse answer = handle(request);
        return stopping ? last(answer) : answer;
    }

    private ClassicHttpResponse handle(ClassicHttpRequest request) throws IOException {
        HttpEntity entity = request.getEntity();
        InputStream body = entity == null ? InputStream.nullInputStream() : entity.getContent();
        long length = entity == null ? 0 : entity.getContentLength();
        String path = request.getRequestUri();
        Optional<ProblemDetail> refused = POLICY.refusal(path, length);
        if (refused.isPresent()) {
            return length < 0 || length > POLICY.largestBody()
                    ? refuseUnread(request, body, refused.get())
                    : refusal(refused.get());
        }
        if (!request.getMethod().equals("POST")) {
            return refusal(ProblemDetail.forStatusAndDetail(HttpStatus.METHOD_NOT_ALLOWED, "expected POST"));
        }
        try {
            return response(HttpStatus.OK.value(), handler.answer(path, body), ContentType.APPLICATION_JSON);
        } catch (JacksonException e) {
            return refusal(Problems.unreadable(e));
        } catch (ResponseStatusException e) {
            return refusal(e.getBody());
        } catch (RuntimeException e) {
            return refusal(Problems.failed(e));
        }
    }

    /** Refuses a request without reading its body and ends the connection. */
    private static ClassicHttpResponse refuseUnread(ClassicHttpRequest request, InputStream body, ProblemDetail problem)
            throws IOException {
        long discarded = body.skip(PortPolicy.DISCARDED);
        LOG.debug("{}; discarded {} bytes of it", problem.getDetail(), discarded);
        request.setEntity(null); // else HttpService reads the rest
        return last(refusal(problem));
    }

    /** Makes this the last answer over its connection. */
    private static ClassicHttpResponse last(ClassicHttpResponse answer) {
        answer.setHeader(HttpHeaders.CONNECTION, HeaderElements.CLOSE);
        return answer;
    }

    private static ClassicHttpResponse refusal(ProblemDetail problem) {
        byte[] line = Problems.line(problem).getBytes(StandardCharsets.UTF_8);
        return response(problem.getStatus(), line, ContentType.TEXT_PLAIN.withCharset(StandardCharsets.UTF_8));
    }

    private static ClassicHttpResponse response(int status, byte[] body, ContentType type) {
        var answer = new BasicClassicHttpResponse(status);
        answer.setEntity(new ByteArrayEntity(body, type));
        return answer;
    }
}
