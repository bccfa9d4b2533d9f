package io.aliquot.scheduler.placement;

import io.aliquot.api.Compatibility;
import io.aliquot.api.FormatException;
import io.aliquot.api.GpuRequest;
import java.util.Map;
import java.util.Optional;

/** A container that wants vGPUs. */
public record ContainerGpuRequest(String name, ContainerKind kind, GpuRequest request) {
    /**
     * Reads what a container asks for.
     *
     * @param limits the container's, as the API server tells
     * @return empty where it asks for no GPU
     * @throws FormatException where an amount makes no sense
     */
    public static Optional<ContainerGpuRequest> parse(String name, ContainerKind kind, Map<String, String> limits) {
        try {
            return GpuRequest.parse(limits).map(request -> new ContainerGpuRequest(name, kind, request));
        } catch (FormatException e) {
            throw new FormatException("container " + name + ": " + e.getMessage(), e);
        }
    }

    /** The same by another's meaning. */
    ContainerGpuRequest as(Compatibility compatibility) {
        return new ContainerGpuRequest(name, kind, request.as(compatibility));
    }
}
