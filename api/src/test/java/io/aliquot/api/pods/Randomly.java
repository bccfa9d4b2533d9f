package io.aliquot.api.pods;

import io.aliquot.api.nodes.Gpu;
import java.util.List;
import java.util.Random;
import java.util.UUID;
import java.util.function.Consumer;

/** Seeded random examples. A failure prints the seed, and {@code -Daliquot.seed=…} repeats it. */
public final class Randomly {
    private Randomly() {}

    public static void times(int times, Consumer<Random> check) {
        long first = Long.getLong("aliquot.seed", System.nanoTime());
        for (int i = 0; i < times; i++) {
            long seed = first + i;
            try {
                check.accept(new Random(seed));
            } catch (RuntimeException | AssertionError e) {
                throw new AssertionError("with -Daliquot.seed=" + seed, e);
            }
        }
    }

    public static String gpuUuid(Random random) {
        return "GPU-" + new UUID(random.nextLong(), random.nextLong());
    }

    public static Vgpu vgpu(Random random) {
        return new Vgpu(
                gpuUuid(random),
                1 + random.nextInt(Gpu.LARGEST_MIB),
                random.nextInt(101),
                List.of(CorePolicy.values()).get(random.nextInt(3)),
                List.of(Priority.values()).get(random.nextInt(3)),
                random.nextInt(Gpu.LARGEST_MIB + 1),
                random.nextBoolean());
    }
}
