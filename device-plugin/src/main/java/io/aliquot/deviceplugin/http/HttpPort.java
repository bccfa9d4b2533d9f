package io.aliquot.deviceplugin.http;

import io.aliquot.api.ports.ApiServers;
import io.aliquot.api.ports.FullPort;
import io.aliquot.api.ports.Peer;
import io.grpc.netty.shaded.io.netty.bootstrap.ServerBootstrap;
import io.grpc.netty.shaded.io.netty.buffer.Unpooled;
import io.grpc.netty.shaded.io.netty.channel.Channel;
import io.grpc.netty.shaded.io.netty.channel.ChannelFuture;
import io.grpc.netty.shaded.io.netty.channel.ChannelFutureListener;
import io.grpc.netty.shaded.io.netty.channel.ChannelHandlerContext;
import io.grpc.netty.shaded.io.netty.channel.ChannelInitializer;
import io.grpc.netty.shaded.io.netty.channel.EventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.MultiThreadIoEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.SimpleChannelInboundHandler;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollIoHandler;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollServerSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.socket.SocketChannel;
import io.grpc.netty.shaded.io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.grpc.netty.shaded.io.netty.handler.codec.http.FullHttpRequest;
import io.grpc.netty.shaded.io.netty.handler.codec.http.HttpHeaderNames;
import io.grpc.netty.shaded.io.netty.handler.codec.http.HttpObjectAggregator;
import io.grpc.netty.shaded.io.netty.handler.codec.http.HttpRequest;
import io.grpc.netty.shaded.io.netty.handler.codec.http.HttpResponseStatus;
import io.grpc.netty.shaded.io.netty.handler.codec.http.HttpServerCodec;
import io.grpc.netty.shaded.io.netty.handler.codec.http.HttpUtil;
import io.grpc.netty.shaded.io.netty.handler.codec.http.HttpVersion;
import io.grpc.netty.shaded.io.netty.handler.ssl.SslHandler;
import io.grpc.netty.shaded.io.netty.handler.ssl.SslHandshakeCompletionEvent;
import io.grpc.netty.shaded.io.netty.handler.timeout.ReadTimeoutHandler;
import java.io.IOException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;

/*
 * Netty, which gRPC brings along, reads from all clients in one thread, so a slow one takes memory and no thread. What a
 * client may take is limited until it is authenticated, which without TLS is for ever: a number of connections (FullPort),
 * and a time from the connect to the last byte of the one answer.
 */
/** Answers GET requests on one port, over plain HTTP or mutual TLS. Thread-safe. */
public final class HttpPort implements AutoCloseable {
    /** Of clients that are not authenticated. */
    static final int MOST_CONNECTIONS = 64;

    /** For which such a connection may exist: from the connect to the last byte of its answer. */
    private static final Duration LONGEST = Duration.ofSeconds(10);

    /** Of authenticated clients. The scheduler sends a request every 9 s. */
    private static final Duration IDLE = Duration.ofMinutes(1);

    /** Of authenticated clients; others' are not read. A longer one is answered with 413. */
    private static final int LARGEST_BODY = 1 << 20;

    private static final Logger LOG = System.getLogger(HttpPort.class.getName());

    /**
     * A GET request.
     *
     * @param path without the query
     * @param query empty if there is none
     * @param body empty if there is none, and without TLS
     */
    public record Request(String path, String query, String body) {}

    /** What a request is answered with. */
    public record Answer(int status, String contentType, String text) {}

    private final Optional<SSLContext> tls;
    private final Function<Request, Answer> answers;
    private final Duration longest;
    private final EventLoopGroup thread = new MultiThreadIoEventLoopGroup(1, EpollIoHandler.newFactory());
    private final Channel server;
    /** Of clients that are not authenticated, oldest first, with what ends them in time. Used by the thread alone. */
    private final Map<Channel, Stranger> strangers = new LinkedHashMap<>();

    private final FullPort full = new FullPort(MOST_CONNECTIONS, ApiServers.UNKNOWN);
    private long connected;

    /**
     * A client that is not authenticated. Its connection has one answer and a deadline, so its age is what counts.
     *
     * @param number of its connection, in place of a time
     */
    private record Stranger(Channel channel, Peer peer, long number, Future<?> end) implements FullPort.Connection {
        @Override
        public long inactive(long latest) {
            return latest - number;
        }
    }

    /**
     * Starts to serve.
     *
     * @param port 0 for any free one
     * @param tls of a server that requires a client's certificate; empty for plain HTTP
     * @param answers must not block
     * @throws IOException if the port is in use
     */
    public HttpPort(int port, Optional<SSLContext> tls, Function<Request, Answer> answers) throws IOException {
        this(port, tls, answers, LONGEST);
    }

    /** With another time for a connection of a client that is not authenticated. */
    HttpPort(int port, Optional<SSLContext> tls, Function<Request, Answer> answers, Duration longest)
            throws IOException {
        this.tls = tls;
        this.answers = answers;
        this.longest = longest;
        ChannelFuture bound = new ServerBootstrap()
                .group(thread)
                .channel(EpollServerSocketChannel.class)
                .childHandler(new ChannelInitializer<SocketChannel>() {
                    @Override
                    protected void initChannel(SocketChannel channel) {
                        connect(channel);
                    }
                })
                .bind(port)
                .awaitUninterruptibly();
        if (!bound.isSuccess()) {
            close();
            throw new IOException(bound.cause().getMessage(), bound.cause());
        }
        server = bound.channel();
    }

    /** The port on which this object listens. */
    public int port() {
        return ((InetSocketAddress) server.localAddress()).getPort();
    }

    @Override
    public void close() {
        var unused = thread.shutdownGracefully(0, 1, TimeUnit.SECONDS).awaitUninterruptibly();
    }

    private static void close(Channel channel) {
        var unused = channel.close();
    }

    private void connect(SocketChannel channel) {
        Peer peer = full.peer(channel.remoteAddress().getAddress());
        connected++;
        if (!full.admits(peer, strangers.values(), connected, stranger -> close(stranger.channel()))) {
            close(channel);
            return;
        }
        Runnable end = () -> close(channel);
        Future<?> timer = channel.eventLoop().schedule(end, longest.toMillis(), TimeUnit.MILLISECONDS);
        strangers.put(channel, new Stranger(channel, peer, connected, timer));
        var unused = channel.closeFuture().addListener(closed -> forget(channel));
        tls.ifPresent(context -> {
            SSLEngine engine = context.createSSLEngine();
            engine.setUseClientMode(false);
            engine.setNeedClientAuth(true);
            channel.pipeline().addLast(new SslHandler(engine));
        });
        channel.pipeline().addLast(new HttpServerCodec());
        if (tls.isPresent()) {
            channel.pipeline().addLast(new HttpObjectAggregator(LARGEST_BODY));
        }
        channel.pipeline().addLast(new Exchange());
    }

    private void forget(Channel channel) {
        Stranger stranger = strangers.remove(channel);
        if (stranger != null) {
            stranger.end().cancel(false);
        }
    }

    /** The requests of one connection. */
    private final class Exchange extends SimpleChannelInboundHandler<HttpRequest> {
        private boolean last;

        @Override
        protected void channelRead0(ChannelHandlerContext client, HttpRequest request) {
            if (last) {
                return;
            }
            last = tls.isEmpty()
                    || !HttpUtil.isKeepAlive(request)
                    || request.decoderResult().isFailure();
            Answer answer = answer(request);
            var response = new DefaultFullHttpResponse(
                    HttpVersion.HTTP_1_1,
                    HttpResponseStatus.valueOf(answer.status()),
                    Unpooled.copiedBuffer(answer.text(), StandardCharsets.UTF_8));
            response.headers().set(HttpHeaderNames.CONTENT_TYPE, answer.contentType());
            HttpUtil.setContentLength(response, response.content().readableBytes());
            HttpUtil.setKeepAlive(response, !last);
            ChannelFuture written = client.writeAndFlush(response);
            if (last) {
                var unused = written.addListener(ChannelFutureListener.CLOSE);
            }
        }

        private Answer answer(HttpRequest request) {
            if (request.decoderResult().isFailure()) {
                return new Answer(HttpResponseStatus.BAD_REQUEST.code(), "text/plain", "expected an HTTP request\n");
            }
            if (!request.method().name().equals("GET")) {
                return new Answer(HttpResponseStatus.METHOD_NOT_ALLOWED.code(), "text/plain", "GET only\n");
            }
            String uri = request.uri();
            int mark = uri.indexOf('?');
            String body =
                    request instanceof FullHttpRequest full ? full.content().toString(StandardCharsets.UTF_8) : "";
            try {
                return answers.apply(
                        mark < 0
                                ? new Request(uri, "", body)
                                : new Request(uri.substring(0, mark), uri.substring(mark + 1), body));
            } catch (RuntimeException e) {
                LOG.log(Level.ERROR, "a request for " + uri + " failed", e);
                return new Answer(HttpResponseStatus.INTERNAL_SERVER_ERROR.code(), "text/plain", "internal error\n");
            }
        }

        @Override
        public void userEventTriggered(ChannelHandlerContext client, Object event) {
            if (event instanceof SslHandshakeCompletionEvent handshake && handshake.isSuccess()) {
                forget(client.channel());
                client.pipeline().addFirst(new ReadTimeoutHandler(IDLE.toSeconds(), TimeUnit.SECONDS));
            }
        }

        /** The client's connection or its TLS has failed, or it has been idle for too long. */
        @Override
        public void exceptionCaught(ChannelHandlerContext client, Throwable cause) {
            close(client.channel());
        }
    }
}
