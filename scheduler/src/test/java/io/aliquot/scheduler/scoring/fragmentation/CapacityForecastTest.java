package io.aliquot.scheduler.scoring.fragmentation;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.placement.FreeCapacity.Shape;
import io.aliquot.scheduler.scoring.fragmentation.CapacityForecast.Evaluated;
import io.aliquot.scheduler.scoring.fragmentation.WorkloadSampler.Sample;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

class CapacityForecastTest {
    private static final int FUTURES = 8;
    private static final double PODS_PER_GPU = 5;
    private static final int MOST_GPUS = 4;
    private static final List<Shape> SHAPES = List.of(
            new Shape(16_000, 65_536, 1, 16_384, 100, 0),
            new Shape(48_000, 196_608, 4, 40_960, 100, 1),
            new Shape(96_000, 393_216, 8, 1_000, 0, 1));

    /** The definition: the node itself is asked, pod by pod. */
    @Test
    void aForecastEqualsPlacingThePodsOneByOne() {
        for (long seed = 0; seed < 200; seed++) {
            var random = new Random(seed);
            Sample sample = sample(random);
            CapacityForecast forecast = forecast(sample, 100);
            for (int i = 0; i < 5; i++) {
                FreeCapacity node = used(SHAPES.get(random.nextInt(SHAPES.size())), random);
                Evaluated judged = forecast.of(node);

                assertThat(judged.slots)
                        .as("seed %d: slots in %s", seed, node)
                        .isEqualTo(Arrays.stream(sample.demands)
                                .mapToInt(node::slots)
                                .toArray());
                assertThat(forecast.prospect(node, judged))
                        .as("seed %d: prospect of %s", seed, node)
                        .isEqualTo(prospect(sample, node));
                assertThat(judged.idle)
                        .as("seed %d: idle in %s", seed, node)
                        .isCloseTo(idle(sample, node), within(1e-6));
            }
        }
    }

    /** A demand of whole GPUs only, shares of several, none of memory or cores: all that the sums beforehand tell apart. */
    @Test
    void nodesThatHoldAllPodsAreRecognizedCorrectly() {
        int all = 0;
        int some = 0;
        for (long seed = 0; seed < 2_000; seed++) {
            var random = new Random(seed);
            Sample sample = modest(random);
            FreeCapacity node = used(SHAPES.get(random.nextInt(SHAPES.size())), random);
            double prospect = prospect(sample, node);

            CapacityForecast forecast = forecast(sample, 100);
            assertThat(forecast.prospect(node, forecast.of(node)))
                    .as("seed %d: prospect of %s", seed, node)
                    .isEqualTo(prospect);
            if (prospect == wanted(sample, node)) {
                all++;
            } else {
                some++;
            }
        }
        assertThat(all).as("nodes that hold all").isGreaterThan(500);
        assertThat(some).as("nodes that don't").isGreaterThan(500);
    }

    @Test
    void withoutPodsTheForecastIsZero() {
        Sample noPods = new WorkloadSampler(FUTURES, (int) (PODS_PER_GPU * MOST_GPUS)).sample();

        for (Shape shape : SHAPES) {
            CapacityForecast forecast = forecast(noPods, 100);
            Evaluated judged = forecast.of(FreeCapacity.of(shape));
            assertThat(forecast.prospect(FreeCapacity.of(shape), judged)).isZero();
            assertThat(judged.idle).isZero();
        }
    }

    @Test
    void theCacheIsLimitedAndDroppingEntriesChangesNoForecast() {
        var random = new Random(1);
        Sample sample = sample(random);
        CapacityForecast forecast = forecast(sample, 10);
        CapacityForecast remembering = forecast(sample, 10_000);
        List<FreeCapacity> nodes = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
            nodes.add(used(SHAPES.get(i % SHAPES.size()), random));
        }
        for (int i = 0; i < 1_000; i++) {
            FreeCapacity node = nodes.get(random.nextInt(nodes.size()));
            assertThat(forecast.prospect(node, forecast.of(node)))
                    .isEqualTo(remembering.prospect(node, remembering.of(node)));
            assertThat(forecast.cached()).isLessThanOrEqualTo(10);
        }
    }

    private static CapacityForecast forecast(Sample sample, int kept) {
        return new CapacityForecast(sample, PODS_PER_GPU, MOST_GPUS, kept);
    }

    private static Sample sample(Random random) {
        var mix = new WorkloadSampler(FUTURES, (int) (PODS_PER_GPU * MOST_GPUS));
        for (int i = 0; i < 30; i++) {
            mix.observe(demand(random, 1));
        }
        return mix.sample();
    }

    /** For a GPU at least; its parts are such that one fits on a GPU of each shape, or not. */
    private static DemandVector demand(Random random, int fewestGpus) {
        int cpu = random.nextInt(8) * 1_000;
        int memory = random.nextInt(8) * 4_096;
        int gpus = fewestGpus + (random.nextInt(3) == 0 ? random.nextInt(3) : 0);
        boolean whole = gpus > 0 && random.nextInt(3) == 0;
        int miB = whole ? 0 : random.nextInt(40) * 50;
        int cores = whole ? 0 : random.nextInt(4) == 0 ? 0 : random.nextInt(10) * 10;
        long models = random.nextInt(4) == 0 ? 1L << random.nextInt(2) : DemandVector.ANY;
        return new DemandVector(cpu, memory, gpus, whole, !whole && miB == 0 && cores == 0 ? 100 : miB, cores, models);
    }

    /** Of small demands, and few kinds. */
    private static Sample modest(Random random) {
        var mix = new WorkloadSampler(FUTURES, (int) (PODS_PER_GPU * MOST_GPUS));
        int most = 1 + random.nextInt(8);
        int kinds = 1 + random.nextInt(4);
        for (int i = 0; i < kinds; i++) {
            boolean whole = random.nextInt(8) == 0;
            int miB = whole ? 0 : random.nextInt(3) * most * 60;
            int cores = whole ? 0 : random.nextInt(3) * most;
            mix.observe(new DemandVector(
                    random.nextInt(2) * most * 100,
                    random.nextInt(2) * most * 400,
                    random.nextInt(6) == 0 ? 2 : 1,
                    whole,
                    !whole && miB == 0 && cores == 0 ? 1 : miB,
                    cores,
                    random.nextInt(6) == 0 ? 1 : DemandVector.ANY));
        }
        return mix.sample();
    }

    private static FreeCapacity used(Shape shape, Random random) {
        FreeCapacity node = FreeCapacity.of(shape);
        for (int i = random.nextInt(20); i > 0; i--) {
            DemandVector demand = demand(random, 0);
            node = node.fits(demand) ? node.with(demand, first(demand, node)) : node;
        }
        return node;
    }

    private static int first(DemandVector demand, FreeCapacity node) {
        int gpu = 0;
        while (demand.gpus() > 0 && !node.holds(gpu, demand)) {
            gpu++;
        }
        return gpu;
    }

    private static double prospect(Sample sample, FreeCapacity node) {
        long sum = 0;
        for (int[] future : sample.futures) {
            FreeCapacity left = node;
            int pods = (int) (PODS_PER_GPU * Math.min(node.gpus(), MOST_GPUS));
            for (int i = 0; i < pods; i++) {
                DemandVector demand = sample.demands[future[i]];
                if (left.fits(demand)) {
                    left = left.with(demand, first(demand, left));
                    sum += node.takenBy(demand);
                }
            }
        }
        return (double) sum / sample.futures.length;
    }

    /** What all get that fit on the node as it is, if none takes another's place. */
    private static double wanted(Sample sample, FreeCapacity node) {
        long sum = 0;
        for (int[] future : sample.futures) {
            for (int i = 0; i < (int) (PODS_PER_GPU * Math.min(node.gpus(), MOST_GPUS)); i++) {
                DemandVector demand = sample.demands[future[i]];
                sum += node.fits(demand) ? node.takenBy(demand) : 0;
            }
        }
        return (double) sum / sample.futures.length;
    }

    private static double idle(Sample sample, FreeCapacity node) {
        double sum = 0;
        for (int i = 0; i < sample.demands.length; i++) {
            DemandVector demand = sample.demands[i];
            int useless = node.free();
            for (int gpu = 0; node.fits(demand) && gpu < node.gpus(); gpu++) {
                useless -= node.holds(gpu, demand) ? node.part(gpu) : 0;
            }
            sum += sample.shares[i] * useless;
        }
        return sum;
    }
}
