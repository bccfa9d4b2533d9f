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
 * No connector of Tomcat's: there one thread watches all connections and hands each request to another, which was a third
 * of what three requests a pod cost. kube-scheduler keeps few connections, so each may have a thread to itself.
 *
 * Answers are whole when they are sent, so that their length is told. In pieces, kube-scheduler, whose decoder stops where
 * the JSON does, would leave the last one unread, and open a new connection for the next request.
 */
/** The extender's port, plain HTTP/1.1 on 127.0.0.1. Whatever is no POST to a verb's path is refused in a line of text. */
final class ExtenderPort implements SmartLifecycle, Liveness {
    private static final Logger LOG = LoggerFactory.getLogger(ExtenderPort.class);
    private static final PortPolicy DOOR = PortPolicy.EXTENDER;

    /** Whoever comes when all are taken waits. kube-scheduler has one for each pod whose Binding is on its way. */
    private static final int MOST_CONNECTIONS = 64;

    private static final Timeout IDLE = Timeout.of(PortPolicy.IDLE);
    private static final Duration LAST_ANSWERS = Duration.ofSeconds(10);
    /** After a failure to accept, such as for want of file descriptors. */
    private static final Duration RESPITE = Duration.ofMillis(100);

    private final ExtenderHandler verbs;
    private final int wanted;
    private final DefaultBHttpServerConnectionFactory protocol = new DefaultBHttpServerConnectionFactory(
            "http",
            Http1Config.custom()
                    .setBufferSize(16 << 10) // an answer with its head, mostly
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
    /** Each connection has one, and whoever waits for the next. */
    private final Semaphore free = new Semaphore(MOST_CONNECTIONS);
    /** Connections between two requests. */
    private final Set<Socket> idle = ConcurrentHashMap.newKeySet();

    private final ServerSocket listener;
    private volatile boolean running;
    private volatile boolean gaveUp;
    private volatile boolean leaves;

    /** Listens from {@link #start} on; at port 0 the system chooses one. */
    ExtenderPort(ExtenderHandler verbs, int port) {
        this.verbs = verbs;
        this.wanted = port;
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
        var address = new InetSocketAddress(InetAddress.getLoopbackAddress(), wanted);
        try {
            listener.setReuseAddress(true);
            listener.bind(address, MOST_CONNECTIONS);
        } catch (IOException e) {
            throw new UncheckedIOException("cannot listen on " + address, e);
        }
        running = true;
        threads.execute(this::accept);
    }

    /** Who is being answered is answered; who asks nothing is cut off. */
    @Override
    public void stop() {
        leaves = true;
        try {
            listener.close();
        } catch (IOException e) {
            LOG.debug("closing the port", e);
        }
        idle.forEach(ExtenderPort::cutOff);
        try {
            if (!free.tryAcquire(MOST_CONNECTIONS, LAST_ANSWERS.toMillis(), TimeUnit.MILLISECONDS)) {
                LOG.warn("not all of kube-scheduler's requests were answered within {}", LAST_ANSWERS);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        threads.shutdown();
        running = false;
    }

    /** Whoever waits for input from it finds the end. */
    private static void cutOff(Socket client) {
        try {
            client.shutdownInput();
        } catch (IOException e) {
            LOG.debug("a connection has ended already", e);
        }
    }

    private void accept() {
        try {
            while (!leaves) {
                free.acquireUninterruptibly();
                acceptOne();
            }
        } finally {
            gaveUp = !leaves;
        }
    }

    private void acceptOne() {
        try {
            Socket client = listener.accept();
            threads.execute(() -> serve(client));
        } catch (IOException e) {
            free.release();
            if (!leaves) {
                LOG.warn("cannot accept connections: {}", e.getMessage());
                rest();
            }
        }
    }

    @Override
    public Optional<String> broken() {
        return gaveUp ? Optional.of("nobody accepts kube-scheduler's connections any more") : Optional.empty();
    }

    private static void rest() {
        try {
            TimeUnit.NANOSECONDS.sleep(RESPITE.toNanos());
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void serve(Socket client) {
        try (client;
                HttpServerConnection connection = protocol.createConnection(client)) {
            client.setTcpNoDelay(true);
            client.setSoTimeout((int) PortPolicy.PATIENCE.toMillis());
            while (asks(client, connection)) {
                service.handleRequest(connection, HttpCoreContext.create());
            }
        } catch (IOException | HttpException e) {
            LOG.debug("a connection ended", e); // its opener's doing, mostly
        } finally {
            free.release();
        }
    }

    /** Waits for the next request's first byte; false if none comes, or will be answered. */
    private boolean asks(Socket client, HttpServerConnection connection) throws IOException {
        idle.add(client);
        try {
            return !leaves && connection.isOpen() && connection.isDataAvailable(IDLE);
        } finally {
            idle.remove(client);
        }
    }

    private ClassicHttpResponse answer(ClassicHttpRequest request) throws IOException {
        ClassicHttpResponse answer = ask(request);
        return leaves ? last(answer) : answer;
    }

    private ClassicHttpResponse ask(ClassicHttpRequest request) throws IOException {
        HttpEntity entity = request.getEntity();
        InputStream body = entity == null ? InputStream.nullInputStream() : entity.getContent();
        long length = entity == null ? 0 : entity.getContentLength();
        String path = request.getRequestUri();
        Optional<ProblemDetail> turnedAway = DOOR.refuses(path, length);
        if (turnedAway.isPresent()) {
            return length < 0 || length > DOOR.largestBody()
                    ? unread(request, body, turnedAway.get())
                    : refusal(turnedAway.get());
        }
        if (!request.getMethod().equals("POST")) {
            return refusal(ProblemDetail.forStatusAndDetail(HttpStatus.METHOD_NOT_ALLOWED, "expected POST"));
        }
        try {
            return whole(HttpStatus.OK.value(), verbs.answer(path, body), ContentType.APPLICATION_JSON);
        } catch (JacksonException e) {
            return refusal(Problems.unreadable(e));
        } catch (ResponseStatusException e) {
            return refusal(e.getBody());
        } catch (RuntimeException e) {
            return refusal(Problems.failed(e));
        }
    }

    /** For a body that is not to be read; the connection ends with it. */
    private static ClassicHttpResponse unread(ClassicHttpRequest request, InputStream body, ProblemDetail problem)
            throws IOException {
        long swallowed = body.skip(PortPolicy.SWALLOWED);
        LOG.debug("{}, of which {} were thrown away", problem.getDetail(), swallowed);
        request.setEntity(null); // else the rest would be read, too
        return last(refusal(problem));
    }

    /** On its connection. */
    private static ClassicHttpResponse last(ClassicHttpResponse answer) {
        answer.setHeader(HttpHeaders.CONNECTION, HeaderElements.CLOSE);
        return answer;
    }

    private static ClassicHttpResponse refusal(ProblemDetail problem) {
        byte[] line = Problems.line(problem).getBytes(StandardCharsets.UTF_8);
        return whole(problem.getStatus(), line, ContentType.TEXT_PLAIN.withCharset(StandardCharsets.UTF_8));
    }

    private static ClassicHttpResponse whole(int status, byte[] body, ContentType type) {
        var answer = new BasicClassicHttpResponse(status);
        answer.setEntity(new ByteArrayEntity(body, type));
        return answer;
    }
}
