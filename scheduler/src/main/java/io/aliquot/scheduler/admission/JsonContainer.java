package io.aliquot.scheduler.admission;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.aliquot.api.Annotations;
import io.aliquot.api.Compatibility;
import io.aliquot.api.ContainerPaths;
import io.aliquot.api.ForeignResources;
import io.aliquot.api.FormatException;
import io.aliquot.api.GpuRequest;
import io.aliquot.api.Resources;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.stream.Stream;

/** One container in the tree of its pod. */
final class JsonContainer {
    private static final String VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES";
    /** NVIDIA's runtime then injects nothing and, unlike for an empty value, asks nobody else (container toolkit). */
    private static final String NO_DEVICES = "void";
    /** A container's key in an annotation has at most 46 characters, and a volume's name 63. */
    private static final String VOLUME_PREFIX = "aliquot-vgpu-";

    private static final int READ_ONLY_FILE = 0444;
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;

    private final ObjectNode tree;
    private final String name;

    private JsonContainer(ObjectNode tree) {
        this.tree = tree;
        this.name = JsonTree.text(tree, "name").orElse(""); // the API server validates after us, and will say so
    }

    /** Those that a pod is created with, in the order they start. */
    static List<JsonContainer> of(ObjectNode pod) {
        return of(pod, "initContainers", "containers");
    }

    /** Those that were added to it since, too. */
    static List<JsonContainer> withEphemeral(ObjectNode pod) {
        return of(pod, "initContainers", "containers", "ephemeralContainers");
    }

    private static List<JsonContainer> of(ObjectNode pod, String... fields) {
        ObjectNode spec = JsonTree.object(pod, "spec")
                .orElseThrow(() -> new MalformedReviewException("expected the pod to have a spec"));
        return Stream.of(fields)
                .flatMap(field -> JsonTree.objects(spec, field).stream())
                .map(JsonContainer::new)
                .toList();
    }

    String name() {
        return name;
    }

    /**
     * What a container says by its resources beside what it asks for.
     *
     * @param priority of the pod, in our meaning
     * @param links whether its GPUs shall be linked well
     */
    record Translation(OptionalInt priority, boolean links) {}

    /**
     * Writes what it asks for in our names, whatever they were.
     *
     * @param labels the pod's
     */
    JsonContainer.Translation translateAliases(Map<String, String> labels, Compatibility compatibility) {
        Map<String, String> limits = resources("limits");
        resources("requests").keySet().stream()
                .filter(name -> isOurs(name) && !limits.containsKey(name))
                .findFirst()
                .ifPresent(name -> {
                    throw denied("write " + name + " under resources.limits; under requests alone it limits nothing");
                });
        try {
            Map<String, String> ours = ForeignResources.asOurs(limits, labels, compatibility);
            if (!ours.equals(limits)) {
                replace(limits, ours);
            }
            return new JsonContainer.Translation(
                    ForeignResources.priority(limits, compatibility), ForeignResources.wantsLinks(limits));
        } catch (FormatException e) {
            throw denied(e);
        }
    }

    boolean inAcksNames() {
        return ForeignResources.inAcksNames(resources("limits"));
    }

    /** What it asks for, in our names; empty for no GPU. */
    Optional<GpuRequest> request() {
        try {
            return GpuRequest.parse(resources("limits"));
        } catch (FormatException e) {
            throw denied(e);
        }
    }

    /** Whether it names any resource that is ours to grant or to refuse, sensibly or not. */
    boolean namesOurResources() {
        return Stream.of("limits", "requests")
                .flatMap(kind -> resources(kind).keySet().stream())
                .anyMatch(JsonContainer::isOurs);
    }

    /** A resource of NVIDIA's that another device plugin grants, and by which that one shows the container a device. */
    Optional<String> grantedByAnother() {
        return resources("limits").entrySet().stream()
                .filter(limit -> !limit.getValue().equals("0"))
                .map(Map.Entry::getKey)
                .filter(name -> name.startsWith("nvidia.com/") && !isOurs(name))
                .findFirst();
    }

    private static boolean isOurs(String resource) {
        return Resources.SUPPORTED.contains(resource) || ForeignResources.NAMES.contains(resource);
    }

    private void replace(Map<String, String> before, Map<String, String> after) {
        ObjectNode resources = JsonTree.ensureObject(tree, "resources");
        for (String kind : List.of("limits", "requests")) {
            ObjectNode amounts = JsonTree.ensureObject(resources, kind);
            before.keySet().stream().filter(name -> !after.containsKey(name)).forEach(amounts::remove);
            after.forEach((name, amount) -> {
                if (!amount.equals(before.get(name))) {
                    amounts.put(name, amount);
                }
            });
        }
    }

    boolean privileged() {
        return JsonTree.object(tree, "securityContext")
                .map(context -> JsonTree.isTrue(context, "privileged"))
                .orElse(false);
    }

    /** What the container's annotations and volume end in. */
    String key() {
        return Annotations.vgpu(name).substring(Annotations.VGPU_PREFIX.length());
    }

    /** The GPU of a container that asked for none is no GPU, whatever its image or its author says. */
    void hideGpus() {
        setVisibleDevices(NODES.objectNode().put("name", VISIBLE_DEVICES).put("value", NO_DEVICES));
    }

    void showGrantedGpus() {
        ObjectNode variable = NODES.objectNode().put("name", VISIBLE_DEVICES);
        variable.putObject("valueFrom").set("fieldRef", annotation(Annotations.visibleDevices(name)));
        setVisibleDevices(variable);
    }

    /** Requests of extended resources are equal to their limits. */
    void defaultToOneGpu() {
        ObjectNode resources = JsonTree.ensureObject(tree, "resources");
        ObjectNode limits = JsonTree.ensureObject(resources, "limits");
        if (!limits.has(Resources.GPU)) {
            limits.put(Resources.GPU, "1");
        }
        ObjectNode requests = JsonTree.ensureObject(resources, "requests");
        if (!requests.has(Resources.GPU)) {
            requests.set(Resources.GPU, limits.get(Resources.GPU));
        }
    }

    /** Every place where the kubelet would put something of the user's, with the field that says so. */
    List<ReservedPaths.Place> places() {
        String ours = volumeName();
        var places = new ArrayList<ReservedPaths.Place>();
        for (ObjectNode mount : JsonTree.objects(tree, "volumeMounts")) {
            String path = JsonTree.text(mount, "mountPath").orElse("");
            if (!(JsonTree.text(mount, "name").orElse("").equals(ours) && path.equals(ContainerPaths.CONFIG_FOLDER))) {
                places.add(new ReservedPaths.Place("volumeMounts.mountPath", path));
            }
        }
        for (ObjectNode device : JsonTree.objects(tree, "volumeDevices")) {
            places.add(new ReservedPaths.Place(
                    "volumeDevices.devicePath",
                    JsonTree.text(device, "devicePath").orElse("")));
        }
        // The kubelet mounts an empty file there (pkg/kubelet/kuberuntime/kuberuntime_container.go, makeMounts).
        JsonTree.text(tree, "terminationMessagePath")
                .ifPresent(path -> places.add(new ReservedPaths.Place("terminationMessagePath", path)));
        return places;
    }

    String volumeName() {
        return VOLUME_PREFIX + key();
    }

    /** The limit file's volume, with the defaults that the API server would add. */
    ObjectNode volume() {
        ObjectNode volume = NODES.objectNode().put("name", volumeName());
        ObjectNode source = volume.putObject("downwardAPI").put("defaultMode", READ_ONLY_FILE);
        source.putArray("items")
                .addObject()
                .put("path", ContainerPaths.LIMIT_FILE)
                .set("fieldRef", annotation(Annotations.vgpu(name)));
        return volume;
    }

    void mountVolume() {
        ObjectNode ours = NODES.objectNode()
                .put("name", volumeName())
                .put("readOnly", true)
                .put("mountPath", ContainerPaths.CONFIG_FOLDER);
        replaceOrAppend(JsonTree.ensureArray(tree, "volumeMounts"), "mountPath", ours);
    }

    DeniedException denied(String why) {
        return new DeniedException(about(why));
    }

    private DeniedException denied(FormatException why) {
        return new DeniedException(about(String.valueOf(why.getMessage())), why);
    }

    private String about(String why) {
        return "container " + name + ": " + why;
    }

    private Map<String, String> resources(String kind) {
        return JsonTree.object(tree, "resources")
                .map(resources -> JsonTree.texts(resources, kind))
                .orElseGet(LinkedHashMap::new);
    }

    private void setVisibleDevices(ObjectNode variable) {
        replaceOrAppend(JsonTree.ensureArray(tree, "env"), "name", variable);
    }

    /** Leaves exactly one element with this key, where the first one was. */
    private static void replaceOrAppend(ArrayNode array, String key, ObjectNode element) {
        var kept = new ArrayList<JsonNode>(array.size() + 1);
        boolean there = false;
        for (JsonNode found : array) {
            if (!element.get(key).equals(found.get(key))) {
                kept.add(found);
            } else if (!there) {
                kept.add(element);
                there = true;
            }
        }
        if (!there) {
            kept.add(element);
        }
        array.removeAll().addAll(kept);
    }

    private static ObjectNode annotation(String key) {
        return NODES.objectNode().put("apiVersion", "v1").put("fieldPath", "metadata.annotations['" + key + "']");
    }
}
