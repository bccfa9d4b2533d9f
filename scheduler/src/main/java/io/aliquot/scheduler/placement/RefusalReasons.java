package io.aliquot.scheduler.placement;

import io.aliquot.api.GpuRequest;
import io.aliquot.api.MemoryRequest;
import io.aliquot.scheduler.placement.GpuSelection.Refused;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Why a container is refused, in words that are the same on every node, so that kube-scheduler counts the nodes of each;
 * and made once for a pod, since thousands of nodes may refuse it.
 */
final class RefusalReasons {
    /** In the order in which they are looked for: a node's reason is the first that leaves too few GPUs. */
    enum Reason {
        // What no other pod's leaving changes.
        WHOLE_CARDS_ONLY,
        TOO_FEW_GPUS,
        MODEL,
        GPU,
        TOO_SMALL,
        TOO_FEW_CORES,
        UNHEALTHY,
        CORDONED,
        NUMA_DOMAINS,
        // What it may change.
        NOT_WHOLLY_FREE,
        MEMORY,
        CORES,
        SLOTS,
        NUMA_ROOM,
        /** No reason at all; above all others. */
        NONE;

        boolean hopeless() {
            return compareTo(NOT_WHOLLY_FREE) < 0;
        }
    }

    private final ContainerGpuRequest container;
    private final boolean oneOfSeveral;
    private final Map<Reason, Refused> made = new ConcurrentHashMap<>();

    RefusalReasons(ContainerGpuRequest container, boolean oneOfSeveral) {
        this.container = container;
        this.oneOfSeveral = oneOfSeveral;
    }

    Refused of(Reason reason) {
        Refused refused = made.get(reason);
        return refused == null ? made.computeIfAbsent(reason, this::make) : refused;
    }

    private Refused make(Reason reason) {
        String whose = oneOfSeveral ? " for container " + container.name() : "";
        return new Refused(words(reason) + whose, reason.hopeless());
    }

    /** Without "%": kube-scheduler takes it for a format's when it makes an event of them (1.35, schedule_one.go). */
    private String words(Reason reason) {
        GpuRequest request = container.request();
        int vgpus = request.vgpus();
        String none = vgpus == 1 ? "no GPU" : "fewer than " + vgpus + " GPUs";
        String memory = words(request.memory());
        return switch (reason) {
            case WHOLE_CARDS_ONLY -> "gives whole cards only";
            case TOO_FEW_GPUS -> "asks for " + vgpus + (vgpus == 1 ? " vGPU" : " vGPUs") + ", the node has fewer GPUs";
            case MODEL -> none + " of a model that the pod takes";
            case GPU -> none + " with a UUID and an index that the pod takes";
            case TOO_SMALL -> none + " that large: " + memory;
            case TOO_FEW_CORES -> none + " with so much compute: " + request.cores() + " percent";
            case UNHEALTHY -> none + " healthy";
            case CORDONED -> none + " not cordoned";
            case NUMA_DOMAINS -> "no NUMA domain with " + vgpus + " such GPUs";
            case NOT_WHOLLY_FREE -> none + " wholly free";
            case MEMORY -> none + " with " + memory + " free";
            case CORES -> none + " with " + memory + " and " + request.cores() + " percent of its cores free";
            case SLOTS -> none + " with " + memory + " and a slot free";
            case NUMA_ROOM -> "no NUMA domain with " + vgpus + " such GPUs free";
            case NONE -> throw new IllegalArgumentException("nothing is in the way");
        };
    }

    private static String words(MemoryRequest memory) {
        if (memory instanceof MemoryRequest.Mebibytes mebibytes) {
            return mebibytes.amount() + " MiB";
        }
        if (memory instanceof MemoryRequest.Percentage percentage) {
            return percentage.percent() + " percent of its memory";
        }
        return "all its memory";
    }
}
