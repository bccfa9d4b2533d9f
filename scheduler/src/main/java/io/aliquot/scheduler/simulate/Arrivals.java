package io.aliquot.scheduler.simulate;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;

/** The order in which pods come. */
final class Arrivals {
    private Arrivals() {}

    /**
     * A workload's pods, and more of them drawn at random until the next one would ask for more GPU than there is to be
     * asked for; all in random order.
     *
     * @param demand GPU to be asked for, in thousandths
     */
    static List<Pod> drawn(Trace trace, List<Pod> workload, long demand, long seed) {
        var random = new Random(seed);
        List<Pod> arrivals = new ArrayList<>(workload);
        long total = workload.stream().mapToLong(trace::asked).sum();
        Pod next = workload.get(random.nextInt(workload.size()));
        while (total + trace.asked(next) <= demand) {
            total += trace.asked(next);
            arrivals.add(next);
            next = workload.get(random.nextInt(workload.size()));
        }
        Collections.shuffle(arrivals, random);
        return arrivals;
    }
}
