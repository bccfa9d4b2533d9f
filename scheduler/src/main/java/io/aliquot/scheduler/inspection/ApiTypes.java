package io.aliquot.scheduler.inspection;

import com.fasterxml.jackson.annotation.JsonInclude;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** The JSON of {@code /api/v1}, as {@code openapi.json} describes it to users. */
final class ApiTypes {
    private ApiTypes() {}

    /**
     * A part of a list.
     *
     * @param total how many there are on all pages at this moment
     * @param next what to ask for {@code after}; absent on the last page
     */
    @JsonInclude(JsonInclude.Include.NON_NULL)
    record Page<T>(List<T> items, int total, @Nullable String next) {}

    /** What there is of something, what pods hold of it, and the rest; below 0 where it was taken away from them. */
    record Amounts(long capacity, long allocated, long free) {
        static Amounts of(long capacity, long allocated) {
            return new Amounts(capacity, allocated, capacity - allocated);
        }
    }

    /**
     * A node that has, or had, GPUs to share.
     *
     * @param open whether new shares may go there
     * @param reason why not; empty where they may
     */
    record Node(String name, boolean open, String reason, String share, String gpuPlacement, List<Gpu> gpus) {}

    /**
     * A GPU.
     *
     * @param numa its NUMA domain; -1 where that is unknown
     * @param exclusive whether somebody holds it as a whole card
     */
    record Gpu(
            String node,
            String uuid,
            int index,
            String model,
            int numa,
            boolean healthy,
            boolean cordoned,
            boolean exclusive,
            Amounts memoryMiB,
            Amounts cores,
            Amounts slots) {}

    /** A pod that holds shares of GPUs. */
    record Pod(
            String namespace, String name, String uid, String node, String state, int priority, List<Share> shares) {}

    /** What one container holds of one GPU. */
    record Share(
            String namespace,
            String pod,
            String uid,
            String node,
            String container,
            String gpu,
            int memoryMiB,
            int cores,
            String policy,
            int priority,
            boolean exclusive) {}

    /** Room that is kept for a pod of which the cluster doesn't tell, yet, that it is there. */
    record Reservation(
            String namespace, String pod, String uid, String node, String state, long ageSeconds, List<Part> gpus) {}

    /** Of one GPU. */
    record Part(String gpu, long memoryMiB, int cores, int slots, boolean exclusive) {}
}
