package io.aliquot.api.usage;

import static io.aliquot.api.format.FormatException.expect;

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
}
