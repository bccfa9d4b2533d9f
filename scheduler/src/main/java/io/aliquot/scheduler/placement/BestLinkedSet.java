package io.aliquot.scheduler.placement;

import java.util.Arrays;

/*
 * Finds the k of n members with the highest score: the sum of a score for each member and one for each pair. This is
 * the heaviest k-subgraph problem, hard in general and small here.
 *
 * A greedy pass from every member comes first. It already finds the best set where links form islands of one kind.
 *
 * Branch and bound over the members in ascending order follows. For a partial set S of score c with r members to add,
 * no completion scores more than c plus the r largest g(v) + h(v) among the remaining members. Here g(v) is what v adds
 * to S, and h(v) is half the sum of v's r-1 best pairs, because the sum counts each pair from both ends. The search
 * skips a branch whose bound is not above the best score so far.
 *
 * BUDGET limits the number of branches. There are fewer than 2^16 subsets of at most k out of 16 members, so up to 16
 * GPUs the result is always the best set, whatever the links. Beyond, it is the best set found within the budget, at
 * least as good as the greedy one.
 */
/** Finds the k of n GPUs with the best NVLink and PCIe links, by score. Not thread-safe; used for one search. */
final class BestLinkedSet {
    /** Branches of the search, at most. */
    static final int BUDGET = 1 << 16;
    /** With more members there is no branch and bound, and the greedy pass starts from the first 64 only. */
    static final int MAX_SEARCHED = 64;

    private final int n;
    private final int k;
    private final long[] memberScores;
    private final long[] pairScores;
    /** {@code bestPairs[member][count]}: sum of the member's {@code count} highest pair scores, count 0 to k-1. */
    private final long[][] bestPairs;

    private final int[] partial;
    private int[] best = new int[0];
    private long bestScore = Long.MIN_VALUE;
    private int branches;

    /**
     * Prepares a search.
     *
     * @param k 1 to n
     * @param memberScores score of each member
     * @param pairScores score of the pair of members i and j, at {@code i * n + j} and at {@code j * n + i}
     */
    BestLinkedSet(int n, int k, long[] memberScores, long[] pairScores) {
        this.n = n;
        this.k = k;
        this.memberScores = memberScores;
        this.pairScores = pairScores;
        this.partial = new int[k];
        this.bestPairs = new long[n][k];
    }

    /** The members of the best set, 0 to n-1, in ascending order. */
    int[] find() {
        for (int seed = 0; seed < Math.min(n, MAX_SEARCHED); seed++) {
            addGreedily(seed);
        }
        if (n <= MAX_SEARCHED) {
            for (int member = 0; member < n; member++) {
                long[] scores = new long[n - 1];
                for (int other = 0, at = 0; other < n; other++) {
                    if (other != member) {
                        scores[at++] = pairScores[member * n + other];
                    }
                }
                Arrays.sort(scores);
                for (int count = 1; count < k; count++) {
                    bestPairs[member][count] = bestPairs[member][count - 1] + scores[n - 1 - count];
                }
            }
            search(0, 0, 0, memberScores.clone());
        }
        return best;
    }

    /** Branches searched, to which the cost is proportional; 0 to {@link #BUDGET}. */
    int branches() {
        return branches;
    }

    private void addGreedily(int seed) {
        int[] set = new int[k];
        boolean[] inSet = new boolean[n];
        long[] gains = memberScores.clone();
        long score = 0;
        int next = seed;
        for (int size = 0; size < k; size++) {
            set[size] = next;
            inSet[next] = true;
            score += gains[next];
            int after = -1;
            for (int member = 0; member < n; member++) {
                gains[member] += pairScores[next * n + member];
                if (!inSet[member] && (after < 0 || gains[member] > gains[after])) {
                    after = member;
                }
            }
            next = after;
        }
        keepIfBetter(set, score);
    }

    private void keepIfBetter(int[] set, long score) {
        if (score > bestScore) {
            bestScore = score;
            best = set.clone();
            Arrays.sort(best);
        }
    }

    /**
     * Completes the partial set.
     *
     * @param size of the partial set
     * @param from lowest member that may be added
     * @param score of the partial set
     * @param gains what each member from {@code from} on would add to the score
     */
    private void search(int size, int from, long score, long[] gains) {
        if (size == k) {
            keepIfBetter(partial, score);
            return;
        }
        for (int member = from; member <= n - (k - size) && branches < BUDGET; member++) {
            if (2 * score + twiceBound(member, k - size, gains) <= 2 * bestScore) {
                return; // later members have lower bounds, because they leave fewer members to add
            }
            branches++;
            partial[size] = member;
            long[] after = gains.clone();
            for (int other = member + 1; other < n; other++) {
                after[other] += pairScores[member * n + other];
            }
            search(size + 1, member + 1, score + gains[member], after);
        }
    }

    /** Twice an upper bound of what {@code count} members from {@code from} on add; twice, to stay with integers. */
    private long twiceBound(int from, int count, long[] gains) {
        long[] highest = new long[count];
        Arrays.fill(highest, Long.MIN_VALUE / 4 / count);
        for (int member = from; member < n; member++) {
            long value = 2 * gains[member] + bestPairs[member][count - 1];
            int at = count - 1;
            if (value > highest[at]) {
                for (; at > 0 && highest[at - 1] < value; at--) {
                    highest[at] = highest[at - 1];
                }
                highest[at] = value;
            }
        }
        long sum = 0;
        for (long value : highest) {
            sum += value;
        }
        return sum;
    }
}
