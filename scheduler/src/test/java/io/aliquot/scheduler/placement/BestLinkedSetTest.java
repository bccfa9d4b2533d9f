package io.aliquot.scheduler.placement;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.Arrays;
import java.util.Random;
import java.util.function.IntBinaryOperator;
import org.junit.jupiter.api.Test;

class BestLinkedSetTest {
    @Test
    void itIsTheBestOfAllSetsWhateverTheWorths() {
        for (int seed = 0; seed < 400; seed++) {
            var random = new Random(seed);
            int n = 1 + random.nextInt(10);
            int k = 1 + random.nextInt(n);
            int kinds = 1 + random.nextInt(20);
            long[] pairs = pairs(n, (i, j) -> random.nextInt(kinds));
            long[] alone = random.longs(n, -20, 20).toArray();

            int[] found = new BestLinkedSet(n, k, alone, pairs).find();

            assertThat(found)
                    .as("seed %d", seed)
                    .hasSize(k)
                    .doesNotHaveDuplicates()
                    .isSorted();
            assertThat(worth(found, n, alone, pairs)).as("seed %d", seed).isEqualTo(best(n, k, alone, pairs));
        }
    }

    @Test
    void outOfSixteenItIsStillTheBestAndTheWorkStaysWithinItsBound() {
        for (int seed = 0; seed < 12; seed++) {
            var random = new Random(seed);
            long[] pairs = pairs(16, (i, j) -> random.nextInt(100));
            for (int k : new int[] {2, 4, 8, 12}) {
                var search = new BestLinkedSet(16, k, new long[16], pairs);

                int[] found = search.find();

                assertThat(worth(found, 16, new long[16], pairs))
                        .as("seed %d, %d of 16", seed, k)
                        .isEqualTo(best(16, k, new long[16], pairs));
                // All sets of at most k members: no more branches can there be.
                assertThat(search.branches()).isLessThan(BestLinkedSet.BUDGET);
            }
        }
    }

    @Test
    void onMachinesAsTheyAreBuiltThereIsNextToNothingToSearch() {
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
    void manyMembersCostNoMoreThanTheBudget() {
        var random = new Random(1);
        for (int n : new int[] {32, 64, 128}) {
            var search = new BestLinkedSet(n, n / 2, new long[n], pairs(n, (i, j) -> random.nextInt(1000)));

            assertThat(search.find()).hasSize(n / 2).doesNotHaveDuplicates();
            assertThat(search.branches()).isLessThanOrEqualTo(BestLinkedSet.BUDGET);
        }
    }

    private static int branches(int k, IntBinaryOperator worth) {
        long[] pairs = pairs(16, worth);
        var search = new BestLinkedSet(16, k, new long[16], pairs);
        assertThat(worth(search.find(), 16, new long[16], pairs)).isEqualTo(best(16, k, new long[16], pairs));
        return search.branches();
    }

    private static long[] pairs(int n, IntBinaryOperator worth) {
        long[] pairs = new long[n * n];
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < i; j++) {
                pairs[i * n + j] = worth.applyAsInt(i, j);
                pairs[j * n + i] = pairs[i * n + j];
            }
        }
        return pairs;
    }

    private static long best(int n, int k, long[] alone, long[] pairs) {
        long best = Long.MIN_VALUE;
        for (int bits = 0; bits < 1 << n; bits++) {
            if (Integer.bitCount(bits) == k) {
                int members = bits;
                int[] set = new int[k];
                for (int at = 0; at < k; at++) {
                    set[at] = Integer.numberOfTrailingZeros(members);
                    members &= members - 1;
                }
                best = Math.max(best, worth(set, n, alone, pairs));
            }
        }
        return best;
    }

    private static long worth(int[] set, int n, long[] alone, long[] pairs) {
        long worth = Arrays.stream(set).mapToLong(member -> alone[member]).sum();
        for (int i = 0; i < set.length; i++) {
            for (int j = 0; j < i; j++) {
                worth += pairs[set[i] * n + set[j]];
            }
        }
        return worth;
    }
}
