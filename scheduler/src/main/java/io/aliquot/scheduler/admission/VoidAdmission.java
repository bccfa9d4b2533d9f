package io.aliquot.scheduler.admission;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Set;

/**
 * Hides the GPUs from containers that do not request any, because NVIDIA's runtime, where it is the default runtime,
 * shows all GPUs to them. Ephemeral containers (kubectl debug) are included. It does not change containers that name
 * Aliquot's resources, even with invalid amounts, which {@link GpuAdmission} handles, nor containers that get a device
 * from another device plugin. It never denies a pod.
 *
 * @param existingContainers names of containers of the stored pod, which cannot be changed any more
 */
record VoidAdmission(Set<String> existingContainers) implements Admission {
    VoidAdmission {
        existingContainers = Set.copyOf(existingContainers);
    }

    @Override
    public List<String> admit(ObjectNode pod) {
        JsonContainer.withEphemeral(pod).stream()
                .filter(container -> !existingContainers.contains(container.name())
                        && !container.namesGpuResource()
                        && container.resourceOfOtherDevicePlugin().isEmpty())
                .forEach(JsonContainer::hideGpus);
        return List.of();
    }
}
