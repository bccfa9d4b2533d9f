package io.aliquot.scheduler.extensionapi.objects;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.pods.CorePolicy;
import io.aliquot.scheduler.extensionapi.machinery.StatusException;
import io.aliquot.scheduler.ledger.ContainerShareChange;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import tools.jackson.databind.JsonNode;

/**
 * Compares a patched gpushare with the current one. In {@code spec.containers}, entries are matched by name, and what is
 * left out stays as it is: a merge patch replaces the list as a whole, so it cannot name one container otherwise.
 */
public final class ShareChanges {
    private static final List<String> PARTS = List.of("metadata", "spec");
    private static final Set<String> CHANGEABLE = Set.of("metadata.resourceVersion", "spec.containers");
    private static final Set<String> FIELDS = new TreeSet<>(Set.of("name", "memoryMiB", "cores", "policy"));

    private final String name;
    private final JsonNode before;
    private final JsonNode after;

    private ShareChanges(String name, JsonNode before, JsonNode after) {
        this.name = name;
        this.before = before;
        this.after = after;
    }

    /**
     * The changes that a patch makes to what the pod's containers hold.
     *
     * @throws StatusException with code 422 and the path of a field that is invalid or cannot be changed
     */
    public static List<ContainerShareChange> between(String name, JsonNode before, JsonNode after) {
        return new ShareChanges(name, before, after).find();
    }

    /**
     * Reads the precondition of a patch: the version that the patched object must have.
     *
     * @return empty if there is none
     */
    public static Optional<String> requiredVersion(String name, JsonNode after) {
        JsonNode version = after.path("metadata").path("resourceVersion");
        if (version.isMissingNode()
                || version.isNull()
                || (version.isString() && version.asString().isEmpty())) {
            return Optional.empty();
        }
        if (!version.isString()) {
            throw StatusException.invalid(name, "metadata.resourceVersion", "write a string");
        }
        return Optional.of(version.asString());
    }

    private List<ContainerShareChange> find() {
        if (!after.isObject()) {
            throw StatusException.invalid(name, "<root>", "the patch leaves no object");
        }
        Stream.concat(
                        differences("", before, after).filter(field -> !PARTS.contains(field)),
                        PARTS.stream().flatMap(part -> differences(part + ".", before.path(part), after.path(part))))
                .filter(path -> !CHANGEABLE.contains(path))
                .findFirst()
                .ifPresent(path -> {
                    throw foreign(path);
                });
        JsonNode containers = after.path("spec").path("containers");
        if (!after.path("spec").isObject() || !containers.isArray()) {
            throw StatusException.invalid(name, "spec.containers", "write a list of containers");
        }
        Map<String, JsonNode> held = new HashMap<>();
        before.path("spec")
                .path("containers")
                .forEach(container -> held.put(container.path("name").asString(""), container));
        var changes = new ArrayList<ContainerShareChange>();
        var seen = new HashSet<String>();
        for (int i = 0; i < containers.size(); i++) {
            String path = "spec.containers[" + i + "]";
            JsonNode container = containers.get(i);
            if (!container.isObject()) {
                throw StatusException.invalid(name, path, "write an object");
            }
            for (String field : container.propertyNames()) {
                if (!FIELDS.contains(field)) {
                    throw StatusException.invalid(
                            name, path + "." + field, "no such field; those that can change: memoryMiB, cores, policy");
                }
            }
            JsonNode called = container.path("name");
            JsonNode known = held.get(called.isString() ? called.asString() : "");
            if (known == null) {
                throw StatusException.invalid(
                        name,
                        path + ".name",
                        "write the name of a container that holds a GPU: "
                                + String.join(", ", new TreeSet<>(held.keySet())));
            }
            if (!seen.add(called.asString())) {
                throw StatusException.invalid(name, path + ".name", "the container is there twice");
            }
            change(path, called.asString(), known, container).ifPresent(changes::add);
        }
        return changes;
    }

    /** The names of the fields in which two objects differ, after a prefix. */
    private static Stream<String> differences(String prefix, JsonNode one, JsonNode other) {
        Set<String> fields = new TreeSet<>(one.propertyNames());
        fields.addAll(other.propertyNames());
        return fields.stream()
                .filter(field -> !one.path(field).equals(other.path(field)))
                .map(field -> prefix + field);
    }

    private StatusException foreign(String path) {
        return StatusException.invalid(
                name,
                path,
                "cannot be changed here; a gpushare's spec.containers[].memoryMiB, .cores and .policy can"
                        + (path.startsWith("metadata") ? "; metadata is the Pod's" : ""));
    }

    private Optional<ContainerShareChange> change(String path, String container, JsonNode known, JsonNode wanted) {
        Integer memory = number(path, known, wanted, "memoryMiB", 1, Gpu.LARGEST_MIB);
        Integer cores = number(path, known, wanted, "cores", 0, 100);
        CorePolicy policy = policy(path + ".policy", known.path("policy"), wanted.path("policy"));
        return memory == null && cores == null && policy == null
                ? Optional.empty()
                : Optional.of(new ContainerShareChange(container, memory, cores, policy));
    }

    private static boolean unchanged(JsonNode known, JsonNode wanted) {
        return wanted.isMissingNode() || wanted.isNull() || wanted.equals(known);
    }

    private @Nullable Integer number(String path, JsonNode known, JsonNode wanted, String field, int min, int max) {
        JsonNode value = wanted.path(field);
        if (unchanged(known.path(field), value)) {
            return null;
        }
        if (value.isNumber()) {
            double number = value.asDouble(); // exact for every number in the range
            if (number >= min && number <= max && number == Math.rint(number)) {
                return (int) number;
            }
        }
        throw StatusException.invalid(name, path + "." + field, "write a whole number from " + min + " to " + max);
    }

    private @Nullable CorePolicy policy(String path, JsonNode known, JsonNode value) {
        if (unchanged(known, value)) {
            return null;
        }
        try {
            return CorePolicy.parse(path, value.isString() ? value.asString() : "");
        } catch (FormatException e) {
            throw StatusException.invalid(name, path, "write fixed, elastic or none");
        }
    }
}
