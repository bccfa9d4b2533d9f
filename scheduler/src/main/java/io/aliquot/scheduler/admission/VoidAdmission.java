package io.aliquot.scheduler.admission;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Set;

/**
 * Hides the GPUs from containers that ask for none, where NVIDIA's runtime is the default one; from those that are added to
 * a pod that runs (kubectl debug), too. Leaves alone containers that name our resources, however badly: those are
 * {@link GpuAdmission}'s; and those that another device plugin gives a device. Never denies.
 *
 * @param there names of containers that are there already and can't be changed
 */
record VoidAdmission(Set<String> there) implements Admission {
    @Override
    public void admit(ObjectNode pod) {
        JsonContainer.withEphemeral(pod).stream()
                .filter(container -> !there.contains(container.name())
                        && !container.namesOurResources()
                        && container.grantedByAnother().isEmpty())
                .forEach(JsonContainer::hideGpus);
    }
}
