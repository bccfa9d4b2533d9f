package io.aliquot.scheduler.admission;

import java.util.List;

/** What a webhook changes in a pod when the pod is created or updated. */
sealed interface Admission permits GpuAdmission, UpdateAdmission, VoidAdmission {
    /**
     * Changes the pod.
     *
     * @param pod of which {@link ReviewReader} kept what admission needs; its state is undefined after an exception
     * @return what the user should know, a sentence each, at most some hundred characters
     * @throws DeniedException if the user must change the pod
     * @throws MalformedReviewException if the JSON is not a Pod
     */
    List<String> admit(EditedObject pod);
}
