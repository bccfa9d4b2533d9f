package io.aliquot.scheduler.apiserver;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Fence;
import io.aliquot.api.names.Vgpus;
import java.util.Map;
import java.util.TreeMap;

/** The annotations that record the allocation of a pod and the fence of the leader that made it. */
public final class AllocationAnnotations {
    private AllocationAnnotations() {}

    /** Returns the annotations; {@code containers} has the vGPUs by container name. */
    public static Map<String, String> annotations(String fenceKey, Fence fence, Map<String, Vgpus> containers) {
        var annotations = new TreeMap<String, String>();
        annotations.put(fenceKey, fence.print());
        containers.forEach((container, vgpus) -> annotations.put(Annotations.vgpu(container), vgpus.print()));
        return annotations;
    }
}
