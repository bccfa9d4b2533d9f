package io.aliquot.scheduler.apiserver;

import io.aliquot.api.Annotations;
import io.aliquot.api.Fence;
import io.aliquot.api.Vgpus;
import java.util.Map;
import java.util.TreeMap;

/** How it is written on a pod what its containers hold, and under which leader. */
public final class AllocationAnnotations {
    private AllocationAnnotations() {}

    /** The annotations; {@code containers} by name, the fence under this key. */
    public static Map<String, String> annotations(String fenceKey, Fence fence, Map<String, Vgpus> containers) {
        var annotations = new TreeMap<String, String>();
        annotations.put(fenceKey, fence.print());
        containers.forEach((container, vgpus) -> annotations.put(Annotations.vgpu(container), vgpus.print()));
        return annotations;
    }
}
