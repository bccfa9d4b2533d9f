package io.aliquot.scheduler.admission;

import com.fasterxml.jackson.databind.node.ObjectNode;

/**
 * Hides the GPUs from containers that ask for none, where NVIDIA's runtime is the default one. Leaves alone containers
 * that name our resources, however badly: those are {@link GpuAdmission}'s; and those that another device plugin gives a
 * device. Never denies.
 */
record VoidAdmission() implements Admission {
    @Override
    public void admit(ObjectNode pod) {
        Container.of(pod).stream()
                .filter(container -> !container.namesOurResources()
                        && container.grantedByAnother().isEmpty())
                .forEach(Container::hideGpus);
    }
}
