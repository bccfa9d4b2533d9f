package io.aliquot.scheduler.scoring.fragmentation;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.placement.FreeCapacity.Shape;
import io.aliquot.scheduler.scoring.fragmentation.CapacityForecast.Forecast;
import io.aliquot.scheduler.scoring.fragmentation.WorkloadSampler.Sample;
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
        for (long seed = 0; seed < 400; seed++) {
            var random = new Random(seed);
            Sample sample = sample(random);
            CapacityForecast forecast = forecast(sample);
            for (int i = 0; i < 5; i++) {
                FreeCapacity node = used(SHAPES.get(random.nextInt(SHAPES.size())), random);
                Forecast ofNode = forecast.of(node);

                assertThat(ofNode.slots)
                        .as("seed %d: slots in %s", seed, node)
                        .isEqualTo(Arrays.stream(sample.demands)
                                .mapToInt(node::slots)
                                .toArray());
                assertThat(ofNode.prospect())
                        .as("seed %d: prospect of %s", seed, node)
                        .isEqualTo(prospect(sample, node));
            }
        }
    }

    @Test
    void withoutPodsTheForecastIsZero() {
        Sample noPods = new WorkloadSampler(FUTURES, (int) (PODS_PER_GPU * MOST_GPUS)).sample();

        for (Shape shape : SHAPES) {
            assertThat(forecast(noPods).of(FreeCapacity.of(shape)).prospect()).isZero();
        }
    }

    @Test
    void aForecastIsComputedOnce() {
        CapacityForecast forecast = forecast(sample(new Random(1)));
        FreeCapacity node = FreeCapacity.of(SHAPES.get(1));

        assertThat(forecast.of(FreeCapacity.of(SHAPES.get(1)))).isSameAs(forecast.of(node));
    }

    private static CapacityForecast forecast(Sample sample) {
        return new CapacityForecast(sample, PODS_PER_GPU, MOST_GPUS);
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
                    sum += node.shape().takenBy(demand);
                }
            }
        }
        return (double) sum / sample.futures.length;
    }
}
