package io.aliquot.scheduler.admission;

import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Which limits a LimitRange has added to a pod's containers. Kubernetes turns {@code max} of a LimitRange into a default
 * for containers without that limit (pkg/apis/core/v1/defaults.go), and its admission plugin says so in an annotation
 * before the webhooks see the pod (k8s.io/kubernetes 1.35, plugin/pkg/admission/limitranger/admission.go,
 * mergePodResourceRequirements).
 */
final class LimitRangeDefaults {
    static final String ANNOTATION = "kubernetes.io/limit-ranger";
    private static final Pattern PART =
            Pattern.compile("(?:LimitRanger plugin set: )?(.+) limit for (?:init )?container ([^ ]+)");

    private LimitRangeDefaults() {}

    /**
     * The limits that were added to a container, by resource name.
     *
     * @param annotations the pod's; its author can write this one too, and then loses the limits that it names
     */
    static Set<String> of(Map<String, String> annotations, String container) {
        var names = new HashSet<String>();
        for (String part : annotations.getOrDefault(ANNOTATION, "").split("; ", -1)) {
            Matcher matcher = PART.matcher(part);
            if (matcher.matches() && matcher.group(2).equals(container)) {
                names.addAll(List.of(matcher.group(1).split(", ", -1)));
            }
        }
        return names;
    }
}
