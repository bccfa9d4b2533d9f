package io.aliquot.scheduler.placement;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.Arrays;
import java.util.Random;
import java.util.function.IntBinaryOperator;
import org.junit.jupiter.api.Test;

class BestLinkedSetTest {
    @Test
    void findsTheBestOfAllSetsForRandomScores() {
        for (int seed = 0; seed < 400; seed++) {
            var random = new Random(seed);
            int n = 1 + random.nextInt(10);
            int k = 1 + random.nextInt(n);
            int kinds = 1 + random.nextInt(20);
            long[] pairScores = pairs(n, (i, j) -> random.nextInt(kinds));
            long[] memberScores = random.longs(n, -20, 20).toArray();

            int[] found = new BestLinkedSet(n, k, memberScores, pairScores).find();

            assertThat(found)
                    .as("seed %d", seed)
                    .hasSize(k)
                    .doesNotHaveDuplicates()
                    .isSorted();
            assertThat(score(found, n, memberScores, pairScores))
                    .as("seed %d", seed)
                    .isEqualTo(best(n, k, memberScores, pairScores));
        }
    }

    @Test
    void findsTheBestSetOfSixteenMembersWithinTheBudget() {
        for (int seed = 0; seed < 12; seed++) {
            var random = new Random(seed);
            long[] pairScores = pairs(16, (i, j) -> random.nextInt(100));
            for (int k : new int[] {2, 4, 8, 12}) {
                var search = new BestLinkedSet(16, k, new long[16], pairScores);

                int[] found = search.find();

                assertThat(score(found, 16, new long[16], pairScores))
                        .as("seed %d, %d of 16", seed, k)
                        .isEqualTo(best(16, k, new long[16], pairScores));
                // A branch is a set of at most k members, so this bounds their number.
                assertThat(search.branches()).isLessThan(BestLinkedSet.BUDGET);
            }
        }
    }

    @Test
    void searchesFewBranchesForLinksOfRealMachines() {
        IntBinaryOperator nvSwitch = (i, j) -> 1800;
        IntBinaryOperator twoIslands = (i, j) -> i / 8 == j / 8 ? 1800 : 10;
        IntBinaryOperator pairsOverBridges = (i, j) -> i / 2 == j / 2 ? 400 : i / 8 == j / 8 ? 20 : 10;
        // Hybrid cube mesh of eight V100 (NVIDIA DGX-1 with Tesla V100 System Architecture, figure 4), twice.
        int[][] mesh = {
            {0, 1, 1, 2, 2, 0, 0, 0}, {1, 0, 2, 1, 0, 2, 0, 0}, {1, 2, 0, 2, 0, 0, 1, 0}, {2, 1, 2, 0, 0, 0, 0, 1},
            {2, 0, 0, 0, 0, 1, 1, 2}, {0, 2, 0, 0, 1, 0, 2, 1}, {0, 0, 1, 0, 1, 2, 0, 2}, {0, 0, 0, 1, 2, 1, 2, 0}
        };
        IntBinaryOperator cubes = (i, j) -> i / 8 != j / 8 ? 10 : 10 + 100 * mesh[i % 8][j % 8];
        for (int k : new int[] {2, 4, 8}) {
            assertThat(branches(k, nvSwitch)).as("%d over a switch", k).isZero();
            assertThat(branches(k, twoIslands)).as("%d of two islands", k).isZero();
            assertThat(branches(k, pairsOverBridges)).as("%d of pairs", k).isLessThan(1000);
            assertThat(branches(k, cubes)).as("%d of cubes", k).isLessThan(1000);
        }
    }

    @Test
    void doesNotExceedTheBudgetWithManyMembers() {
        var random = new Random(1);
        for (int n : new int[] {32, 64, 128}) {
            var search = new BestLinkedSet(n, n / 2, new long[n], pairs(n, (i, j) -> random.nextInt(1000)));

            assertThat(search.find()).hasSize(n / 2).doesNotHaveDuplicates();
            assertThat(search.branches()).isLessThanOrEqualTo(BestLinkedSet.BUDGET);
        }
    }

    private static int branches(int k, IntBinaryOperator score) {
        long[] pairScores = pairs(16, score);
        var search = new BestLinkedSet(16, k, new long[16], pairScores);
        assertThat(score(search.find(), 16, new long[16], pairScores)).isEqualTo(best(16, k, new long[16], pairScores));
        return search.branches();
    }

    private static long[] pairs(int n, IntBinaryOperator score) {
        long[] pairScores = new long[n * n];
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < i; j++) {
                pairScores[i * n + j] = score.applyAsInt(i, j);
                pairScores[j * n + i] = pairScores[i * n + j];
            }
        }
        return pairScores;
    }

    private static long best(int n, int k, long[] memberScores, long[] pairScores) {
        long best = Long.MIN_VALUE;
        for (int bits = 0; bits < 1 << n; bits++) {
            if (Integer.bitCount(bits) == k) {
                int remaining = bits;
                int[] set = new int[k];
                for (int at = 0; at < k; at++) {
                    set[at] = Integer.numberOfTrailingZeros(remaining);
                    remaining &= remaining - 1;
                }
                best = Math.max(best, score(set, n, memberScores, pairScores));
            }
        }
        return best;
    }

    private static long score(int[] set, int n, long[] memberScores, long[] pairScores) {
        long score =
                Arrays.stream(set).mapToLong(member -> memberScores[member]).sum();
        for (int i = 0; i < set.length; i++) {
            for (int j = 0; j < i; j++) {
                score += pairScores[set[i] * n + set[j]];
            }
        }
        return score;
    }
}
