package io.aliquot.deviceplugin.kubelet;

import io.aliquot.api.Resources;
import io.aliquot.deviceplugin.v1beta1.RegisterRequest;
import io.aliquot.deviceplugin.v1beta1.RegistrationGrpc;
import io.grpc.ManagedChannel;
import io.grpc.Server;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.netty.shaded.io.netty.channel.EventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.MultiThreadIoEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollIoHandler;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollServerDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.unix.DomainSocketAddress;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/** One registration: a socket of ours, served for as long as one life of the kubelet lasts. */
final class Registration implements AutoCloseable {
    private static final String API = "v1beta1";
    private static final Duration ANSWER = Duration.ofSeconds(10);

    private final Object kubelet;
    private final Path socket;
    private final DevicePluginService service;
    private final EventLoopGroup loop;
    private final Server server;
    private final long openedAt = System.nanoTime();
    private volatile boolean streamEnded;

    private Registration(Object kubelet, Path socket, DevicePluginService service, Runnable wake) throws IOException {
        this.kubelet = kubelet;
        this.socket = socket;
        this.service = service;
        loop = new MultiThreadIoEventLoopGroup(1, EpollIoHandler.newFactory());
        service.expectWatcher(() -> {
            streamEnded = true;
            wake.run();
        });
        // The kubelet admits one pod at a time, and our answers take less than handing them to another thread saves.
        server = NettyServerBuilder.forAddress(new DomainSocketAddress(socket.toFile()))
                .channelType(EpollServerDomainSocketChannel.class)
                .bossEventLoopGroup(loop)
                .workerEventLoopGroup(loop)
                .directExecutor()
                .addService(service)
                .build();
        try {
            server.start();
        } catch (IOException e) {
            close();
            throw e;
        }
    }

    /**
     * Serves on {@code socket} and registers it.
     *
     * @param kubelet what tells this life of the kubelet from the next
     * @param wake called when {@link #ended} may have changed
     * @throws IOException if the socket can't be made or the kubelet refuses; says why
     */
    static Registration open(
            Object kubelet, Path kubeletSocket, Path socket, DevicePluginService service, Runnable wake)
            throws IOException {
        var session = new Registration(kubelet, socket, service, wake);
        ManagedChannel channel = NettyChannelBuilder.forAddress(new DomainSocketAddress(kubeletSocket.toFile()))
                .channelType(EpollDomainSocketChannel.class)
                .eventLoopGroup(session.loop)
                .directExecutor()
                .overrideAuthority("localhost")
                .usePlaintext()
                .build();
        try {
            // The kubelet calls us back before it answers.
            RegistrationGrpc.newBlockingStub(channel)
                    .withDeadlineAfter(ANSWER.toMillis(), TimeUnit.MILLISECONDS)
                    .register(RegisterRequest.newBuilder()
                            .setVersion(API)
                            .setEndpoint(socket.getFileName().toString())
                            .setResourceName(Resources.GPU)
                            .build());
            return session;
        } catch (StatusRuntimeException e) {
            session.close();
            throw new IOException(
                    "the kubelet did not take our registration at " + kubeletSocket + ": " + reason(e.getStatus()), e);
        } finally {
            channel.shutdownNow();
        }
    }

    /** Without the stack trace that a status prints of its cause. */
    private static String reason(Status status) {
        Throwable cause = status.getCause();
        return status.getCode() + ", " + (cause == null ? status.getDescription() : cause.getMessage());
    }

    Object kubelet() {
        return kubelet;
    }

    Path socket() {
        return socket;
    }

    /** Why this registration is over; empty while it isn't. */
    Optional<String> ended() {
        if (streamEnded) {
            return Optional.of("the kubelet has closed our stream");
        }
        if (!service.watched() && System.nanoTime() - openedAt > ANSWER.toNanos()) {
            return Optional.of("the kubelet never asked for our slots");
        }
        return Optional.empty();
    }

    /** Closed when this returns, so that the kubelet has seen it go before it sees another come. */
    @Override
    public void close() {
        try {
            server.shutdownNow();
            server.awaitTermination(ANSWER.toMillis(), TimeUnit.MILLISECONDS);
            var closing = loop.shutdownGracefully(0, 1, TimeUnit.SECONDS);
            closing.await(ANSWER.toMillis());
            Files.deleteIfExists(socket);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
