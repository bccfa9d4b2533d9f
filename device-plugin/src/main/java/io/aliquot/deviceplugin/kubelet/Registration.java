package io.aliquot.deviceplugin.kubelet;

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
import java.util.function.LongSupplier;

/** One registration with one run of the kubelet: the plugin's socket and the gRPC server on it. */
final class Registration implements AutoCloseable {
    private static final String API_VERSION = "v1beta1";
    private static final Duration TIMEOUT = Duration.ofSeconds(10);

    private final KubeletInstance kubelet;
    private final Path socket;
    private final DevicePluginService service;
    private final LongSupplier nanoTime;
    private final long openedAt;
    private final EventLoopGroup eventLoop;
    private final Server server;
    private volatile boolean streamEnded;

    private Registration(
            KubeletInstance kubelet, Path socket, DevicePluginService service, Runnable onChange, LongSupplier nanoTime)
            throws IOException {
        this.kubelet = kubelet;
        this.socket = socket;
        this.service = service;
        this.nanoTime = nanoTime;
        openedAt = nanoTime.getAsLong();
        eventLoop = new MultiThreadIoEventLoopGroup(1, EpollIoHandler.newFactory());
        service.expectStream(onChange, () -> {
            streamEnded = true;
            onChange.run();
        });
        // Calls run on the event loop: the kubelet admits one pod at a time, and an answer takes less time than a
        // handover
        // to another thread.
        server = NettyServerBuilder.forAddress(new DomainSocketAddress(socket.toFile()))
                .channelType(EpollServerDomainSocketChannel.class)
                .bossEventLoopGroup(eventLoop)
                .workerEventLoopGroup(eventLoop)
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
     * Serves on {@code socket} and registers it with the kubelet.
     *
     * @param resource the name of the devices
     * @param onChange called when {@link #end} or {@link #hasDevices} may have changed; must not block
     * @param nanoTime a clock such as {@link System#nanoTime}
     * @throws IOException if the socket cannot be created or the kubelet refuses the registration
     */
    static Registration open(
            String resource,
            KubeletInstance kubelet,
            Path kubeletSocket,
            Path socket,
            DevicePluginService service,
            Runnable onChange,
            LongSupplier nanoTime)
            throws IOException {
        var registration = new Registration(kubelet, socket, service, onChange, nanoTime);
        ManagedChannel channel = NettyChannelBuilder.forAddress(new DomainSocketAddress(kubeletSocket.toFile()))
                .channelType(EpollDomainSocketChannel.class)
                .eventLoopGroup(registration.eventLoop)
                .directExecutor()
                .overrideAuthority("localhost")
                .usePlaintext()
                .build();
        try {
            // The kubelet calls the plugin before it answers Register.
            RegistrationGrpc.newBlockingStub(channel)
                    .withDeadlineAfter(TIMEOUT.toMillis(), TimeUnit.MILLISECONDS)
                    .register(RegisterRequest.newBuilder()
                            .setVersion(API_VERSION)
                            .setEndpoint(socket.getFileName().toString())
                            .setResourceName(resource)
                            .build());
            return registration;
        } catch (StatusRuntimeException e) {
            registration.close();
            throw new IOException("the kubelet did not accept the registration: " + reason(e.getStatus()), e);
        } finally {
            channel.shutdownNow();
        }
    }

    /** The status in one line; its own text contains the stack trace of the cause. */
    private static String reason(Status status) {
        Throwable cause = status.getCause();
        return status.getCode() + ", " + (cause == null ? status.getDescription() : cause.getMessage());
    }

    KubeletInstance kubelet() {
        return kubelet;
    }

    Path socket() {
        return socket;
    }

    /** Whether the kubelet has got the slots. */
    boolean hasDevices() {
        return service.streamOpened();
    }

    /** Why this registration has ended; empty while it stands. */
    Optional<String> end() {
        if (streamEnded) {
            return Optional.of("the kubelet has closed the ListAndWatch stream");
        }
        if (!service.streamOpened() && nanoTime.getAsLong() - openedAt > TIMEOUT.toNanos()) {
            return Optional.of("the kubelet has not called ListAndWatch within " + TIMEOUT.toSeconds() + " s");
        }
        return Optional.empty();
    }

    /** Waits until the server has ended, so that the kubelet sees this socket close before the next one registers. */
    @Override
    public void close() {
        try {
            server.shutdownNow();
            server.awaitTermination(TIMEOUT.toMillis(), TimeUnit.MILLISECONDS);
            var closing = eventLoop.shutdownGracefully(0, 1, TimeUnit.SECONDS);
            closing.await(TIMEOUT.toMillis());
            Files.deleteIfExists(socket);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
