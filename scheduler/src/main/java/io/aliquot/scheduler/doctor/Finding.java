package io.aliquot.scheduler.doctor;

/**
 * Something that is wrong in the cluster.
 *
 * @param check what was looked at, in kebab case; the same in every version, for programs
 * @param object the object that the finding is about, as {@code kind/name} or {@code kind/namespace/name}
 * @param problem what is wrong, the part of a sentence after the object's name
 * @param action what to do about it, an imperative
 */
record Finding(String check, String object, String problem, String action) {
    Finding {
        problem = oneLine(problem);
        action = oneLine(action);
    }

    /** The finding as a sentence. */
    String print() {
        return object + ": " + problem + "; " + action + " (" + check + ")";
    }

    /** Messages of Kubernetes and of container runtimes have line breaks. */
    private static String oneLine(String text) {
        return text.strip().replaceAll("\\s+", " ");
    }
}
