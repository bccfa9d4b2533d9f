package io.aliquot.scheduler.placement;

import io.aliquot.api.Gpu;
import io.aliquot.api.Link;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/*
 * A lane of NVLink is worth 100, and so more than any way over PCIe, which is worth 10 for the slowest to 50 for the
 * fastest: the proportions of NVIDIA's own allocator (github.com/NVIDIA/go-gpuallocator, gpuallocator/besteffort_policy.go).
 */
/** How well the GPUs of a node reach each other: a worth per pair, higher is better, 0 where nothing is known. */
final class GpuTopology {
    /** More than any link between two GPUs: what stays on one needs none. */
    static final int SAME_GPU = 10_000;

    private static final int LANE = 100;

    private final int gpus;
    private final int[] worth;

    private GpuTopology(int gpus, int[] worth) {
        this.gpus = gpus;
        this.worth = worth;
    }

    static GpuTopology of(List<Gpu> gpus) {
        if (gpus.stream().allMatch(gpu -> gpu.links().isEmpty())) {
            return new GpuTopology(gpus.size(), new int[0]);
        }
        Map<String, Integer> places = new HashMap<>();
        gpus.forEach(gpu -> places.put(gpu.uuid(), places.size()));
        int[] worth = new int[gpus.size() * gpus.size()];
        for (int one = 0; one < gpus.size(); one++) {
            worth[one * gpus.size() + one] = SAME_GPU;
            for (Map.Entry<String, Link> link : gpus.get(one).links().entrySet()) {
                Integer other = places.get(link.getKey());
                if (other != null && other != one) {
                    // Where the two ends tell differently one of them saw a link that was down for a moment.
                    int best = Math.max(linkScore(link.getValue()), worth[one * gpus.size() + other]);
                    worth[one * gpus.size() + other] = best;
                    worth[other * gpus.size() + one] = best;
                }
            }
        }
        return new GpuTopology(gpus.size(), worth);
    }

    private static int linkScore(Link link) {
        return switch (link.kind()) {
            case NVLINK -> LANE * link.lanes();
            case PIX -> 50;
            case PXB -> 40;
            case PHB -> 30;
            case NODE -> 20;
            case SYS -> 10;
        };
    }

    boolean known() {
        return worth.length > 0;
    }

    int linkScore(int one, int other) {
        return known() ? worth[one * gpus + other] : 0;
    }
}
