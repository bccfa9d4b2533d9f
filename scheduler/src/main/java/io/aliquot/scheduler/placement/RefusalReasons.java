package io.aliquot.scheduler.placement;

import io.aliquot.api.pods.GpuRequest;
import io.aliquot.api.pods.MemoryRequest;
import io.aliquot.scheduler.placement.Feasibility.Refused;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The messages that refuse nodes for one container. They are identical on every node, so that kube-scheduler counts the
 * nodes of each. Each is created once per pod, because thousands of nodes can refuse it. Thread-safe.
 */
final class RefusalReasons {
    /**
     * Obstacles in the order of the checks. A node's reason is the first obstacle such that fewer GPUs than the
     * container needs get past it.
     */
    enum Reason {
        // Obstacles on empty GPUs, too: preemption cannot remove them.
        INSTANCE,
        WHOLE_CARDS_ONLY,
        TOO_FEW_GPUS,
        MODEL,
        GPU,
        TOO_SMALL,
        TOO_FEW_CORES,
        UNHEALTHY,
        CORDONED,
        HELD_BY_OTHERS,
        NUMA_DOMAINS,
        // Obstacles that disappear when other pods release their GPUs.
        NOT_WHOLLY_FREE,
        MEMORY,
        CORES,
        SLOTS,
        NUMA_CAPACITY,
        /** No obstacle. Must be last. */
        NONE;

        /** Whether the container would not fit on empty GPUs either. */
        boolean unresolvable() {
            return compareTo(NOT_WHOLLY_FREE) < 0;
        }
    }

    private final ContainerGpuRequest container;
    private final boolean oneOfSeveral;
    private final Map<Reason, Refused> cached = new ConcurrentHashMap<>();

    /**
     * Prepares the messages.
     *
     * @param oneOfSeveral whether other containers of the pod request GPUs, so that messages name the container
     */
    RefusalReasons(ContainerGpuRequest container, boolean oneOfSeveral) {
        this.container = container;
        this.oneOfSeveral = oneOfSeveral;
    }

    Refused of(Reason reason) {
        Refused refused = cached.get(reason); // computeIfAbsent may lock even if the key is present
        return refused == null ? cached.computeIfAbsent(reason, this::refused) : refused;
    }

    private Refused refused(Reason reason) {
        String suffix = oneOfSeveral ? " for container " + container.name() : "";
        return new Refused(message(reason) + suffix, reason.unresolvable());
    }

    /** Without "%": kube-scheduler uses the message as a format string for its event (1.35, schedule_one.go). */
    private String message(Reason reason) {
        GpuRequest request = container.request();
        int vgpus = request.vgpus();
        String none = vgpus == 1 ? "no GPU" : "fewer than " + vgpus + " GPUs";
        String memory = describe(request.memory());
        return switch (reason) {
            case INSTANCE ->
                !request.profile().isEmpty()
                        ? none + (vgpus == 1 ? " that is a" : " that are") + " MIG " + request.profile()
                        : request.exclusive()
                                ? none + " but MIG instances, which whole cards do not include"
                                : none + " but MIG instances, which are shared only with the node label"
                                        + " aliquot.io/share=mig or mig-shim";
            case WHOLE_CARDS_ONLY -> "gives whole cards only";
            case TOO_FEW_GPUS -> "requests " + vgpus + (vgpus == 1 ? " vGPU" : " vGPUs") + ", the node has fewer GPUs";
            case MODEL -> none + " of a model that the pod takes";
            case GPU -> none + " with a UUID and an index that the pod takes";
            case TOO_SMALL -> none + " that large: " + memory;
            case TOO_FEW_CORES -> none + " with so much compute: " + request.cores() + " percent";
            case UNHEALTHY -> none + " healthy";
            case CORDONED -> none + " not cordoned";
            case HELD_BY_OTHERS -> none + " that no pod of another device plugin holds";
            case NUMA_DOMAINS -> "no NUMA domain with " + vgpus + " such GPUs";
            case NOT_WHOLLY_FREE -> none + " wholly free";
            case MEMORY -> none + " with " + memory + " free";
            case CORES -> none + " with " + memory + " and " + request.cores() + " percent of its cores free";
            case SLOTS -> none + " with " + memory + " and a slot free";
            case NUMA_CAPACITY -> "no NUMA domain with " + vgpus + " such GPUs free";
            case NONE -> throw new IllegalArgumentException("expected an obstacle, found NONE");
        };
    }

    private static String describe(MemoryRequest memory) {
        return switch (memory) {
            case MemoryRequest.Mebibytes(int amount) -> amount + " MiB";
            case MemoryRequest.Percentage(int percent) -> percent + " percent of its memory";
            case MemoryRequest.WholeCard() -> "all its memory";
        };
    }
}
