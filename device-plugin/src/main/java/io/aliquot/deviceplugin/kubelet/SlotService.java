package io.aliquot.deviceplugin.kubelet;

import io.aliquot.api.ContainerPaths;
import io.aliquot.api.VisibleDevices;
import io.aliquot.deviceplugin.metrics.Metrics;
import io.aliquot.deviceplugin.shim.Shim;
import io.aliquot.deviceplugin.v1beta1.AllocateRequest;
import io.aliquot.deviceplugin.v1beta1.AllocateResponse;
import io.aliquot.deviceplugin.v1beta1.ContainerAllocateRequest;
import io.aliquot.deviceplugin.v1beta1.ContainerAllocateResponse;
import io.aliquot.deviceplugin.v1beta1.DevicePluginGrpc;
import io.aliquot.deviceplugin.v1beta1.DevicePluginOptions;
import io.aliquot.deviceplugin.v1beta1.Empty;
import io.aliquot.deviceplugin.v1beta1.ListAndWatchResponse;
import io.aliquot.deviceplugin.v1beta1.Mount;
import io.grpc.Status;
import io.grpc.StatusException;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * What the kubelet calls. Allocate answers from memory and one local file: it knows slots only, never the pod, so there
 * is nothing to look up and nobody to ask.
 */
final class SlotService extends DevicePluginGrpc.DevicePluginImplBase {
    private static final Logger LOG = System.getLogger(SlotService.class.getName());

    private final Shim shim;
    private final SlotFiles files;
    private final Metrics metrics;
    private final List<ServerCallStreamObserver<ListAndWatchResponse>> watchers = new ArrayList<>();
    private SlotOffer offer = SlotOffer.NONE;
    /** The kubelet may still hold ids of a longer list that it saw before. */
    private int everOffered;

    private Runnable onStreamEnd = () -> {};
    private boolean watched;

    SlotService(Shim shim, SlotFiles files, Metrics metrics) {
        this.shim = shim;
        this.files = files;
        this.metrics = metrics;
    }

    /** Tells the kubelet, if it listens, and remembers for when it does. */
    synchronized void offer(SlotOffer changed) {
        if (changed.equals(offer)) {
            return;
        }
        offer = changed;
        everOffered = Math.max(everOffered, changed.slots());
        ListAndWatchResponse list = changed.print();
        watchers.forEach(watcher -> watcher.onNext(list));
    }

    synchronized SlotOffer offer() {
        return offer;
    }

    /** Answers once, to nobody, so that the first pod doesn't wait for classes to load. */
    void warmUp() throws IOException {
        Path file = files.renew(".warm-up");
        int unused = answer(file).getSerializedSize();
        Files.delete(file);
    }

    /** Begins a new registration. */
    synchronized void expectWatcher(Runnable whenItEnds) {
        watchers.clear();
        watched = false;
        onStreamEnd = whenItEnds;
    }

    /** Whether the kubelet has begun to listen since {@link #expectWatcher}. */
    synchronized boolean watched() {
        return watched;
    }

    @Override
    public void getDevicePluginOptions(Empty request, StreamObserver<DevicePluginOptions> answer) {
        answer.onNext(DevicePluginOptions.getDefaultInstance());
        answer.onCompleted();
    }

    @Override
    public synchronized void listAndWatch(Empty request, StreamObserver<ListAndWatchResponse> answer) {
        var watcher = (ServerCallStreamObserver<ListAndWatchResponse>) answer;
        watcher.setOnCancelHandler(() -> ended(watcher));
        watchers.add(watcher);
        watched = true;
        watcher.onNext(offer.print());
    }

    private void ended(ServerCallStreamObserver<ListAndWatchResponse> watcher) {
        Runnable tell;
        synchronized (this) {
            if (!watchers.remove(watcher)) {
                return; // of an earlier registration
            }
            tell = onStreamEnd;
        }
        tell.run();
    }

    @Override
    public void allocate(AllocateRequest request, StreamObserver<AllocateResponse> answer) {
        long start = System.nanoTime();
        try {
            var response = AllocateResponse.newBuilder();
            for (ContainerAllocateRequest container : request.getContainerRequestsList()) {
                response.addContainerResponses(allocate(container.getDevicesIdsList()));
            }
            answer.onNext(response.build());
            answer.onCompleted();
            metrics.allocated(System.nanoTime() - start);
        } catch (StatusException e) {
            LOG.log(Level.ERROR, "Allocate: {0}", e.getStatus().getDescription());
            metrics.allocationFailed();
            answer.onError(e);
        }
    }

    private ContainerAllocateResponse allocate(List<String> slots) throws StatusException {
        if (slots.isEmpty()) {
            throw invalid("expected at least one slot for a container, found none");
        }
        int known = everOffered();
        for (String slot : slots) {
            if (SlotOffer.number(slot).orElse(Integer.MAX_VALUE) >= known) {
                throw invalid("expected slots from slot-000 to "
                        + (known == 0 ? "none yet" : SlotOffer.id(known - 1)) + ", found "
                        + slot.replaceAll("[^!-~]", "?")
                        + "; if another device plugin serves nvidia.com/gpu on this node, remove it");
            }
        }
        // Ids arrive in random order; all of a container's share one state file.
        String first = slots.stream().sorted().findFirst().orElseThrow();
        Path state;
        try {
            state = files.renew(first);
        } catch (IOException e) {
            throw Status.INTERNAL
                    .withDescription("cannot write the state file of " + first + ": " + e)
                    .withCause(e)
                    .asException();
        }
        return answer(state);
    }

    private ContainerAllocateResponse answer(Path state) {
        return ContainerAllocateResponse.newBuilder()
                // The pod's own env, made at admission, beats this one (docs/architecture: the life of a pod, 5).
                .putEnvs("NVIDIA_VISIBLE_DEVICES", VisibleDevices.NONE)
                .addMounts(mount(shim.library(), shim.libraryInContainer(), true))
                .addMounts(mount(shim.preload(), ContainerPaths.PRELOAD, true))
                .addMounts(mount(state, ContainerPaths.REGION, false))
                .build();
    }

    private synchronized int everOffered() {
        return everOffered;
    }

    private static Mount mount(Path host, String container, boolean readOnly) {
        return Mount.newBuilder()
                .setHostPath(host.toString())
                .setContainerPath(container)
                .setReadOnly(readOnly)
                .build();
    }

    private static StatusException invalid(String message) {
        return Status.INVALID_ARGUMENT.withDescription(message).asException();
    }
}
