package io.aliquot.scheduler.admission;

import java.util.List;
import tools.jackson.databind.node.ObjectNode;

/** What a webhook changes in a pod when the pod is created or when an ephemeral container is added to it. */
sealed interface Admission permits GpuAdmission, VoidAdmission {
    /**
     * Mutates the pod in place.
     *
     * @param pod the Pod as JSON; its state is undefined after an exception
     * @return what the user should know, a sentence each, at most some hundred characters
     * @throws DeniedException if the user must change the pod
     * @throws MalformedReviewException if the JSON is not a Pod
     */
    List<String> admit(ObjectNode pod);
}
