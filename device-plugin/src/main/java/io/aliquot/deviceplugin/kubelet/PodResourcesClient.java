package io.aliquot.deviceplugin.kubelet;

import io.aliquot.deviceplugin.podresources.v1.CDIDevice;
import io.aliquot.deviceplugin.podresources.v1.ClaimResource;
import io.aliquot.deviceplugin.podresources.v1.ContainerDevices;
import io.aliquot.deviceplugin.podresources.v1.ContainerResources;
import io.aliquot.deviceplugin.podresources.v1.ListPodResourcesRequest;
import io.aliquot.deviceplugin.podresources.v1.PodResources;
import io.aliquot.deviceplugin.podresources.v1.PodResourcesListerGrpc;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.channel.EventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.MultiThreadIoEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollIoHandler;
import io.grpc.netty.shaded.io.netty.channel.unix.DomainSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * Asks the kubelet's PodResources which pods have which devices (KEP-606; the interface is stable since Kubernetes 1.28).
 * Its socket needs no right in the API server. Thread-safe.
 */
public final class PodResourcesClient implements AutoCloseable {
    private static final Duration TIMEOUT = Duration.ofSeconds(3);
    /** A node with hundreds of pods answers in some hundred KiB. */
    private static final int LARGEST_ANSWER = 16 << 20;

    private final Path socket;
    private final EventLoopGroup eventLoop = new MultiThreadIoEventLoopGroup(1, EpollIoHandler.newFactory());
    private final ManagedChannel channel;

    /**
     * Connects at the first question.
     *
     * @param folder the kubelet's folder of this socket, {@code /var/lib/kubelet/pod-resources} by default
     */
    public PodResourcesClient(Path folder) {
        socket = folder.resolve("kubelet.sock");
        channel = NettyChannelBuilder.forAddress(new DomainSocketAddress(socket.toFile()))
                .channelType(EpollDomainSocketChannel.class)
                .eventLoopGroup(eventLoop)
                .directExecutor()
                .overrideAuthority("localhost")
                .usePlaintext()
                .maxInboundMessageSize(LARGEST_ANSWER)
                .build();
    }

    /** The pods' devices now; waits for the kubelet for some seconds at most. */
    public DeviceHolders list() {
        if (!Files.exists(socket)) {
            return new DeviceHolders.Unavailable("there is no " + socket);
        }
        try {
            // A kubelet that has restarted listens on a new socket; do not wait for the channel's backoff.
            channel.resetConnectBackoff();
            return new DeviceHolders.Known(holders(pods()));
        } catch (StatusRuntimeException e) {
            return new DeviceHolders.Unavailable("the kubelet does not answer on " + socket + ": "
                    + e.getStatus().getCode());
        }
    }

    /** Asks again if the kubelet was not there: the first call may find the connection to one that has restarted. */
    private List<PodResources> pods() {
        try {
            return ask();
        } catch (StatusRuntimeException e) {
            if (e.getStatus().getCode() != Status.Code.UNAVAILABLE) {
                throw e;
            }
            channel.resetConnectBackoff();
            return ask();
        }
    }

    private List<PodResources> ask() {
        return PodResourcesListerGrpc.newBlockingStub(channel)
                .withDeadlineAfter(TIMEOUT.toMillis(), TimeUnit.MILLISECONDS)
                .list(ListPodResourcesRequest.getDefaultInstance())
                .getPodResourcesList();
    }

    private static List<DeviceHolders.Holder> holders(List<PodResources> pods) {
        var holders = new ArrayList<DeviceHolders.Holder>();
        for (PodResources pod : pods) {
            for (ContainerResources container : pod.getContainersList()) {
                Map<String, List<String>> byResource = new LinkedHashMap<>();
                // One element for each NUMA node (k8s.io/kubelet/pkg/apis/podresources/v1).
                for (ContainerDevices devices : container.getDevicesList()) {
                    byResource
                            .computeIfAbsent(devices.getResourceName(), resource -> new ArrayList<>())
                            .addAll(devices.getDeviceIdsList());
                }
                container.getDynamicResourcesList().stream()
                        .flatMap(claim -> claim.getClaimResourcesList().stream())
                        .forEach(device -> byResource
                                .computeIfAbsent(driver(device), driver -> new ArrayList<>())
                                .add(device.getPoolName() + "/" + device.getDeviceName()));
                byResource.values().removeIf(List::isEmpty);
                byResource.forEach((resource, ids) -> holders.add(new DeviceHolders.Holder(
                        pod.getNamespace() + "/" + pod.getName(), container.getName(), resource, ids)));
            }
        }
        return holders;
    }

    /** Before 1.34 the kubelet names CDI devices only, whose class is the driver's name by convention. */
    private static String driver(ClaimResource device) {
        if (!device.getDriverName().isEmpty()) {
            return device.getDriverName();
        }
        return device.getCdiDevicesList().stream()
                        .map(CDIDevice::getName)
                        .anyMatch(name -> name.contains(DeviceHolders.NVIDIA_DRIVER))
                ? DeviceHolders.NVIDIA_DRIVER
                : "unknown";
    }

    @Override
    public void close() {
        channel.shutdownNow();
        var unused = eventLoop.shutdownGracefully(0, 1, TimeUnit.SECONDS);
    }
}
