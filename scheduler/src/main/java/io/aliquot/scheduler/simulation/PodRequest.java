package io.aliquot.scheduler.simulation;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.pods.GpuRequest;
import io.aliquot.scheduler.apiserver.reader.PodReader;
import io.aliquot.scheduler.placement.ContainerGpuRequest;
import io.aliquot.scheduler.placement.ContainerKind;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.fabric8.kubernetes.api.model.Pod;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.ToLongFunction;
import java.util.stream.Collectors;

/** What a pod requests of GPUs, CPU and memory. Immutable; two are equal if every node treats both alike. */
public record PodRequest(PodGpuRequest request) {
    private static final String CONTAINER = "main";

    /**
     * The request of a pod with one container.
     *
     * @param gpu empty for a pod without GPUs
     * @param annotations of the pod, which choose GPUs and policies
     * @throws FormatException if an annotation has an unknown value
     */
    public static PodRequest of(
            Optional<GpuRequest> gpu, Map<String, String> annotations, long cpuMillis, long memoryBytes) {
        List<ContainerGpuRequest> containers = gpu.stream()
                .map(request -> new ContainerGpuRequest(CONTAINER, ContainerKind.APP, request))
                .toList();
        return new PodRequest(PodGpuRequest.of(containers, annotations, false)
                .withHostRequests(new HostResources(cpuMillis, memoryBytes)));
    }

    /**
     * Reads the request of a pod that has passed admission: its limits carry Aliquot's resource names.
     *
     * @throws FormatException if an amount or an annotation is invalid
     */
    public static PodRequest read(Pod pod) {
        return new PodRequest(PodReader.gpuRequest(pod));
    }

    /** The same pod, restricted to one GPU. */
    public PodRequest onGpu(String uuid) {
        return withAnnotations(Map.of(Annotations.USE_GPU_UUID, uuid));
    }

    /** The same pod, restricted to GPUs of one model. */
    public PodRequest onModel(String model) {
        return withAnnotations(Map.of(Annotations.USE_GPU_MODEL, model));
    }

    private PodRequest withAnnotations(Map<String, String> annotations) {
        return new PodRequest(PodGpuRequest.of(request.containers(), annotations, request.preferences())
                .withHostRequests(request.hostRequests()));
    }

    public boolean requestsGpu() {
        return !request.containers().isEmpty();
    }

    /** Whether the pod requests a single vGPU. */
    public boolean requestsOneVgpu() {
        return request.requestsOneVgpu();
    }

    /** The most vGPUs, and so different GPUs, that one container requests. */
    public int maxVgpus() {
        return request.mostVgpus();
    }

    /** Whether the pod's annotations accept a GPU: its model, UUID and index. */
    public boolean accepts(Gpu gpu) {
        return request.takes(gpu);
    }

    /** The sum of an amount over all containers that run at one time, at its maximum over the pod's life. */
    public long peak(ToLongFunction<GpuRequest> amount) {
        long peak = 0;
        long running = 0;
        for (ContainerGpuRequest container : request.containers()) {
            long requested = amount.applyAsLong(container.request());
            peak = Math.max(peak, running + requested);
            if (container.kind() != ContainerKind.INIT) {
                running += requested;
            }
        }
        return peak;
    }

    public long cpuMillis() {
        return request.hostRequests().cpuMillis();
    }

    public long memoryBytes() {
        return request.hostRequests().memoryBytes();
    }

    /** The kind and the GPU request of each container that requests GPUs. */
    @Override
    public String toString() {
        return request.containers().stream()
                .map(container -> container.kind() + " " + container.request())
                .collect(Collectors.joining("; "));
    }
}
