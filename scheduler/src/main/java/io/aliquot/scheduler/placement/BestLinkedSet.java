package io.aliquot.scheduler.placement;

import java.util.Arrays;

/*
 * The best k of n: the set with the largest sum of what each member is worth by itself and what each pair is worth.
 * (The heaviest k-subgraph: hard in general, small here.)
 *
 * First greedily, from every member in turn; that is already the best where links come in islands of one kind. Then
 * branch and bound over the members in order. With the partial set S, r still to come and c its worth, no completion is
 * worth more than c plus the r largest g(v) + h(v) among those to come, where g(v) is what v adds to S, and h(v) half of
 * what v's r-1 best pairs are worth, since each pair is counted from both ends. A branch whose bound is not above the
 * best so far is left out.
 *
 * The work is bounded by BUDGET branches. Sets of at most k out of 16 are fewer than 2^16, so up to 16 GPUs the answer
 * is always the best, whatever the links; beyond, it is the best found by then and never worse than the greedy one.
 */
/** Finds the k of n members that are worth most together. */
final class BestLinkedSet {
    static final int BUDGET = 1 << 16;
    /** More members than this are not searched, only chosen greedily, and from the first so many. */
    static final int MOST = 64;

    private final int n;
    private final int k;
    private final long[] alone;
    private final long[] pairs;
    /** Of each member: the sum of its best 0, 1, … k-1 pairs. */
    private final long[][] bestPairs;

    private final int[] chosen;
    private int[] best = new int[0];
    private long bestWorth = Long.MIN_VALUE;
    private int branches;

    /**
     * A search.
     *
     * @param k 1 to n
     * @param alone worth of each member by itself
     * @param pairs worth of members i and j together at {@code i * n + j} and at {@code j * n + i}
     */
    BestLinkedSet(int n, int k, long[] alone, long[] pairs) {
        this.n = n;
        this.k = k;
        this.alone = alone;
        this.pairs = pairs;
        this.chosen = new int[k];
        this.bestPairs = new long[n][k];
    }

    /** The places of the chosen, in ascending order. */
    int[] find() {
        for (int seed = 0; seed < Math.min(n, MOST); seed++) {
            greedy(seed);
        }
        if (n <= MOST) {
            for (int member = 0; member < n; member++) {
                long[] own = new long[n - 1];
                for (int other = 0, at = 0; other < n; other++) {
                    if (other != member) {
                        own[at++] = pairs[member * n + other];
                    }
                }
                Arrays.sort(own);
                for (int count = 1; count < k; count++) {
                    bestPairs[member][count] = bestPairs[member][count - 1] + own[n - 1 - count];
                }
            }
            extend(0, 0, 0, alone.clone());
        }
        return best;
    }

    /** Branches looked at, which is what the work is proportional to. */
    int branches() {
        return branches;
    }

    private void greedy(int seed) {
        int[] set = new int[k];
        boolean[] in = new boolean[n];
        long[] gains = alone.clone();
        long worth = 0;
        int next = seed;
        for (int size = 0; size < k; size++) {
            set[size] = next;
            in[next] = true;
            worth += gains[next];
            int after = -1;
            for (int member = 0; member < n; member++) {
                gains[member] += pairs[next * n + member];
                if (!in[member] && (after < 0 || gains[member] > gains[after])) {
                    after = member;
                }
            }
            next = after;
        }
        keepIfBetter(set, worth);
    }

    private void keepIfBetter(int[] set, long worth) {
        if (worth > bestWorth) {
            bestWorth = worth;
            best = set.clone();
            Arrays.sort(best);
        }
    }

    private void extend(int size, int from, long worth, long[] gains) {
        if (size == k) {
            keepIfBetter(chosen, worth);
            return;
        }
        for (int member = from; member <= n - (k - size) && branches < BUDGET; member++) {
            if (2 * worth + bound(member, k - size, gains) <= 2 * bestWorth) {
                return; // nor will any later member do: there are fewer to choose from
            }
            branches++;
            chosen[size] = member;
            long[] after = gains.clone();
            for (int other = member + 1; other < n; other++) {
                after[other] += pairs[member * n + other];
            }
            extend(size + 1, member + 1, worth + gains[member], after);
        }
    }

    /** Twice what {@code count} members from {@code from} on can add at most. */
    private long bound(int from, int count, long[] gains) {
        long[] most = new long[count];
        Arrays.fill(most, Long.MIN_VALUE / 4 / count);
        for (int member = from; member < n; member++) {
            long value = 2 * gains[member] + bestPairs[member][count - 1];
            int at = count - 1;
            if (value > most[at]) {
                for (; at > 0 && most[at - 1] < value; at--) {
                    most[at] = most[at - 1];
                }
                most[at] = value;
            }
        }
        long sum = 0;
        for (long value : most) {
            sum += value;
        }
        return sum;
    }
}
