package io.aliquot.scheduler.simulate;

import java.util.List;

/**
 * What came of one replay, in percent of the cluster's GPU.
 *
 * @param atCapacity allocated when as much had been asked for as there is
 * @param atEnd allocated after the last pod
 * @param seconds that it took
 */
record Outcome(double atCapacity, double atEnd, double seconds) {
    /** Demand offered altogether, in percent of what there is. */
    static final int OFFERED = 130;

    /** Offers a workload's pods, and more like them, past what there is. */
    static Outcome of(Trace trace, List<Pod> workload, Contender contender, long seed) {
        long start = System.nanoTime();
        long capacity = trace.capacity();
        var replay = new Replay(trace.nodes(), contender, workload, seed);
        long asked = 0;
        double atCapacity = Double.NaN;
        for (Pod pod : Arrivals.drawn(trace, workload, capacity * OFFERED / 100, seed)) {
            replay.offer(pod);
            asked += trace.asked(pod);
            if (Double.isNaN(atCapacity) && asked >= capacity) {
                atCapacity = percent(replay.allocated(), capacity);
            }
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        return new Outcome(atCapacity, percent(replay.allocated(), capacity), seconds);
    }

    static Outcome mean(List<Outcome> outcomes) {
        return new Outcome(
                outcomes.stream().mapToDouble(Outcome::atCapacity).average().orElseThrow(),
                outcomes.stream().mapToDouble(Outcome::atEnd).average().orElseThrow(),
                outcomes.stream().mapToDouble(Outcome::seconds).average().orElseThrow());
    }

    private static double percent(long part, long whole) {
        return 100.0 * part / whole;
    }
}
