package io.aliquot.scheduler.admission;

import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Which amounts a LimitRange has added to a container. Kubernetes turns {@code max} of a LimitRange into a default for
 * containers without that limit, and {@code min} into one for those without that request
 * (pkg/apis/core/v1/defaults.go). Its admission plugin says so in an annotation before the webhooks see the pod
 * (k8s.io/kubernetes 1.35, plugin/pkg/admission/limitranger/admission.go, mergePodResourceRequirements).
 *
 * @param limits names of resources
 * @param requests names of resources
 */
record LimitRangeDefaults(Set<String> limits, Set<String> requests) {
    static final String ANNOTATION = "kubernetes.io/limit-ranger";
    private static final Pattern PART =
            Pattern.compile("(?:LimitRanger plugin set: )?(.+) (limit|request) for (?:init )?container ([^ ]+)");

    /** @param annotations the pod's; its author can write this one too, and then loses the amounts that it names */
    static LimitRangeDefaults of(Map<String, String> annotations, String container) {
        var limits = new HashSet<String>();
        var requests = new HashSet<String>();
        for (String part : annotations.getOrDefault(ANNOTATION, "").split("; ", -1)) {
            Matcher matcher = PART.matcher(part);
            if (matcher.matches() && matcher.group(3).equals(container)) {
                (matcher.group(2).equals("limit") ? limits : requests)
                        .addAll(List.of(matcher.group(1).split(", ", -1)));
            }
        }
        return new LimitRangeDefaults(limits, requests);
    }
}
