package io.aliquot.scheduler.admission;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.pods.Compatibility;
import io.aliquot.api.pods.Priority;
import io.aliquot.scheduler.settings.Settings;
import java.util.List;
import java.util.Map;
import tools.jackson.databind.node.ObjectNode;

/**
 * Reads an update of one of Aliquot's pods as {@link GpuAdmission} reads a new one, so that a manifest can be applied
 * again. {@code kubectl apply} merges what its author wrote into the stored pod, where {@code nvidia.com/gpu: 1} has
 * become {@code aliquot.io/vgpu: 1}, and Kubernetes refuses a change of amounts. After the translation the pod equals
 * the stored one if the manifest is the same; Kubernetes refuses all other changes, as of any pod, since it validates
 * after the webhooks.
 *
 * <p>The alternative was a stored pod that keeps what its author wrote beside Aliquot's amounts. A kubelet rejects such a
 * pod on a node that has the name with the amount 0, as after NVIDIA's device plugin (pkg/kubelet/lifecycle/predicate.go),
 * and quotas, autoscalers and other device plugins would count it.
 */
record UpdateAdmission() implements Admission {
    @Override
    public List<String> admit(EditedObject pod) {
        try {
            translate(pod);
            return List.of();
        } catch (DeniedException e) {
            pod.operations().removeAll(); // Kubernetes refuses the update, and the warning says why
            return List.of(String.valueOf(e.getMessage()));
        }
    }

    private void translate(EditedObject pod) {
        Map<String, String> annotations = GpuAdmission.metadata(pod.tree(), "annotations");
        Map<String, String> labels = GpuAdmission.metadata(pod.tree(), "labels");
        List<JsonContainer> containers = JsonContainer.of(pod);
        // A pod keeps the meaning that it was created with: without the annotation, Aliquot's.
        var derived = new DerivedAnnotations(
                annotations, Compatibility.NONE, containers.stream().anyMatch(JsonContainer::usesAckResources));
        String stored = annotations.getOrDefault(Annotations.PRIORITY, "");
        for (JsonContainer container : containers) {
            JsonContainer.Translation translation = container.translateAliasesAgain(labels, derived.compatibility());
            Priority priority = translation.priority();
            if (priority != null && !priority.print().equals(stored)) {
                throw container.denied("the priority of a pod cannot change; create the pod again");
            }
            if (container.requestsGpu()) {
                container.defaultToOneGpu();
                container.showAllocatedGpus();
            } else if (container.resourceOfOtherDevicePlugin().isEmpty()) {
                container.hideGpus();
            }
        }
        EditedObject spec = pod.object("spec");
        ObjectNode tree = spec.tree();
        if (JsonTree.text(tree, "schedulerName")
                .filter(GpuAdmission.DEFAULT_SCHEDULER::equals)
                .isPresent()) {
            spec.put("schedulerName", Settings.SCHEDULER_NAME);
        }
        GpuAdmission.tolerateGpuNodes(spec);
    }
}
