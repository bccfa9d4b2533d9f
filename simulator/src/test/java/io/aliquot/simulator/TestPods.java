package io.aliquot.simulator;

import io.aliquot.api.pods.GpuRequest;
import io.aliquot.api.pods.MemoryRequest;
import io.aliquot.scheduler.simulation.PodRequest;
import io.aliquot.scheduler.simulation.SimulatedNode;
import io.fabric8.kubernetes.api.model.Container;
import io.fabric8.kubernetes.api.model.ContainerBuilder;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.api.model.Quantity;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** Nodes and pods for tests. */
final class TestPods {
    static final GpuRequest WHOLE_GPU = new GpuRequest(1, new MemoryRequest.WholeCard(), 0, true);

    private TestPods() {}

    static SimulatedNode node(String name, UniformGpus gpus, long cpuMillis, long memoryBytes) {
        return SimulatedNode.of(name, gpus.inventory(name), cpuMillis, memoryBytes);
    }

    static GpuRequest mebibytes(int amount, int cores) {
        return new GpuRequest(1, new MemoryRequest.Mebibytes(amount), cores, false);
    }

    static TracePod pod(String name, PodRequest request) {
        return new TracePod(name, request, Instant.EPOCH, Instant.MAX);
    }

    static PodRequest request(GpuRequest gpu, long cpuMillis, long memoryBytes) {
        return PodRequest.of(Optional.of(gpu), Map.of(), cpuMillis, memoryBytes);
    }

    /** A container with limits by resource name, in the order name, amount, name, amount and so on. */
    static Container container(String name, String... limits) {
        var builder = new ContainerBuilder().withName(name).withNewResources();
        for (int i = 0; i < limits.length; i += 2) {
            builder.addToLimits(limits[i], new Quantity(limits[i + 1]));
        }
        return builder.endResources().build();
    }

    static PodRequest request(List<Container> initContainers, List<Container> containers) {
        return PodRequest.read(new PodBuilder()
                .withNewMetadata()
                .endMetadata()
                .withNewSpec()
                .withInitContainers(initContainers)
                .withContainers(containers)
                .endSpec()
                .build());
    }
}
