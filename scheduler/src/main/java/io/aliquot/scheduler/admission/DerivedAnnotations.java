package io.aliquot.scheduler.admission;

import io.aliquot.api.foreign.ForeignResources;
import io.aliquot.api.foreign.HamiAnnotations;
import io.aliquot.api.format.FormatException;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.pods.Compatibility;
import io.aliquot.api.pods.CorePolicy;
import io.aliquot.api.pods.PlacementPreferences;
import io.aliquot.api.pods.PodDefaults;
import io.aliquot.api.pods.Priority;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.jspecify.annotations.Nullable;

/**
 * The annotations that the webhook adds to a pod, because the pod states them by resources, or its namespace or the chart
 * does: its priority, its request for well-linked GPUs, the meaning of its resources and its core policy. Not thread-safe.
 */
final class DerivedAnnotations {
    private final Map<String, String> podAnnotations;
    private final Compatibility defaultCompatibility;
    private final Compatibility compatibility;
    private @Nullable Priority priority;
    private boolean bestLinked;
    private CorePolicy corePolicy = CorePolicy.FIXED;

    /**
     * Determines the pod's compatibility.
     *
     * @param defaultCompatibility for pods without the annotation {@link Annotations#COMPATIBILITY}
     * @param usesAckResources whether a container names ACK's resources, which have one meaning only
     * @throws DeniedException if the annotation is invalid
     */
    DerivedAnnotations(
            Map<String, String> podAnnotations, Compatibility defaultCompatibility, boolean usesAckResources) {
        this.podAnnotations = podAnnotations;
        this.defaultCompatibility = defaultCompatibility;
        String annotation = podAnnotations.get(Annotations.COMPATIBILITY);
        try {
            this.compatibility = annotation != null
                    ? Compatibility.parse("annotation " + Annotations.COMPATIBILITY, annotation)
                    : usesAckResources ? Compatibility.NONE : defaultCompatibility;
        } catch (FormatException e) {
            throw new DeniedException(String.valueOf(e.getMessage()), e);
        }
    }

    Compatibility compatibility() {
        return compatibility;
    }

    /** @throws DeniedException if another container states another priority */
    void add(JsonContainer container, JsonContainer.Translation translation) {
        Priority stated = translation.priority();
        if (stated != null) {
            if (priority != null && priority != stated) {
                throw container.denied("a pod has one priority: write the same " + ForeignResources.PRIORITY
                        + " in all its containers, or the annotation " + Annotations.PRIORITY + " instead");
            }
            priority = stated;
        }
        bestLinked |= translation.bestLinked();
    }

    /**
     * Gives the pod, which shares GPUs, the default core policy and an allowed priority where it states none.
     *
     * @param requestsCores whether a container does
     */
    void add(PodDefaults defaults, boolean requestsCores) {
        if (!podAnnotations.containsKey(Annotations.CORE_POLICY)) {
            corePolicy = defaults.corePolicyOr(requestsCores ? compatibility.corePolicy() : CorePolicy.FIXED);
        }
        List<Priority> priorities = defaults.rules().priorities();
        if (priority == null
                && !podAnnotations.containsKey(Annotations.PRIORITY)
                && !priorities.contains(Priority.NORMAL)) {
            priority = priorities.getFirst();
        }
    }

    /**
     * The annotations to add.
     *
     * @throws DeniedException if the pod's own annotations are invalid or contradict its resources
     */
    Map<String, String> toAdd() {
        PlacementPreferences preferences;
        try {
            preferences = HamiAnnotations.preferences(podAnnotations);
            String own = podAnnotations.get(Annotations.PRIORITY);
            if (own != null) {
                Priority.parse("annotation " + Annotations.PRIORITY, own);
            }
        } catch (FormatException e) {
            throw new DeniedException(String.valueOf(e.getMessage()), e);
        }
        var added = new TreeMap<String, String>();
        // Compatibility.NONE is written too where it is not the default: when the API server reinvokes the webhook,
        // ACK's resource names, which imply it, have been translated.
        if (preferences.compatibility().isEmpty() && defaultCompatibility != Compatibility.NONE) {
            added.put(Annotations.COMPATIBILITY, compatibility.print());
        }
        if (priority != null) {
            if (podAnnotations.containsKey(Annotations.PRIORITY) && preferences.priority() != priority) {
                throw new DeniedException("the annotation " + Annotations.PRIORITY + " and the resource "
                        + ForeignResources.PRIORITY + " differ: remove one of them");
            }
            added.put(Annotations.PRIORITY, priority.print());
        }
        if (corePolicy != CorePolicy.FIXED) {
            added.put(Annotations.CORE_POLICY, corePolicy.print());
        }
        if (bestLinked && preferences.gpuPlacement().isEmpty() && !preferences.topology()) {
            added.put(Annotations.GPU_PLACEMENT, PlacementPreferences.TOPOLOGY);
        }
        return added;
    }
}
