package io.aliquot.api.usage;

import static io.aliquot.api.names.JsonFields.expect;
import static io.aliquot.api.names.JsonFields.optionalText;
import static io.aliquot.api.names.JsonFields.text;

import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

/**
 * A container of a pod, as a node agent knows it.
 *
 * @param uid the pod's; empty if the agent does not know it
 */
public record PodContainer(String namespace, String pod, String uid, String container) {
    /** Of names and UIDs: RFC 1123 subdomains (Kubernetes, "Object Names and IDs"). */
    private static final int LONGEST = 253;

    public PodContainer {
        check("a namespace", namespace, 1);
        check("a pod", pod, 1);
        check("a pod's uid", uid, 0);
        check("a container", container, 1);
    }

    static void check(String what, String name, int shortest) {
        expect(
                name.length() >= shortest
                        && name.length() <= LONGEST
                        && name.chars().allMatch(PodContainer::isNameCharacter),
                what,
                name);
    }

    private static boolean isNameCharacter(int c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
    }

    static PodContainer parse(JsonNode object) {
        return new PodContainer(
                text(object, "namespace"), text(object, "pod"), optionalText(object, "uid"), text(object, "container"));
    }

    void print(ObjectNode object) {
        object.put("namespace", namespace).put("pod", pod);
        if (!uid.isEmpty()) {
            object.put("uid", uid);
        }
        object.put("container", container);
    }
}
