package io.aliquot.scheduler.admission;

import io.aliquot.api.foreign.ForeignResources;
import io.aliquot.api.foreign.HamiAnnotations;
import io.aliquot.api.format.FormatException;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Labels;
import io.aliquot.api.pods.Compatibility;
import io.aliquot.api.pods.GpuRequest;
import io.aliquot.api.pods.PodDefaults;
import io.aliquot.scheduler.cluster.AllocationAnnotations;
import io.aliquot.scheduler.settings.Settings;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Function;
import java.util.function.Supplier;
import tools.jackson.databind.node.ObjectNode;

/**
 * Prepares a pod of Aliquot's; the API server decides which pods these are, by the webhooks' selectors and conditions.
 * It translates the resources of other products into Aliquot's, sets the scheduler and the toleration, and lets each GPU
 * container read its devices and limits from annotations that Bind will write; it hides the GPUs from all other containers.
 * It refuses invalid requests and pods that could bypass their limits.
 *
 * @param runtimeClass for pods without a RuntimeClass; empty: such pods stay without one
 * @param handlers the handler of a RuntimeClass by its name; called for other RuntimeClasses than this one
 * @param cdi whether each node injects GPUs by CDI, so that pods need no RuntimeClass
 * @param compatibility the meaning of resources in pods that neither have the annotation nor use ACK's names
 * @param podDefaults those of the pod's namespace; called at most once, and only if the pod's meaning depends on them
 */
record GpuAdmission(
        String runtimeClass,
        Function<String, Optional<String>> handlers,
        boolean cdi,
        Compatibility compatibility,
        Supplier<PodDefaults> podDefaults)
        implements Admission {
    static final String DEFAULT_SCHEDULER = "default-scheduler";

    @Override
    public List<String> admit(EditedObject pod) {
        var refusals = new Refusals();

        // Read.
        Map<String, String> annotations = metadata(pod.tree(), "annotations");
        Map<String, String> labels = metadata(pod.tree(), "labels");
        List<JsonContainer> containers = JsonContainer.of(pod);
        containers.forEach(container -> container.clearDefaults(LimitRangeDefaults.of(annotations, container.name())));
        var derived = new DerivedAnnotations(
                annotations, compatibility, containers.stream().anyMatch(JsonContainer::usesAckResources));
        Optional<PodDefaults> read = containers.stream().anyMatch(JsonContainer::dependsOnDefaults)
                ? Optional.of(podDefaults.get())
                : Optional.empty();

        // Translate. Checks need Aliquot's amounts, so they do not run if some cannot be translated.
        var warnings = new ArrayList<String>();
        var gpuContainers = new ArrayList<JsonContainer>();
        var others = new ArrayList<JsonContainer>();
        for (JsonContainer container : containers) {
            refusals.check(() -> {
                JsonContainer.Translation translation =
                        container.translateAliases(labels, derived.compatibility(), read.orElse(PodDefaults.NONE));
                derived.add(container, translation);
                translation.warning().ifPresent(warnings::add);
                (container.requestsGpu() ? gpuContainers : others).add(container);
            });
        }
        refusals.throwIfAny();
        if (gpuContainers.isEmpty()) {
            return warnings;
        }

        // Check. The pod stays as it is, so no check depends on another one.
        EditedObject spec = pod.object("spec");
        checkSpec(refusals, spec.tree(), gpuContainers, others);
        Optional<String> runtimeWarning = refusals.check(() -> runtimeWarning(spec.tree()), Optional.empty());
        List<ObjectNode> volumes = limitFileVolumes(refusals, spec.tree(), gpuContainers);
        Map<String, String> added = refusals.check(() -> derive(derived, annotations, gpuContainers, read), Map.of());
        refusals.check(() -> checkAnnotationsFit(pod.tree(), added, gpuContainers));
        refusals.throwIfAny();

        // Change.
        warnings.addAll(removeReservedAnnotations(pod, annotations));
        warnings.addAll(HamiAnnotations.warnings(annotations, labels));
        gpuContainers.forEach(container -> container.variableWithoutEffect().ifPresent(warnings::add));
        runtimeWarning.ifPresent(warnings::add);
        spec.put("schedulerName", Settings.SCHEDULER_NAME);
        if (!runtimeClass.isEmpty() && !cdi && runtimeClassName(spec.tree()).isEmpty()) {
            spec.put("runtimeClassName", runtimeClass);
        }
        tolerateGpuNodes(spec);
        volumes.forEach(volume -> spec.append("volumes", volume));
        for (JsonContainer container : gpuContainers) {
            container.defaultToOneGpu();
            container.showAllocatedGpus();
            container.mountLimitFile();
        }
        added.forEach((key, value) -> annotations(pod).put(key, value));
        others.forEach(JsonContainer::hideGpus);
        return warnings;
    }

    private static void checkSpec(
            Refusals refusals, ObjectNode spec, List<JsonContainer> gpuContainers, List<JsonContainer> others) {
        refusals.check(() -> checkNodeName(spec));
        refusals.check(() -> checkScheduler(spec));
        for (JsonContainer container : gpuContainers) {
            refusals.check(() -> checkPrivileged(container));
            refusals.check(() -> checkCapabilities(container));
            for (ReservedPaths.UserPath path : container.userPaths()) {
                ReservedPaths.conflict(path).map(container::denied).ifPresent(refusals::add);
            }
        }
        others.forEach(container -> refusals.check(() -> checkNoOtherDevicePlugin(container)));
        refusals.check(() -> checkAnnotationKeysDiffer(gpuContainers));
    }

    private static Optional<String> runtimeClassName(ObjectNode spec) {
        return JsonTree.text(spec, "runtimeClassName");
    }

    private Optional<String> runtimeWarning(ObjectNode spec) {
        return runtimeClassName(spec)
                .filter(name -> !name.equals(runtimeClass))
                .flatMap(name -> handlers.apply(name).flatMap(handler -> RuntimeClasses.warning(name, handler, cdi)));
    }

    /** The annotations to add; reads the namespace if they depend on it. */
    private Map<String, String> derive(
            DerivedAnnotations derived,
            Map<String, String> annotations,
            List<JsonContainer> gpuContainers,
            Optional<PodDefaults> read) {
        List<GpuRequest> shared = gpuContainers.stream()
                .flatMap(container -> container.sharedRequest(derived.compatibility()).stream())
                .toList();
        if (!shared.isEmpty()
                && !(annotations.containsKey(Annotations.CORE_POLICY)
                        && annotations.containsKey(Annotations.PRIORITY))) {
            derived.add(read.orElseGet(podDefaults), shared.stream().anyMatch(request -> request.cores() > 0));
        }
        return derived.toAdd();
    }

    static Map<String, String> metadata(ObjectNode pod, String field) {
        return JsonTree.object(pod, "metadata")
                .map(metadata -> JsonTree.texts(metadata, field))
                .orElse(Map.of());
    }

    private static EditedObject annotations(EditedObject pod) {
        return pod.object("metadata").object("annotations");
    }

    /** A pod that is restored from a backup, or copied from another one, carries the allocation of that pod. */
    private static List<String> removeReservedAnnotations(EditedObject pod, Map<String, String> annotations) {
        List<String> reserved = annotations.keySet().stream()
                .filter(Annotations::reservedOnPods)
                .toList();
        if (reserved.isEmpty()) {
            return List.of();
        }
        reserved.forEach(annotations(pod)::remove);
        String more = reserved.size() == 1 ? "" : " and " + (reserved.size() - 1) + " more";
        return List.of("removed the annotation " + reserved.get(0) + more
                + ": only the Aliquot scheduler writes it, when it binds the pod");
    }

    private static void checkNoOtherDevicePlugin(JsonContainer container) {
        container.resourceOfOtherDevicePlugin().ifPresent(resource -> {
            throw container.denied(resource + " belongs to another device plugin, and a pod that gets GPUs from Aliquot"
                    + " cannot use it too; put the two containers into separate pods");
        });
    }

    private static void checkNodeName(ObjectNode spec) {
        JsonTree.text(spec, "nodeName").ifPresent(node -> {
            throw new DeniedException(
                    "remove spec.nodeName, which bypasses the scheduler that allocates GPUs; to select"
                            + " the node write nodeSelector: {kubernetes.io/hostname: " + node + "}");
        });
    }

    private static void checkScheduler(ObjectNode spec) {
        String scheduler = JsonTree.text(spec, "schedulerName").orElse(DEFAULT_SCHEDULER);
        if (!scheduler.equals(DEFAULT_SCHEDULER) && !scheduler.equals(Settings.SCHEDULER_NAME)) {
            throw new DeniedException("remove spec.schedulerName " + scheduler
                    + ": a pod that requests GPUs is placed by " + Settings.SCHEDULER_NAME);
        }
    }

    /**
     * Where GPU nodes have a taint, Kubernetes' admission plugin ExtendedResourceToleration lets pods that request
     * nvidia.com/gpu tolerate it (plugin/pkg/admission/extendedresourcetoleration/admission.go). It would add
     * tolerations only for the resources that remain. The other taint keeps all pods but these off a group of nodes.
     */
    static void tolerateGpuNodes(EditedObject spec) {
        for (String taint : new String[] {ForeignResources.NVIDIA_GPU, Labels.SHARED_TAINT}) {
            ObjectNode toleration = spec.tree().objectNode().put("key", taint).put("operator", "Exists");
            if (!JsonTree.objects(spec.tree(), "tolerations").contains(toleration)) {
                spec.append("tolerations", toleration);
            }
        }
    }

    private static void checkPrivileged(JsonContainer container) {
        if (container.privileged()) {
            throw container.denied("a privileged container sees every GPU of its node, so it cannot be limited to a"
                    + " share; remove securityContext.privileged, or its GPU resources");
        }
    }

    private static void checkCapabilities(JsonContainer container) {
        boolean shared = container.sharedRequest(Compatibility.NONE).isPresent(); // files limit it
        if (shared || container.requestsInstances()) {
            container.mountCapability().ifPresent(capability -> {
                throw container.denied("with the capability " + capability + " it could "
                        + (shared
                                ? "unmount the files that enforce its limits"
                                : "change the MIG instances of others (NVIDIA_MIG_CONFIG_DEVICES)")
                        + "; remove it from securityContext.capabilities.add, or request whole cards");
            });
        }
    }

    /** Two long names can have the same annotation key, which contains part of the name and a short hash of it. */
    private static void checkAnnotationKeysDiffer(List<JsonContainer> containers) {
        var names = new HashMap<String, String>();
        for (JsonContainer container : containers) {
            String other = names.put(container.keySuffix(), container.name());
            if (other != null && !other.equals(container.name())) { // the API server refuses equal names
                throw container.denied(
                        "rename it: annotation keys contain the same short form of its name and of container " + other);
            }
        }
    }

    private static void checkAnnotationsFit(ObjectNode pod, Map<String, String> added, List<JsonContainer> containers) {
        long bytes = JsonTree.object(pod, "metadata")
                .map(metadata -> metadata.path(ReviewReader.ANNOTATION_BYTES).asLong(0))
                .orElse(0L);
        try {
            AllocationAnnotations.check(
                    bytes + AllocationAnnotations.bytes(added),
                    containers.stream().mapToInt(JsonContainer::vgpus).sum());
        } catch (FormatException e) {
            throw new DeniedException(String.valueOf(e.getMessage()), e);
        }
    }

    /** The volumes to add. */
    private static List<ObjectNode> limitFileVolumes(
            Refusals refusals, ObjectNode spec, List<JsonContainer> containers) {
        var present = new HashMap<String, ObjectNode>();
        for (ObjectNode existing : JsonTree.objects(spec, "volumes")) {
            JsonTree.text(existing, "name").ifPresent(name -> present.put(name, existing));
        }
        var added = new ArrayList<ObjectNode>();
        for (JsonContainer container : containers) {
            ObjectNode volume = container.limitFileVolume();
            ObjectNode other = present.putIfAbsent(container.volumeName(), volume);
            if (other == null) {
                added.add(volume);
            } else if (!other.equals(volume)) {
                refusals.add(new DeniedException("rename the volume " + container.volumeName()
                        + ": Aliquot adds one of that name for container " + container.name()));
            }
        }
        return added;
    }
}
