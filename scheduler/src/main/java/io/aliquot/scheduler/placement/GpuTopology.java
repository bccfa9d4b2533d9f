package io.aliquot.scheduler.placement;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.Link;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/*
 * One NVLink scores 100; a PCIe path scores 10 (slowest) to 50 (fastest), so that any NVLink beats any PCIe path. These
 * are the proportions of NVIDIA's allocator (github.com/NVIDIA/go-gpuallocator, gpuallocator/besteffort_policy.go).
 */
/** How well the GPUs of a node are linked: a score for each pair, higher is better, 0 if unknown. Immutable. */
final class GpuTopology {
    /** The score of a GPU with itself, above that of any link: data on one GPU crosses none. */
    static final int SAME_GPU = 10_000;

    private static final int NVLINK_SCORE = 100;

    private final int gpus;
    /** The score of GPUs i and j at {@code i * gpus + j}; empty if no link is known. */
    private final int[] scores;

    /** Whether links come before the placement policy. */
    private final boolean first;

    private GpuTopology(int gpus, boolean first, int[] scores) {
        this.gpus = gpus;
        this.first = first;
        this.scores = scores;
    }

    static GpuTopology of(List<Gpu> gpus, boolean first) {
        if (gpus.stream().allMatch(gpu -> gpu.links().isEmpty())) {
            return new GpuTopology(gpus.size(), first, new int[0]);
        }
        Map<String, Integer> positions = new HashMap<>();
        gpus.forEach(gpu -> positions.put(gpu.uuid(), positions.size()));
        int[] scores = new int[gpus.size() * gpus.size()];
        for (int one = 0; one < gpus.size(); one++) {
            scores[one * gpus.size() + one] = SAME_GPU;
            for (Map.Entry<String, Link> link : gpus.get(one).links().entrySet()) {
                Integer other = positions.get(link.getKey());
                if (other != null && other != one) {
                    // If the two GPUs report different links, one of them saw a link that was down for a moment.
                    int best = Math.max(linkScore(link.getValue()), scores[one * gpus.size() + other]);
                    scores[one * gpus.size() + other] = best;
                    scores[other * gpus.size() + one] = best;
                }
            }
        }
        return new GpuTopology(gpus.size(), first, scores);
    }

    private static int linkScore(Link link) {
        return switch (link.kind()) {
            case NVLINK -> NVLINK_SCORE * link.lanes();
            case PIX -> 50;
            case PXB -> 40;
            case PHB -> 30;
            case NODE -> 20;
            case SYS -> 10;
        };
    }

    /** Whether at least one link is known. */
    boolean known() {
        return scores.length > 0;
    }

    /** Whether links are known and come before the placement policy for all pods of the node. */
    boolean first() {
        return first && known();
    }

    /** The score of two GPUs, by their positions in the inventory. */
    int linkScore(int one, int other) {
        return known() ? scores[one * gpus + other] : 0;
    }
}
