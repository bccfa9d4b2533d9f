package io.aliquot.scheduler.extender;

import io.aliquot.api.Annotations;
import io.aliquot.api.Fence;
import io.aliquot.api.Vgpus;
import java.util.Map;
import java.util.TreeMap;

/** How it is written on a pod what its containers hold, and under which leader. */
final class Allocation {
    private Allocation() {}

    /** The annotations; {@code containers} by name. */
    static Map<String, String> annotations(Fence fence, Map<String, Vgpus> containers) {
        var annotations = new TreeMap<String, String>();
        annotations.put(Annotations.FENCE, fence.print());
        containers.forEach((container, vgpus) -> annotations.put(Annotations.vgpu(container), vgpus.print()));
        return annotations;
    }
}
