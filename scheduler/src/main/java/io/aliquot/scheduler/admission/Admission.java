package io.aliquot.scheduler.admission;

import com.fasterxml.jackson.databind.node.ObjectNode;

/** What becomes of a pod at its creation, or when a container is added to it. */
sealed interface Admission permits GpuAdmission, VoidAdmission {
    /**
     * Changes the pod into the one that is to be.
     *
     * @param pod as left behind when it throws: anything
     * @throws DeniedException where its author must change it
     * @throws MalformedReviewException where it is no pod
     */
    void admit(ObjectNode pod);
}
