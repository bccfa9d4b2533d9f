package io.aliquot.scheduler.cluster;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.pods.Fence;
import io.aliquot.api.pods.Vgpus;
import io.aliquot.scheduler.ledger.QuotaAmount;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;

/** The annotations that record the allocation of a pod and the fence of the leader that made it. */
public final class AllocationAnnotations {
    /**
     * The most bytes of the keys and values of an object's annotations (k8s.io/apimachinery,
     * pkg/api/validation/objectmeta.go, TotalAnnotationSizeLimitB).
     */
    public static final int MOST_BYTES = 256 << 10;

    /** In bytes, more than the scheduler adds to a pod whatever it requests: at Bind, a resize and after a lost answer. */
    static final int OF_POD = 1 << 10;

    /** In bytes, more than it adds for a vGPU and its container's keys. */
    static final int OF_VGPU = 640;

    private AllocationAnnotations() {}

    /** The bytes of keys and values, as Kubernetes counts them. */
    public static long bytes(Map<String, String> annotations) {
        return annotations.entrySet().stream()
                .mapToLong(entry -> bytes(entry.getKey()) + bytes(entry.getValue()))
                .sum();
    }

    public static int bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8).length;
    }

    /**
     * Refuses a pod whose annotations would become too large. The API server does not check their size in a Binding, and then
     * refuses every status of the pod.
     *
     * @param bytes of the annotations of the pod, which is not bound
     * @param vgpus that its containers request
     * @throws FormatException if the scheduler may add more than Kubernetes allows beside them
     */
    public static void check(long bytes, int vgpus) {
        long added = OF_POD + (long) vgpus * OF_VGPU;
        if (bytes + added > MOST_BYTES) {
            throw new FormatException("the pod's annotations have " + bytes + " bytes, and the scheduler may add "
                    + added + ": Kubernetes allows " + MOST_BYTES
                    + " together; shorten them, or move them to a ConfigMap");
        }
    }

    /**
     * Returns the annotations.
     *
     * @param containers the vGPUs by container name
     * @param total what the pod holds
     */
    public static Map<String, String> annotations(
            String fenceKey, Fence fence, Map<String, Vgpus> containers, QuotaAmount total) {
        var annotations = new TreeMap<String, String>();
        annotations.put(fenceKey, fence.print());
        containers.forEach((container, vgpus) -> annotations.put(Annotations.vgpu(container), vgpus.print()));
        if (!containers.isEmpty()) {
            annotations.put(Annotations.TOTAL_MEMORY_MIB, Long.toString(total.memoryMiB()));
            annotations.put(Annotations.TOTAL_CORES, Long.toString(total.cores()));
        }
        return annotations;
    }
}
