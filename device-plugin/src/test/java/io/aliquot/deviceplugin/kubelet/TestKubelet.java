package io.aliquot.deviceplugin.kubelet;

import io.aliquot.api.format.JsonFields;
import io.aliquot.deviceplugin.v1beta1.AllocateRequest;
import io.aliquot.deviceplugin.v1beta1.AllocateResponse;
import io.aliquot.deviceplugin.v1beta1.ContainerAllocateRequest;
import io.aliquot.deviceplugin.v1beta1.ContainerAllocateResponse;
import io.aliquot.deviceplugin.v1beta1.Device;
import io.aliquot.deviceplugin.v1beta1.DevicePluginGrpc;
import io.aliquot.deviceplugin.v1beta1.Empty;
import io.aliquot.deviceplugin.v1beta1.ListAndWatchResponse;
import io.aliquot.deviceplugin.v1beta1.PreStartContainerRequest;
import io.aliquot.deviceplugin.v1beta1.RegisterRequest;
import io.aliquot.deviceplugin.v1beta1.RegistrationGrpc;
import io.grpc.Context;
import io.grpc.ManagedChannel;
import io.grpc.Server;
import io.grpc.Status;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.netty.shaded.io.netty.channel.EventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.MultiThreadIoEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollIoHandler;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollServerDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.unix.DomainSocketAddress;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;

/**
 * The kubelet's side of the device plugin API over unix sockets: accepts registrations, calls the plugin before it
 * answers Register, keeps ListAndWatch open, and calls Allocate. At its start it empties the plugin folder, as the
 * kubelet does.
 */
public final class TestKubelet implements AutoCloseable {
    private final Path folder;
    private final EventLoopGroup loop = new MultiThreadIoEventLoopGroup(2, EpollIoHandler.newFactory());
    private final BlockingQueue<RegisterRequest> registrations = new LinkedBlockingQueue<>();
    private final BlockingQueue<List<Device>> lists = new LinkedBlockingQueue<>();
    private Server server;
    private volatile Optional<ManagedChannel> plugin = Optional.empty();
    private volatile boolean rejecting;
    private volatile boolean preStartRequired;
    private final Map<String, Map<String, Object>> checkpoint = new LinkedHashMap<>();

    public TestKubelet(Path folder) throws IOException {
        this.folder = folder;
        server = serve();
    }

    public void start() throws IOException {
        server = serve();
    }

    private Server serve() throws IOException {
        try (DirectoryStream<Path> sockets = Files.newDirectoryStream(folder, "*.sock")) {
            for (Path socket : sockets) {
                Files.deleteIfExists(socket); // the plugin may remove its own at the same time
            }
        }
        return NettyServerBuilder.forAddress(
                        new DomainSocketAddress(folder.resolve("kubelet.sock").toFile()))
                .channelType(EpollServerDomainSocketChannel.class)
                .bossEventLoopGroup(loop)
                .workerEventLoopGroup(loop)
                .addService(new RegistrationService())
                .build()
                .start();
    }

    /** Behaves like SIGKILL: connections break, and the socket's file stays. */
    public void kill() throws InterruptedException, IOException {
        server.shutdownNow().awaitTermination(); // removes the socket's file
        disconnect();
        Files.createFile(folder.resolve("kubelet.sock"));
    }

    public void disconnect() {
        plugin.ifPresent(ManagedChannel::shutdownNow);
    }

    void rejectRegistrations(boolean reject) {
        rejecting = reject;
    }

    public RegisterRequest nextRegistration() throws InterruptedException {
        RegisterRequest next = registrations.poll(20, TimeUnit.SECONDS);
        if (next == null) {
            throw new AssertionError("no registration within 20 s");
        }
        return next;
    }

    boolean registersWithin(Duration time) throws InterruptedException {
        return registrations.poll(time.toMillis(), TimeUnit.MILLISECONDS) != null;
    }

    /** Waits for a list of devices that satisfies the condition. */
    public List<Device> nextList(Predicate<List<Device>> wanted) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (true) {
            List<Device> list = lists.poll(Math.max(0, deadline - System.nanoTime()), TimeUnit.NANOSECONDS);
            if (list == null) {
                throw new AssertionError("no list of devices satisfied the condition within 20 s");
            }
            if (wanted.test(list)) {
                return list;
            }
        }
    }

    public AllocateResponse allocate(String... slots) {
        return allocate(List.of(List.of(slots)));
    }

    AllocateResponse allocate(List<List<String>> containers) {
        var request = AllocateRequest.newBuilder();
        containers.forEach(slots -> request.addContainerRequests(
                ContainerAllocateRequest.newBuilder().addAllDevicesIds(slots)));
        return DevicePluginGrpc.newBlockingStub(plugin.orElseThrow())
                .withDeadlineAfter(20, TimeUnit.SECONDS)
                .allocate(request.build());
    }

    /** Whether the plugin's latest registration asked for PreStartContainer. */
    public boolean requiresPreStart() {
        return preStartRequired;
    }

    /** Admits a container: calls Allocate and keeps the answer in the checkpoint, as the kubelet does. */
    ContainerAllocateResponse admit(String podUid, String container, String... slots) throws IOException {
        ContainerAllocateResponse answer = allocate(slots).getContainerResponses(0);
        checkpoint.put(
                podUid + "/" + container,
                Map.of(
                        "PodUID",
                        podUid,
                        "ContainerName",
                        container,
                        "ResourceName",
                        "aliquot.io/vgpu",
                        "DeviceIDs",
                        Map.of("-1", List.of(slots)),
                        "AllocResp",
                        Base64.getEncoder().encodeToString(answer.toByteArray())));
        writeCheckpoint();
        return answer;
    }

    /** Forgets the containers of a pod that has ended. */
    void forget(String podUid) throws IOException {
        checkpoint.keySet().removeIf(container -> container.startsWith(podUid + "/"));
        writeCheckpoint();
    }

    private void writeCheckpoint() throws IOException {
        Path temporary = folder.resolve(".checkpoint");
        Files.writeString(
                temporary,
                JsonFields.JSON.writeValueAsString(Map.of(
                        "Data",
                        Map.of("PodDeviceEntries", checkpoint.values(), "RegisteredDevices", Map.of()),
                        "Checksum",
                        1)));
        Files.move(temporary, folder.resolve(DeviceCheckpoint.FILE), StandardCopyOption.ATOMIC_MOVE);
    }

    void preStart(Duration timeout, String... slots) {
        var unused = DevicePluginGrpc.newBlockingStub(plugin.orElseThrow())
                .withDeadlineAfter(timeout.toMillis(), TimeUnit.MILLISECONDS)
                .preStartContainer(PreStartContainerRequest.newBuilder()
                        .addAllDevicesIds(List.of(slots))
                        .build());
    }

    @Override
    public void close() {
        try {
            server.shutdownNow().awaitTermination();
            disconnect();
            var closing = loop.shutdownGracefully(0, 1, TimeUnit.SECONDS);
            closing.await(10_000);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private final class RegistrationService extends RegistrationGrpc.RegistrationImplBase {
        @Override
        public void register(RegisterRequest request, StreamObserver<Empty> answer) {
            if (rejecting) {
                answer.onError(Status.UNKNOWN.withDescription("not today").asException());
                return;
            }
            ManagedChannel channel = NettyChannelBuilder.forAddress(new DomainSocketAddress(
                            folder.resolve(request.getEndpoint()).toFile()))
                    .channelType(EpollDomainSocketChannel.class)
                    .eventLoopGroup(loop)
                    .overrideAuthority("localhost")
                    .usePlaintext()
                    .build();
            preStartRequired = DevicePluginGrpc.newBlockingStub(channel)
                    .withDeadlineAfter(10, TimeUnit.SECONDS)
                    .getDevicePluginOptions(Empty.getDefaultInstance())
                    .getPreStartRequired();
            plugin = Optional.of(channel);
            // In the root context: a stream of this call's context would end with the call.
            Context.ROOT.run(() -> listen(channel));
            answer.onNext(Empty.getDefaultInstance());
            answer.onCompleted();
            registrations.add(request);
        }

        private void listen(ManagedChannel channel) {
            DevicePluginGrpc.newStub(channel)
                    .listAndWatch(Empty.getDefaultInstance(), new StreamObserver<ListAndWatchResponse>() {
                        @Override
                        public void onNext(ListAndWatchResponse list) {
                            lists.add(list.getDevicesList());
                        }

                        @Override
                        public void onError(Throwable end) {}

                        @Override
                        public void onCompleted() {}
                    });
        }
    }
}
