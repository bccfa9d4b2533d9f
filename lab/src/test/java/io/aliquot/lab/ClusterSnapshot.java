package io.aliquot.lab;

import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/**
 * All objects that the API server lists, of all groups, without {@code managedFields} and {@code resourceVersion}, and
 * without Events, of which a cluster always has others.
 *
 * <p>Names that a controller generates count by their order, since a pod that is created again has another one.
 *
 * @param objects the values of each object by their paths, such as {@code spec.containers[main].image}, by the object's
 *     identity
 */
record ClusterSnapshot(Map<Identity, Map<String, String>> objects) {
    private static final JsonMapper JSON = new JsonMapper();

    /** What tells the objects of a cluster apart. */
    record Identity(String group, String kind, String namespace, String name) implements Comparable<Identity> {
        @Override
        public int compareTo(Identity other) {
            return toString().compareTo(other.toString());
        }
    }

    /**
     * A value that two snapshots have differently.
     *
     * @param path empty if one of them lacks the whole object
     * @param before empty if the earlier one lacks the value
     * @param after empty if the later one lacks it
     */
    record Change(Identity object, String path, String before, String after) {
        /** Where the value is, for all objects of the kind and all elements of a list. */
        String place() {
            return object.group() + " " + object.kind() + " " + path.replaceAll("\\[[^]]*]", "[]");
        }

        @Override
        public String toString() {
            return object.kind() + " " + object.namespace() + "/" + object.name() + " " + path + ": " + before + " -> "
                    + after;
        }
    }

    static ClusterSnapshot of(KubernetesClient client) {
        var objects = new TreeMap<Identity, Map<String, String>>();
        for (String version : versions(client)) {
            for (JsonNode resource : get(client, version).path("resources")) {
                String name = resource.path("name").asString("");
                boolean listable = resource.path("verbs")
                        .valueStream()
                        .anyMatch(verb -> verb.asString("").equals("list"));
                if (name.contains("/") || name.equals("events") || !listable) {
                    continue;
                }
                String group = version.startsWith("/apis/") ? version.split("/", -1)[2] : "";
                add(objects, group, resource.path("kind").asString(""), get(client, version + "/" + name));
            }
        }
        return new ClusterSnapshot(objects);
    }

    private static Set<String> versions(KubernetesClient client) {
        var versions = new LinkedHashSet<String>();
        versions.add("/api/v1");
        for (JsonNode group : get(client, "/apis").path("groups")) {
            versions.add("/apis/"
                    + group.path("preferredVersion").path("groupVersion").asString(""));
        }
        return versions;
    }

    private static JsonNode get(KubernetesClient client, String path) {
        String text = client.raw(path);
        if (text == null) {
            throw new KubernetesClientException("the API server answers nothing to a GET of " + path);
        }
        return JSON.readTree(text);
    }

    private static void add(Map<Identity, Map<String, String>> objects, String group, String kind, JsonNode list) {
        var ordinals = new TreeMap<String, Integer>();
        var items = new ArrayList<>(list.path("items").valueStream().toList());
        // By node: what a controller creates one of on each node.
        items.sort((a, b) -> order(a).compareTo(order(b)));
        for (JsonNode item : items) {
            JsonNode metadata = item.path("metadata");
            String namespace = metadata.path("namespace").asString("");
            String name = metadata.path("name").asString("");
            String generated = metadata.path("generateName").asString("");
            if (!generated.isEmpty()) {
                name = generated + ordinals.merge(namespace + "/" + generated, 1, Integer::sum);
            }
            var values = new TreeMap<String, String>();
            flatten("", item, values);
            values.keySet()
                    .removeIf(path ->
                            path.startsWith("metadata.managedFields") || path.equals("metadata.resourceVersion"));
            objects.put(new Identity(group, kind, namespace, name), values);
        }
    }

    private static String order(JsonNode item) {
        return item.path("spec").path("nodeName").asString("") + " "
                + item.path("metadata").path("name").asString("");
    }

    /** The elements of a list go by their name, type or address, where they have one. */
    private static void flatten(String path, JsonNode node, Map<String, String> values) {
        if (node.isObject() && !node.isEmpty()) {
            node.properties()
                    .forEach(entry -> flatten(
                            path.isEmpty() ? entry.getKey() : path + "." + entry.getKey(), entry.getValue(), values));
        } else if (path.equals("rules")) { // of a role: a set
            node.forEach(rule -> values.put(path + "[" + rule + "]", "granted"));
        } else if (node.isArray() && !node.isEmpty()) {
            int i = 0;
            for (JsonNode element : node) {
                String key = Integer.toString(i++);
                for (String field : List.of("name", "type", "mountPath")) {
                    if (element.path(field).isString()) {
                        key = stable(element.path(field).asString(""));
                    }
                }
                flatten(path + "[" + key + "]", element, values);
            }
        } else {
            values.put(path, stable(node.isString() ? node.asString("") : node.toString()));
        }
    }

    /** Without the random part of the volume with a pod's token. */
    private static String stable(String value) {
        return value.replaceAll("^kube-api-access-[a-z0-9]{5}$", "kube-api-access-*");
    }

    /** What a later snapshot has differently. */
    List<Change> changesTo(ClusterSnapshot after) {
        var changes = new ArrayList<Change>();
        var identities = new TreeSet<>(objects.keySet());
        identities.addAll(after.objects.keySet());
        for (Identity identity : identities) {
            Map<String, String> old = objects.get(identity);
            Map<String, String> young = after.objects.get(identity);
            if (old == null || young == null) {
                changes.add(new Change(identity, "", old == null ? "" : "exists", young == null ? "" : "exists"));
                continue;
            }
            var paths = new TreeSet<>(old.keySet());
            paths.addAll(young.keySet());
            for (String path : paths) {
                String before = old.getOrDefault(path, "");
                String now = young.getOrDefault(path, "");
                if (!before.equals(now)) {
                    changes.add(new Change(identity, path, before, now));
                }
            }
        }
        return changes;
    }
}
