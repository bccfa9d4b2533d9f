package io.aliquot.scheduler.placement;

import io.aliquot.api.CorePolicy;
import io.aliquot.api.Gpu;
import io.aliquot.api.GpuRequest;
import io.aliquot.api.Vgpu;
import io.aliquot.api.Vgpus;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** What a node can give a pod. */
public sealed interface Choice {
    /**
     * It fits.
     *
     * @param places each container's GPUs
     * @param perGpu what the pod then holds of each GPU, by UUID
     * @param fullness of the node's GPUs afterwards, 0 to 1
     */
    record Chosen(Map<ContainerAsk, List<Gpu>> places, Map<String, Amount> perGpu, double fullness) implements Choice {
        public Chosen {
            places = Map.copyOf(places);
            perGpu = Map.copyOf(perGpu);
        }

        /** What each container gets, by its name. */
        public Map<String, Vgpus> containers() {
            return places.entrySet().stream()
                    .collect(Collectors.toMap(
                            place -> place.getKey().name(),
                            place -> new Vgpus(place.getValue().stream()
                                    .map(gpu -> vgpu(place.getKey().request(), gpu))
                                    .toList())));
        }

        private static Vgpu vgpu(GpuRequest request, Gpu gpu) {
            return new Vgpu(
                    gpu.uuid(),
                    request.memory().on(gpu.memoryMiB()),
                    request.cores(),
                    CorePolicy.FIXED,
                    0,
                    gpu.contextMiB(),
                    request.exclusive());
        }
    }

    /**
     * It doesn't fit.
     *
     * @param reason a few words that are the same at every try; kube-scheduler puts a count of nodes before them
     * @param hopeless whether it wouldn't fit on the node's empty GPUs either
     */
    record Refused(String reason, boolean hopeless) implements Choice {}
}
