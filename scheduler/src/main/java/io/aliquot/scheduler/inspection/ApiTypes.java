package io.aliquot.scheduler.inspection;

import com.fasterxml.jackson.annotation.JsonInclude;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** The JSON of {@code /api/v1}; {@code openapi.json} describes it for users, with units and ranges. */
final class ApiTypes {
    private ApiTypes() {}

    /**
     * One page of a list.
     *
     * @param total the number of items on all pages at this moment
     * @param next the parameter {@code after} of the next page; absent on the last page
     */
    @JsonInclude(JsonInclude.Include.NON_NULL)
    record Page<T>(List<T> items, int total, @Nullable String next) {}

    /**
     * An amount of one resource.
     *
     * @param free capacity less allocated; negative if the capacity was reduced below what pods hold
     */
    record Amounts(long capacity, long allocated, long free) {
        static Amounts of(long capacity, long allocated) {
            return new Amounts(capacity, allocated, capacity - allocated);
        }
    }

    /**
     * A node that has, or had, shared GPUs.
     *
     * @param schedulable whether the node takes new GPU pods
     * @param reason why the node is not schedulable; empty if it is
     * @param sharingMode the node's label {@code aliquot.io/share}; empty if the node shares no GPUs
     */
    record Node(
            String name, boolean schedulable, String reason, String sharingMode, String gpuPlacement, List<Gpu> gpus) {}

    /**
     * A GPU and what is allocated of it.
     *
     * @param numa its NUMA domain; -1 if unknown
     * @param reason what is wrong with an unhealthy GPU; empty for a healthy one
     * @param since when it became unhealthy; absent for a healthy one, and if the node's agent does not report it
     * @param exclusive whether it is allocated as a whole card
     */
    @JsonInclude(JsonInclude.Include.NON_NULL)
    record Gpu(
            String node,
            String uuid,
            int index,
            String model,
            int numa,
            boolean healthy,
            String reason,
            @Nullable String since,
            boolean cordoned,
            boolean exclusive,
            Amounts memoryMiB,
            Amounts cores,
            Amounts slots) {}

    /** A pod that holds shares of GPUs. */
    record Pod(
            String namespace,
            String name,
            String uid,
            String node,
            String state,
            int priority,
            List<ShareView> shares) {}

    /** What one container holds of one GPU. */
    record ShareView(
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

    /** Capacity that the ledger counts as taken although the watch reports no bound pod for it. */
    record Reservation(
            String namespace,
            String pod,
            String uid,
            String node,
            String state,
            long ageSeconds,
            List<ReservedAmount> gpus) {}

    record ReservedAmount(String gpu, long memoryMiB, int cores, int slots, boolean exclusive) {}
}
