package io.aliquot.scheduler.admission;

import io.aliquot.api.Annotations;
import io.aliquot.api.Compatibility;
import io.aliquot.api.ForeignResources;
import io.aliquot.api.FormatException;
import io.aliquot.api.PlacementPreferences;
import java.util.Map;
import java.util.OptionalInt;
import java.util.TreeMap;

/** What a pod wishes by its annotations, and by resources that are annotations in our names. */
final class DerivedAnnotations {
    private final Map<String, String> annotations;
    private final Compatibility byDefault;
    private final Compatibility compatibility;
    private OptionalInt priority = OptionalInt.empty();
    private boolean links;

    /**
     * Wishes.
     *
     * @param byDefault whose meaning a pod's resources have that doesn't say
     * @param inAcksNames whether they are named as ACK does, and so not for another product's meaning
     */
    DerivedAnnotations(Map<String, String> annotations, Compatibility byDefault, boolean inAcksNames) {
        this.annotations = annotations;
        this.byDefault = byDefault;
        String own = annotations.get(Annotations.COMPATIBILITY);
        try {
            this.compatibility = own != null
                    ? Compatibility.parse("annotation " + Annotations.COMPATIBILITY, own)
                    : inAcksNames ? Compatibility.NONE : byDefault;
        } catch (FormatException e) {
            throw new DeniedException(String.valueOf(e.getMessage()), e);
        }
    }

    Compatibility compatibility() {
        return compatibility;
    }

    void add(JsonContainer container, JsonContainer.Translation said) {
        if (said.priority().isPresent()) {
            if (priority.isPresent() && !priority.equals(said.priority())) {
                throw container.denied("a pod has one priority: write the same " + ForeignResources.PRIORITY
                        + " in all its containers, or the annotation " + Annotations.PRIORITY + " instead");
            }
            priority = said.priority();
        }
        links |= said.links();
    }

    /** For a pod that asks for no GPU. */
    void checkNone() {
        if (priority.isPresent()) {
            throw new DeniedException(
                    "remove " + ForeignResources.PRIORITY + ", or ask for a GPU: it is the priority on that");
        }
    }

    /**
     * What the pod shall have beside its own annotations.
     *
     * @throws DeniedException where those make no sense
     */
    Map<String, String> annotations() {
        PlacementPreferences own;
        try {
            own = PlacementPreferences.parse(annotations);
        } catch (FormatException e) {
            throw new DeniedException(String.valueOf(e.getMessage()), e);
        }
        var added = new TreeMap<String, String>();
        // Ours is said too where it is not the default: asked again, the webhook finds ACK's names no more.
        if (own.compatibility().isEmpty() && byDefault != Compatibility.NONE) {
            added.put(Annotations.COMPATIBILITY, compatibility.print());
        }
        if (priority.isPresent()) {
            if (annotations.containsKey(Annotations.PRIORITY) && own.priority() != priority.getAsInt()) {
                throw new DeniedException("the annotation " + Annotations.PRIORITY + " and the resource "
                        + ForeignResources.PRIORITY + " differ: remove one of them");
            }
            added.put(Annotations.PRIORITY, Integer.toString(priority.getAsInt()));
        }
        if (links && own.gpuPlacement().isEmpty() && !own.topology()) {
            added.put(Annotations.GPU_PLACEMENT, PlacementPreferences.TOPOLOGY);
        }
        return added;
    }
}
