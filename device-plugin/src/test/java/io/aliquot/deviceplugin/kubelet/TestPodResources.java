package io.aliquot.deviceplugin.kubelet;

import io.aliquot.deviceplugin.podresources.v1.CDIDevice;
import io.aliquot.deviceplugin.podresources.v1.ClaimResource;
import io.aliquot.deviceplugin.podresources.v1.ContainerDevices;
import io.aliquot.deviceplugin.podresources.v1.ContainerResources;
import io.aliquot.deviceplugin.podresources.v1.DynamicResource;
import io.aliquot.deviceplugin.podresources.v1.ListPodResourcesRequest;
import io.aliquot.deviceplugin.podresources.v1.ListPodResourcesResponse;
import io.aliquot.deviceplugin.podresources.v1.PodResources;
import io.aliquot.deviceplugin.podresources.v1.PodResourcesListerGrpc;
import io.grpc.Server;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.netty.shaded.io.netty.channel.EventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.MultiThreadIoEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollIoHandler;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollServerDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.unix.DomainSocketAddress;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/** The kubelet's PodResources over a unix socket, with pods that a test adds and removes. */
public final class TestPodResources implements AutoCloseable {
    private final Path folder;
    private final Map<String, PodResources> pods = new ConcurrentHashMap<>();
    private final EventLoopGroup loop = new MultiThreadIoEventLoopGroup(1, EpollIoHandler.newFactory());
    private Server server;

    public TestPodResources(Path folder) throws IOException {
        this.folder = folder;
        server = serve();
    }

    private Server serve() throws IOException {
        return NettyServerBuilder.forAddress(
                        new DomainSocketAddress(folder.resolve("kubelet.sock").toFile()))
                .channelType(EpollServerDomainSocketChannel.class)
                .bossEventLoopGroup(loop)
                .workerEventLoopGroup(loop)
                .addService(new PodResourcesListerGrpc.PodResourcesListerImplBase() {
                    @Override
                    public void list(
                            ListPodResourcesRequest request, StreamObserver<ListPodResourcesResponse> observer) {
                        observer.onNext(ListPodResourcesResponse.newBuilder()
                                .addAllPodResources(pods.values())
                                .build());
                        observer.onCompleted();
                    }
                })
                .build()
                .start();
    }

    /** A running pod with one container that has these devices. */
    public void run(String namespace, String name, String resource, String... deviceIds) {
        pods.put(
                namespace + "/" + name,
                PodResources.newBuilder()
                        .setNamespace(namespace)
                        .setName(name)
                        .addContainers(ContainerResources.newBuilder()
                                .setName("main")
                                .addDevices(ContainerDevices.newBuilder()
                                        .setResourceName(resource)
                                        .addAllDeviceIds(List.of(deviceIds))))
                        .build());
    }

    /** A running pod with one container that has this device by a claim. */
    public void claim(String namespace, String name, String driver, String pool, String device) {
        pods.put(
                namespace + "/" + name,
                PodResources.newBuilder()
                        .setNamespace(namespace)
                        .setName(name)
                        .addContainers(ContainerResources.newBuilder()
                                .setName("main")
                                .addDynamicResources(DynamicResource.newBuilder()
                                        .addClaimResources(ClaimResource.newBuilder()
                                                .setDriverName(driver)
                                                .setPoolName(pool)
                                                .setDeviceName(device)
                                                .addCdiDevices(CDIDevice.newBuilder()
                                                        .setName("k8s." + driver + "/claim=" + device)))))
                        .build());
    }

    public void end(String namespace, String name) {
        pods.remove(namespace + "/" + name);
    }

    /** Behaves like a kubelet that is not running; its socket's file is gone. */
    public void stop() throws InterruptedException {
        server.shutdownNow().awaitTermination();
    }

    public void restart() throws IOException {
        server = serve();
    }

    @Override
    public void close() {
        try {
            stop();
            var closing = loop.shutdownGracefully(0, 1, TimeUnit.SECONDS);
            closing.await(10_000);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
