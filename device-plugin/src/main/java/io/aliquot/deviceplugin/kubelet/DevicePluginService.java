package io.aliquot.deviceplugin.kubelet;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import io.aliquot.deviceplugin.cdi.DeviceInjection;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import io.aliquot.deviceplugin.v1beta1.AllocateRequest;
import io.aliquot.deviceplugin.v1beta1.AllocateResponse;
import io.aliquot.deviceplugin.v1beta1.ContainerAllocateRequest;
import io.aliquot.deviceplugin.v1beta1.ContainerAllocateResponse;
import io.aliquot.deviceplugin.v1beta1.DevicePluginGrpc;
import io.aliquot.deviceplugin.v1beta1.DevicePluginOptions;
import io.aliquot.deviceplugin.v1beta1.Empty;
import io.aliquot.deviceplugin.v1beta1.ListAndWatchResponse;
import io.aliquot.deviceplugin.v1beta1.PreStartContainerRequest;
import io.aliquot.deviceplugin.v1beta1.PreStartContainerResponse;
import io.grpc.Status;
import io.grpc.StatusException;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.function.LongSupplier;

/** The gRPC service that the kubelet calls: ListAndWatch, Allocate and PreStartContainer. Thread-safe. */
final class DevicePluginService extends DevicePluginGrpc.DevicePluginImplBase {
    private static final Logger LOG = System.getLogger(DevicePluginService.class.getName());

    /** Answers Allocate for one container. */
    interface ContainerAllocator {
        /** See {@link Allocator#allocate}. */
        ContainerAllocateResponse allocate(List<String> slots, int everAdvertised, DeviceInjection injection)
                throws StatusException;
    }

    private final ContainerAllocator allocator;
    private final Optional<CdiStarts> starts;
    private final AgentMetrics metrics;
    private final LongSupplier nanoTime;

    @GuardedBy("this")
    private final List<ServerCallStreamObserver<ListAndWatchResponse>> streams = new ArrayList<>();

    @GuardedBy("this")
    private AdvertisedSlots advertised = AdvertisedSlots.NONE;

    @GuardedBy("this")
    private int everAdvertised;

    @GuardedBy("this")
    private Runnable onStreamOpen = () -> {};

    @GuardedBy("this")
    private Runnable onStreamEnd = () -> {};

    @GuardedBy("this")
    private boolean streamOpened;

    @GuardedBy("this")
    private DeviceInjection wanted = DeviceInjection.RUNTIME;

    /** As the kubelet's latest registration has it, since the kubelet reads the options then. */
    @GuardedBy("this")
    private DeviceInjection injection = DeviceInjection.RUNTIME;

    /** {@code starts} is empty for devices that no container gets. */
    DevicePluginService(
            ContainerAllocator allocator, Optional<CdiStarts> starts, AgentMetrics metrics, LongSupplier nanoTime) {
        this.allocator = allocator;
        this.starts = starts;
        this.metrics = metrics;
        this.nanoTime = nanoTime;
    }

    /** Sends changed slots to the kubelet, now if its stream is open, else when it opens one. */
    synchronized void advertise(AdvertisedSlots slots) {
        if (slots.equals(advertised)) {
            return;
        }
        advertised = slots;
        everAdvertised = Math.max(everAdvertised, slots.total());
        ListAndWatchResponse list = slots.print();
        streams.forEach(stream -> stream.onNext(list));
    }

    synchronized AdvertisedSlots advertised() {
        return advertised;
    }

    /**
     * Prepares for a new registration: forgets the streams of the one before.
     *
     * @param onStreamOpen called when the kubelet has called ListAndWatch and got the slots; must not block
     * @param onStreamEnd called when the kubelet closes a stream of the new registration
     */
    synchronized void expectStream(Runnable onStreamOpen, Runnable onStreamEnd) {
        streams.clear();
        streamOpened = false;
        this.onStreamOpen = onStreamOpen;
        this.onStreamEnd = onStreamEnd;
    }

    /** Whether the kubelet has called ListAndWatch since {@link #expectStream}. */
    synchronized boolean streamOpened() {
        return streamOpened;
    }

    /** Sets how containers get their GPUs from the next registration on. */
    synchronized void inject(DeviceInjection wanted) {
        this.wanted = wanted;
    }

    /** Whether the kubelet has registered with another way of injection. */
    synchronized boolean isOutdated() {
        return wanted != injection;
    }

    /**
     * Without CDI the kubelet does not ask before a container starts, so that containers restart while the agent does not run.
     * With CDI it must; it also refuses to start a container whose Allocate it has forgotten (pkg/kubelet/cm/devicemanager,
     * callPreStartContainerIfNeeded).
     */
    @Override
    public synchronized void getDevicePluginOptions(Empty request, StreamObserver<DevicePluginOptions> answer) {
        injection = wanted;
        answer.onNext(DevicePluginOptions.newBuilder()
                .setPreStartRequired(injection == DeviceInjection.CDI
                        || starts.filter(CdiStarts::areNeeded).isPresent())
                .build());
        answer.onCompleted();
    }

    @Override
    public synchronized void listAndWatch(Empty request, StreamObserver<ListAndWatchResponse> answer) {
        var stream = (ServerCallStreamObserver<ListAndWatchResponse>) answer;
        stream.setOnCancelHandler(() -> ended(stream));
        streams.add(stream);
        streamOpened = true;
        stream.onNext(advertised.print());
        onStreamOpen.run();
    }

    private void ended(ServerCallStreamObserver<ListAndWatchResponse> stream) {
        Runnable callback;
        synchronized (this) {
            if (!streams.remove(stream)) {
                return; // a stream of an earlier registration
            }
            callback = onStreamEnd;
        }
        callback.run();
    }

    @Override
    public void allocate(AllocateRequest request, StreamObserver<AllocateResponse> answer) {
        long start = nanoTime.getAsLong();
        try {
            int known;
            DeviceInjection by;
            synchronized (this) {
                known = everAdvertised;
                by = injection;
            }
            var response = AllocateResponse.newBuilder();
            for (ContainerAllocateRequest container : request.getContainerRequestsList()) {
                response.addContainerResponses(allocator.allocate(container.getDevicesIdsList(), known, by));
            }
            answer.onNext(response.build());
            answer.onCompleted();
            Duration took = Duration.ofNanos(nanoTime.getAsLong() - start);
            metrics.allocateAnswered(took);
            LOG.log(Level.DEBUG, () -> "Allocate: " + slots(request) + " in " + took.toNanos() / 1000 + " µs");
        } catch (StatusException e) {
            LOG.log(Level.ERROR, "Allocate failed: {0}", e.getStatus().getDescription());
            metrics.allocateFailed();
            answer.onError(e);
        }
    }

    /** On a thread of its own: Allocate of another pod must not wait. */
    @Override
    public void preStartContainer(PreStartContainerRequest request, StreamObserver<PreStartContainerResponse> answer) {
        var call = (ServerCallStreamObserver<PreStartContainerResponse>) answer;
        Thread.ofVirtual().name("start").start(() -> prepare(request.getDevicesIdsList(), call));
    }

    private void prepare(List<String> slots, ServerCallStreamObserver<PreStartContainerResponse> call) {
        try {
            if (starts.isPresent()) {
                starts.get().prepare(slots, call::isCancelled);
            }
            if (call.isCancelled()) {
                return;
            }
            call.onNext(PreStartContainerResponse.getDefaultInstance());
            call.onCompleted();
        } catch (StatusException e) {
            LOG.log(Level.ERROR, "A container cannot start: {0}", e.getStatus().getDescription());
            call.onError(e);
        } catch (RuntimeException e) {
            LOG.log(Level.ERROR, "A container cannot start", e);
            call.onError(
                    Status.INTERNAL.withDescription(e.toString()).withCause(e).asException());
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** Of each container. */
    private static List<List<String>> slots(AllocateRequest request) {
        return request.getContainerRequestsList().stream()
                .map(container -> List.copyOf(container.getDevicesIdsList()))
                .toList();
    }
}
