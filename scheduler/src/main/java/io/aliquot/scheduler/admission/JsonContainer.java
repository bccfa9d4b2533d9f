package io.aliquot.scheduler.admission;

import io.aliquot.api.foreign.ForeignResources;
import io.aliquot.api.foreign.HamiAnnotations;
import io.aliquot.api.format.FormatException;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Resources;
import io.aliquot.api.nodes.VisibleDevices;
import io.aliquot.api.pods.Compatibility;
import io.aliquot.api.pods.GpuRequest;
import io.aliquot.api.pods.PodDefaults;
import io.aliquot.api.pods.Priority;
import io.aliquot.api.shim.ContainerPaths;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.ObjectNode;

/** One container in the JSON of its pod; reads it and changes it. */
final class JsonContainer {
    static final String VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES";
    /** Runtimes accept any case (containerd, internal/cri/server: WithAddedCapabilities in upper case). */
    private static final Pattern MOUNT_CAPABILITY = Pattern.compile("(CAP_)?SYS_ADMIN|ALL", Pattern.CASE_INSENSITIVE);

    private static final int READ_ONLY_FILE = 0444;
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;

    private final EditedObject container;
    private final ObjectNode tree;
    private final String name;

    private JsonContainer(EditedObject container) {
        this.container = container;
        this.tree = container.tree();
        this.name = JsonTree.text(tree, "name").orElse(""); // the API server refuses it after the webhooks
    }

    /** The containers that a pod is created with, in the order of their start. */
    static List<JsonContainer> of(EditedObject pod) {
        return of(pod, "initContainers", "containers");
    }

    /** The same and the ephemeral containers. */
    static List<JsonContainer> withEphemeral(EditedObject pod) {
        return of(pod, "initContainers", "containers", "ephemeralContainers");
    }

    private static List<JsonContainer> of(EditedObject pod, String... fields) {
        if (JsonTree.object(pod.tree(), "spec").isEmpty()) {
            throw new MalformedReviewException("expected the pod to have a spec");
        }
        EditedObject spec = pod.object("spec");
        return Stream.of(fields)
                .flatMap(field -> spec.objects(field).stream())
                .map(JsonContainer::new)
                .toList();
    }

    String name() {
        return name;
    }

    /**
     * What a container states by its resources in addition to amounts.
     *
     * @param priority of the pod; null if it states none
     * @param bestLinked whether the container requests GPUs with the best links
     * @param warning for the pod's author, what was read as what; empty if nothing was translated
     */
    record Translation(@Nullable Priority priority, boolean bestLinked, Optional<String> warning) {}

    /**
     * Replaces resources of other products by Aliquot's.
     *
     * @param labels the pod's
     * @param defaults the size of slices
     * @throws DeniedException if an amount is invalid
     */
    Translation translateAliases(Map<String, String> labels, Compatibility compatibility, PodDefaults defaults) {
        Map<String, String> limits = resources("limits");
        return translate(limits, limits, labels, compatibility, defaults);
    }

    /** The same in an update of a container that was translated at its pod's creation. */
    Translation translateAliasesAgain(Map<String, String> labels, Compatibility compatibility) {
        Map<String, String> limits = resources("limits");
        return translate(limits, ForeignResources.asWritten(limits), labels, compatibility, PodDefaults.NONE);
    }

    private Translation translate(
            Map<String, String> limits,
            Map<String, String> written,
            Map<String, String> labels,
            Compatibility compatibility,
            PodDefaults defaults) {
        resources("requests").keySet().stream()
                .filter(name -> (Resources.SUPPORTED.contains(name) || ForeignResources.NAMES.contains(name))
                        && !limits.containsKey(name))
                .findFirst()
                .ifPresent(name -> {
                    throw denied("write " + name + " under resources.limits; requests alone set no limit");
                });
        try {
            Map<String, String> translated = ForeignResources.toAliquot(written, labels, compatibility, defaults);
            if (!translated.equals(limits)) {
                replaceAmounts(limits, translated);
            }
            Optional<Priority> priority = ForeignResources.priority(written);
            return new Translation(
                    priority.orElse(null),
                    ForeignResources.requestsBestLinks(written),
                    warning(written, translated, priority, compatibility));
        } catch (FormatException e) {
            throw denied(e);
        }
    }

    private Optional<String> warning(
            Map<String, String> written,
            Map<String, String> translated,
            Optional<Priority> priority,
            Compatibility compatibility) {
        var from = new ArrayList<String>();
        written.forEach((name, amount) -> {
            boolean became = name.equals(ForeignResources.PRIORITY)
                    || (!amount.equals("0") && !amount.equals(translated.get(name)));
            if (became) {
                from.add(name + ": " + amount);
            }
        });
        if (from.isEmpty()) {
            return Optional.empty();
        }
        var to = new ArrayList<String>();
        Stream.concat(Resources.SUPPORTED.stream(), translated.keySet().stream())
                .distinct()
                .forEach(name -> {
                    String amount = translated.getOrDefault(name, "0");
                    if (!amount.equals("0") && !amount.equals(written.get(name))) {
                        to.add(name + ": " + amount);
                    }
                });
        if (to.size() == 1
                && to.get(0).startsWith(Resources.VGPU)
                && GpuRequest.parse(translated)
                        .filter(request -> request.as(compatibility).exclusive())
                        .isPresent()) {
            to.set(0, to.get(0) + " (whole cards)");
        }
        priority.ifPresent(value -> to.add("annotation " + Annotations.PRIORITY + ": " + value.print()));
        return Optional.of(about("Aliquot reads " + String.join(", ", from) + " as "
                + (to.isEmpty() ? "nothing" : String.join(", ", to))));
    }

    /** Whether the meaning of its resources depends on its namespace. */
    boolean dependsOnDefaults() {
        return ForeignResources.dependsOnDefaults(resources("limits"));
    }

    /**
     * Sets to 0 what a LimitRange added and its author may not want: all of it if the container requests no GPU otherwise,
     * memory in MiB beside memory in percent, instances of MIG, which are beside nothing else, all else beside them or ACK's
     * names, and a request without a limit, which Kubernetes refuses. It stays with the amount 0, or the LimitRange would add
     * it again.
     */
    void clearDefaults(LimitRangeDefaults defaults) {
        if (defaults.limits().isEmpty() && defaults.requests().isEmpty()) {
            return;
        }
        Map<String, String> limits = resources("limits");
        Set<String> written = requested("limits");
        written.removeAll(defaults.limits());
        boolean requestsInstances = written.stream().anyMatch(ForeignResources::isInstance);
        boolean takesNothing = requestsInstances
                || ForeignResources.usesAckResources(limits)
                || written.stream()
                        .noneMatch(name -> Resources.SUPPORTED.contains(name) || ForeignResources.NAMES.contains(name));
        var cleared = new LinkedHashMap<>(limits);
        for (String name : defaults.limits()) {
            if (isUnwanted(name, written, takesNothing)) {
                cleared.replace(name, "0");
            }
        }
        for (String name : defaults.requests()) {
            if (Resources.SUPPORTED.contains(name) || ForeignResources.isInstance(name)) {
                cleared.putIfAbsent(name, "0");
            }
        }
        if (requestsInstances && defaults.limits().contains(Resources.VGPU)) {
            cleared.remove(Resources.VGPU); // as many as instances
        }
        if (!cleared.equals(limits)) {
            replaceAmounts(limits, cleared);
        }
    }

    /**
     * Whether an amount that a LimitRange added becomes 0.
     *
     * @param written the names of what the container itself requests
     * @param takesNothing whether that leaves no place for an amount of Aliquot's: it requests no GPU, or all that it may
     */
    private static boolean isUnwanted(String name, Set<String> written, boolean takesNothing) {
        return switch (name) {
            case Resources.MEMORY -> takesNothing || written.contains(Resources.MEMORY_PERCENTAGE);
            case Resources.MEMORY_PERCENTAGE -> takesNothing || written.contains(Resources.MEMORY);
            case Resources.CORES, Resources.VGPU -> takesNothing;
            default -> ForeignResources.isInstance(name);
        };
    }

    boolean usesAckResources() {
        return ForeignResources.usesAckResources(resources("limits"));
    }

    /** @throws DeniedException if an amount is invalid */
    boolean requestsGpu() {
        try {
            return GpuRequest.parse(resources("limits")).isPresent();
        } catch (FormatException e) {
            throw denied(e);
        }
    }

    /** Whether it requests a GPU or a part of one, from Aliquot or from any other device plugin. */
    boolean requestsSomeGpu() {
        return Stream.of("limits", "requests")
                .flatMap(kind -> requested(kind).stream())
                .anyMatch(name -> Resources.SUPPORTED.contains(name)
                        || name.startsWith(Resources.INSTANCE_GROUP)
                        || ForeignResources.servedByOtherPlugins(name));
    }

    /** Whether it requests a slot of Aliquot, as every GPU container does after admission. */
    boolean requestsVgpu() {
        return requested("limits").contains(Resources.VGPU);
    }

    /** Whether it has devices by dynamic resource allocation, among which may be GPUs. */
    boolean claimsDevices() {
        return JsonTree.object(tree, "resources")
                .map(resources -> resources.path("claims"))
                .filter(claims -> !claims.isEmpty())
                .isPresent();
    }

    /** Whether its spec, not its image, says which GPUs it sees. */
    boolean setsVisibleDevices() {
        return JsonTree.objects(tree, "env").stream()
                .anyMatch(variable -> JsonTree.text(variable, "name")
                        .filter(VISIBLE_DEVICES::equals)
                        .isPresent());
    }

    /** A warning about the first variable by which it would change its limits in HAMi. */
    Optional<String> variableWithoutEffect() {
        return JsonTree.objects(tree, "env").stream()
                .flatMap(variable -> JsonTree.text(variable, "name").stream())
                .filter(HamiAnnotations::isVariable)
                .findFirst()
                .map(variable -> about("no effect in Aliquot has the variable " + variable + "; see the annotation "
                        + Annotations.CORE_POLICY));
    }

    private Set<String> requested(String kind) {
        Map<String, String> amounts = resources(kind);
        amounts.values().removeIf("0"::equals);
        return amounts.keySet();
    }

    /** A resource for which another device plugin gives the container a GPU or a part of one, such as a MIG device. */
    Optional<String> resourceOfOtherDevicePlugin() {
        return requested("limits").stream()
                .filter(ForeignResources::servedByOtherPlugins)
                .findFirst();
    }

    private void replaceAmounts(Map<String, String> before, Map<String, String> after) {
        EditedObject resources = container.object("resources");
        for (String kind : List.of("limits", "requests")) {
            EditedObject amounts = resources.object(kind);
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

    /** What it requests of GPUs that it shares; empty if it requests whole ones. */
    Optional<GpuRequest> sharedRequest(Compatibility compatibility) {
        return GpuRequest.parse(resources("limits"))
                .map(request -> request.as(compatibility))
                .filter(request -> !request.exclusive());
    }

    /** Whether it requests whole instances of MIG. */
    boolean requestsInstances() {
        return requested("limits").stream().anyMatch(ForeignResources::isInstance);
    }

    /** A capability that it adds and with which its programs can mount and unmount, as it is written. */
    Optional<String> mountCapability() {
        return JsonTree.object(tree, "securityContext")
                .flatMap(context -> JsonTree.object(context, "capabilities"))
                .flatMap(capabilities -> JsonTree.strings(capabilities, "add").stream()
                        .filter(name -> MOUNT_CAPABILITY.matcher(name).matches())
                        .findFirst());
    }

    /** The end of the container's annotation keys. */
    String keySuffix() {
        return Annotations.vgpu(name).substring(Annotations.VGPU_PREFIX.length());
    }

    /** Replaces the value of the image and of the pod's author. */
    void hideGpus() {
        setVisibleDevices(NODES.objectNode().put("name", VISIBLE_DEVICES).put("value", VisibleDevices.NONE));
    }

    /** Lets the container runtime inject the GPUs that Bind writes into the pod's annotation. */
    void showAllocatedGpus() {
        ObjectNode variable = NODES.objectNode().put("name", VISIBLE_DEVICES);
        variable.putObject("valueFrom").set("fieldRef", annotation(Annotations.visibleDevices(name)));
        setVisibleDevices(variable);
    }

    /**
     * Adds one vGPU where only memory or cores are requested, and as many as MIG instances; requests of extended resources
     * must equal limits.
     */
    void defaultToOneGpu() {
        EditedObject resources = container.object("resources");
        EditedObject limits = resources.object("limits");
        if (!limits.tree().has(Resources.VGPU)) {
            limits.put(Resources.VGPU, Integer.toString(vgpus()));
        }
        EditedObject requests = resources.object("requests");
        if (!requests.tree().has(Resources.VGPU)) {
            requests.put(Resources.VGPU, limits.tree().get(Resources.VGPU));
        }
    }

    /** How many vGPUs a GPU container requests. */
    int vgpus() {
        return GpuRequest.parse(resources("limits")).map(GpuRequest::vgpus).orElse(1);
    }

    /** Each path at which the kubelet puts something of the user's. */
    List<ReservedPaths.UserPath> userPaths() {
        String limitFileVolume = volumeName();
        var paths = new ArrayList<ReservedPaths.UserPath>();
        for (ObjectNode mount : JsonTree.objects(tree, "volumeMounts")) {
            String path = JsonTree.text(mount, "mountPath").orElse("");
            if (!(JsonTree.text(mount, "name").orElse("").equals(limitFileVolume)
                    && path.equals(ContainerPaths.CONFIG_FOLDER))) {
                paths.add(new ReservedPaths.UserPath("volumeMounts.mountPath", path));
            }
        }
        for (ObjectNode device : JsonTree.objects(tree, "volumeDevices")) {
            paths.add(new ReservedPaths.UserPath(
                    "volumeDevices.devicePath",
                    JsonTree.text(device, "devicePath").orElse("")));
        }
        // The kubelet mounts an empty file there (pkg/kubelet/kuberuntime/kuberuntime_container.go, makeMounts).
        JsonTree.text(tree, "terminationMessagePath")
                .ifPresent(path -> paths.add(new ReservedPaths.UserPath("terminationMessagePath", path)));
        return paths;
    }

    String volumeName() {
        return ContainerPaths.limitFileVolume(name);
    }

    /** The limit file's volume, with the API server's defaults, so that it equals the stored one. */
    ObjectNode limitFileVolume() {
        ObjectNode volume = NODES.objectNode().put("name", volumeName());
        ObjectNode source = volume.putObject("downwardAPI").put("defaultMode", READ_ONLY_FILE);
        source.putArray("items")
                .addObject()
                .put("path", ContainerPaths.LIMIT_FILE)
                .set("fieldRef", annotation(Annotations.vgpu(name)));
        return volume;
    }

    void mountLimitFile() {
        ObjectNode mount = NODES.objectNode()
                .put("name", volumeName())
                .put("readOnly", true)
                .put("mountPath", ContainerPaths.CONFIG_FOLDER);
        container.replaceOrAppend("volumeMounts", "mountPath", mount);
    }

    DeniedException denied(String reason) {
        return new DeniedException(about(reason));
    }

    private DeniedException denied(FormatException e) {
        return new DeniedException(about(String.valueOf(e.getMessage())), e);
    }

    private String about(String reason) {
        return "container " + name + ": " + reason;
    }

    private Map<String, String> resources(String kind) {
        return JsonTree.object(tree, "resources")
                .map(resources -> JsonTree.texts(resources, kind))
                .orElseGet(LinkedHashMap::new);
    }

    private void setVisibleDevices(ObjectNode variable) {
        container.replaceOrAppend("env", "name", variable);
    }

    private static ObjectNode annotation(String key) {
        return NODES.objectNode().put("apiVersion", "v1").put("fieldPath", "metadata.annotations['" + key + "']");
    }
}
