package io.aliquot.scheduler.admission;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.function.Predicate;
import tools.jackson.databind.node.ObjectNode;

/**
 * Hides the GPUs from containers that do not request any. Images set {@code NVIDIA_VISIBLE_DEVICES=all}, and NVIDIA's
 * runtime, where it is the default runtime, then shows all GPUs to them. Ephemeral containers (kubectl debug) are
 * included. It denies no pod, and leaves alone
 *
 * <ul>
 *   <li>containers that set the variable in their own spec, as NVIDIA's DaemonSets do, unless they are in a pod that
 *       gets GPUs from Aliquot;
 *   <li>containers with {@code resources.claims}, unless they are in such a pod: there a claim for any device, such as a
 *       network interface, would show all GPUs to a container whose image asks for them. GPUs of a claim do not depend on the
 *       variable;
 *   <li>pods that get a GPU from another device plugin;
 *   <li>pods that only a node can run whose GPUs Aliquot does not share.
 * </ul>
 *
 * @param existingContainers names of containers of the stored pod, which cannot be changed any more
 * @param sharesGpus whether Aliquot shares the GPUs of the node of this name; true for an unknown node
 */
record VoidAdmission(Set<String> existingContainers, Predicate<String> sharesGpus) implements Admission {
    VoidAdmission {
        existingContainers = Set.copyOf(existingContainers);
    }

    @Override
    public List<String> admit(EditedObject pod) {
        List<JsonContainer> containers = JsonContainer.withEphemeral(pod);
        boolean gpuPod = containers.stream().anyMatch(JsonContainer::requestsVgpu);
        if (!gpuPod && (containers.stream().anyMatch(JsonContainer::requestsSomeGpu) || runsOnOtherNodes(pod.tree()))) {
            return List.of();
        }
        containers.stream()
                .filter(container -> !existingContainers.contains(container.name())
                        && (gpuPod
                                ? !container.requestsSomeGpu()
                                : !container.setsVisibleDevices() && !container.claimsDevices()))
                .forEach(JsonContainer::hideGpus);
        return List.of();
    }

    private boolean runsOnOtherNodes(ObjectNode pod) {
        List<String> nodes = nodes(JsonTree.object(pod, "spec").orElseThrow());
        return !nodes.isEmpty() && nodes.stream().noneMatch(sharesGpus);
    }

    /**
     * The nodes that the pod names as the only ones it can run on; empty if it names none. The DaemonSet controller
     * names one in each term of the required node affinity
     * (pkg/controller/daemon/util, ReplaceDaemonSetPodNodeNameNodeAffinity).
     */
    private static List<String> nodes(ObjectNode spec) {
        return JsonTree.text(spec, "nodeName").map(List::of).orElseGet(() -> {
            List<ObjectNode> terms = JsonTree.object(spec, "affinity")
                    .flatMap(affinity -> JsonTree.object(affinity, "nodeAffinity"))
                    .flatMap(affinity -> JsonTree.object(affinity, "requiredDuringSchedulingIgnoredDuringExecution"))
                    .map(selector -> JsonTree.objects(selector, "nodeSelectorTerms"))
                    .orElse(List.of());
            var names = new ArrayList<String>();
            for (ObjectNode term : terms) {
                List<String> ofTerm = namesInTerm(term);
                if (ofTerm.isEmpty()) {
                    return List.of(); // the terms are alternatives, and this one names no node
                }
                names.addAll(ofTerm);
            }
            return names;
        });
    }

    private static List<String> namesInTerm(ObjectNode term) {
        return JsonTree.objects(term, "matchFields").stream()
                .filter(field -> JsonTree.text(field, "key")
                                .filter("metadata.name"::equals)
                                .isPresent()
                        && JsonTree.text(field, "operator").filter("In"::equals).isPresent())
                .flatMap(field -> JsonTree.strings(field, "values").stream())
                .toList();
    }
}
