package io.aliquot.scheduler.placement;

import io.aliquot.api.pods.Numa;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.TreeSet;

/*
 * Selects k of the GPUs that hold a container by three criteria, in this order:
 *
 * - one NUMA domain, if the pod prefers or requires it: the best of the sets of each domain;
 * - the placement policy's rating of each GPU (PlacementPolicy.rateGpu);
 * - the links between the GPUs, among GPUs that the policy rates equal. On a node with empty GPUs those are many.
 *
 * Links come before the policy on a node whose sharing mode is TOPOLOGY, and for a pod that requests it. Links to GPUs
 * that other containers of the pod use count as well.
 */
/** Selects a container's GPUs among those that hold it. */
final class ContainerGpuSelector {
    private static final int[] NONE = new int[0];
    /** Weight of one unit of link score: more than the sum of the fullness of all GPUs of a set. */
    private static final long LINK_WEIGHT = 1L << 32;

    private final List<GpuInfo> gpus;
    /** The policy's rating of each GPU. */
    private final long[] ratings;
    /** The policy's rating of each GPU's fullness alone. */
    private final long[] fullnessRatings;

    private final boolean[] used;
    private final boolean anyUsed;
    private final boolean linksKnown;
    private final boolean linksFirst;

    /**
     * Prepares a selection.
     *
     * @param gpus every GPU of the node; at least one
     * @param fullness of each GPU with the pod's other containers, 0 to {@link GpuInfo#FULL}
     * @param used whether another container of the pod has a vGPU on the GPU
     * @param useLinks whether links between GPUs count
     * @param topology whether the pod requests that links come before the policy
     */
    ContainerGpuSelector(
            List<GpuInfo> gpus,
            int[] fullness,
            boolean[] used,
            PlacementPolicy policy,
            boolean useLinks,
            boolean topology) {
        this.gpus = gpus;
        this.used = used;
        this.ratings = new long[fullness.length];
        this.fullnessRatings = new long[fullness.length];
        for (int gpu = 0; gpu < fullness.length; gpu++) {
            ratings[gpu] = policy.rateGpu(fullness[gpu], gpus.get(gpu).capacity);
            fullnessRatings[gpu] = (long) policy.rateFullness(fullness[gpu]);
        }
        boolean any = false;
        for (boolean one : used) {
            any |= one;
        }
        this.anyUsed = any;
        GpuCapacity first = gpus.get(0).capacity;
        this.linksKnown = useLinks && first.linksKnown();
        this.linksFirst = linksKnown && (topology || first.linksFirst());
    }

    /**
     * Selects {@code k} of the candidates.
     *
     * @param candidates indexes of GPUs, in ascending order; at least {@code k}
     * @return indexes; empty if no NUMA domain has enough candidates and the pod requires one
     */
    int[] select(int[] candidates, int k, Optional<Numa> numa) {
        if (k > 1 && numa.isPresent()) {
            int[] best = NONE;
            for (int domain : knownDomains(candidates)) {
                int[] inDomain = Arrays.stream(candidates)
                        .filter(gpu -> gpus.get(gpu).capacity.gpu.numa() == domain)
                        .toArray();
                if (inDomain.length >= k) {
                    int[] set = select(inDomain, k);
                    if (best.length == 0 || isBetter(set, best)) {
                        best = set;
                    }
                }
            }
            if (best.length > 0 || numa.get() == Numa.REQUIRED) {
                return best;
            }
        }
        return select(candidates, k);
    }

    /** The candidates' NUMA domains without -1: two GPUs whose domains are unknown share none. */
    private Iterable<Integer> knownDomains(int[] candidates) {
        var domains = new TreeSet<Integer>();
        for (int gpu : candidates) {
            domains.add(gpus.get(gpu).capacity.gpu.numa());
        }
        domains.remove(-1);
        return domains;
    }

    private int[] select(int[] candidates, int k) {
        if (candidates.length == k) {
            return candidates;
        }
        boolean linksMatter = linksKnown && (k > 1 || anyUsed);
        if (linksFirst && linksMatter) {
            return bestLinked(candidates, NONE, k, true);
        }
        int[] sorted = sortedByPolicy(candidates);
        int[] set = Arrays.copyOf(sorted, k);
        long worst = ratings[sorted[k - 1]];
        if (linksMatter && ratings[sorted[k]] == worst) {
            // The policy rates sorted[from] to sorted[to - 1] equal; the links select among them.
            int from = k - 1;
            while (from > 0 && ratings[sorted[from - 1]] == worst) {
                from--;
            }
            int to = k + 1;
            while (to < sorted.length && ratings[sorted[to]] == worst) {
                to++;
            }
            int[] fixed = Arrays.copyOf(sorted, from);
            int[] rest = bestLinked(Arrays.copyOfRange(sorted, from, to), fixed, k - from, false);
            System.arraycopy(rest, 0, set, from, rest.length);
        }
        return set;
    }

    /** Highest rating first. A stable insertion sort: nodes have few GPUs, and a comparator of indexes would box them. */
    private int[] sortedByPolicy(int[] candidates) {
        int[] sorted = candidates.clone();
        for (int i = 1; i < sorted.length; i++) {
            int gpu = sorted[i];
            int at = i;
            for (; at > 0 && ratings[gpu] > ratings[sorted[at - 1]]; at--) {
                sorted[at] = sorted[at - 1];
            }
            sorted[at] = gpu;
        }
        return sorted;
    }

    /**
     * The {@code k} candidates with the highest sum of link scores: among themselves, to {@code fixed} and to the GPUs
     * that the pod's other containers use.
     *
     * @param fixed GPUs that the container gets in any case
     * @param breakTiesByPolicy whether the policy decides between sets of equal link scores
     */
    private int[] bestLinked(int[] candidates, int[] fixed, int k, boolean breakTiesByPolicy) {
        int n = candidates.length;
        long[] memberScores = new long[n];
        long[] pairScores = new long[n * n];
        for (int i = 0; i < n; i++) {
            GpuCapacity capacity = gpus.get(candidates[i]).capacity;
            for (int gpu : fixed) {
                memberScores[i] += LINK_WEIGHT * capacity.linkScoreTo(gpus.get(gpu).capacity);
            }
            memberScores[i] += LINK_WEIGHT * linkScoreToUsed(capacity);
            if (breakTiesByPolicy) {
                memberScores[i] += fullnessRatings[candidates[i]];
            }
            for (int j = 0; j < i; j++) {
                long score = LINK_WEIGHT * capacity.linkScoreTo(gpus.get(candidates[j]).capacity);
                pairScores[i * n + j] = score;
                pairScores[j * n + i] = score;
            }
        }
        int[] set = new BestLinkedSet(n, k, memberScores, pairScores).find();
        for (int i = 0; i < k; i++) {
            set[i] = candidates[set[i]];
        }
        return set;
    }

    /** Sum of the link scores from a GPU to those that the pod's other containers use. */
    private long linkScoreToUsed(GpuCapacity capacity) {
        long score = 0;
        for (int gpu = 0; gpu < used.length; gpu++) {
            if (used[gpu]) {
                score += capacity.linkScoreTo(gpus.get(gpu).capacity);
            }
        }
        return score;
    }

    /** Compares sets of two NUMA domains by the criteria that apply within one; the sets have equal sizes. */
    private boolean isBetter(int[] set, int[] other) {
        int byPolicy = Long.compare(policyScore(set), policyScore(other));
        int byLinks = Long.compare(linkScore(set), linkScore(other));
        int first = linksFirst ? byLinks : byPolicy;
        return first != 0 ? first > 0 : (linksFirst ? byPolicy : byLinks) > 0;
    }

    /** Rates a set under the policy, higher is better. A sum is enough because each set has its domain's best GPUs. */
    private long policyScore(int[] set) {
        long score = 0;
        for (int gpu : set) {
            score += ratings[gpu];
        }
        return score;
    }

    /** Sum of the link scores within a set and to the GPUs of the pod's other containers; 0 if links are unknown. */
    private long linkScore(int[] set) {
        long score = 0;
        for (int i = 0; i < set.length; i++) {
            GpuCapacity capacity = gpus.get(set[i]).capacity;
            score += linkScoreToUsed(capacity);
            for (int j = 0; j < i; j++) {
                score += capacity.linkScoreTo(gpus.get(set[j]).capacity);
            }
        }
        return score;
    }
}
