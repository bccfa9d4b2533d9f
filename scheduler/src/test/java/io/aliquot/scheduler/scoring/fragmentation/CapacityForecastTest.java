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

    /** The definition: the room itself is asked, pod by pod. */
    @Test
    void whatIsSaidOfARoomIsWhatPuttingThePodsThereOneByOneGives() {
        for (long seed = 0; seed < 200; seed++) {
            var random = new Random(seed);
            Sample sample = sample(random);
            CapacityForecast forecast = forecast(sample, 100);
            for (int i = 0; i < 5; i++) {
                FreeCapacity room = used(SHAPES.get(random.nextInt(SHAPES.size())), random);
                Evaluated judged = forecast.of(room);

                assertThat(judged.slots)
                        .as("seed %d: slots in %s", seed, room)
                        .isEqualTo(Arrays.stream(sample.demands)
                                .mapToInt(room::slots)
                                .toArray());
                assertThat(forecast.prospect(room, judged))
                        .as("seed %d: prospect of %s", seed, room)
                        .isEqualTo(prospect(sample, room));
                assertThat(judged.idle)
                        .as("seed %d: idle in %s", seed, room)
                        .isCloseTo(idle(sample, room), within(1e-6));
            }
        }
    }

    /** A demand of whole GPUs only, shares of several, none of memory or cores: all that the sums beforehand tell apart. */
    @Test
    void roomsThatHoldAllThatComesAreNotTakenForOthers() {
        int all = 0;
        int some = 0;
        for (long seed = 0; seed < 2_000; seed++) {
            var random = new Random(seed);
            Sample sample = modest(random);
            FreeCapacity room = used(SHAPES.get(random.nextInt(SHAPES.size())), random);
            double prospect = prospect(sample, room);

            CapacityForecast forecast = forecast(sample, 100);
            assertThat(forecast.prospect(room, forecast.of(room)))
                    .as("seed %d: prospect of %s", seed, room)
                    .isEqualTo(prospect);
            if (prospect == wanted(sample, room)) {
                all++;
            } else {
                some++;
            }
        }
        assertThat(all).as("rooms that hold all").isGreaterThan(500);
        assertThat(some).as("rooms that don't").isGreaterThan(500);
    }

    @Test
    void whereNobodyHasComeYetNothingIsToBeExpected() {
        Sample nobody = new WorkloadSampler(FUTURES, (int) (PODS_PER_GPU * MOST_GPUS)).sample();

        for (Shape shape : SHAPES) {
            CapacityForecast forecast = forecast(nobody, 100);
            Evaluated judged = forecast.of(FreeCapacity.of(shape));
            assertThat(forecast.prospect(FreeCapacity.of(shape), judged)).isZero();
            assertThat(judged.idle).isZero();
        }
    }

    @Test
    void onlySoManyRoomsAreRememberedAndForgettingChangesNothing() {
        var random = new Random(1);
        Sample sample = sample(random);
        CapacityForecast forecast = forecast(sample, 10);
        CapacityForecast remembering = forecast(sample, 10_000);
        List<FreeCapacity> rooms = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
            rooms.add(used(SHAPES.get(i % SHAPES.size()), random));
        }
        for (int i = 0; i < 1_000; i++) {
            FreeCapacity room = rooms.get(random.nextInt(rooms.size()));
            assertThat(forecast.prospect(room, forecast.of(room)))
                    .isEqualTo(remembering.prospect(room, remembering.of(room)));
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
        FreeCapacity room = FreeCapacity.of(shape);
        for (int i = random.nextInt(20); i > 0; i--) {
            DemandVector demand = demand(random, 0);
            room = room.fits(demand) ? room.with(demand, first(demand, room)) : room;
        }
        return room;
    }

    private static int first(DemandVector demand, FreeCapacity room) {
        int gpu = 0;
        while (demand.gpus() > 0 && !room.holds(gpu, demand)) {
            gpu++;
        }
        return gpu;
    }

    private static double prospect(Sample sample, FreeCapacity room) {
        long sum = 0;
        for (int[] future : sample.futures) {
            FreeCapacity left = room;
            int pods = (int) (PODS_PER_GPU * Math.min(room.gpus(), MOST_GPUS));
            for (int i = 0; i < pods; i++) {
                DemandVector demand = sample.demands[future[i]];
                if (left.fits(demand)) {
                    left = left.with(demand, first(demand, left));
                    sum += room.takenBy(demand);
                }
            }
        }
        return (double) sum / sample.futures.length;
    }

    /** What all get that fit on the room as it is, if none takes another's place. */
    private static double wanted(Sample sample, FreeCapacity room) {
        long sum = 0;
        for (int[] future : sample.futures) {
            for (int i = 0; i < (int) (PODS_PER_GPU * Math.min(room.gpus(), MOST_GPUS)); i++) {
                DemandVector demand = sample.demands[future[i]];
                sum += room.fits(demand) ? room.takenBy(demand) : 0;
            }
        }
        return (double) sum / sample.futures.length;
    }

    private static double idle(Sample sample, FreeCapacity room) {
        double sum = 0;
        for (int i = 0; i < sample.demands.length; i++) {
            DemandVector demand = sample.demands[i];
            int useless = room.free();
            for (int gpu = 0; room.fits(demand) && gpu < room.gpus(); gpu++) {
                useless -= room.holds(gpu, demand) ? room.part(gpu) : 0;
            }
            sum += sample.shares[i] * useless;
        }
        return sum;
    }
}
