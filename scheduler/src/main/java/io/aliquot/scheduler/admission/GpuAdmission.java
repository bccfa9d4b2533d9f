package io.aliquot.scheduler.admission;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.aliquot.api.Annotations;
import io.aliquot.api.Compatibility;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * Makes of a pod that asks for GPUs one that gets exactly those: in our names, placed by our scheduler, with each GPU
 * container reading its devices and limits from annotations that Bind will write, and all other containers seeing no
 * GPU. Refuses what makes no sense or would get around its limits.
 *
 * @param schedulerName of the kube-scheduler that we extend
 * @param runtimeClass for pods that name none; empty to leave them so
 * @param compatibility whose meaning a pod's resources have that doesn't say, and isn't in ACK's names
 */
record GpuAdmission(String schedulerName, Optional<String> runtimeClass, Compatibility compatibility)
        implements Admission {
    private static final String DEFAULT_SCHEDULER = "default-scheduler";

    @Override
    public void admit(ObjectNode pod) {
        Map<String, String> annotations = metadata(pod, "annotations");
        List<JsonContainer> containers = JsonContainer.of(pod);
        var wishes = new DerivedAnnotations(
                annotations, compatibility, containers.stream().anyMatch(JsonContainer::inAcksNames));
        Map<String, String> labels = metadata(pod, "labels");
        var gpuContainers = new ArrayList<JsonContainer>();
        var others = new ArrayList<JsonContainer>();
        for (JsonContainer container : containers) {
            wishes.add(container, container.translateAliases(labels, wishes.compatibility()));
            (container.request().isPresent() ? gpuContainers : others).add(container);
        }
        if (gpuContainers.isEmpty()) {
            wishes.checkNone();
        } else {
            checkReserved(annotations);
            ObjectNode spec = JsonTree.ensureObject(pod, "spec");
            checkPlacedByUs(spec);
            gpuContainers.forEach(GpuAdmission::checkConfined);
            others.forEach(GpuAdmission::checkGrantedByUs);
            checkKeysDiffer(gpuContainers);
            spec.put("schedulerName", schedulerName);
            if (runtimeClass.isPresent()
                    && JsonTree.text(spec, "runtimeClassName").isEmpty()) {
                spec.put("runtimeClassName", runtimeClass.get());
            }
            addVolumes(spec, gpuContainers);
            for (JsonContainer container : gpuContainers) {
                container.defaultToOneGpu();
                container.showGrantedGpus();
                container.mountVolume();
            }
            Map<String, String> added = wishes.annotations();
            if (!added.isEmpty()) {
                added.forEach(JsonTree.ensureObject(JsonTree.ensureObject(pod, "metadata"), "annotations")::put);
            }
        }
        others.stream()
                .filter(container -> container.grantedByAnother().isEmpty())
                .forEach(JsonContainer::hideGpus);
    }

    private static Map<String, String> metadata(ObjectNode pod, String field) {
        return JsonTree.object(pod, "metadata")
                .map(metadata -> JsonTree.texts(metadata, field))
                .orElse(Map.of());
    }

    private static void checkReserved(Map<String, String> annotations) {
        annotations.keySet().stream()
                .filter(Annotations::reservedOnPods)
                .findFirst()
                .ifPresent(key -> {
                    throw new DeniedException("remove the annotation " + key
                            + ": the Aliquot scheduler alone writes it, when it binds the pod");
                });
    }

    private static void checkGrantedByUs(JsonContainer container) {
        container.grantedByAnother().ifPresent(resource -> {
            throw container.denied(resource + " is granted by another device plugin, whose devices a pod with shares of"
                    + " GPUs can't have too; put the two into pods of their own");
        });
    }

    private void checkPlacedByUs(ObjectNode spec) {
        JsonTree.text(spec, "nodeName").ifPresent(node -> {
            throw new DeniedException(
                    "remove spec.nodeName, which bypasses the scheduler that hands out GPUs; to choose"
                            + " the node write nodeSelector: {kubernetes.io/hostname: " + node + "}");
        });
        String scheduler = JsonTree.text(spec, "schedulerName").orElse(DEFAULT_SCHEDULER);
        if (!scheduler.equals(DEFAULT_SCHEDULER) && !scheduler.equals(schedulerName)) {
            throw new DeniedException("remove spec.schedulerName " + scheduler
                    + ": a pod that asks for GPUs is placed by " + schedulerName);
        }
    }

    private static void checkConfined(JsonContainer container) {
        if (container.privileged()) {
            throw container.denied("a privileged container sees every GPU of its node, so it can't be given a share;"
                    + " remove securityContext.privileged, or what it asks of nvidia.com");
        }
        container
                .places()
                .forEach(place -> ReservedPaths.objection(place).ifPresent(objection -> {
                    throw container.denied(objection);
                }));
    }

    /** Long names are cut and hashed into annotation keys; somebody may have made two that meet. */
    private static void checkKeysDiffer(List<JsonContainer> containers) {
        var names = new HashMap<String, String>();
        for (JsonContainer container : containers) {
            String other = names.put(container.key(), container.name());
            if (other != null && !other.equals(container.name())) { // the API server refuses equal names
                throw container.denied("rename it, since its short form is that of container " + other);
            }
        }
    }

    private static void addVolumes(ObjectNode spec, List<JsonContainer> containers) {
        var present = new HashMap<String, ObjectNode>();
        for (ObjectNode volume : JsonTree.objects(spec, "volumes")) {
            JsonTree.text(volume, "name").ifPresent(name -> present.put(name, volume));
        }
        ArrayNode volumes = JsonTree.ensureArray(spec, "volumes");
        for (JsonContainer container : containers) {
            ObjectNode ours = container.volume();
            ObjectNode other = present.putIfAbsent(container.volumeName(), ours);
            if (other == null) {
                volumes.add(ours);
            } else if (!other.equals(ours)) {
                throw new DeniedException("rename the volume " + container.volumeName()
                        + ": Aliquot adds one of that name for container " + container.name());
            }
        }
    }
}
