package io.aliquot.scheduler.placement;

import io.aliquot.api.foreign.ForeignResources;
import io.aliquot.api.format.FormatException;
import io.aliquot.api.pods.Compatibility;
import io.aliquot.api.pods.GpuRequest;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** A container that requests vGPUs. */
public record ContainerGpuRequest(String name, ContainerKind kind, GpuRequest request) {
    /**
     * Reads a container's request.
     *
     * @param limits the container's resource limits: resource name to quantity, as the API server returns them
     * @return empty if the container requests no GPU
     * @throws FormatException if an amount is invalid
     */
    public static Optional<ContainerGpuRequest> parse(String name, ContainerKind kind, Map<String, String> limits) {
        try {
            ForeignResources.requireTranslated(limits);
            return GpuRequest.parse(limits).map(request -> new ContainerGpuRequest(name, kind, request));
        } catch (FormatException e) {
            throw new FormatException("container " + name + ": " + e.getMessage(), e);
        }
    }

    /** The number of vGPUs of these containers. */
    public static int vgpus(List<ContainerGpuRequest> containers) {
        return containers.stream()
                .mapToInt(container -> container.request().vgpus())
                .sum();
    }

    /** The same container, with its amounts interpreted as another product interprets them. */
    ContainerGpuRequest as(Compatibility compatibility) {
        return new ContainerGpuRequest(name, kind, request.as(compatibility));
    }
}
